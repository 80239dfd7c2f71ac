"""The end of a batch: its manifest, metrics and ordered results, from what its tasks reported.

Guarantees: but for the time that it took, what a batch leaves is a function of its plan, of what it began with and of
what its tasks reported, so a batch that is repeated leaves the same. The manifest names only files that tasks reported,
so files that a lost attempt wrote are not part of the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

from weft.logical.codec import encode
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
from weft.runtime.output.ordered_output import Gathered
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import Samples
from weft.runtime.state.expiry import forgettable
from weft.runtime.state.partition_manifest import StoreTotals
from weft.stats.input_figures import TupleCounts
from weft.stats.sampling.estimates import next_heavy

__all__ = [
    "BatchEnd",
    "end_batch",
    "hand_over_bad_records",
    "measure_batch",
    "samples_of",
]


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """What a batch leaves: its manifest, its metrics (None if no query ran), and ordered results by query."""

    manifest: Manifest
    metrics: BatchMetrics | None
    ordered: Mapping[str, Gathered]


def end_batch(
    ran: ExecutedBatch,
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


def _moved(ran: ExecutedBatch, newest: Mapping[str, int]) -> dict[str, Sequence[Any]]:
    """By stream, the record that moved the watermark last: its time, its batch and where it was read."""
    found = dict(ran.before.moved)
    for stream, latest in newest.items():
        if latest > ran.before.newest.get(stream, latest - 1):
            places = [
                read.place
                for read in ran.reports.read.reads
                if (read.stream, read.newest) == (stream, latest)
            ]
            found[stream] = [latest, ran.number, min(places, default="")]
    return found


def _rows_of_queries(ran: ExecutedBatch, ordered: Mapping[str, Gathered]) -> dict[str, int]:
    """How many results of every query leave with the batch, without those that are held back."""
    answers, rows = ran.reports.answers, dict[str, int]()
    for query, member in ran.program.members.items() if ran.program else ():
        waits = member.held and query in ordered and query not in answers.failed
        rows[query] = ordered[query].rows if waits else answers.rows(query)
    return rows


def _totals(ran: ExecutedBatch, progress: StreamProgress, metrics: BatchMetrics) -> Totals:
    """The totals with a batch in which queries ran."""
    before, queries, streams = ran.before.totals, dict[str, QueryTotals](), dict[str, TupleCounts]()
    if ran.program is None:
        return before
    for name, member in ran.program.members.items():
        known = before.of_query(name, member.first)
        more = (1, metrics.answers.get(name, 0), metrics.closed.get(name, 0))
        counts = (known.batches, known.results, known.closed)
        queries[name] = QueryTotals(member.first, *map(add, counts, more))
    for alias, one in progress.inputs.items():  # all inputs of a stream have the same tuples
        stream = ran.program.graph.input(alias).stream.name
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


def _evicted(ran: ExecutedBatch, order: BatchOrder | None) -> dict[str, int]:
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


def _dealt(ran: ExecutedBatch) -> dict[str, dict[str, int]]:
    """How many tuples each read task has dealt out so far, by store of the graph."""
    stores = {store.identity for store in ran.program.stores.values()} if ran.program else set()
    found = {store: dict(tasks) for store, tasks in ran.before.dealt.items() if store in stores}
    for store, dealt in ran.reports.read.dealt.items():
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


def hand_over_bad_records(ran: ExecutedBatch, take: SetAside | None) -> None:
    """Hand over the records of a batch that were set aside, and how many of how many there are by now."""
    if take is not None:
        read, known = ran.reports.read, ran.before.records
        bad, seen = known.get("bad", 0) + read.set_aside, known.get("seen", 0) + read.seen
        take(ran.number, b"\n".join(read.bad), bad, seen)


def measure_batch(
    ran: ExecutedBatch,
    progress: StreamProgress,
    rows: Mapping[str, int],
    ordered: Mapping[str, Gathered],
    stores: Mapping[str, StoreTotals],
    backlog: Mapping[str, Backlog],
    began: float | None,
) -> BatchMetrics | None:
    """The metrics of a batch, None if no query ran; ``rows`` are the results that leave, by query."""
    program, plan, reports = ran.program, ran.plan, ran.reports
    if program is None or progress.order is None:
        return None
    known = BatchMetrics.from_dict(ran.before.metrics) if ran.before.metrics else None
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


def _last_punctuations(ordered: Mapping[str, Gathered]) -> dict[str, dict[str, Any]]:
    last = {query: one.punctuations[-1:] for query, one in ordered.items() if len(one.punctuations)}
    return {
        query: {"rows": int(one.rows[0]), "mark": int(one.marks[0]), "timed": one.timed}
        for query, one in last.items()
    }
