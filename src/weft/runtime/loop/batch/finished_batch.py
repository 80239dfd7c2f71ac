"""The end of a batch: its manifest, metrics and ordered results, from what its tasks reported.

Guarantees: but for the time that it took, what a batch leaves is a function of its plan, of what it began with and of
what its tasks reported, so a batch that is repeated leaves the same. The manifest names only files that tasks reported,
so files that a lost attempt wrote are not part of the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any

from weft.logical.codec import decode, encode
from weft.runtime.log.totals import QueryTotals, Totals
from weft.runtime.log.values import Manifest
from weft.runtime.loop.batch.executed_batch import ExecutedBatch, StreamProgress
from weft.runtime.loop.batch.migrated_manifest import next_partitions, next_stores
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.loop.config import SetAside
from weft.runtime.loop.driver_order import next_rows_per_byte
from weft.runtime.model.batch_order import ENDED, BatchOrder
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.observe.metrics import (
    Backlog,
    BatchMetrics,
    StoreMetrics,
    next_keys,
    sum_conditions,
    sum_functions,
)
from weft.runtime.observe.table_progress import table_states
from weft.runtime.output.delivery import BatchOutput
from weft.runtime.output.ordered_results import OrderedResults
from weft.runtime.output.query_sinks import QueryOutput
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import Samples
from weft.runtime.state.expiry import forgettable
from weft.runtime.state.partition_manifest import StoreTotals
from weft.stats.input_figures import TupleCounts
from weft.stats.sampling.estimates import next_heavy

__all__ = [
    "FinishedBatch",
    "finish_batch",
    "hand_over_bad_records",
    "measure_batch",
    "samples_of",
    "with_latencies",
]


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch that is to be committed: what it leaves is known, and the next one can begin with it.

    ``metrics`` are None if no query executed. ``ordered`` are the results of queries with an order, and ``outputs`` the
    sinks of all queries, by name; ``began`` is when the batch began (`time.perf_counter`).
    """

    executed: ExecutedBatch
    manifest: Manifest
    metrics: BatchMetrics | None
    ordered: Mapping[str, OrderedResults] = field(default_factory=dict)
    outputs: Mapping[str, QueryOutput] = field(default_factory=dict)
    began: float = 0.0

    @property
    def number(self) -> int:
        """The batch's number."""
        return self.executed.number

    @property
    def output(self) -> BatchOutput:
        """What the batch gives to sinks."""
        answers, closed = self.executed.reports.answers, self.manifest.closed
        ended = [query for query, clock in closed.items() if clock >= ENDED]
        return BatchOutput(self.number, answers, self.ordered, self.outputs, ended)


def finish_batch(
    executed: ExecutedBatch,
    progress: StreamProgress | None = None,
    ordered: Mapping[str, OrderedResults] | None = None,
    backlog: Mapping[str, Backlog] | None = None,
    began: float | None = None,
) -> FinishedBatch:
    """Work out what a batch leaves.

    ``ordered`` are the results of queries with an order, and ``progress`` is how far the streams are. ``backlog`` is
    what of every stream waits, and ``began`` is when the batch began (`time.perf_counter`); both are for the metrics.
    """
    plan, before, reports = executed.plan, executed.before, executed.reports
    progress, ordered = progress or StreamProgress.after(executed), ordered or {}
    rows = _rows_of_queries(executed, ordered)
    stores = next_stores(before, reports.left)
    order = None if plan.batch_order is None else decode(BatchOrder, plan.batch_order)
    ranges = before.ranges if order is None else order.partitions
    metrics = measure_batch(executed, progress, rows, ordered, stores, backlog or {}, began)
    manifest = Manifest(
        plan.number,
        next_partitions(before, reports.left, ranges),
        stores,
        before.begun,
        marks=dict(progress.watermarks.marks),
        active=dict(progress.watermarks.active),
        arrived=_added(before.arrived, progress.arrived),
        newest=_of_both(max, before.newest, progress.newest),
        oldest=_of_both(min, before.oldest, progress.oldest),
        kept=before.kept,
        evicted=_evicted(executed, progress.order),
        results={query: executed.rows_before(query) + count for query, count in rows.items()},
        records=_added(before.records, {"seen": reports.read.seen, "bad": reports.read.set_aside}),
        metrics={} if metrics is None else encode(metrics),
        failed=dict(reports.answers.failed),
        closed={} if progress.order is None else {q: clock.now for q, clock in progress.order.clocks.items()},
        dealt=_dealt(executed),
        held={query: one.waiting for query, one in ordered.items() if one.waiting},
        blueprint=plan.blueprint,
        cursors=plan.cursors,
        proven=progress.proven,
        moved=_moved(executed, progress.newest),
        totals=before.totals if metrics is None else _totals(executed, progress, metrics),
        ranges=ranges,
    )
    return FinishedBatch(executed, manifest, metrics, ordered, began=began or 0.0)


def _moved(executed: ExecutedBatch, newest: Mapping[str, int]) -> dict[str, Sequence[Any]]:
    """By stream, the record that moved the watermark last: its time, its batch and where it was read."""
    found = dict(executed.before.moved)
    for stream, latest in newest.items():
        if latest > executed.before.newest.get(stream, latest - 1):
            places = [
                read.place
                for read in executed.reports.read.reads
                if (read.stream, read.newest) == (stream, latest)
            ]
            found[stream] = [latest, executed.number, min(places, default="")]
    return found


def _rows_of_queries(executed: ExecutedBatch, ordered: Mapping[str, OrderedResults]) -> dict[str, int]:
    """How many results of every query leave with the batch, without those that are held back."""
    answers, rows = executed.reports.answers, dict[str, int]()
    for query, member in executed.program.members.items() if executed.program else ():
        waits = member.held and query in ordered and query not in answers.failed
        rows[query] = ordered[query].rows if waits else answers.rows(query)
    return rows


def _totals(executed: ExecutedBatch, progress: StreamProgress, metrics: BatchMetrics) -> Totals:
    """The totals with a batch in which queries executed."""
    before, queries, streams = executed.before.totals, dict[str, QueryTotals](), dict[str, TupleCounts]()
    if executed.program is None:
        return before
    for name, member in executed.program.members.items():
        known = before.of_query(name, member.first)
        more = (1, metrics.answers.get(name, 0), metrics.closed.get(name, 0))
        counts = (known.batches, known.results, known.closed)
        queries[name] = QueryTotals(member.first, *map(add, counts, more))
    for alias, one in progress.inputs.items():  # all inputs of a stream have the same tuples
        stream = executed.program.graph.input(alias).stream.name
        streams[stream] = max(streams.get(stream, one.counts), one.counts, key=lambda counted: counted.rows)
    return before.plus(metrics.elapsed, queries, streams)


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in sorted({*before, *more})}


def _of_both(
    pick: Callable[[int, int], int], before: Mapping[str, int], now: Mapping[str, int]
) -> dict[str, int]:
    """By name, what ``pick`` makes of the value before and the value now; the only one where there is one."""
    every = {**now, **before}
    return {name: pick(time, now.get(name, time)) for name, time in every.items()}


def _evicted(executed: ExecutedBatch, order: BatchOrder | None) -> dict[str, int]:
    """By store, the clock below which tasks were allowed to forget rows, in this batch or before."""
    found: dict[str, int] = {}
    if executed.program is None or order is None:
        return found
    for store in executed.program.stores.values():
        known = executed.before.evicted.get(store.identity)
        since = forgettable(store, Watermarks(executed.before.marks), order).forgotten_before
        times = [time for time in (known, since) if time is not None]
        if times:
            found[store.identity] = max(times)
    return found


def _dealt(executed: ExecutedBatch) -> dict[str, dict[str, int]]:
    """How many tuples each read task has dealt out so far, by store of the graph."""
    stores = {store.identity for store in executed.program.stores.values()} if executed.program else set()
    found = {store: dict(tasks) for store, tasks in executed.before.dealt.items() if store in stores}
    for store, dealt in executed.reports.read.dealt.items():
        tasks = found.setdefault(store, {})
        for task, rows in dealt.items():
            tasks[str(task)] = tasks.get(str(task), 0) + rows
    return found


def samples_of(program: ExecutableGraph, reports: TaskReports) -> Samples | None:
    """The query-sets that tasks sampled, with the names of the queries by slot; None if they sampled none."""
    if not reports.read.samples:
        return None
    slots = {member.slot: name for name, member in program.members.items()}
    names = tuple(slots.get(slot, "") for slot in range(1 + max(slots)))
    return Samples(names, reports.read.samples)


def hand_over_bad_records(executed: ExecutedBatch, take: SetAside | None) -> None:
    """Hand over the records of a batch that were set aside, and how many of how many there are by now."""
    if take is not None:
        read, known = executed.reports.read, executed.before.records
        bad, seen = known.get("bad", 0) + read.set_aside, known.get("seen", 0) + read.seen
        take(executed.number, b"\n".join(read.bad), bad, seen)


def measure_batch(
    executed: ExecutedBatch,
    progress: StreamProgress,
    rows: Mapping[str, int],
    ordered: Mapping[str, OrderedResults],
    stores: Mapping[str, StoreTotals],
    backlog: Mapping[str, Backlog],
    began: float | None,
) -> BatchMetrics | None:
    """The metrics of a batch, None if no query ran; ``rows`` are the results that leave, by query."""
    program, plan, reports = executed.program, executed.plan, executed.reports
    if program is None or progress.order is None:
        return None
    known = BatchMetrics.from_dict(executed.before.metrics) if executed.before.metrics else None
    keys = {query: one for query, one in known.keys.items() if query in program.members} if known else {}
    ended = [query for query, clock in progress.order.clocks.items() if clock.now >= ENDED]
    return BatchMetrics(
        plan.number,
        progress.order.order,
        progress.inputs,
        reports.work.steps,
        _metrics_of_stores(program, stores),
        sum(rows.values()),
        rows,
        dict(progress.watermarks.marks),
        reports.work.seconds(),
        started=plan.now / 1e6,
        elapsed=0.0 if began is None else time.perf_counter() - began,
        backlog=backlog,
        files=sum(len(parts) for parts in plan.inputs.values()),
        closed={q: count for q, count in reports.answers.closed.items() if q in program.members},
        functions=sum_functions(reports.work.calls),
        conditions=sum_conditions(reports.work.calls, program.graph),
        busiest=reports.work.busiest(),
        heavy=next_heavy(known.heavy if known else {}, reports.read.values),
        keys=next_keys(keys, reports.work.census, ended),
        punctuated=_last_punctuations(ordered),
        held={query: count for query, one in ordered.items() if (count := one.rows_waiting)},
        rows_per_byte=next_rows_per_byte(
            known.rows_per_byte if known else {}, plan.inputs, reports.read.reads
        ),
        tables={name: one.version or "" for name, one in table_states(plan.cursors).items()},
        cache=reports.work.cache,
        tasks=reports.work.tasks,
        busy=reports.work.busy,
        edges=reports.work.edges,
        merged_bytes=reports.work.merged,
        merge_debt=reports.work.debt,
    )


def _metrics_of_stores(
    program: ExecutableGraph, stores: Mapping[str, StoreTotals]
) -> dict[str, StoreMetrics]:
    nodes = {store.identity: store.node for store in program.stores.values()}
    return {
        nodes[identity].name: StoreMetrics(one.rows, one.bytes, one.runs, max(1, len(nodes[identity].users)))
        for identity, one in stores.items()
        if identity in nodes and one.runs
    }


def _last_punctuations(ordered: Mapping[str, OrderedResults]) -> dict[str, dict[str, Any]]:
    last = {query: one.punctuations[-1:] for query, one in ordered.items() if len(one.punctuations)}
    return {
        query: {"rows": int(one.rows[0]), "mark": int(one.marks[0]), "timed": one.timed}
        for query, one in last.items()
    }


def with_latencies(batch: FinishedBatch, committed: Mapping[str, int]) -> FinishedBatch:
    """A batch with the latencies of its results; ``committed`` is when those of each query were, in microseconds.

    Tasks say how old results were when the batch began; the commit of each query's results in its sink says how much
    later they left. A query whose results could not be committed has none. Results that are held back are measured when
    they leave, from the oldest arrival of the batch that lets them leave: what they waited for is the order that was
    asked for, and shows in the latency of event time alone.
    """
    program, results = batch.executed.program, batch.executed.reports.answers
    if batch.metrics is None or program is None:
        return batch
    latencies = {}
    for query, done in committed.items():
        member = program.members.get(query)
        waits = member is not None and member.held and query in batch.ordered
        ages = batch.ordered[query].ages if waits else results.ages.get(query)
        if ages is not None and ages.count and query not in results.failed:
            latencies[query] = ages.committed(done - batch.executed.plan.now)
    metrics = replace(batch.metrics, latencies=latencies)
    encoded = {query: encode(latency) for query, latency in latencies.items()}
    manifest = replace(batch.manifest, metrics={**batch.manifest.metrics, "latencies": encoded})
    return replace(batch, metrics=metrics, manifest=manifest)
