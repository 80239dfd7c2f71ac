"""The results of a batch in the order that a query asks for, across partitions and batches.

Guarantees: the order is that of `weft.logical.ordering`. Partitions give sorted runs, which are merged by a tree of
mergers (`weft.kernels.order.merging`). The output is a function of what the batches so far left and of what this one
found, so a batch that is replayed gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.kernels.expr.arrow import result_schema
from weft.kernels.order.merging import merge
from weft.kernels.probe.ranges import NO_LONGS
from weft.plan.graph import Member
from weft.ports.punctuation import Punctuations
from weft.runtime.hop.sorting import key_count, tuples_before
from weft.runtime.log.values import HeldRun
from weft.runtime.loop.buffered import BufferedResults, read_buffered, release, write_buffered
from weft.runtime.loop.ran_batch import RanBatch, StreamProgress
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.model.batch_order import ENDED, UNKNOWN, BatchOrder
from weft.runtime.model.watermarks import Watermarks
from weft.storage.storage import Storage

__all__ = ["Gathered", "clock_of", "gather_all", "gather_results", "hold_back", "number_runs"]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The results of an ordered query that leave with a batch, its punctuations, and the results that are held back.

    If results are held back until the watermarks pass them, ``times`` are those of the ones that leave.
    """

    table: pa.Table
    punctuations: Punctuations
    waiting: Sequence[BufferedResults] = ()
    times: Longs = field(default_factory=lambda: NO_LONGS)

    @property
    def rows_waiting(self) -> int:
        """How many results are held back."""
        return sum(one.run.num_rows for one in self.waiting)

    def without_rows(self) -> Gathered:
        """The output of the batch if the query failed in it: no results."""
        return Gathered(self.table.slice(0, 0), self.punctuations[:0])


def gather_results(
    member: Member,
    runs: Sequence[pa.RecordBatch],
    batch_order: BatchOrder,
    rows: int,
    watermarks: Watermarks,
    waiting: Sequence[BufferedResults] = (),
) -> Gathered:
    """Merge the sorted runs of a query, and hold back results that the watermarks have not passed, if it is by time.

    ``rows`` is how many results have left before, ``watermarks`` are those after the batch, and ``waiting`` are the
    results that were held back before.
    """
    ordering = member.ordering
    if ordering is None or not ordering.by_arrival:
        clock = clock_of(member, batch_order, watermarks)
        leaving, staying, times = release(waiting, runs, clock)
        table = _table(member, leaving)
        marks = Punctuations.none(timed=True)
        if clock > UNKNOWN:
            marks = Punctuations.of_time(rows + table.num_rows, clock)
        return Gathered(table, marks, staying, times)
    keys = key_count(ordering)
    whole = merge(runs, keys)
    before = tuples_before(member, batch_order)
    after = before + sum(batch_order.counts[alias].arrived for alias in member.query.driving)
    marks = Punctuations.of_blocks(whole.heads, whole.lengths, ordering.block, (rows, before), after)
    return Gathered(_table(member, whole.batches), marks)


def clock_of(member: Member, batch_order: BatchOrder, watermarks: Watermarks) -> int:
    """The time before which all results of a query are known, since no tuple before it can be on time any more."""
    if member.name in batch_order.clocks and batch_order.clocks[member.name].now >= ENDED:
        return ENDED
    query = member.query
    marks = [watermarks.mark_of(query.input(alias).stream.name) for alias in query.driving]
    known = [mark for mark in marks if mark is not None]
    return min(known) if len(known) == len(marks) else UNKNOWN


def number_runs(
    member: Member,
    batch_order: BatchOrder,
    runs: Iterable[tuple[int, pa.RecordBatch]],
    counts: Mapping[int, int],
) -> list[pa.RecordBatch]:
    """Turn the keys of runs that read tasks gave, which are numbers within a task, into blocks among all tuples.

    Each run comes with its task; ``counts`` says how many tuples each task read.
    """
    before, block = tuples_before(member, batch_order), member.ordering.block if member.ordering else 1
    found = []
    for task, run in runs:
        first = before + sum(rows for other, rows in counts.items() if other < task)
        blocks = pa.array((longs(run.column(0)) + first) // block)
        found.append(run.set_column(0, run.schema.field(0), blocks))
    return found


def _table(member: Member, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, result_schema(member.query))


def gather_all(
    ran: RanBatch, progress: StreamProgress, queries: Iterable[str], storage: Storage
) -> dict[str, Gathered]:
    """The output of ordered queries in a batch, by query, from its results and those that were held back before."""
    found: dict[str, Gathered] = {}
    if ran.program is None or progress.order is None:
        return found
    for query in queries:
        member = ran.program.members[query]
        waiting = read_buffered(storage, ran.before.held.get(query, ()))
        failed = query in ran.reports.answers.failed
        runs = [] if failed else _sorted_runs(member, progress.order, ran.reports)
        found[query] = gather_results(
            member, runs, progress.order, ran.rows_before(query), progress.watermarks, waiting
        )
    return found


def _sorted_runs(member: Member, batch_order: BatchOrder, reports: TaskReports) -> list[pa.RecordBatch]:
    """The sorted runs of a query, in an order that does not depend on which message came first."""
    sent = sorted(reports.answers.sent.get(member.name, ()), key=lambda results: results.sender)
    ordering, aliases = member.ordering, member.query.aliases
    if ordering is not None and ordering.by_arrival and len(aliases) == 1:  # these come from read tasks
        runs = [(results.sender.task, batch) for results in sent for batch in results.batches]
        return number_runs(member, batch_order, runs, reports.read.counts.get(aliases[0], {}))
    return [batch for results in sent for batch in results.batches]


def hold_back(
    ran: RanBatch, ordered: Mapping[str, Gathered], storage: Storage
) -> dict[str, tuple[HeldRun, ...]]:
    """Write the results that are held back, except those of failed queries; return their files by query."""
    return {
        query: write_buffered(storage, ran.number, one.waiting)
        for query, one in ordered.items()
        if one.waiting and query not in ran.reports.answers.failed
    }
