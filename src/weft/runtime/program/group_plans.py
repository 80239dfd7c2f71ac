"""The group stores of a graph, prepared for execution (design, D15).

Guarantees: plain values; what they hold follows from the graph alone. The identity of a group store is that of its
query from its first batch on, so another plan or other queries leave its groups as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from weft.bucket.bucket import FARTHEST
from weft.bucket.index import Order, by_hash
from weft.errors import PlanError
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.groups.partials import CLOSES, END, HASH, PartialGroups, TimeWindow
from weft.kernels.groups.states import state_of
from weft.logical.outer.group_closing import GroupEnd, group_ends
from weft.logical.query.grouping import GROUP, Grouping, GroupWindow
from weft.plan.physical.graph import Member
from weft.plan.physical.rules import RESULT, Edge
from weft.plan.schedule import SHUFFLE
from weft.runtime.model.columns import micros

__all__ = ["GroupPlan", "group_plans"]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The group store of a query: what partial groups are, and the edge and the hop in which they come together."""

    member: Member
    grouping: Grouping
    partials: PartialGroups
    hop: int

    @property
    def name(self) -> str:
        """The query's name."""
        return self.member.name

    @property
    def identity(self) -> str:
        """The name under which manifests have its runs."""
        return f"groups of {self.member.name} since {self.member.first}"

    @property
    def edge(self) -> Edge:
        """The way of partial groups to the partitions that keep them."""
        return Edge(f"groups: {self.member.name}", RESULT, self.identity, SHUFFLE, self.hop)

    @property
    def order(self) -> Order:
        """The order in which runs are laid out."""
        return by_hash(HASH)

    @property
    def clock(self) -> str:
        """The column that decides how long a group is kept."""
        return CLOSES

    @property
    def is_global(self) -> bool:
        """Whether there is one group alone, which is there even without rows."""
        return not self.grouping.keys and self.grouping.window is None

    @property
    def row_types(self) -> dict[str, pa.DataType]:
        """The types of the columns of the join."""
        return {output.name: arrow_type(output.expr.type) for output in self.member.query.projection}


def group_plans(members: Iterable[Member], hop: int) -> dict[str, GroupPlan]:
    """The group stores of queries, by name; ``hop`` is the one in which partial groups come together."""
    return {m.name: _plan(m, m.query.grouping, hop) for m in members if m.query.grouping is not None}


def _plan(member: Member, grouping: Grouping, hop: int) -> GroupPlan:
    ends = group_ends(member.query, None if member.closing is None else member.closing.tree)
    kinds = {output.name: arrow_type(output.expr.type) for output in member.query.projection}
    states = {}
    for one in grouping.aggregates:
        if "." in one.name or one.name == GROUP:
            raise PlanError(f"an aggregate cannot be called {one.name!r}")
        kind = None if one.argument is None else kinds[one.argument]
        states[one.name] = state_of(one.function, kind, arrow_type(one.type), one.most), one.argument
    window = _window(grouping.window)
    times = None if ends is None else [[_time(end, window) for end in some] for some in ends]
    partials = PartialGroups(grouping.keys, window, states, times)
    return GroupPlan(member, grouping, partials, hop)


def _time(end: GroupEnd, window: TimeWindow | None) -> tuple[str, int]:
    """A time that ends a group, as a column of partial groups and microseconds to be added."""
    name = END if window is not None and window.column == end.column else end.column
    return name, max(-FARTHEST, min(FARTHEST, micros(end.after)))


def _window(window: GroupWindow | None) -> TimeWindow | None:
    if window is None:
        return None
    slide = None if window.slide is None else micros(window.slide)
    return TimeWindow(window.column, micros(window.size), slide)
