"""A batch whose tasks are done, and how far the streams are after it.

Guarantees: both are immutable, and a function of the plan, of what the batch began with and of what its tasks reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.logical.codec import decode
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.derived_marks import proven_marks
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.model.watermarks import Watermarks, connected_streams
from weft.runtime.observe.metrics import InputMetrics
from weft.runtime.program.executable import ExecutableGraph

__all__ = ["RanBatch", "StreamProgress"]


@dataclass(frozen=True, slots=True)
class RanBatch:
    """A batch whose tasks are done: its plan, the manifest it began with, what its tasks reported, and their graph.

    ``program`` is None if no query runs.
    """

    plan: BatchPlan
    before: Manifest
    reports: TaskReports
    program: ExecutableGraph | None = None

    @property
    def number(self) -> int:
        """The batch's number."""
        return self.plan.number

    def rows_before(self, query: str) -> int:
        """How many results of a query left before; those of an earlier query of the same name do not count."""
        return 0 if query in self.plan.begun else self.before.results.get(query, 0)


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far the streams are after a batch.

    ``watermarks`` are those after it. ``order`` is the batch's place in the total order, with the counts of its tuples;
    None if no query runs. ``inputs`` is what every input brought. By stream, ``arrived`` is how many tuples came in the
    batch, and ``newest`` and ``oldest`` are the last and the first time among them; ``proven`` is as in `Manifest`.
    """

    watermarks: Watermarks
    order: BatchOrder | None = None
    inputs: Mapping[str, InputMetrics] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)
    proven: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def after(cls, ran: RanBatch) -> StreamProgress:
        """Work out how far the streams are after a batch."""
        awake = dict.fromkeys(ran.plan.blocked, ran.plan.now)
        before = Watermarks(ran.before.marks, {**ran.before.active, **awake})
        if ran.program is None or ran.plan.batch_order is None:
            return cls(before)
        graph = ran.program.graph
        inputs = ran.reports.read.metrics_of_inputs(graph)
        arrived: dict[str, int] = {}
        newest: dict[str, int] = {}
        oldest: dict[str, int] = {}
        for alias, one in inputs.items():  # all inputs of a stream have the same tuples
            stream = graph.input(alias).stream.name
            arrived[stream] = max(one.rows, arrived.get(stream, 0))
            if one.newest is not None:
                newest[stream] = max(one.newest, newest.get(stream, one.newest))
            if one.oldest is not None:
                oldest[stream] = min(one.oldest, oldest.get(stream, one.oldest))
        counts = {
            alias: Count(ran.before.arrived.get(name, 0), arrived.get(name, 0))
            for alias in ran.program.counted
            for name in [graph.input(alias).stream.name]
        }
        order = replace(decode(BatchOrder, ran.plan.batch_order), counts=counts)
        watermarks = before.advance(connected_streams([graph]), newest, ran.plan.now)
        derived, proven = proven_marks(ran.program, ran.plan, order, ran.before, watermarks.marks)
        watermarks = replace(watermarks, marks={**watermarks.marks, **derived})
        return cls(watermarks, order, inputs, arrived, newest, oldest, proven)
