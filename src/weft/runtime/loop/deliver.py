"""How a batch's results come to a sink: as the parts that tasks wrote, as their number, in order, or as they are.

Guarantees: a query that failed in a batch has no results in it, and its sink is told of the batch all the same. Ordered
results pass through the driver, which merges them; a sink that only counts gets them at once, since it has no order.
"""

from __future__ import annotations

from weft.runtime.loop.ordered_output import Gathered
from weft.runtime.loop.query_sinks import Output
from weft.runtime.loop.task_reports import Answered

__all__ = ["deliver"]


def deliver(
    output: Output, query: str, number: int, answers: Answered, ordered: Gathered | None = None
) -> None:
    """Commit the results that a query has in a batch; ``ordered`` are those of a query with an order."""
    failed = query in answers.failed
    if output.counting is not None:
        output.counting.commit_count(number, answers.rows(query))
    elif ordered is not None:
        _deliver_ordered(output, number, ordered.without_rows() if failed else ordered)
    elif output.parts is not None:
        output.parts.commit_parts(number, [] if failed else answers.parts.get(query, []))
    else:
        output.sink.commit(number, answers.results(query))


def _deliver_ordered(output: Output, number: int, ordered: Gathered) -> None:
    """A sink that keeps punctuations gets all of them; any other finds some in the metadata of the table's schema."""
    if output.ordered is not None:
        output.ordered.commit_ordered(number, ordered.table, ordered.punctuations)
    else:
        output.sink.commit(number, ordered.punctuations.on(ordered.table))
