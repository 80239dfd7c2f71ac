"""The watermarks of derived streams and unions.

Guarantees: a watermark is what has been proven of all tuples of the stream that have not been taken yet. A result to
come of an inner join has a tuple that is at or after the watermark of its stream; a row that is still open is younger
than the time up to which rows were closed, less the longest wait. What a batch proves holds for the results of later
batches, so it is the watermark only once all results up to that batch have been taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.logical.nested.nested import inner_queries
from weft.logical.outer.outer import joins
from weft.logical.outer.waiting import never_closed
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.model.batch_order import ENDED, BatchOrder
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import SweepPlan

__all__ = ["proven_marks"]


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
    sweep = next((one for one in program.sweeps if one.member.name == name), None)
    if sweep is None:
        return min(known)
    closed = order.clocks[name].now
    if closed >= ENDED:
        return ENDED
    longest = _longest_wait(sweep)
    return None if longest is None else min(closed, *known) - longest


def _longest_wait(sweep: SweepPlan) -> int | None:
    """How long a row can be open, at most; None if there is no limit."""
    query, tree = sweep.member.query, sweep.closing.tree
    tested = {number for number, join in joins(tree) if join.kind == "semi"}
    endless = any(wait is None for (number, _), wait in sweep.waits.items() if number in tested)
    if endless or never_closed(query, tree):
        return None
    return max((0, *(wait for wait in sweep.waits.values() if wait is not None)))  # for tables nothing waits
