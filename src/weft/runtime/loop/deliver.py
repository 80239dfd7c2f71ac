"""How the results of a batch are committed to a sink.

Guarantees: a sink gets the number of results if it only counts, else ordered results if the query has an order, else
the names of the parts that tasks wrote if it can take parts, else the results themselves. The sink of a query that
failed in the batch gets an empty batch.
"""

from __future__ import annotations

from weft.runtime.loop.ordered_output import Gathered
from weft.runtime.loop.query_sinks import Output
from weft.runtime.loop.task_reports import Answered
from weft.storage.storage import Storage

__all__ = ["deliver"]


def deliver(
    output: Output,
    query: str,
    number: int,
    answers: Answered,
    storage: Storage,
    ordered: Gathered | None = None,
) -> None:
    """Commit the results of a query in a batch to its sink; ``ordered`` are those of a query with an order.

    Results that no task has written to the sink are in messages, or in files of the storage.
    """
    failed = query in answers.failed
    if output.counting is not None:
        output.counting.commit_count(number, answers.rows(query))
    elif ordered is not None:
        _deliver_ordered(output, number, ordered, storage)
    elif output.parts is not None:
        output.parts.commit_parts(number, [] if failed else answers.parts.get(query, []))
    else:
        output.sink.commit(number, answers.results(query, storage))


def _deliver_ordered(output: Output, number: int, ordered: Gathered, storage: Storage) -> None:
    """Commit ordered results; a sink that takes no punctuations finds some in the metadata of the table's schema."""
    if output.in_order is not None and ordered.parts is not None:
        output.in_order.commit_parts(number, ordered.parts)
    elif output.ordered is not None:
        output.ordered.commit_ordered(number, ordered.table(storage), ordered.punctuations)
    else:
        output.sink.commit(number, ordered.punctuations.on(ordered.table(storage)))
