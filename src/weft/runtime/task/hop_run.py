"""One hop of a batch in the partitions of a task: from what arrived to what is left (design, D3 and D13).

Guarantees: the partitions are run in their order, and what they give goes out together. After the last hop of a batch,
every partition in which something changed has a new manifest, and what the task reports names it; if the batch has to
survive the death of the machine, all of it has been flushed by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from weft.logical.codec import decode
from weft.runtime.hop.interpret import run_hop
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.model.watermarks import Watermarks
from weft.runtime.output.outlet import TaskOutlet
from weft.runtime.queries.migration import StateMigration, edges_for
from weft.runtime.state.expiry import forgettable
from weft.runtime.state.open_segments import Underway, open_segments_of
from weft.runtime.state.partition import PartitionState
from weft.runtime.state.partition_manifest import PartitionFile, PartitionManifest, StoreTotals
from weft.runtime.state.segment_file import flush_segments
from weft.runtime.state.stores import Forget
from weft.runtime.task.arrivals import batch_ages
from weft.runtime.task.arrived import Arrived, ByEdge
from weft.runtime.wire.exchange import Sender
from weft.runtime.wire.messages import Message
from weft.runtime.wire.notes import HopLeft
from weft.runtime.wire.reports import PartitionsLeft
from weft.runtime.wire.task_input import Job

__all__ = ["HopRun", "batch_options", "stored_options", "stored_order"]


def stored_order(job: Job) -> BatchOrder:
    """The batch order in which stored tuples are run through a graph: that of the batch, with all counts 0."""
    return replace(job.batch_order, counts=dict.fromkeys(job.program.counted, Count(0, 0)))


def batch_options(job: Job) -> HopOptions:
    """The options of a batch's own hops."""
    return HopOptions(job.counting, limits=job.limits, ages=batch_ages(job.plan, job.program.graph))


def stored_options(job: Job, migration: StateMigration) -> HopOptions:
    """The options of hops at a boundary: only the edges that lead to what is filled and to backfilled results."""
    edges = edges_for(job.program.graph, migration)
    return HopOptions(job.counting, limits=job.limits, edges=edges, answering=migration.backfill)


@dataclass(frozen=True, slots=True)
class HopRun:
    """A hop of a job in the partitions of a task."""

    job: Job
    hop: int
    task: int
    arrived: Arrived

    def run(self) -> Iterator[Message]:
        """Run the hop, and give the messages that come of it."""
        job = self.job
        if job.boundary and job.plan.migration is None:
            return
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
            for partition, state in states.items():
                self._run_in(partition, state, batches[partition], order, outcome)
            yield from outlet.messages(outcome)
        yield from self._leave(states, order, fills)

    def _state(self, partition: int, fills: frozenset[str] | None) -> PartitionState:
        job, segments = self.job, open_segments_of(self.job.setup.storage)
        before = segments.manifest(partition, job.before.partitions.get(partition))
        underway = self.arrived.underway.get(partition, Underway())
        if job.stays:
            if self.hop == 1:
                segments.underway[partition] = Underway()
            underway = segments.underway[partition]
        runs = before.since(job.before.begun)
        return PartitionState(segments, job.number, partition, job.program, before, runs, underway, fills)

    def _run_in(
        self, partition: int, state: PartitionState, here: ByEdge, order: BatchOrder, outcome: Outcome
    ) -> None:
        """Run the hop in a partition, unless there is nothing to do."""
        program = self.job.program
        if here or (program.sweeps and not self.job.boundary):
            run_hop(program, self.hop, here, state, order, outcome.options, partition, outcome)

    def _leave(
        self, states: dict[int, PartitionState], order: BatchOrder, fills: frozenset[str] | None
    ) -> Iterator[Message]:
        """Settle the stores that no later hop uses; after the last hop, write down what the batch leaves."""
        forget = {} if fills is not None else self._forget(order)
        is_last = self.hop == self.job.program.graph.hops
        left: dict[int, tuple[PartitionFile | None, PartitionManifest]] = {}
        for partition, state in states.items():
            state.settle(self.hop, order.order, forget)
            if is_last:
                left[partition] = state.finish()
            elif not self.job.stays:
                yield HopLeft(partition, state.put_down()).to_message(self.task)
        if is_last:
            yield self._report(left).to_message(self.task)

    def _forget(self, order: BatchOrder) -> dict[str, Forget]:
        marks = Watermarks(self.job.before.marks)
        plans = self.job.program.stores.values()
        return {plan.identity: forgettable(plan, marks, order) for plan in plans}

    def _report(self, left: dict[int, tuple[PartitionFile | None, PartitionManifest]]) -> PartitionsLeft:
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
