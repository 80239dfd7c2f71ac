"""Whether a graph is right in itself.

Guarantees: a graph that passes loses no result and repeats none. From every input's source exactly one chain of probes
leads to the result, and one to every stored intermediate result the input is part of. Each probe checks just the
predicates that can be checked there first. Every tuple takes the edge that `schedule.py` says it must: to the
partitions its partners are in, in a hop in which the store is complete, and as one copy where one is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import PlanError
from weft.logical.expr import Expr
from weft.logical.horizon import time_bounds
from weft.plan.derive import filters_of, indexes_of, probe_conditions, retention_of
from weft.plan.join_plan import Names
from weft.plan.routing import Routing
from weft.plan.rules import RESULT, Edge, ProbeRule, ResultRule, StoreRule
from weft.plan.schedule import ALL, GROUP_BY, LOCAL, NO_KEY, SHUFFLE, Place, start, step, store_edge

if TYPE_CHECKING:
    from weft.plan.graph import PhysicalGraph

__all__ = ["validate"]


def validate(graph: PhysicalGraph) -> None:
    """Refuse a graph that would lose or repeat a result."""
    _check_names(graph)
    _check_nodes(graph)
    replay = _Replay(graph)
    for rule in graph.rules:
        if isinstance(rule, StoreRule):
            replay.store(rule)
        elif isinstance(rule, ProbeRule):
            replay.probe(rule)
        else:
            replay.result(rule)
    replay.finish()


def _check_names(graph: PhysicalGraph) -> None:
    nodes = [*(source.name for source in graph.sources), *(store.name for store in graph.stores), RESULT]
    edges = [edge.name for edge in graph.edges]
    if len(set(nodes)) < len(nodes) or len(set(edges)) < len(edges):
        raise PlanError("two parts of the graph have one name")
    if sorted(rule.edge for rule in graph.rules) != sorted(edges):
        raise PlanError("not every edge has exactly one rule at its end")
    outputs = [name for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs]
    if len(set(outputs)) < len(outputs) or not set(outputs) <= set(edges):
        raise PlanError("a probe sends its matches over an edge that is not there, or not its own")
    if sorted(source.alias for source in graph.sources) != list(graph.query.aliases):
        raise PlanError("not every input has exactly one source")


def _check_nodes(graph: PhysicalGraph) -> None:
    query, bounds = graph.query, time_bounds(graph.query)
    for source in graph.sources:
        if (source.filters, source.columns) != (
            filters_of(query, source.alias),
            query.columns_of(source.alias),
        ):
            raise PlanError(f"{source.name} does not pass on what the query asks for")
    for store in graph.stores:
        if store.indexes != indexes_of(graph.rules, store.name):
            raise PlanError(f"store {store.name} is not indexed by what it is looked up by")
        if store.retention != retention_of(query, store.aliases, bounds):
            raise PlanError(f"store {store.name} does not keep its tuples for as long as they are of use")


class _Replay:
    """The graph's rules in their order, each compared with what it must be."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self.graph = graph
        self.query = graph.query
        self.routing = Routing(graph.query)
        self.places: dict[str, Place] = {}
        self.known: dict[str, Names] = {alias: (alias,) for alias in graph.query.aliases}
        self.node = {source.alias: source.name for source in graph.sources}
        self.outputs: dict[str, tuple[str, ...]] = {}
        self.stored: dict[str, dict[str, int]] = {store.name: {} for store in graph.stores}
        self.probed: set[str] = set()
        self.results: list[str] = []

    def store(self, rule: StoreRule) -> None:
        """An edge that stores: a tuple at its source, or a match of all the store's inputs."""
        edge, store = self.graph.edge(rule.edge), self.graph.store(rule.store)
        alias = self._follows(edge, rule.store)
        if self.known[alias] != store.aliases or alias in self.stored[store.name]:
            raise PlanError(f"store {store.name} does not have exactly one producer per input")
        if store.name in self.probed:
            raise PlanError(f"store {store.name} is probed before {edge.name} adds to it")
        spread = self.routing.spread(store.layout)
        if len(store.aliases) == 1:
            kind = {"partitioned": GROUP_BY, "scattered": SHUFFLE, "replicated": ALL}[store.layout.kind]
            self.places[alias], hop = start(spread), 1
        else:
            kind, hop = store_edge(self.places[alias], spread)
        self._must_be(edge, kind, hop, (store.layout.by,))
        self.stored[store.name][alias] = hop

    def probe(self, rule: ProbeRule) -> None:
        """A probe: of a complete store, with what is known, checking what can be checked."""
        edge, store = self.graph.edge(rule.edge), self.graph.store(rule.store)
        alias = self._follows(edge, rule.store)
        if rule.start != alias or rule.known != self.known[alias] or alias not in self.places:
            raise PlanError(f"the probes of {alias} do not follow each other")
        if set(rule.known) & set(store.aliases):
            raise PlanError(f"{alias} joins {rule.store} twice")
        known, inside = frozenset(rule.known), frozenset(store.aliases)
        if (rule.equalities, rule.predicates) != probe_conditions(self.query, known, inside):
            raise PlanError(f"probe {rule.edge} does not check just the predicates that can be checked there")
        self._must_be_complete(rule.store)
        spread = self.routing.spread(store.layout)
        ways = self.routing.ways(spread.key, known)
        kind, place = step(self.places[alias], spread, store.complete, bool(ways))
        self._must_be(edge, kind, place.hop, ways)
        self.probed.add(store.name)
        self.places[alias], self.node[alias] = place, store.name
        self.known[alias] = tuple(sorted((*rule.known, *store.aliases)))
        self.outputs[alias] = rule.outputs

    def result(self, rule: ResultRule) -> None:
        """The end of an input's chain."""
        edge = self.graph.edge(rule.edge)
        alias = self._follows(edge, RESULT)
        if rule.start != alias or self.known[alias] != self.query.aliases:
            raise PlanError(f"the last probe of {alias} does not give the result")
        self._must_be(edge, LOCAL, self.places.get(alias, Place(0, NO_KEY)).hop, ())
        self.results.append(alias)

    def finish(self) -> None:
        """Every input reaches the result once, every store has all its producers."""
        for alias in self.query.aliases:
            if self.results.count(alias) != 1:
                raise PlanError(f"there is not exactly one way from {alias} to a result")
        for store in self.graph.stores:
            self._must_be_complete(store.name)

    def _follows(self, edge: Edge, target: str) -> str:
        """The input whose chain an edge continues; it must leave from where that chain is, over its own outputs."""
        owners = [alias for alias, outputs in self.outputs.items() if edge.name in outputs]
        if not owners:
            owners = [a for a in self.query.aliases if self.node[a] == edge.source and a not in self.outputs]
        if not owners or self.node[owners[0]] != edge.source or edge.target != target:
            raise PlanError(f"edge {edge.name} leads from or to the wrong place")
        return owners[0]

    def _must_be(self, edge: Edge, kind: str, hop: int, by: tuple[Expr | None, ...]) -> None:
        if edge.kind != kind or edge.hop != hop or (kind == GROUP_BY and edge.by not in by):
            raise PlanError(f"edge {edge.name} is {edge} in hop {edge.hop}; it must be {kind} in hop {hop}")

    def _must_be_complete(self, name: str) -> None:
        store, hops = self.graph.store(name), self.stored[name]
        if sorted(hops) != list(store.aliases) or max(hops.values()) != store.complete:
            raise PlanError(
                f"store {name} does not have exactly one producer per input by hop {store.complete}"
            )
