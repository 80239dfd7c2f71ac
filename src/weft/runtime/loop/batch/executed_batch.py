"""A batch whose tasks are done, and how far the streams are after it.

Guarantees: both are immutable, and a function of the plan, of what the batch began with and of what its tasks reported.

The watermark of a derived stream or union (`proven_marks`) is what has been proven of all its tuples that have not been
taken yet. A result to come of an inner join has a tuple that is at or after the watermark of its stream; a row that is
still open is younger than the time up to which rows were closed, less the longest wait; a group that is still to
come has not been complete by the clock. What a batch proves holds for
the results of later batches, so it is the watermark only once all results up to that batch have been taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.logical.codec import decode
from weft.logical.nested.nested import inner_queries
from weft.logical.outer.group_closing import group_time
from weft.logical.outer.outer import joins
from weft.logical.outer.waiting import never_closed
from weft.plan.physical.graph import Member
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.model.batch_order import ENDED, UNKNOWN, BatchOrder, Count
from weft.runtime.model.columns import micros
from weft.runtime.model.watermarks import Watermarks, connected_streams
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import SweepPlan
from weft.stats.input_figures import InputFigures

__all__ = ["ExecutedBatch", "StreamProgress", "proven_marks"]


@dataclass(frozen=True, slots=True)
class ExecutedBatch:
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
        """How many results of a query left before the batch."""
        return self.plan.results_before(query, self.before)


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far the streams are after a batch.

    ``watermarks`` are those after it. ``order`` is the batch's place in the total order, with the counts of its tuples;
    None if no query runs. ``inputs`` is what every input brought. By stream, ``arrived`` is how many tuples came in the
    batch, and ``newest`` and ``oldest`` are the last and the first time among them; ``proven`` is as in `Manifest`.
    """

    watermarks: Watermarks
    order: BatchOrder | None = None
    inputs: Mapping[str, InputFigures] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)
    proven: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def after(cls, ran: ExecutedBatch) -> StreamProgress:
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


def proven_marks(
    program: ExecutableGraph,
    plan: BatchPlan,
    order: BatchOrder,
    before: Manifest,
    marks: Mapping[str, int],
) -> tuple[dict[str, int], dict[str, list[tuple[int, int]]]]:
    """The watermarks of derived streams after a batch, and what is proven for later ones.

    ``marks`` are the watermarks of the other streams after the batch, and those of derived streams before it.
    """
    streams = {
        input_.stream.name: input_.stream
        for member in program.graph.members
        for input_ in member.query.inputs
        if input_.stream.definition
    }
    found: dict[str, int] = {}
    proven: dict[str, list[tuple[int, int]]] = {}
    for name, stream in sorted(streams.items()):
        through = int(plan.cursors.get(name, {}).get("through", -1))
        pairs = [(int(batch), int(mark)) for batch, mark in before.proven.get(name, ())]
        passed = [mark for batch, mark in pairs if batch <= through]
        if passed:
            found[name] = max(*passed, before.marks.get(name, passed[0]))
        later = [pair for pair in pairs if pair[0] > through]
        values = [_bound(program, plan, order, inner, {**marks, **found}) for inner in inner_queries(stream)]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            later.append((plan.number, max([min(known), *(mark for _, mark in later[-1:])])))
        proven[name] = later
    return found, proven


def _bound(
    program: ExecutableGraph, plan: BatchPlan, order: BatchOrder, name: str, marks: Mapping[str, int]
) -> int | None:
    """A time that no later result of an inner query is before; None if there is none."""
    if name not in program.members:
        return None
    query = program.members[name].query
    streams = [query.input(alias).stream for alias in query.driving]  # tables have no watermarks
    ends = [ENDED if plan.ended and not one.definition else marks.get(one.name) for one in streams]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    if query.grouping is not None:
        return _group_bound(program.members[name], order.clocks[name].now)
    sweep = next((one for one in program.sweeps if one.member.name == name), None)
    if sweep is None:
        return min(known)
    closed = order.clocks[name].now
    if closed >= ENDED:
        return ENDED
    longest = _longest_wait(sweep)
    return None if longest is None else min(closed, *known) - longest


def _group_bound(member: Member, closed: int) -> int | None:
    """The same for groups, which leave a certain time after their own; None if it is not known."""
    time = group_time(member.query, None if member.closing is None else member.closing.tree)
    if closed >= ENDED or closed <= UNKNOWN or time is None:
        return ENDED if closed >= ENDED else None
    return closed - micros(time.lag)


def _longest_wait(sweep: SweepPlan) -> int | None:
    """How long a row can be open, at most; None if there is no limit."""
    query, tree = sweep.member.query, sweep.closing.tree
    tested = {number for number, join in joins(tree) if join.kind == "semi"}
    endless = any(wait is None for (number, _), wait in sweep.waits.items() if number in tested)
    if endless or never_closed(query, tree):
        return None
    return max((0, *(wait for wait in sweep.waits.values() if wait is not None)))  # for tables nothing waits
