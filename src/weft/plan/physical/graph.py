"""The physical graph, which the runtime executes and which says all that it needs for that (CLASH 4.2, 7.1.2, 8.3.1).

Guarantees: every graph has passed the checks of `validate.py` when it was made. It is for one query or for many: parts
that queries have in common are there once, and every part names the queries that use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from textwrap import shorten
from typing import ClassVar, TypeVar

from weft.errors import PlanError
from weft.logical.codec import LOGICAL, Codec
from weft.logical.expr.expression import Column, Expr
from weft.logical.outer.outer import Closing
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Input, Query
from weft.plan.join_plan import (
    Cost,
    JoinPlan,
    Layout,
    Names,
    Operator,
    ProbeOrder,
    StepCost,
    Store,
    StoreCost,
)
from weft.plan.physical.rules import Edge, ProbeRule, ResultRule, Rule, StoreRule, Sweep, Users
from weft.plan.physical.validate import validate
from weft.plan.routing import Equality
from weft.plan.workload import Answer, Filling, SharedStore, Upkeep, Walk, WorkloadPlan, store_identity

__all__ = ["CODEC", "Member", "PhysicalGraph", "SourceNode", "StoreNode", "Visibility"]


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a query sees of the stored past of an input: tuples of ``batch`` or later, with time ``since`` or later.

    Times are in microseconds, or numbers of tuples where windows count them. Results whose tuples are all at or after
    ``complete`` are complete; None means that all results are. ``store`` is the store in which the query saw the past
    when it began.
    """

    alias: str
    batch: int = 0
    since: int | None = None
    complete: int | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A query of a graph: its slot in query-sets, its first batch, and what it sees of the tuples that came before.

    For a query with outer joins, ``query`` is the core, and ``closing`` is the rest of it. If its results leave in an
    order, ``began`` says how many tuples of its inputs had come before its first batch.
    """

    name: str
    query: Query
    slot: int = 0
    first: int = 0
    visibilities: tuple[Visibility, ...] = ()
    closing: Closing | None = None
    backfill: bool = False  # whether results that lie wholly in the past are wanted
    ordering: Ordering | None = None
    began: int = 0

    @property
    def walked(self) -> bool:
        """Whether probing finds results of this query."""
        return self.closing is None or self.closing.walked

    @property
    def held(self) -> bool:
        """Whether results are held back until the watermarks pass them."""
        return self.ordering is not None and not self.ordering.by_arrival

    def visibility(self, alias: str) -> Visibility:
        """What the query sees of an input's past."""
        return next(
            (visibility for visibility in self.visibilities if visibility.alias == alias), Visibility(alias)
        )


@dataclass(frozen=True, slots=True)
class SourceNode:
    """The node where tuples of an input enter the graph; only ``columns`` of them go on."""

    WRITTEN_AS: ClassVar[str] = "Source"  # as every checkpoint has it

    name: str
    alias: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class StoreNode:
    """A store: its inputs, its layout, what it is looked up by, and the hop from which it is complete.

    ``retention`` says per input how long after its tuple's time a partner can still come, None meaning for ever; a
    stored tuple is of use until the first of these times has passed (CLASH 6.2.1). ``on`` joins the store's inputs.
    Of its users, those in ``filling`` are not answered from it yet: it is filled for a graph to come.
    """

    name: str
    aliases: Names
    layout: Layout
    complete: int
    indexes: tuple[Expr, ...]
    retention: tuple[timedelta | None, ...]
    users: Users = ()
    on: tuple[Expr, ...] = ()
    group: str = ""
    filling: Users = ()

    @property
    def identity(self) -> str:
        """A name that the store keeps for as long as it exists, whichever queries begin to use it or stop."""
        return store_identity(self.aliases, self.layout, self.on, self.group)


@dataclass(frozen=True, slots=True)
class PhysicalGraph:
    """Sources, stores, the edges between them and the rules at their ends, layered into hops.

    ``tracked`` says whether tuples carry query-sets. They may do without only if the graph has one query and never had
    another, and if that query takes every tuple of an input whose tuples it counts per key.
    ``sweeps`` close the rows of queries with outer joins. ``later`` are the probes of a graph to come that will search
    the stores which are filled for it: the stores are laid out for them already, but nothing runs them.
    """

    members: tuple[Member, ...]
    sources: tuple[SourceNode, ...]
    stores: tuple[StoreNode, ...]
    edges: tuple[Edge, ...]
    rules: tuple[Rule, ...]
    cost: Cost | None = None
    tracked: bool = False
    sweeps: tuple[Sweep, ...] = ()
    later: tuple[ProbeRule, ...] = ()

    def __repr__(self) -> str:
        names = shorten(", ".join(member.name for member in self.members), 120, placeholder=" …")
        probes = sum(isinstance(rule, ProbeRule) for rule in self.rules)
        counts = f"{len(self.sources)} inputs, {len(self.stores)} stores, {probes} probes, {self.hops} hops"
        return f"<PhysicalGraph of {names}: {counts}>"

    def _repr_html_(self) -> str:
        # Pictures are made from graphs, so only a notebook that shows one looks up there.
        picture: str = import_module("weft.plan.show.svg").picture(self)
        return picture

    def __post_init__(self) -> None:
        validate(self)

    @property
    def query(self) -> Query:
        """The query of a graph that has only one."""
        if len(self.members) != 1:
            raise PlanError(f"the graph is of {len(self.members)} queries")
        return self.members[0].query

    @property
    def aliases(self) -> Names:
        """All inputs, sorted."""
        return tuple(source.alias for source in self.sources)

    def member(self, name: str) -> Member:
        """The query of that name."""
        return _named(name, self.members)

    def input(self, alias: str) -> Input:
        """An input as one of its queries sees it; its stream is the same for all."""
        return next(m.query.input(alias) for m in self.members if alias in m.query.aliases)

    @property
    def hops(self) -> int:
        """How many hops a batch goes through; in the last one, groups of queries with aggregates come together."""
        joins = max((edge.hop for edge in self.edges), default=0)
        return joins + any(member.query.grouping is not None for member in self.members)

    def edge(self, name: str) -> Edge:
        """The edge of that name."""
        return _named(name, self.edges)

    def store(self, name: str) -> StoreNode:
        """The store of that name."""
        return _named(name, self.stores)

    def probes(self, start: str) -> Iterator[ProbeRule]:
        """The probes of an input's tuples, in the order in which they happen."""
        return (rule for rule in self.rules if isinstance(rule, ProbeRule) and rule.start == start)

    def to_json(self) -> str:
        """The graph as JSON text, from which `from_json` makes an equal one."""
        return CODEC.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> PhysicalGraph:
        """The graph that a text of `to_json` stands for."""
        graph = CODEC.loads(text)
        if not isinstance(graph, cls):
            raise PlanError("this JSON is not a physical graph")
        return graph


Named = TypeVar("Named", Edge, StoreNode, Member)


def _named(name: str, parts: tuple[Named, ...]) -> Named:
    for part in parts:
        if part.name == name:
            return part
    raise PlanError(f"the graph has no part {name!r}")


CODEC = Codec(
    (
        *LOGICAL,
        *(Layout, Store, ProbeOrder, Operator, StepCost, StoreCost, Cost, JoinPlan),
        *(SharedStore, Walk, Upkeep, Answer, Filling, WorkloadPlan),
        *(Equality, Edge, StoreRule, ProbeRule, ResultRule, Sweep),
        *(SourceNode, StoreNode, Visibility, Closing, Member, PhysicalGraph),
    )
)
