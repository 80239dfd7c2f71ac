"""How the results of a batch are committed to a sink.

Guarantees: a sink gets the number of results if it only counts, else ordered results if the query has an order, else
the names of the parts that tasks wrote if it can take parts, else the results themselves. The sink of a query that
failed in the batch gets an empty batch. What was kept for a suspended query is given in the same way, later.
"""

from __future__ import annotations

import pyarrow as pa

from weft.ports.punctuation import Punctuations
from weft.runtime.log.values import KeptBatch
from weft.runtime.loop.batch.task_reports import Answered
from weft.runtime.output.ordered_output import Gathered
from weft.runtime.output.query_sinks import Output
from weft.runtime.output.suspended import KeptResults, read_kept
from weft.storage.storage import Storage

__all__ = ["deliver", "deliver_kept", "results_to_keep"]


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
    if output.handed_over:
        output.sink.begin(number)
    if output.counting is not None:
        output.counting.commit_count(number, answers.rows(query))
    elif ordered is not None and ordered.parts is not None and output.in_order is not None:
        output.in_order.commit_parts(number, ordered.parts)
    elif ordered is not None:
        _deliver_ordered(output, number, ordered.table(storage), ordered.punctuations)
    elif output.parts is not None:
        output.parts.commit_parts(number, [] if query in answers.failed else answers.parts.get(query, []))
    else:
        output.sink.commit(number, answers.results(query, storage))


def _deliver_ordered(output: Output, number: int, rows: pa.Table, punctuations: Punctuations) -> None:
    """Commit ordered results; a sink that takes no punctuations finds some in the metadata of the table's schema."""
    if output.ordered is not None:
        output.ordered.commit_ordered(number, rows, punctuations)
    else:
        output.sink.commit(number, punctuations.on(rows))


def results_to_keep(
    output: Output, query: str, answers: Answered, storage: Storage, ordered: Gathered | None
) -> KeptResults:
    """What a query gave in a batch, all of which is with the driver, to be kept until its sink can take it."""
    if output.counting is not None:
        return KeptResults(answers.rows(query))
    if ordered is not None:
        batches = ordered.table(storage).to_batches()
        return KeptResults(ordered.rows, batches, ordered.punctuations, ordered.schema)
    return KeptResults(answers.rows(query), answers.results(query, storage))


def deliver_kept(output: Output, kept: KeptBatch, storage: Storage) -> None:
    """Commit what was kept of a query to its sink, under the number that it was kept for."""
    found = read_kept(storage, kept)
    output.sink.begin(kept.number)
    if output.counting is not None:
        output.counting.commit_count(kept.number, found.rows)
    elif found.punctuations is not None:
        _deliver_ordered(output, kept.number, found.table(), found.punctuations)
    else:
        output.sink.commit(kept.number, list(found.batches))
