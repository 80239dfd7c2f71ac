"""Ordered results are merged by tasks; the driver says which ranges there are (SplitJoin, 5; decision 50).

Guarantees: the driver sees of results no more than a sample of the keys of every run. It divides the order into as many
ranges as there are tasks, about evenly by rows, and never between rows of one head; each range is merged by a task.
Where all runs of a query are small, the driver merges them itself, in the same way. Tasks that are lost meanwhile are
replaced, and merge again: the runs are in files of the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from weft.errors import SinkError
from weft.kernels.expr.arrow import result_schema
from weft.kernels.order.merging import merge as merge_batches
from weft.plan.physical.graph import Member
from weft.ports.punctuation import Punctuations
from weft.runtime.hop.sorting import key_count, tuples_before
from weft.runtime.log.values import HeldRun
from weft.runtime.loop.batch.executed_batch import ExecutedBatch, StreamProgress
from weft.runtime.loop.batch.task_runner import TaskRunner
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.output.batch_files import write_file
from weft.runtime.output.merge_task import InMemory, Merge, collect
from weft.runtime.output.ordered_output import Gathered, clock_of, gather, next_waiting, tuples_after
from weft.runtime.output.query_sinks import Output
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.wire.reports import Failure, MergedRange
from weft.runtime.wire.sorted_runs import RunSlice, SortedRun
from weft.storage.storage import Storage

__all__ = ["collect_ordered", "range_cuts"]

FEW = 1 << 22  # bytes of a query's runs that the driver merges itself
LEAST = 1 << 20  # bytes of a range that are worth a task


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """An ordered query in a batch: its runs, and what it held back before; ``memory`` has the runs of messages.

    ``before`` are the rows and tuples before the batch; ``after`` is how many tuples there are with it or, in the order
    of event time, the clock.
    """

    member: Member
    output: Output
    before: tuple[int, int]
    after: int
    runs: tuple[SortedRun, ...]
    held: tuple[HeldRun, ...]
    memory: InMemory

    def division(self) -> _Division:
        """Say of which runs rows leave, and of which rows are written that stay.

        Those are all new ones, and as many that were held as are not much larger: so there are few runs, and each row
        is written only a few times.
        """
        if not self.member.held:
            return _Division(self.runs)
        every = (*map(SortedRun.of_held, self.held), *self.runs)
        leaving = tuple(run for run in every if run.sample[0] < self.after)
        staying = [run for run in self.runs if run.sample[-1] >= self.after]
        rows, merged = sum(_rows_from(run, self.after) for run in staying), set[str]()
        groups: dict[int, list[SortedRun]] = {}
        for one in self.held:
            groups.setdefault(one.group, []).append(SortedRun.of_held(one))
        for number in sorted(groups, reverse=True):
            size = sum(_rows_from(run, self.after) for run in groups[number])
            if size >= 2 * rows:
                break
            staying, rows = [*groups[number], *staying], rows + size
            merged |= {run.name for run in groups[number]}
        return _Division(leaving, tuple(staying), frozenset(merged))

    def merges(self, division: _Division, tasks: int) -> list[Merge]:
        """What is to be merged, by at most so many tasks."""
        end, every = self.after if self.member.held else None, self.output.ordered is not None
        rows, tuples = self.before
        plain = Merge(self.member.name, 0, (), rows=rows, tuples=tuples, after=self.after, every=every)
        bounds = division.bounds(tasks, end)
        found = [
            replace(plain, place=at, runs=division.leaving, low=low, high=high, last=at == len(bounds) - 2)
            for at, (low, high) in enumerate(pairwise(bounds))
        ]
        bounds = division.bounds(tasks, end, stay=True)
        return found + [
            replace(plain, place=len(found) + at, runs=division.staying, low=low, high=high, stay=True)
            for at, (low, high) in enumerate(pairwise(bounds))
        ]

    def gathered(self, found: Sequence[MergedRange], merged: Collection[str], storage: Storage) -> Gathered:
        """What leaves and what stays, from what tasks say; ``merged`` are runs held before that were written anew."""
        left, in_parts = [one for one in found if one.rows], self.output.in_order is not None
        gathered = gather(self.member, left, self.before, self.after, storage, in_parts=in_parts)
        waiting = next_waiting(self.held, merged, found, self.after) if self.member.held else ()
        return replace(gathered, batches=tuple(self.memory.batches), waiting=waiting)

    def nothing(self) -> Gathered:
        """What leaves and what stays of a query that failed."""
        parts = None if self.output.in_order is None else ()
        marks = Punctuations.none(timed=self.member.held)
        return Gathered(result_schema(self.member.query), marks, parts=parts)

    def put_down(self, storage: Storage, number: int) -> _Order:
        """The same order, with the small runs that came in messages as one in a file, where tasks see it."""
        if not self.memory.runs:
            return self
        mine = [run for run in self.runs if run.name in self.memory.runs]
        rows = [RunSlice.of_run(run, self.memory.runs[run.name]).rows() for run in mine]
        keys = 1 if self.member.ordering is None else key_count(self.member.ordering)
        whole = pa.concat_batches(merge_batches(rows, keys, keep=True))
        name = write_file(storage, number, [whole])
        others = (run for run in self.runs if run.name not in self.memory.runs)
        return replace(self, runs=(*others, SortedRun.of_batch(name, whole)), memory=InMemory())


@dataclass(frozen=True, slots=True)
class _Division:
    """The runs of which rows leave, and those of which rows are written that stay.

    ``merged`` are the names of the latter that were held before.
    """

    leaving: tuple[SortedRun, ...] = ()
    staying: tuple[SortedRun, ...] = ()
    merged: frozenset[str] = frozenset()

    @property
    def bytes(self) -> int:
        """How many bytes the runs have."""
        return sum({run.name: run.bytes for run in (*self.leaving, *self.staying)}.values())

    def bounds(self, tasks: int, end: int | None, *, stay: bool = False) -> list[int | None]:
        """Where ranges begin and end, of rows that leave before ``end`` or that stay from there on."""
        if stay:
            return [end, *range_cuts(self.staying, tasks, end, None), None] if self.staying else []
        return [None, *range_cuts(self.leaving, tasks, None, end), end] if self.leaving else []


def _rows_from(run: SortedRun, clock: int) -> float:
    """About how many rows of a run stay."""
    return run.rows * sum(head >= clock for head in run.sample) / len(run.sample)


def range_cuts(runs: Iterable[SortedRun], tasks: int, low: int | None, high: int | None) -> list[int]:
    """The heads at which runs are cut into ranges, one for a task, about evenly by rows; no range is empty."""
    some = list(runs)
    most = min(tasks, max(1, sum(run.bytes for run in some) // max(1, LEAST)))
    heads = np.array([head for run in some for head in run.sample], np.int64)
    weights = np.array([run.rows / len(run.sample) for run in some for _ in run.sample])
    within = np.ones(heads.size, np.bool_)
    within &= True if low is None else heads >= low
    within &= True if high is None else heads < high
    heads, weights = heads[within], weights[within]
    if most < 2 or not heads.size:
        return []
    order = np.argsort(heads, kind="stable")
    ends = np.cumsum(weights[order])
    wanted = ends[-1] * np.arange(1, most) / most
    places = np.minimum(np.searchsorted(ends, wanted, "left"), heads.size - 1)
    found = heads[order][places]
    return [int(head) for head in np.unique(found[found > heads.min()])]


def collect_ordered(
    runner: TaskRunner,
    ran: ExecutedBatch,
    progress: StreamProgress,
    queries: ActiveQueries,
    outputs: Mapping[str, Output],
) -> tuple[ExecutedBatch, dict[str, Gathered]]:
    """Bring the results of ordered queries into order.

    What a sink refuses is merged once more, for the driver, and the batch then says so. Results that are only counted
    have no order.
    """
    wanted = {n: one for n, one in outputs.items() if queries.requests[n].ordering and one.counting is None}
    if ran.program is None or progress.order is None or not wanted:
        return ran, {}
    members = ran.program.members
    orders = {n: _order_of(ran, progress, progress.order, members[n], one) for n, one in wanted.items()}
    gathered, refused = _collect(runner, ran, queries, orders)
    if refused:
        handed = {n: wanted[n].by_driver() for n in refused}
        orders = {n: _order_of(ran, progress, progress.order, members[n], one) for n, one in handed.items()}
        gathered |= _collect(runner, ran, queries, orders)[0]
    answers = ran.reports.answers
    answers = replace(answers, refused={**refused, **answers.refused})
    return replace(ran, reports=replace(ran.reports, answers=answers)), gathered


def _collect(
    runner: TaskRunner, ran: ExecutedBatch, queries: ActiveQueries, orders: Mapping[str, _Order]
) -> tuple[dict[str, Gathered], dict[str, SinkError]]:
    """Merge the results of ordered queries, and return them with the errors of sinks that cannot take them."""
    failed, storage = ran.reports.answers.failed, runner.log.storage
    job = runner.job(ran.plan, ran.before, queries, {n: one.output for n, one in orders.items()})
    ready = {n: one for n, one in orders.items() if n not in failed}
    divided = {n: one.division() for n, one in ready.items()}
    larger = list[Merge]()
    reports = list[MergedRange | Failure]()
    for name, division in divided.items():
        if division.bytes >= FEW:
            ready[name] = ready[name].put_down(storage, ran.number)
            divided[name] = ready[name].division()
            larger += ready[name].merges(divided[name], runner.executor.tasks)
        elif merges := ready[name].merges(division, 1):
            reports += [collect(job, one, ready[name].memory) for one in merges]
    if larger:
        reports += runner.collect(job, larger)
    refused = {
        one.query: error
        for one in reversed(reports)
        if isinstance(one, Failure) and one.query is not None and (error := one.refused) is not None
    }
    found: dict[str, list[MergedRange]] = {name: [] for name in orders}
    for report in reports:
        if isinstance(report, MergedRange):
            found[report.query].append(report)
    gathered = {
        name: ready[name].gathered(found[name], divided[name].merged, storage)
        if name in ready and name not in refused
        else one.nothing()
        for name, one in orders.items()
    }
    return gathered, refused


def _order_of(
    ran: ExecutedBatch, progress: StreamProgress, batch_order: BatchOrder, member: Member, output: Output
) -> _Order:
    """An ordered query in a batch, before its results are merged."""
    rows, memory = ran.rows_before(member.name), InMemory()
    runs, held = _runs_of(member, ran, batch_order, memory), ran.before.held.get(member.name, ())
    if member.held:
        after, before = clock_of(member, batch_order, progress.watermarks), (rows, 0)
    else:
        after, before = tuples_after(member, batch_order), (rows, tuples_before(member, batch_order))
    return _Order(member, output, before, after, tuple(runs), held, memory)


def _runs_of(
    member: Member, ran: ExecutedBatch, batch_order: BatchOrder, memory: InMemory
) -> Iterator[SortedRun]:
    """The runs that tasks found, in an order that does not depend on which message came first."""
    aliases, ordering = member.query.aliases, member.ordering
    # Read tasks number their tuples for themselves.
    alone = ordering is not None and ordering.by_arrival and len(aliases) == 1
    counts = ran.reports.read.counts.get(aliases[0], {}) if alone else {}
    before = tuples_before(member, batch_order) if alone else 0
    every = ran.reports.answers.sent.get(member.name, ())
    for at, sent in enumerate(sorted(every, key=lambda sent: sent.sender)):
        memory.runs |= {f"message {at}": batch for batch in sent.batches}
        mine = (SortedRun.of_batch(f"message {at}", batch) for batch in sent.batches)
        first = before + sum(rows for task, rows in counts.items() if task < sent.sender.task)
        for run in (*mine, *sent.runs):
            yield run.numbered(first, ordering.block) if alone and ordering is not None else run
