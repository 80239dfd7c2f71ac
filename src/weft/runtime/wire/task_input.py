"""What every task of a batch is given.

Guarantees: `Setup` is what stays the same from batch to batch, and travels once. A `Job` is one batch, small enough to
be sent to every task; it goes through JSON, so that it can travel over the control channel, which carries no pickles.
A job only names the graph of its queries; each process reads it from the log once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from weft.logical.codec import decode, encode
from weft.logical.schema import Stream
from weft.ports.sink import PartSink, Sink
from weft.ports.source import Source
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.model.assignment import Assignment, even_owners
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.limits import TaskLimits
from weft.runtime.program.executable import ExecutableGraph, program_of
from weft.runtime.wire.exchange import Exchange
from weft.storage.storage import Memory, Storage

__all__ = ["Job", "Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """What tasks know from the beginning.

    ``storage`` holds the log, and ``identity`` is the log's own, since the directory may have held another log before.
    ``sources`` and ``streams`` are by the stream's name. ``make_sink`` makes a sink from its description; ``sinks`` are
    those that have none, by query. ``functions`` are users' functions, pickled or as they are.
    """

    storage: Storage
    identity: str
    sources: Mapping[str, Source]
    streams: Mapping[str, Stream]
    make_sink: Callable[[Mapping[str, Any]], Sink] | None = None
    sinks: Mapping[str, PartSink] = field(default_factory=dict)
    functions: Mapping[str, bytes | Callable[..., Any]] = field(default_factory=dict)

    def sink(self, query: str, description: Mapping[str, Any] | None) -> PartSink:
        """The sink that tasks write a query's results to: made of its description, or one that has none."""
        if description is None or self.make_sink is None:
            return self.sinks[query]
        sink = self.make_sink(description)
        if not isinstance(sink, PartSink):
            raise TypeError(f"tasks cannot write to the sink of query {query}, a {type(sink).__name__}")
        return sink

    def program(self, blueprint: str) -> ExecutableGraph:
        """The executable graph of a blueprint."""
        if isinstance(self.storage, Memory):
            programs = self.storage.objects.setdefault("programs", {})
            if blueprint not in programs:
                programs[blueprint] = program_of(Checkpoint(self.storage).blueprint(blueprint).graph)
            found: ExecutableGraph = programs[blueprint]
            return found
        return _program(self.storage, self.identity, blueprint)


@lru_cache(maxsize=8)
def _program(storage: Storage, identity: str, blueprint: str) -> ExecutableGraph:  # noqa: ARG001
    return program_of(Checkpoint(storage).blueprint(blueprint).graph)


@dataclass(frozen=True, slots=True)
class Job:
    """A batch, as it is sent to its tasks.

    ``plan`` is what it does and ``before`` the manifest it begins with. ``sinks`` are those that tasks write to, by
    query; of the queries in ``counting``, results are only counted, and those of the queries in ``ordered`` are sorted.
    ``exchange`` says how batches get from task to task, and ``limits`` how much tasks may hold and give. A job at a
    ``boundary`` runs what is stored through the graph that the batch will have. There are so many ``tasks``, and
    ``owners`` is the task of each partition; without owners, task n has partitions n, n + tasks, …. If a task
    ``stays``, all hops of a batch that have its partitions run in one process. With ``flush``, what the
    batch leaves is flushed before it is reported.
    """

    setup: Setup
    plan: BatchPlan
    before: Manifest
    sinks: Mapping[str, PartSink] = field(default_factory=dict)
    counting: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()
    exchange: Exchange = field(default_factory=Exchange)
    boundary: bool = False
    limits: TaskLimits = field(default_factory=TaskLimits)
    tasks: int = 1
    stays: bool = False
    flush: bool = False
    owners: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        """The batch's number."""
        return self.plan.number

    @property
    def program(self) -> ExecutableGraph:
        """The executable graph of the batch's blueprint; must not be asked for if no query runs."""
        return self.setup.program(self.plan.blueprint)

    @property
    def batch_order(self) -> BatchOrder:
        """The batch's place in the total order, without counts, which tasks find out."""
        if self.plan.batch_order is None:
            raise ValueError(f"no query runs in batch {self.number}")
        return decode(BatchOrder, self.plan.batch_order)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self.batch_order.partitions

    @property
    def rehomes(self) -> bool:
        """Whether the batch before had other partitions, whose state is shared out anew."""
        return bool(self.before.partitions) and self.before.ranges != self.partitions

    @property
    def assignment(self) -> Assignment:
        """Which task has which partitions."""
        return Assignment(self.tasks, self.owners or even_owners(self.partitions, self.tasks))

    def partitions_of(self, task: int) -> tuple[int, ...]:
        """The partitions of a task, in their order."""
        return self.assignment.partitions_of(task)

    def for_task(self, task: int | None = None) -> Job:
        """The same job with only what tasks use of the plan and the manifest; if one is given, with its partitions."""
        plan, known = replace(self.plan, inputs={}, cursors={}), self.before
        mine = dict(known.partitions)
        if task is not None and not (plan.batch_order is not None and self.rehomes):
            own = self.partitions_of(task) if plan.batch_order is not None else ()
            mine = {partition: file for partition, file in mine.items() if partition in own}
        before = Manifest(
            known.number,
            mine,
            begun=known.begun,
            marks=known.marks,
            arrived=known.arrived,
            dealt=known.dealt,
            ranges=known.ranges,
        )
        return replace(self, plan=plan, before=before)

    def to_dict(self, describe: Callable[[Sink], Mapping[str, Any] | None]) -> dict[str, Any]:
        """As plain data without the setup; a sink is its description, or None if it has none."""
        return {
            "plan": encode(self.plan),
            "before": encode(self.before),
            "sinks": {name: describe(sink) for name, sink in self.sinks.items()},
            "counting": sorted(self.counting),
            "ordered": sorted(self.ordered),
            "exchange": self.exchange.folder,
            "boundary": self.boundary,
            "limits": encode(self.limits),
            "tasks": self.tasks,
            "stays": self.stays,
            "flush": self.flush,
            "owners": self.owners,
        }

    @classmethod
    def from_dict(cls, setup: Setup, data: Mapping[str, Any]) -> Job:
        """What `to_dict` made, with a setup that is the same."""
        sinks = {name: setup.sink(name, description) for name, description in data["sinks"].items()}
        return cls(
            setup,
            decode(BatchPlan, data["plan"]),
            Manifest.from_dict(data["before"]),
            sinks,
            frozenset(data["counting"]),
            frozenset(data["ordered"]),
            Exchange(data["exchange"]),
            data["boundary"],
            decode(TaskLimits, data["limits"]),
            data["tasks"],
            data["stays"],
            data["flush"],
            tuple(data["owners"]),
        )
