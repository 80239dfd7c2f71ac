"""Ordered results are merged by tasks; the driver says which ranges there are (SplitJoin, 5; decision 50).

Guarantees: the driver sees of results no more than a sample of the keys of every run. It divides the order into as many
ranges as there are tasks, about evenly by rows, and never between rows of one head; each range is merged by a task.
Where all runs of a query are small, the driver merges them itself, in the same way. Tasks that are lost meanwhile are
replaced, and merge again: the runs are in files of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from weft.kernels.expr.arrow import result_schema
from weft.kernels.order.merging import merge as merge_batches
from weft.plan.graph import Member
from weft.ports.punctuation import Punctuations
from weft.runtime.hop.sorting import key_count, tuples_before
from weft.runtime.log.values import HeldRun
from weft.runtime.loop.attempts import TaskRunner
from weft.runtime.loop.ordered_output import Gathered, clock_of, gather, next_waiting, tuples_after
from weft.runtime.loop.query_sinks import Output
from weft.runtime.loop.ran_batch import RanBatch, StreamProgress
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.task.batch_files import write_file
from weft.runtime.task.collected import Collected
from weft.runtime.task.collecting import InMemory, Merge, collect
from weft.runtime.task.reports import FailedQuery
from weft.runtime.task.sorted_runs import RunSlice, SortedRun

__all__ = ["collect_ordered", "range_cuts"]

FEW = 1 << 22  # bytes of a query's runs that the driver merges itself
LEAST = 1 << 20  # bytes of a range that are worth a task


@dataclass
class _Order:
    """An ordered query in a batch: its runs, those in memory by name, and what it held back before.

    ``before`` are the rows and tuples before the batch; ``after`` is how many tuples there are with it or, in the order
    of event time, the clock. Once the order is settled, ``leaving`` are the runs of which rows leave, ``staying`` those
    of which rows are written that stay, and ``merged`` the runs held before that are among the latter.
    """

    member: Member
    output: Output
    before: tuple[int, int]
    after: int
    runs: list[SortedRun]
    held: tuple[HeldRun, ...]
    memory: InMemory = field(default_factory=InMemory)
    leaving: list[SortedRun] = field(default_factory=list)
    staying: list[SortedRun] = field(default_factory=list)
    merged: set[str] = field(default_factory=set)

    @property
    def keys(self) -> int:
        """How many columns results are sorted by."""
        return 1 if self.member.ordering is None else key_count(self.member.ordering)

    @property
    def bytes(self) -> int:
        """How many bytes the runs have that are to be merged."""
        return sum({run.name: run.bytes for run in (*self.leaving, *self.staying)}.values())

    def settle(self) -> None:
        """Say of which runs rows leave, and of which rows are written that stay.

        Those are all new ones, and as many that were held as are not much larger: so there are few runs, and each row
        is written only a few times.
        """
        self.leaving, self.staying, self.merged = self.runs, [], set()
        if not self.member.held:
            return
        every = [*map(SortedRun.of_held, self.held), *self.runs]
        self.leaving = [run for run in every if run.sample[0] < self.after]
        found = [run for run in self.runs if run.sample[-1] >= self.after]
        rows = sum(_rows_from(run, self.after) for run in found)
        groups: dict[int, list[SortedRun]] = {}
        for one in self.held:
            groups.setdefault(one.group, []).append(SortedRun.of_held(one))
        for number in sorted(groups, reverse=True):
            size = sum(_rows_from(run, self.after) for run in groups[number])
            if size >= 2 * rows:
                break
            found, rows = [*groups[number], *found], rows + size
            self.merged |= {run.name for run in groups[number]}
        self.staying = found

    def merges(self, tasks: int) -> list[Merge]:
        """What is to be merged, by at most so many tasks."""
        staying, leaving = self.staying, self.leaving
        end = self.after if self.member.held else None
        plain = Merge(self.member.name, 0, (), rows=self.before[0], tuples=self.before[1], after=self.after)
        plain = replace(plain, every=self.output.ordered is not None)
        cuts = [None, *range_cuts(leaving, tasks, None, end), end] if leaving else []
        found = [
            replace(plain, place=place, runs=tuple(leaving), low=low, high=high, last=place == len(cuts) - 2)
            for place, (low, high) in enumerate(pairwise(cuts))
        ]
        cuts = [end, *range_cuts(staying, tasks, end, None), None] if staying else []
        return found + [
            replace(plain, place=len(found) + place, runs=tuple(staying), low=low, high=high, stay=True)
            for place, (low, high) in enumerate(pairwise(cuts))
        ]

    def gathered(self, found: Sequence[Collected], runner: TaskRunner) -> Gathered:
        """What leaves and what stays, from what tasks say."""
        in_parts, storage = self.output.in_order is not None, runner.log.storage
        left = [one for one in found if one.rows]
        gathered = gather(self.member, left, self.before, self.after, storage, in_parts=in_parts)
        waiting = next_waiting(self.held, self.merged, found, self.after) if self.member.held else ()
        return replace(gathered, batches=tuple(self.memory.batches), waiting=waiting)

    def nothing(self) -> Gathered:
        """What leaves and what stays of a query that failed."""
        parts = None if self.output.in_order is None else ()
        marks = Punctuations.none(timed=self.member.held)
        return Gathered(result_schema(self.member.query), marks, parts=parts)


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
    ran: RanBatch,
    progress: StreamProgress,
    queries: ActiveQueries,
    outputs: Mapping[str, Output],
) -> tuple[RanBatch, dict[str, Gathered]]:
    """Bring the results of ordered queries into order; what a sink refuses fails its query, which the batch then says.

    Results that are only counted have no order.
    """
    wanted = [n for n, one in queries.requests.items() if one.ordering and outputs[n].counting is None]
    if ran.program is None or progress.order is None or not wanted:
        return ran, {}
    answers = ran.reports.answers
    orders = {n: _order_of(ran, progress, progress.order, n, outputs[n]) for n in wanted}
    found, failed = _collected(
        runner, ran, queries, [o for n, o in orders.items() if n not in answers.failed]
    )
    failed = {**answers.failed, **failed}
    gathered = {
        name: one.nothing() if name in failed else one.gathered(found.get(name, ()), runner)
        for name, one in orders.items()
    }
    reports = replace(ran.reports, answers=replace(answers, failed=failed))
    return replace(ran, reports=reports), gathered


def _collected(
    runner: TaskRunner, ran: RanBatch, queries: ActiveQueries, orders: Sequence[_Order]
) -> tuple[dict[str, list[Collected]], dict[str, str]]:
    """Merge what is small here and the rest in tasks: what came of it, and why queries failed, by query."""
    reports, larger = list[Collected | FailedQuery](), list[Merge]()
    for order in orders:
        order.settle()
        if order.bytes >= FEW:
            _put_down(order, runner, ran.number)
            larger += order.merges(runner.executor.tasks)
        elif merges := order.merges(1):
            job = runner.job(ran.plan, ran.before, queries)
            reports += [collect(job, one, order.memory) for one in merges]
    if larger:
        reports += runner.collect(ran.plan, ran.before, queries, larger)
    found: dict[str, list[Collected]] = {}
    failed: dict[str, str] = {}
    for report in reports:
        if isinstance(report, FailedQuery):
            failed.setdefault(report.query, report.message)
        else:
            found.setdefault(report.query, []).append(report)
    return found, failed


def _put_down(order: _Order, runner: TaskRunner, number: int) -> None:
    """Write the runs that came in messages, which are small, to one file, where tasks see them."""
    if not order.memory.runs:
        return
    mine = [run for run in order.runs if run.name in order.memory.runs]
    rows = [RunSlice.of_run(run, order.memory.runs[run.name]).rows() for run in mine]
    whole = pa.concat_batches(merge_batches(rows, order.keys, keep=True).batches)
    name = write_file(runner.log.storage, number, [whole])
    order.runs = [run for run in order.runs if run not in mine] + [SortedRun.of_batch(name, whole)]
    order.memory.runs = {}
    order.settle()


def _order_of(
    ran: RanBatch, progress: StreamProgress, batch_order: BatchOrder, query: str, output: Output
) -> _Order:
    """An ordered query in a batch, before its results are merged."""
    if ran.program is None:
        raise ValueError(f"no query runs in batch {ran.number}")
    member, rows = ran.program.members[query], ran.rows_before(query)
    held = ran.before.held.get(query, ())
    if member.held:
        after, before = clock_of(member, batch_order, progress.watermarks), (rows, 0)
    else:
        after, before = tuples_after(member, batch_order), (rows, tuples_before(member, batch_order))
    order = _Order(member, output, before, after, [], held)
    _add_runs(order, ran, batch_order)
    return order


def _add_runs(order: _Order, ran: RanBatch, batch_order: BatchOrder) -> None:
    """Add the runs that tasks found, in an order that does not depend on which message came first."""
    member, answers = order.member, ran.reports.answers
    aliases, ordering = member.query.aliases, member.ordering
    # Read tasks number their tuples for themselves.
    alone = ordering is not None and ordering.by_arrival and len(aliases) == 1
    counts = ran.reports.read.counts.get(aliases[0], {}) if alone else {}
    before = tuples_before(member, batch_order) if alone else 0
    for at, sent in enumerate(sorted(answers.sent.get(member.name, ()), key=lambda sent: sent.sender)):
        runs = list(sent.runs)
        for batch in sent.batches:
            runs.append(SortedRun.of_batch(f"message {at}", batch))
            order.memory.runs[f"message {at}"] = batch
        if alone and ordering is not None:
            first = before + sum(rows for task, rows in counts.items() if task < sent.sender.task)
            runs = [run.numbered(first, ordering.block) for run in runs]
        order.runs += runs
