"""The end of a batch: its manifest, metrics and ordered results, from what its tasks reported.

Guarantees: but for the time that it took, what a batch leaves is a function of its plan, of what it began with and of
what its tasks reported, so a batch that is repeated leaves the same. The manifest names only files that tasks reported,
so files that a lost attempt wrote are not part of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

from weft.logical.codec import encode
from weft.runtime.log.totals import QueryTotals, StreamTotals, Totals
from weft.runtime.log.values import Manifest
from weft.runtime.loop.config import SetAside
from weft.runtime.loop.measuring import measure_batch
from weft.runtime.loop.migrated_manifest import next_partitions, next_stores
from weft.runtime.loop.ran_batch import RanBatch, StreamProgress
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.runtime.output.ordered_output import Gathered
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import Samples
from weft.runtime.state.expiry import forgettable

__all__ = ["BatchEnd", "end_batch", "hand_over_bad_records", "samples_of"]


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """What a batch leaves: its manifest, its metrics (None if no query ran), and ordered results by query."""

    manifest: Manifest
    metrics: BatchMetrics | None
    ordered: Mapping[str, Gathered]


def end_batch(
    ran: RanBatch,
    progress: StreamProgress | None = None,
    ordered: Mapping[str, Gathered] | None = None,
    backlog: Mapping[str, Backlog] | None = None,
    began: float | None = None,
) -> BatchEnd:
    """Work out what a batch leaves.

    ``ordered`` are the results of queries with an order, and ``progress`` is how far the streams are. ``backlog`` is
    what of every stream waits, and ``began`` is when the batch began (`time.perf_counter`); both are for the metrics.
    """
    plan, before, reports = ran.plan, ran.before, ran.reports
    progress, ordered = progress or StreamProgress.after(ran), ordered or {}
    rows = _rows_of_queries(ran, ordered)
    stores = next_stores(before, reports.left)
    metrics = measure_batch(ran, progress, rows, ordered, stores, backlog or {}, began)
    manifest = Manifest(
        plan.number,
        next_partitions(before, reports.left),
        stores,
        before.begun,
        marks=dict(progress.watermarks.marks),
        active=dict(progress.watermarks.active),
        arrived=_added(before.arrived, progress.arrived),
        newest=_of_both(max, before.newest, progress.newest),
        oldest=_of_both(min, before.oldest, progress.oldest),
        kept=before.kept,
        evicted=_evicted(ran, progress.order),
        results={query: ran.rows_before(query) + count for query, count in rows.items()},
        records=_added(before.records, {"seen": reports.read.seen, "bad": reports.read.set_aside}),
        metrics={} if metrics is None else encode(metrics),
        failed=dict(reports.answers.failed),
        closed={} if progress.order is None else {q: clock.now for q, clock in progress.order.clocks.items()},
        dealt=_dealt(ran),
        held={query: one.waiting for query, one in ordered.items() if one.waiting},
        blueprint=plan.blueprint,
        cursors=plan.cursors,
        proven=progress.proven,
        moved=_moved(ran, progress.newest),
        totals=before.totals if metrics is None else _totals(ran, progress, metrics),
    )
    return BatchEnd(manifest, metrics, ordered)


def _moved(ran: RanBatch, newest: Mapping[str, int]) -> dict[str, Sequence[Any]]:
    """By stream, the record that moved the watermark last: its time, its batch and where it was read."""
    found = dict(ran.before.moved)
    for stream, time in newest.items():
        if time > ran.before.newest.get(stream, time - 1):
            places = [
                read.place for read in ran.reports.read.reads if (read.stream, read.newest) == (stream, time)
            ]
            found[stream] = [time, ran.number, min(places, default="")]
    return found


def _rows_of_queries(ran: RanBatch, ordered: Mapping[str, Gathered]) -> dict[str, int]:
    """How many results of every query leave with the batch, without those that are held back."""
    answers, rows = ran.reports.answers, dict[str, int]()
    for query, member in ran.program.members.items() if ran.program else ():
        waits = member.held and query in ordered and query not in answers.failed
        rows[query] = ordered[query].rows if waits else answers.rows(query)
    return rows


def _totals(ran: RanBatch, progress: StreamProgress, metrics: BatchMetrics) -> Totals:
    """The totals with a batch in which queries ran."""
    before, queries, streams = ran.before.totals, dict[str, QueryTotals](), dict[str, StreamTotals]()
    if ran.program is None:
        return before
    for name, member in ran.program.members.items():
        known = before.of_query(name, member.first)
        more = (1, metrics.answers.get(name, 0), metrics.closed.get(name, 0))
        counts = (known.batches, known.results, known.closed)
        queries[name] = QueryTotals(member.first, *map(add, counts, more))
    for alias, one in progress.inputs.items():  # all inputs of a stream have the same tuples
        stream = ran.program.graph.input(alias).stream.name
        found = StreamTotals(one.rows, one.late, one.untimed, one.malformed)
        streams[stream] = max(streams.get(stream, found), found, key=lambda counted: counted.rows)
    return before.plus(metrics.elapsed, queries, streams)


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in sorted({*before, *more})}


def _of_both(
    pick: Callable[[int, int], int], before: Mapping[str, int], now: Mapping[str, int]
) -> dict[str, int]:
    """By name, what ``pick`` makes of the value before and the value now; the only one where there is one."""
    every = {**now, **before}
    return {name: pick(time, now.get(name, time)) for name, time in every.items()}


def _evicted(ran: RanBatch, order: BatchOrder | None) -> dict[str, int]:
    """By store, the clock below which tasks were allowed to forget rows, in this batch or before."""
    found: dict[str, int] = {}
    if ran.program is None or order is None:
        return found
    for store in ran.program.stores.values():
        known = ran.before.evicted.get(store.identity)
        since = forgettable(store, Watermarks(ran.before.marks), order).forgotten_before
        times = [time for time in (known, since) if time is not None]
        if times:
            found[store.identity] = max(times)
    return found


def _dealt(ran: RanBatch) -> dict[str, dict[str, int]]:
    """How many tuples each read task has dealt out so far, by store of the graph."""
    stores = {store.identity for store in ran.program.stores.values()} if ran.program else set()
    found = {store: dict(tasks) for store, tasks in ran.before.dealt.items() if store in stores}
    for report in ran.reports.read.dealt:
        tasks = found.setdefault(report.store, {})
        tasks[str(report.task)] = tasks.get(str(report.task), 0) + report.rows
    return found


def samples_of(program: ExecutableGraph, reports: TaskReports) -> Samples | None:
    """The query-sets that tasks sampled, with the names of the queries by slot; None if they sampled none."""
    if not reports.read.samples:
        return None
    slots = {member.slot: name for name, member in program.members.items()}
    names = tuple(slots.get(slot, "") for slot in range(1 + max(slots)))
    return Samples(names, reports.read.samples)


def hand_over_bad_records(ran: RanBatch, take: SetAside | None) -> None:
    """Hand over the records of a batch that were set aside, and how many of how many there are by now."""
    if take is not None:
        read, known = ran.reports.read, ran.before.records
        bad, seen = known.get("bad", 0) + read.set_aside, known.get("seen", 0) + read.seen
        take(ran.number, b"\n".join(read.bad), bad, seen)
