"""The delivery of results: those of a batch are committed to their sinks, and kept while a sink cannot take them.

Guarantees: a sink gets the number of results if it only counts, else ordered results if the query has an order or is
sorted, else the names of the parts that tasks wrote if it can take parts, else the results themselves. The sink of a
query that failed in the batch gets an empty batch. Sinks whose parts tasks have written are committed at the same time.
A sink that fails suspends its query and no other: its results are kept in files that the manifest names, and given in
the same way when the sink works again (`weft.runtime.output.suspended`). Results that only the failing sink has are
computed again first. A sink that refuses results because there are too many ends its query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from weft.errors import ResultLimitError, SinkError
from weft.kernels.expr.arrow import result_schema
from weft.logical.query.query import Query
from weft.ports.punctuation import Punctuations
from weft.ports.sink import RememberingSink, Sink, hurried
from weft.runtime.log.values import KeptBatch, Manifest
from weft.runtime.output.batch_results import BatchResults
from weft.runtime.output.ordered_results import OrderedResults
from weft.runtime.output.query_sinks import QueryOutput, QuerySinks
from weft.runtime.output.sink_errors import name_of, sink_error
from weft.runtime.output.sorted_results import SortedQuery, UnsortedRows
from weft.runtime.output.suspended import KeptResults, Suspensions, read_kept
from weft.storage.storage import Storage

__all__ = ["BatchOutput", "ComputeAgain", "Delivery", "deliver", "deliver_kept", "results_to_keep"]

_LOG = logging.getLogger("weft")

SINKS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """What a batch gives to sinks: its results, those of ordered queries in their order, and the sinks by query.

    ``ended`` are the queries whose input has ended.
    """

    number: int
    results: BatchResults
    ordered: Mapping[str, OrderedResults]
    outputs: Mapping[str, QueryOutput]
    ended: Collection[str] = ()

    def is_in_parts(self, query: str) -> bool:
        """Whether tasks have written the results of a query to its sink."""
        ordered = self.ordered.get(query)
        return self.outputs[query].parts is not None if ordered is None else ordered.parts is not None

    def has_rows(self, query: str) -> bool:
        """Whether there are results of a query."""
        ordered = self.ordered.get(query)
        return bool(self.results.rows(query) if ordered is None else ordered.rows)


# Gives the results of some queries in a batch once more, all of them with the driver.
ComputeAgain = Callable[[Iterable[str]], BatchOutput]


@dataclass
class Delivery:
    """Gives results to the sinks of all queries, batch by batch.

    ``clock`` is in microseconds since 1970; by it the latencies of results are measured. ``suspended`` are the queries
    whose sinks fail, ``given`` is as in `Manifest`, and ``stopped`` says of which queries the sinks take nothing again,
    and why. ``has_resumed`` says whether a query goes on which no manifest says yet. It is used by the thread that
    commits batches, and by that of the loop while none is committed.
    """

    storage: Storage
    clock: Callable[[], int] = lambda: time.time_ns() // 1000
    sinks: QuerySinks = field(default_factory=QuerySinks, init=False)
    suspended: Suspensions = field(init=False)
    unsorted: UnsortedRows = field(init=False)
    given: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    has_resumed: bool = field(default=False, init=False)
    stopped: dict[str, str] = field(default_factory=dict, init=False)
    _unopened: dict[str, tuple[Query, str, int]] = field(
        default_factory=dict, init=False
    )  # as `open_later` took it
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.suspended, self.unsorted = Suspensions(self.storage), UnsortedRows(self.storage)

    def resume(self, before: Manifest) -> None:
        """Go on where the manifest of the last committed batch says."""
        self.suspended.resume(before.suspended)
        self.unsorted.resume(before.unsorted)
        self.given = {name: (place, last) for name, (place, last) in before.given.items()}

    def open_sink(self, name: str, sink: Sink, query: Query, identity: str, last: int) -> None:
        """Open the sink of a query, which may have results up to the batch ``last``; ``identity`` is the log's."""
        try:
            sink.open(result_schema(query), identity)
            sink.recover(last)
            self._check_complete(name, sink)
        except Exception as error:
            raise sink_error(name, sink, error) from error
        self.sinks.add(name, sink, SortedQuery.of(query))

    def open_later(self, name: str, sink: Sink, query: Query, identity: str, last: int) -> None:
        """Open the sink of a suspended query when it is next tried, since it may fail now as it did before."""
        self.sinks.add(name, sink, SortedQuery.of(query))
        self._unopened[name] = query, identity, last

    def _check_complete(self, query: str, sink: Sink) -> None:
        """Refuse a sink that has lost results: the last batch that it was given, or all that were there."""
        place, last = self.given.get(query, ("", -1))
        if isinstance(sink, RememberingSink) and place == name_of(sink) and sink.last_batch() < last:
            raise SinkError(
                f"{place} has lost results of query {query}: batch {last}, which it was given, is not there",
                hint="put it back as it was; to go on without what is lost, let the query write to another place",
            )

    def commit(
        self, batch: BatchOutput, compute_again: ComputeAgain
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Commit the results of a batch; return when those of each query were, and which queries end, and why.

        The results of queries whose sinks fail are kept, and the queries suspended.
        """
        committed: dict[str, int] = {}
        batch = self._with_sorted(batch)
        refused = {**self._give_all(batch, committed), **batch.results.refused}
        final = {name: error for name, error in refused.items() if isinstance(error, ResultLimitError)}
        self._keep(
            batch, {name: error for name, error in refused.items() if name not in final}, compute_again
        )
        for name in committed:
            if batch.has_rows(name):
                self.given[name] = name_of(batch.outputs[name].sink), batch.number
        ends = {name: f"{type(error).__name__}: {error.message}" for name, error in final.items()}
        self.stopped |= ends
        return committed, ends

    def noted_in(self, manifest: Manifest, outputs: Collection[str]) -> Manifest:
        """The manifest of a batch, for the sinks of some queries, with what was given, is kept, and is not taken."""
        given = {name: list(self.given[name]) for name in self.given if name in outputs}
        unsorted = {name: kept for name, kept in self.unsorted.values().items() if name in outputs}
        manifest = replace(manifest, suspended=self.suspended.values(), unsorted=unsorted, given=given)
        failed = {name: why for name, why in self.stopped.items() if name in outputs}
        if not failed:
            return manifest
        results = {name: rows for name, rows in manifest.results.items() if name not in failed}
        return replace(manifest, failed={**manifest.failed, **failed}, results=results)

    def _with_sorted(self, batch: BatchOutput) -> BatchOutput:
        """The batch with the results of queries that are sorted: all of them if the input has ended, else none."""
        ordered, results = dict(batch.ordered), batch.results
        for name, output in batch.outputs.items():
            if (query := output.sorted) is None:
                continue
            found = KeptResults(results.rows(name), results.results(name, self.storage))
            rows = query.schema.empty_table()
            if name in results.failed:
                self.unsorted.forget(name)
            elif name in batch.ended:
                rows = self.unsorted.sorted(name, query, found)
                self.unsorted.forget(name)
            else:
                self.unsorted.keep(name, query, batch.number, found)
            batches = tuple(rows.to_batches())
            none = Punctuations.none()
            ordered[name] = OrderedResults(query.schema, none, rows.num_rows, batches=batches)
        return replace(batch, ordered=ordered)

    def _give_all(self, batch: BatchOutput, committed: dict[str, int]) -> dict[str, SinkError]:
        """Give the results to their sinks and note when; returns the errors of those that cannot take them."""
        refused: dict[str, SinkError] = {}
        at_once = self._begin_at_once(batch)
        for name, output in batch.outputs.items():
            if not self._may_take(batch, name):
                continue
            try:
                committed[name] = at_once[name].result() if name in at_once else self._give(batch, name)
            except Exception as error:  # whatever a sink raises, only its query is concerned
                refused[name] = sink_error(name, output.sink, error)
        return refused

    def _may_take(self, batch: BatchOutput, name: str) -> bool:
        """Whether the sink of a query is to be given what the batch has for it; else earlier results come first."""
        refused = batch.results.refused
        return name not in self.suspended and name not in refused and name not in self.stopped

    def _give(self, batch: BatchOutput, name: str) -> int:
        """Give the results of a query to its sink, and return when that was done."""
        ordered = batch.ordered.get(name)
        deliver(batch.outputs[name], name, batch.number, batch.results, self.storage, ordered)
        return self.clock()

    def _begin_at_once(self, batch: BatchOutput) -> dict[str, Future[int]]:
        """Begin to commit to all sinks at once whose parts tasks have written; there are none if there is but one.

        Other sinks may call users' code, which does not expect to be called in several threads.
        """
        wanted = [name for name in batch.outputs if batch.is_in_parts(name) and self._may_take(batch, name)]
        if len(wanted) < 2:
            return {}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SINKS_AT_ONCE, "weft-sinks")
        return {name: self._pool.submit(self._give, batch, name) for name in wanted}

    def _keep(
        self, batch: BatchOutput, refused: Mapping[str, SinkError], compute_again: ComputeAgain
    ) -> None:
        """Suspend the queries whose sinks failed, and keep the results of all that are suspended."""
        for name, error in refused.items():
            if name not in self.suspended:
                _LOG.warning(
                    "query %s is suspended at batch %d, and its results are kept: %s",
                    *(name, batch.number, error.message),
                )
            self.suspended.suspend(name, batch.number, error)
        for name in [name for name in self.suspended.values() if name not in batch.outputs]:
            self.forget(name)  # it has been stopped
        waiting = list(self.suspended.values())
        lost = [name for name in waiting if batch.is_in_parts(name) and batch.has_rows(name)]
        again = compute_again(lost) if lost else batch
        for name in waiting:
            source = again if name in lost else batch
            if name in source.results.failed:
                continue
            ordered = source.ordered.get(name)
            kept = results_to_keep(source.outputs[name], name, source.results, self.storage, ordered)
            self.suspended.keep(name, batch.number, kept)

    def give_kept(self, *, at_once: bool = False) -> None:
        """Give suspended queries' results to the sinks that are due, or to all; only while no batch is committed.

        A query all of whose results are in its sink goes on as before, with the next batch.
        """
        for name in self.suspended.due(at_once=at_once):
            try:
                with hurried():
                    self._open_late(name)
                output = self.sinks.output(name)
                while (kept := self.suspended.next_batch(name)) is not None:
                    with hurried():
                        deliver_kept(output, kept, self.storage)
                    self.suspended.given(name)
                    if kept.rows:
                        self.given[name] = name_of(output.sink), kept.number
                    self.has_resumed = True
            except Exception as error:  # whatever a sink raises, only its query is concerned
                self.suspended.failed_again(name, sink_error(name, self.sinks[name], error))
                continue
            self.suspended.end(name)
            self.has_resumed = True
            _LOG.warning("query %s goes on: its sink has taken all that waited for it", name)

    def _open_late(self, name: str) -> None:
        """Open the sink of a query that was suspended when the run began, unless that was done since."""
        if name in self._unopened:
            query, identity, last = self._unopened[name]
            self.open_sink(name, self.sinks[name], query, identity, last)
            del self._unopened[name]

    def forget(self, name: str) -> None:
        """Drop what waits for the sink of a query, which is to run no longer, or another of its name is to begin."""
        self.given.pop(name, None)
        self.unsorted.forget(name)
        self._unopened.pop(name, None)
        suspension = self.suspended.end(name)
        if suspension is not None and suspension.rows:
            _LOG.warning(
                "query %s was stopped while it was suspended: %d results are dropped", name, suspension.rows
            )
        self.stopped.pop(name, None)

    def close(self) -> None:
        """End the threads, after the commits that they are at."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def deliver(
    output: QueryOutput,
    query: str,
    number: int,
    results: BatchResults,
    storage: Storage,
    ordered: OrderedResults | None = None,
) -> None:
    """Commit the results of a query in a batch to its sink; ``ordered`` are those of a query with an order.

    Results that no task has written to the sink are in messages, or in files of the storage.
    """
    if output.handed_over:
        output.sink.begin(number)
    if output.counting is not None:
        output.counting.commit_count(number, results.rows(query))
    elif ordered is not None and ordered.parts is not None and output.in_order is not None:
        output.in_order.commit_parts(number, ordered.parts)
    elif ordered is not None:
        _deliver_ordered(output, number, ordered.table(storage), ordered.punctuations)
    elif output.parts is not None:
        output.parts.commit_parts(number, [] if query in results.failed else results.parts.get(query, []))
    else:
        output.sink.commit(number, results.results(query, storage))


def _deliver_ordered(output: QueryOutput, number: int, rows: pa.Table, punctuations: Punctuations) -> None:
    """Commit ordered results; a sink that takes no punctuations finds some in the metadata of the table's schema."""
    if output.ordered is not None:
        output.ordered.commit_ordered(number, rows, punctuations)
    else:
        output.sink.commit(number, punctuations.on(rows))


def results_to_keep(
    output: QueryOutput, query: str, results: BatchResults, storage: Storage, ordered: OrderedResults | None
) -> KeptResults:
    """What a query gave in a batch, all of which is with the driver, to be kept until its sink can take it."""
    if output.counting is not None:
        return KeptResults(results.rows(query))
    if ordered is not None:
        batches = ordered.table(storage).to_batches()
        return KeptResults(ordered.rows, batches, ordered.punctuations, ordered.schema)
    return KeptResults(results.rows(query), results.results(query, storage))


def deliver_kept(output: QueryOutput, kept: KeptBatch, storage: Storage) -> None:
    """Commit what was kept of a query to its sink, under the number that it was kept for."""
    results = read_kept(storage, kept)
    output.sink.begin(kept.number)
    if output.counting is not None:
        output.counting.commit_count(kept.number, results.rows)
    elif results.punctuations is not None:
        _deliver_ordered(output, kept.number, results.table(), results.punctuations)
    else:
        output.sink.commit(kept.number, list(results.batches))
