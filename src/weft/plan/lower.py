"""From a plan to the graph that executes it (CLASH 8.3.2).

Guarantees: hops are as few as the layouts allow: a step whose key is the one the tuple is placed by stays in its task
(design, D6). Where a step goes is decided in `schedule.py` alone; this file gives it names and rules.
"""

from __future__ import annotations

from dataclasses import replace

from weft.logical.expr import Expr
from weft.logical.horizon import time_bounds
from weft.plan.derive import filters_of, indexes_of, probe_conditions, retention_of
from weft.plan.graph import PhysicalGraph, Source, StoreNode
from weft.plan.join_plan import JoinPlan, Layout, Names, Operator, StepCost, Store, store_name
from weft.plan.routing import Routing
from weft.plan.rules import RESULT, Edge, ProbeRule, ResultRule, Rule, StoreRule
from weft.plan.schedule import ALL, GROUP_BY, LOCAL, NO_KEY, SHUFFLE, Place, start, step, store_edge

__all__ = ["lower"]


def lower(plan: JoinPlan) -> PhysicalGraph:
    """The physical graph of a plan."""
    lowering = _Lowering(plan)
    for alias in plan.query.aliases:
        lowering.enter(alias)
    for operator in plan.operators:
        lowering.operate(operator)
    for alias in plan.query.aliases:
        lowering.leave(alias)
    return lowering.graph()


class _Lowering:
    """The graph while it grows; operators are lowered inner ones first, so completeness is known when needed."""

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        self.query = plan.query
        self.routing = Routing(plan.query)
        self.layouts = {store.aliases: store.layout for store in plan.stores}
        self.complete: dict[Names, int] = {}
        self.places: dict[str, Place] = {}
        self.sources: list[Source] = []
        self.edges: list[Edge] = []
        self.rules: list[Rule] = []
        # The open end of every input's chain: the node it is at, and the position of its last probe's rule.
        self.node: dict[str, str] = {}
        self.last: dict[str, int | None] = {}
        self.steps: dict[str, int] = dict.fromkeys(plan.query.aliases, 0)

    def enter(self, alias: str) -> None:
        """A source, and the edge that stores its tuples."""
        source = Source(f"source {alias}", alias, filters_of(self.query, alias), self.query.columns_of(alias))
        self.sources.append(source)
        self.node[alias], self.last[alias] = source.name, None
        layout = self.layouts.get((alias,))
        if layout is None:  # a query of one input stores nothing
            self.places[alias] = Place(0, NO_KEY)
            return
        self.places[alias] = start(self.routing.spread(layout))
        self.complete[(alias,)] = 1
        kind = {"partitioned": GROUP_BY, "scattered": SHUFFLE, "replicated": ALL}[layout.kind]
        self._store(alias, (alias,), kind, 1, layout.by)

    def operate(self, operator: Operator) -> None:
        """The probes of an operator, and the edges that store its result unless it is the root."""
        for order in operator.orders:
            known = operator.home(order.start).aliases
            for visit in order.visits:
                self._probe(order.start, known, operator.store(visit))
                known = tuple(sorted((*known, *visit)))
        layout = self.layouts.get(operator.aliases)
        if layout is not None:
            self._materialise(operator.aliases, layout)

    def _materialise(self, names: Names, layout: Layout) -> None:
        hops = []
        for alias in names:
            kind, hop = store_edge(self.places[alias], self.routing.spread(layout))
            self._store(alias, names, kind, hop, layout.by)
            hops.append(hop)
        self.complete[names] = max(hops)

    def _store(self, alias: str, names: Names, kind: str, hop: int, by: Expr | None) -> None:
        name = store_name(names)
        edge = self._edge(f"{alias}: store {name}", alias, name, kind, hop, by if kind == GROUP_BY else None)
        self.rules.append(StoreRule(edge.name, name))

    def _probe(self, alias: str, names: Names, store: Store) -> None:
        known = frozenset(names)
        spread = self.routing.spread(store.layout)
        by = next(iter(self.routing.ways(spread.key, known)), None)
        kind, place = step(self.places[alias], spread, self.complete[store.aliases], by is not None)
        self.steps[alias] += 1
        name = f"{alias}: {self.steps[alias]}"
        edge = self._edge(name, alias, store.name, kind, place.hop, by if kind == GROUP_BY else None)
        lookups, predicates = probe_conditions(self.query, known, frozenset(store.aliases))
        estimate = self._estimate(alias, store.aliases)
        rule = ProbeRule(edge.name, store.name, alias, names, lookups, predicates, (), estimate)
        self.rules.append(rule)
        self.places[alias], self.node[alias], self.last[alias] = place, store.name, len(self.rules) - 1

    def _estimate(self, alias: str, names: Names) -> StepCost | None:
        steps = self.plan.cost.steps if self.plan.cost else ()
        return next((step for step in steps if step.start == alias and step.store == names), None)

    def leave(self, alias: str) -> None:
        """The edge from an input's last probe to the result."""
        edge = self._edge(f"{alias}: result", alias, RESULT, LOCAL, self.places[alias].hop, None)
        self.rules.append(ResultRule(edge.name, alias))

    def _edge(self, name: str, alias: str, target: str, kind: str, hop: int, by: Expr | None) -> Edge:
        """A new edge at the open end of an input's chain."""
        edge = Edge(name, self.node[alias], target, kind, hop, by)
        self.edges.append(edge)
        last = self.last[alias]
        rule = self.rules[last] if last is not None else None
        if last is not None and isinstance(rule, ProbeRule):
            self.rules[last] = replace(rule, outputs=(*rule.outputs, name))
        return edge

    def graph(self) -> PhysicalGraph:
        """All of it."""
        bounds = time_bounds(self.query)
        nodes = [
            StoreNode(
                store.name,
                store.aliases,
                store.layout,
                self.complete[store.aliases],
                indexes_of(self.rules, store.name),
                retention_of(self.query, store.aliases, bounds),
            )
            for store in self.plan.stores
        ]
        parts = (tuple(self.sources), tuple(nodes), tuple(self.edges), tuple(self.rules))
        return PhysicalGraph(self.query, *parts, self.plan.cost)
