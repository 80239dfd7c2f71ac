"""The results of a batch in the order that queries ask for: tasks merge ranges of sorted runs, the driver says which.

Guarantees: the order is that of `query/ordering.py`. The output is a function of what the batches so far left and
of what this one found, so a batch that is replayed gives the same. The driver sees of results no more than a sample of
the keys of every run (SplitJoin, 5; decision 50). It divides the order into as many ranges as there are tasks, about
evenly by rows, and never between rows of one head; each range is merged by a task. Where all runs of a query are small,
the driver merges them itself, in the same way. Tasks that are lost meanwhile are replaced, and merge again: the runs
are in files of the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from weft.bucket.columns import longs
from weft.errors import SinkError
from weft.kernels.expr.arrow import result_schema
from weft.kernels.order.merging import merge as merge_batches
from weft.plan.physical.graph import Member
from weft.ports.punctuation import Punctuations
from weft.runtime.hop.sorting import key_count, tuples_before
from weft.runtime.log.values import BatchPlan, HeldRun, Manifest
from weft.runtime.model.batch_order import ENDED, UNKNOWN, BatchOrder
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.output.batch_files import read_file, write_file
from weft.runtime.output.batch_results import BatchResults
from weft.runtime.output.merge_task import InMemory, Merge, collect
from weft.runtime.output.query_sinks import QueryOutput
from weft.runtime.wire.reports import Failure, MergedRange
from weft.runtime.wire.sorted_runs import RunSlice, SortedRun
from weft.runtime.wire.task_input import Job
from weft.stats.histogram import Latency
from weft.storage.storage import Storage

__all__ = [
    "MergeTasks",
    "OrderedResults",
    "UnorderedBatch",
    "clock_of",
    "gather",
    "next_waiting",
    "order_results",
    "range_cuts",
    "tuples_after",
]


@dataclass(frozen=True, slots=True, eq=False)
class OrderedResults:
    """The results of an ordered query that leave with a batch, its punctuations, and the results that are held back.

    ``rows`` is how many leave. If tasks have written them to the sink, ``parts`` are the names of the parts, in order;
    else they are in ``files`` of the batch and then in ``batches``. ``waiting`` are the files of those that are held
    back. If results are held back until the watermarks pass them, ``ages`` is how old those are that leave.
    """

    schema: pa.Schema
    punctuations: Punctuations
    rows: int = 0
    parts: tuple[str, ...] | None = None
    files: tuple[str, ...] = ()
    batches: tuple[pa.RecordBatch, ...] = ()
    waiting: tuple[HeldRun, ...] = ()
    ages: Latency = field(default_factory=Latency)

    @property
    def rows_waiting(self) -> int:
        """How many results are held back."""
        return sum(run.rows for run in self.waiting)

    def table(self, storage: Storage) -> pa.Table:
        """The results that no task has written to the sink; large files are mapped, and need no memory."""
        read = [batch for name in self.files for batch in read_file(storage, name, keep=True)]
        return pa.Table.from_batches([*read, *self.batches], self.schema)


def clock_of(member: Member, batch_order: BatchOrder, watermarks: Watermarks) -> int:
    """The time before which all results of a query are known, since no tuple before it can be on time any more."""
    if member.name in batch_order.clocks and batch_order.clocks[member.name].now >= ENDED:
        return ENDED
    query = member.query
    marks = [watermarks.mark_of(query.input(alias).stream.name) for alias in query.driving]
    known = [mark for mark in marks if mark is not None]
    return min(known) if len(known) == len(marks) else UNKNOWN


def tuples_after(member: Member, batch_order: BatchOrder) -> int:
    """How many tuples of a query's inputs have come with a batch, since the query began."""
    arrived = sum(batch_order.counts[alias].arrived for alias in member.query.driving)
    return tuples_before(member, batch_order) + arrived


def gather(
    member: Member,
    left: Sequence[MergedRange],
    before: tuple[int, int],
    after: int,
    storage: Storage,
    *,
    in_parts: bool,
) -> OrderedResults:
    """What leaves with a batch, from what tasks say of its ranges.

    ``before`` are the rows and tuples before the batch; ``after`` is how many tuples there are with it or, in the order
    of event time, the clock. If tasks write to the sink, its parts have the punctuations, and only the last is known.
    """
    found = sorted(left, key=lambda one: one.place)
    rows = sum(one.rows for one in found)
    if in_parts or not found:
        marks = _last(member, before, rows, after)
    else:
        marks = Punctuations.joined(_marks(one, member.held, storage) for one in found)
    return OrderedResults(
        result_schema(member.query),
        marks,
        rows,
        tuple(one.part for one in found) if in_parts else None,
        tuple(name for one in found for name in one.files),
        ages=Latency.sum(one.ages for one in found),
    )


def _last(member: Member, before: tuple[int, int], rows: int, after: int) -> Punctuations:
    """The punctuation at the end of a batch with so many rows; none while a stream has no watermark."""
    if not member.held:
        return Punctuations(np.array([before[0] + rows]), np.array([after]))
    return Punctuations.of_time(before[0] + rows, after) if after > UNKNOWN else Punctuations.none(timed=True)


def _marks(one: MergedRange, timed: bool, storage: Storage) -> Punctuations:
    if one.marked:
        (batch,) = read_file(storage, one.marked)
        return Punctuations(longs(batch.column(0)), longs(batch.column(1)), timed)
    rows, marks = (np.array(some, np.int64) for some in one.marks)
    return Punctuations(rows, marks, timed)


def next_waiting(
    before: Sequence[HeldRun], merged: Collection[str], left: Sequence[MergedRange], clock: int
) -> tuple[HeldRun, ...]:
    """The runs that are held back after a batch, from those before and what tasks say of the ranges that left and stay.

    Those of ``merged`` are part of runs that were written anew; others that begin before the clock are cut.
    """
    cuts = {name: cut for one in left for name, cut in one.cuts.items()}
    found = []
    for run in before:
        if run.name in merged:
            continue
        if run.time >= clock:
            found.append(run)
        elif run.name in cuts:
            found.append(_cut(run, *cuts[run.name]))
    return (*found, *(run for one in sorted(left, key=lambda one: one.place) for run in one.held))


def _cut(run: HeldRun, first: int, time: int) -> HeldRun:
    """A run of which the rows before ``first`` have left."""
    rows = run.rows - (first - run.first)
    size, sample = run.bytes * rows // run.rows, tuple(one for one in run.sample if one >= time)
    return replace(run, first=first, rows=rows, time=time, bytes=size, sample=sample)


FEW = 1 << 22  # bytes of a query's runs that the driver merges itself
LEAST = 1 << 20  # bytes of a range that are worth a task


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """An ordered query in a batch: its runs, and what it held back before; ``memory`` has the runs of messages.

    ``before`` are the rows and tuples before the batch; ``after`` is how many tuples there are with it or, in the order
    of event time, the clock.
    """

    member: Member
    output: QueryOutput
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

    def gathered(
        self, found: Sequence[MergedRange], merged: Collection[str], storage: Storage
    ) -> OrderedResults:
        """What leaves and what stays, from what tasks say; ``merged`` are runs held before that were written anew."""
        left, in_parts = [one for one in found if one.rows], self.output.in_order is not None
        gathered = gather(self.member, left, self.before, self.after, storage, in_parts=in_parts)
        waiting = next_waiting(self.held, merged, found, self.after) if self.member.held else ()
        return replace(gathered, batches=tuple(self.memory.batches), waiting=waiting)

    def nothing(self) -> OrderedResults:
        """What leaves and what stays of a query that failed."""
        parts = None if self.output.in_order is None else ()
        marks = Punctuations.none(timed=self.member.held)
        return OrderedResults(result_schema(self.member.query), marks, parts=parts)

    def put_down(self, storage: Storage, number: int) -> _Order:
        """The same order, with the small runs that came in messages as one in a file, where tasks see it."""
        if not self.memory.runs:
            return self
        small = [run for run in self.runs if run.name in self.memory.runs]
        rows = [RunSlice.of_run(run, self.memory.runs[run.name]).rows() for run in small]
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


class MergeTasks(Protocol):
    """The tasks of a batch, as the driver has them merge ranges of its results; ``storage`` is where its files are."""

    @property
    def storage(self) -> Storage: ...

    @property
    def count(self) -> int:
        """How many tasks there are."""
        ...

    def job(self, outputs: Mapping[str, QueryOutput]) -> Job:
        """The batch as its tasks are given it, with the sinks that results go to."""
        ...

    def merge(self, job: Job, merges: Sequence[Merge]) -> list[MergedRange | Failure]:
        """Have tasks merge ranges, and return what they reported."""
        ...


@dataclass(frozen=True, slots=True)
class UnorderedBatch:
    """A batch whose tasks are done, as far as it matters for the order of its results.

    ``before`` is the manifest that it began with, and ``members`` are its queries by name. ``counts`` is how many
    tuples of each input every read task has admitted; ``order`` is the batch's place in the total order, and
    ``watermarks`` are those after it.
    """

    plan: BatchPlan
    before: Manifest
    members: Mapping[str, Member]
    results: BatchResults
    counts: Mapping[str, Mapping[int, int]]
    order: BatchOrder
    watermarks: Watermarks

    def query(self, name: str, output: QueryOutput) -> _Order:
        """An ordered query in the batch, before its results are merged."""
        member, memory = self.members[name], InMemory()
        rows, held = self.plan.results_before(name, self.before), self.before.held.get(name, ())
        runs = tuple(self._runs(member, memory))
        if member.held:
            after, before = clock_of(member, self.order, self.watermarks), (rows, 0)
        else:
            after, before = tuples_after(member, self.order), (rows, tuples_before(member, self.order))
        return _Order(member, output, before, after, runs, held, memory)

    def _runs(self, member: Member, memory: InMemory) -> Iterator[SortedRun]:
        """The runs that tasks found, in an order that does not depend on which message came first."""
        aliases, ordering = member.query.aliases, member.ordering
        # Read tasks number their tuples for themselves.
        alone = ordering is not None and ordering.by_arrival and len(aliases) == 1
        counts = self.counts.get(aliases[0], {}) if alone else {}
        before = tuples_before(member, self.order) if alone else 0
        every = self.results.sent.get(member.name, ())
        for at, sent in enumerate(sorted(every, key=lambda sent: sent.sender)):
            memory.runs |= {f"message {at}": batch for batch in sent.batches}
            in_messages = (SortedRun.of_batch(f"message {at}", batch) for batch in sent.batches)
            first = before + sum(rows for task, rows in counts.items() if task < sent.sender.task)
            for run in (*in_messages, *sent.runs):
                yield run.numbered(first, ordering.block) if alone and ordering is not None else run


def order_results(
    batch: UnorderedBatch, outputs: Mapping[str, QueryOutput], tasks: MergeTasks
) -> tuple[dict[str, OrderedResults], dict[str, SinkError]]:
    """Bring the results of ordered queries into order, for the sinks of those queries.

    Returned with them are the errors of sinks that refused what tasks wrote: their results are merged once more, for
    the driver.
    """
    ordered, refused = _merge(batch, {name: batch.query(name, one) for name, one in outputs.items()}, tasks)
    if refused:
        by_driver = {name: batch.query(name, outputs[name].by_driver()) for name in refused}
        ordered |= _merge(batch, by_driver, tasks)[0]
    return ordered, refused


def _merge(
    batch: UnorderedBatch, orders: Mapping[str, _Order], tasks: MergeTasks
) -> tuple[dict[str, OrderedResults], dict[str, SinkError]]:
    """Merge the results of ordered queries, and return them with the errors of sinks that cannot take them."""
    failed, storage = batch.results.failed, tasks.storage
    job = tasks.job({name: order.output for name, order in orders.items()})
    ready = {name: order for name, order in orders.items() if name not in failed}
    divided = {name: order.division() for name, order in ready.items()}
    larger = list[Merge]()
    reports = list[MergedRange | Failure]()
    for name, division in divided.items():
        if division.bytes >= FEW:
            ready[name] = ready[name].put_down(storage, batch.plan.number)
            divided[name] = ready[name].division()
            larger += ready[name].merges(divided[name], tasks.count)
        elif merges := ready[name].merges(division, 1):
            reports += [collect(job, merge, ready[name].memory) for merge in merges]
    if larger:
        reports += tasks.merge(job, larger)
    refused = {
        report.query: error
        for report in reversed(reports)
        if isinstance(report, Failure) and report.query is not None and (error := report.refused) is not None
    }
    merged: dict[str, list[MergedRange]] = {name: [] for name in orders}
    for report in reports:
        if isinstance(report, MergedRange):
            merged[report.query].append(report)
    ordered = {
        name: ready[name].gathered(merged[name], divided[name].merged, storage)
        if name in ready and name not in refused
        else order.nothing()
        for name, order in orders.items()
    }
    return ordered, refused
