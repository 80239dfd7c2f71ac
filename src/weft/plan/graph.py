"""The physical graph: what the runtime executes, and all it needs to know (CLASH 4.2, 8.3.1).

Guarantees: a graph that exists is right in itself. From every input's source exactly one chain of probes leads to the
result, and one to every stored intermediate result the input is part of; each predicate is checked once on the way, as
soon as its attributes are known and never before; no store is probed before it is complete; a tuple is sent by values
it has, to the partitions its partners are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from weft.errors import PlanError
from weft.logical.codec import LOGICAL, Codec
from weft.logical.expr import Column, Expr, aliases
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
from weft.plan.routing import Equality, Routing, equalities
from weft.plan.rules import Edge, ProbeRule, ResultRule, Rule, StoreRule
from weft.plan.schedule import ALL, GROUP_BY, LOCAL

__all__ = ["CODEC", "PhysicalGraph", "Source", "StoreNode"]

RESULT = "result"


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
        _Check(self).run()

    @property
    def hops(self) -> int:
        """How many shuffles a batch goes through."""
        return max((edge.hop for edge in self.edges), default=0)

    def edge(self, name: str) -> Edge:
        """The edge of that name."""
        return next(edge for edge in self.edges if edge.name == name)

    def store(self, name: str) -> StoreNode:
        """The store of that name."""
        return next(store for store in self.stores if store.name == name)

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


@dataclass(frozen=True, slots=True)
class _Check:
    """The invariants of a graph, one method each."""

    graph: PhysicalGraph

    def run(self) -> None:
        self._names()
        for alias in self.graph.query.aliases:
            self._chain(alias)
        self._intermediate_stores()
        for rule in self.graph.rules:
            if isinstance(rule, ProbeRule):
                self._probe(rule)
            if isinstance(rule, StoreRule):
                self._stored(rule)

    def _names(self) -> None:
        graph = self.graph
        nodes = [*(source.name for source in graph.sources), *(store.name for store in graph.stores), RESULT]
        edges = [edge.name for edge in graph.edges]
        if len(set(nodes)) < len(nodes) or len(set(edges)) < len(edges):
            raise PlanError("two parts of the graph have one name")
        if sorted(rule.edge for rule in graph.rules) != sorted(edges):
            raise PlanError("not every edge has exactly one rule at its end")
        for edge in graph.edges:
            if edge.source not in nodes or edge.target not in nodes:
                raise PlanError(f"edge {edge.name} leads from or to nowhere")
        if sorted(source.alias for source in graph.sources) != list(graph.query.aliases):
            raise PlanError("not every input has exactly one source")

    def _chain(self, alias: str) -> None:
        """One chain from the source to the result, joining every input once, checking every predicate once."""
        results = [r for r in self.graph.rules if isinstance(r, ResultRule) and r.start == alias]
        probes = list(self.graph.probes(alias))
        known = {alias}
        checked: list[Expr] = []
        for before, probe in zip([None, *probes], probes, strict=False):
            if set(probe.known) != known or (before and probe.edge not in before.outputs):
                raise PlanError(f"the probes of {alias} do not follow each other")
            store = self.graph.store(probe.store)
            if known & set(store.aliases):
                raise PlanError(f"{alias} joins {probe.store} twice")
            checked += probe.predicates
            known |= set(store.aliases)
        if known != set(self.graph.query.aliases) or len(results) != 1:
            raise PlanError(f"there is not exactly one way from {alias} to a result")
        if probes and results[0].edge not in probes[-1].outputs:
            raise PlanError(f"the last probe of {alias} does not give the result")
        if len(set(checked)) < len(checked):
            raise PlanError(f"a predicate is checked twice on the way of {alias}")

    def _intermediate_stores(self) -> None:
        for store in self.graph.stores:
            rules = [r for r in self.graph.rules if isinstance(r, StoreRule) and r.store == store.name]
            starts = [self._start(rule.edge) for rule in rules]
            if sorted(starts) != list(store.aliases):
                raise PlanError(f"store {store.name} does not have exactly one producer per input")

    def _start(self, edge: str) -> str:
        """The input whose tuples come over a store edge."""
        for rule in self.graph.rules:
            if isinstance(rule, ProbeRule) and edge in rule.outputs:
                return rule.start
        source = self.graph.edge(edge).source
        return next(s.alias for s in self.graph.sources if s.name == source)

    def _probe(self, rule: ProbeRule) -> None:
        store, edge = self.graph.store(rule.store), self.graph.edge(rule.edge)
        known, inside = frozenset(rule.known), frozenset(store.aliases)
        wanted = probe_conditions(self.graph.query, known, inside)
        if (rule.equalities, rule.predicates) != wanted:
            raise PlanError(f"probe {rule.edge} does not check just the predicates that can be checked there")
        for equality in rule.equalities:
            if not aliases(equality.probe) <= known or not aliases(equality.stored) <= inside:
                raise PlanError(f"probe {rule.edge} looks up {equality} before its attributes are known")
        if edge.hop < store.complete:
            raise PlanError(f"probe {rule.edge} comes before store {store.name} is complete")
        self._reaches(edge, store, known)

    def _reaches(self, edge: Edge, store: StoreNode, known: frozenset[str]) -> None:
        """A group-by edge computes the store's own value; a store that is not replicated needs that or all."""
        if edge.kind == GROUP_BY and edge.by is not None:
            routing = Routing(self.graph.query)
            route = routing.spread(store.layout).key
            sources = (
                [expr for needed, expr in routing.sources(route) if needed <= known] if route >= 0 else []
            )
            if edge.by not in sources:
                raise PlanError(f"edge {edge.name} groups by {edge.by}, which does not decide the partition")
        elif edge.kind not in (ALL, LOCAL) and store.layout.kind != "replicated":
            raise PlanError(f"edge {edge.name} does not reach all of {store.name}")

    def _stored(self, rule: StoreRule) -> None:
        edge, store = self.graph.edge(rule.edge), self.graph.store(rule.store)
        if edge.hop > store.complete:
            raise PlanError(f"store {store.name} is complete before {edge.name} adds to it")
        if edge.kind == GROUP_BY and edge.by != store.layout.by:
            raise PlanError(f"edge {edge.name} stores by {edge.by}, the store is {store.layout}")


def probe_conditions(
    query: Query, known: frozenset[str], store: frozenset[str]
) -> tuple[tuple[Equality, ...], tuple[Expr, ...]]:
    """What a probe checks: the equalities it looks up by, and all else that can be checked there first."""
    lookups = equalities(query, known, store)
    sides = {frozenset((equality.probe, equality.stored)) for equality in lookups}
    found = [
        predicate
        for predicate in (*query.predicates, *query.residuals)
        if aliases(predicate) <= known | store
        and not aliases(predicate) <= known
        and not aliases(predicate) <= store
    ]
    return lookups, tuple(p for p in found if frozenset(getattr(p, "args", ())) not in sides)


CODEC = Codec(
    (
        *LOGICAL,
        *(Layout, Store, ProbeOrder, Operator, StepCost, StoreCost, Cost, JoinPlan),
        *(Equality, Edge, StoreRule, ProbeRule, ResultRule, Source, StoreNode, PhysicalGraph),
    )
)
