"""One hop of a batch in the partitions of a task: from what arrived to what is left (design, D3 and D13).

Guarantees: the partitions are run in their order, and what they give goes out together. After the last hop of a batch,
every partition in which something changed has a new manifest, and what the task reports names it; if the batch has to
survive the death of the machine, all of it has been flushed by then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import pyarrow as pa

from weft.logical.codec import decode
from weft.runtime.hop.admission import renumbered
from weft.runtime.hop.interpret import run_hop
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.output.outlet import TaskOutlet
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.queries.migration import StateMigration, edges_for
from weft.runtime.state.expiry import forgettable
from weft.runtime.state.open_segments import Underway, open_segments_of
from weft.runtime.state.partition import PartitionState
from weft.runtime.state.partition_manifest import PartitionFile, PartitionManifest, StoreTotals
from weft.runtime.state.rehoming import rehomed
from weft.runtime.state.segment_file import flush_segments
from weft.runtime.state.settling import MergeBudget
from weft.runtime.state.stores import Forget
from weft.runtime.task.tuple_ages import batch_ages
from weft.runtime.wire.exchange import Sender, SentParcel
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import HopLeft, HopReport, PartitionsLeft, TuplesCounted
from weft.runtime.wire.task_input import Job

__all__ = [
    "HopInput",
    "HopRun",
    "batch_options",
    "manifest_of",
    "stored_options",
    "stored_order",
]


LEAST_MERGING = 0.01  # seconds that a task may merge in a batch, however short that is

ByEdge = dict[str, list[pa.RecordBatch]]


@dataclass
class HopInput:
    """The messages of a task of a hop; ``counts`` of tuples are by input and read task, ``underway`` by partition."""

    job: Job
    task: int
    parcels: list[SentParcel] = field(default_factory=list)
    underway: dict[int, Underway] = field(default_factory=dict)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)

    def take(self, hop: int, message: Message) -> bool:
        """Keep a message if it is for this hop, and return whether it need not be passed on.

        Counts of tuples are kept and passed on, since later hops need them too.
        """
        if message.is_for_driver:
            return False
        if TuplesCounted.is_in(message):
            counted = TuplesCounted.from_message(message)
            for alias, rows in counted.rows.items():
                self.counts.setdefault(alias, {})[counted.task] = rows
            return False
        if HopLeft.is_in(message):
            left = HopLeft.from_message(message)
            self.underway[left.partition] = left.underway
            return True
        parcel = SentParcel.from_message(message)
        if self.job.program.edges[parcel.edge].hop != hop:
            return False
        self.parcels.append(parcel)
        return True

    def batches(self, before: Mapping[str, int]) -> dict[int, ByEdge]:
        """The batches by partition and edge, with the final numbers of tuples.

        ``before`` is how many tuples of each counted input came in earlier batches.
        """
        partitions, program = self.job.partitions_of(self.task), self.job.program
        found: dict[int, ByEdge] = {partition: {} for partition in partitions}
        for parcel in sorted(self.parcels, key=lambda parcel: (parcel.edge, parcel.sender)):
            batches = self.job.exchange.unpack(parcel.packed)
            alias = program.starts[parcel.edge]
            if parcel.sender.hop == 0 and alias in self.counts:
                first = before[alias] + self._ahead(alias, parcel.sender.task)
                batches = [renumbered(alias, batch, first) for batch in batches]
            divided = parcel.divided(batches, len(partitions))
            for partition, mine in zip(partitions, divided, strict=False):  # the last ones may not exist
                if mine:
                    found[partition].setdefault(parcel.edge, []).extend(mine)
        return found

    def _ahead(self, alias: str, task: int) -> int:
        return sum(rows for other, rows in self.counts[alias].items() if other < task)

    def before(self) -> dict[str, int]:
        """How many tuples of the counted inputs came in earlier batches."""
        program, manifest = self.job.program, self.job.before
        return {a: manifest.arrived.get(program.graph.input(a).stream.name, 0) for a in program.counted}

    def counted(self, batch_order: BatchOrder, before: Mapping[str, int]) -> BatchOrder:
        """The batch's place in the total order, with the counts of its tuples."""
        counted = self.job.program.counted
        counts = {a: Count(before[a], sum(self.counts.get(a, {}).values())) for a in counted}
        return replace(batch_order, counts=counts)


def manifest_of(job: Job, partition: int) -> PartitionManifest:
    """The manifest that a partition begins a batch with, or what it has of those before if there were others."""
    segments, known = open_segments_of(job.setup.storage), job.before
    if not job.rehomes:
        return segments.manifest(partition, known.partitions.get(partition))
    plans: list[StorePlan | GroupPlan] = [*job.program.stores.values(), *job.program.groups.values()]
    make = partial(rehomed, begun=known.begun, plans=plans, partition=partition, count=job.partitions)
    return segments.rehomed(partition, known.partitions, make)


def stored_order(job: Job) -> BatchOrder:
    """The batch order in which stored tuples are run through a graph: that of the batch, with all counts 0."""
    return replace(job.batch_order, counts=dict.fromkeys(job.program.counted, Count(0, 0)))


def batch_options(job: Job) -> HopOptions:
    """The options of a batch's own hops."""
    ages = batch_ages(job.plan, job.program.graph)
    return HopOptions(job.counting, limits=job.limits, ages=ages, grouped=job.program.groups)


def stored_options(job: Job, migration: StateMigration) -> HopOptions:
    """The options of hops at a boundary: only the edges that lead to what is filled and to backfilled results."""
    edges = edges_for(job.program.graph, migration)
    return HopOptions(
        job.counting,
        limits=job.limits,
        edges=edges,
        answering=migration.backfill,
        grouped=job.program.groups,
    )


@dataclass(frozen=True, slots=True)
class HopRun:
    """A hop of a job in the partitions of a task."""

    job: Job
    hop: int
    task: int
    arrived: HopInput

    def run(self) -> Generator[Message, None, HopReport]:
        """Run the hop, give the messages that come of it, and return what is to be reported of it."""
        job, began = self.job, perf_counter()
        if job.boundary and job.plan.migration is None:
            return HopReport(self.hop)
        before = {} if job.boundary else self.arrived.before()
        batches = self.arrived.batches(before)
        if job.boundary:
            migration = decode(StateMigration, job.plan.migration or {})
            order, options = stored_order(job), stored_options(job, migration)
            fills: frozenset[str] | None = frozenset(migration.fills)
        else:
            order = self.arrived.counted(job.batch_order, before)
            options, fills = batch_options(job), None
        states = {p: self._state(p, fills) for p in job.partitions_of(self.task)}
        with TaskOutlet(job, Sender(self.hop, self.task)) as outlet:
            outcome = Outcome(replace(options, outlet=outlet))
            busy = dict.fromkeys(states, 0.0)
            for partition, state in states.items():
                with _timed(busy, partition):
                    self._run_in(partition, state, batches[partition], order, outcome)
            report = yield from outlet.messages(outcome)
        budget = self._merge_budget(perf_counter() - began)
        left = yield from self._leave(states, order, fills, busy, budget)
        busy = {p: round(spent, 6) for p, spent in busy.items()}
        return replace(report, left=left, busy=busy, merged=budget.merged, debt=budget.debt)

    def _merge_budget(self, worked: float) -> MergeBudget:
        """What may be merged after so many seconds of work: for half as long, within the limits of the session.

        A batch without input has time for all that is allowed.
        """
        job = self.job
        most = job.limits.merge_seconds / job.program.graph.hops
        wanted = worked / 2 if self.arrived.parcels else most
        speed = open_segments_of(job.setup.storage).merge_speed
        return speed.budget(min(most, max(wanted, LEAST_MERGING)))

    def _state(self, partition: int, fills: frozenset[str] | None) -> PartitionState:
        job, segments = self.job, open_segments_of(self.job.setup.storage)
        before = manifest_of(job, partition)
        underway = self.arrived.underway.get(partition, Underway())
        if job.stays:
            if self.hop == 1:
                segments.underway[partition] = Underway()
            underway = segments.underway[partition]
        runs = before.since(job.before.begun)
        given = (segments, job.number, partition, job.program, before, runs, underway, fills)
        return PartitionState(*given, job.partitions, job.rehomes)

    def _run_in(
        self, partition: int, state: PartitionState, here: ByEdge, order: BatchOrder, outcome: Outcome
    ) -> None:
        """Run the hop in a partition, unless there is nothing to do."""
        program = self.job.program
        closes = program.sweeps or (program.groups and self.hop == program.graph.hops)
        if here or (closes and not self.job.boundary):
            run_hop(program, self.hop, here, state, order, outcome.options, partition, outcome)

    def _leave(
        self,
        states: dict[int, PartitionState],
        order: BatchOrder,
        fills: frozenset[str] | None,
        busy: dict[int, float],
        budget: MergeBudget,
    ) -> Generator[Message, None, PartitionsLeft | None]:
        """Settle the stores that no later hop uses; after the last hop, write down what the batch leaves."""
        forget = {} if fills is not None else self._forget(order)
        is_last = self.hop == self.job.program.graph.hops
        left: dict[int, tuple[PartitionFile | None, PartitionManifest]] = {}
        turn = self.job.number % max(1, len(states))  # another partition each time is the first to merge
        for partition, state in [*list(states.items())[turn:], *list(states.items())[:turn]]:
            with _timed(busy, partition):
                state.settle(self.hop, order.order, forget, budget)
                if is_last:
                    left[partition] = state.finish()
            if not is_last and not self.job.stays:
                yield HopLeft(partition, state.put_down()).to_message(self.task)
        return self._written(left) if is_last else None

    def _forget(self, order: BatchOrder) -> dict[str, Forget]:
        marks = Watermarks(self.job.before.marks)
        plans = self.job.program.stores.values()
        return {plan.identity: forgettable(plan, marks, order) for plan in plans}

    def _written(self, left: dict[int, tuple[PartitionFile | None, PartitionManifest]]) -> PartitionsLeft:
        files = {partition: file for partition, (file, _) in left.items() if file is not None}
        if self.job.flush:
            names = {name for p in files for name in left[p][1].sizes if _is_of(name, self.job.number)}
            flush_segments(self.job.setup.storage, sorted(names))
        totals: dict[str, StoreTotals] = {}
        for _, manifest in left.values():
            for store, runs in manifest.runs.items():
                mine = StoreTotals.of_bounds(run.bounds for run in runs)
                totals[store] = totals.get(store, StoreTotals()).plus(mine)
        return PartitionsLeft(files, totals)


def _is_of(name: str, number: int) -> bool:
    """Whether a segment was written in a batch; one of an earlier batch has been flushed."""
    return name.partition("-")[0] == str(number)


@contextmanager
def _timed(busy: dict[int, float], partition: int) -> Iterator[None]:
    """A context whose seconds are added to those of a partition."""
    began = perf_counter()
    try:
        yield
    finally:
        busy[partition] += perf_counter() - began
