"""The physical graph: what the runtime executes, and all it needs to know (CLASH 4.2, 8.3.1).

Guarantees: a graph that exists passed `validate.py`, which says what that means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from weft.errors import PlanError
from weft.logical.codec import LOGICAL, Codec
from weft.logical.expr import Column, Expr
from weft.logical.query import Query
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
from weft.plan.routing import Equality
from weft.plan.rules import Edge, ProbeRule, ResultRule, Rule, StoreRule
from weft.plan.validate import validate

__all__ = ["CODEC", "PhysicalGraph", "Source", "StoreNode"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where tuples of an input enter; they must pass its filters, and only these columns go on."""

    name: str
    alias: str
    filters: tuple[Expr, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class StoreNode:
    """A store: what it holds, how it is spread, by what it is looked up, from which hop it is complete.

    ``retention`` says per input how long after its tuple's time a partner can still come, None meaning for ever; what
    is stored is of use until the first of them has passed (CLASH 6.2.1).
    """

    name: str
    aliases: Names
    layout: Layout
    complete: int
    indexes: tuple[Expr, ...]
    retention: tuple[timedelta | None, ...]


@dataclass(frozen=True, slots=True)
class PhysicalGraph:
    """Sources, stores, the edges between them and the rules at their ends, layered into hops."""

    query: Query
    sources: tuple[Source, ...]
    stores: tuple[StoreNode, ...]
    edges: tuple[Edge, ...]
    rules: tuple[Rule, ...]
    cost: Cost | None = None

    def __post_init__(self) -> None:
        validate(self)

    @property
    def hops(self) -> int:
        """How many shuffles a batch goes through."""
        return max((edge.hop for edge in self.edges), default=0)

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


Named = TypeVar("Named", Edge, StoreNode)


def _named(name: str, parts: tuple[Named, ...]) -> Named:
    for part in parts:
        if part.name == name:
            return part
    raise PlanError(f"the graph has no part {name!r}")


CODEC = Codec(
    (
        *LOGICAL,
        *(Layout, Store, ProbeOrder, Operator, StepCost, StoreCost, Cost, JoinPlan),
        *(Equality, Edge, StoreRule, ProbeRule, ResultRule, Source, StoreNode, PhysicalGraph),
    )
)
