"""What is expected of a graph, whoever made it.

Guarantees: the figures are those of `evaluate.price`: a step's tuples from the estimator, its copies and whether it is
shipped from its edge.
"""

from __future__ import annotations

from dataclasses import replace

from weft.optimizer.cost import hop_cost, probe_cost, storage_cost, store_cost
from weft.optimizer.space import Options, Space
from weft.plan.graph import PhysicalGraph, StoreNode
from weft.plan.join_plan import Cost, StepCost, StoreCost
from weft.plan.rules import ProbeRule, Rule
from weft.plan.schedule import ANYWHERE, LOCAL
from weft.stats.statistics import Statistics

__all__ = ["estimated"]


def estimated(graph: PhysicalGraph, statistics: Statistics, options: Options) -> PhysicalGraph:
    """A graph of one query with its expected cost, in all and for every step."""
    if len(graph.query.inputs) == 1:
        return graph
    space = Space(graph.query, statistics, options)
    rules = tuple(_with_estimate(space, graph, rule) for rule in graph.rules)
    steps = tuple(rule.estimate for rule in rules if isinstance(rule, ProbeRule) and rule.estimate)
    stores = tuple(_store(space, store) for store in graph.stores)
    storing = sum(_storing(space, store) for store in graph.stores)
    cost = Cost(
        total=sum(step.cost for step in steps) + storing + hop_cost(space.weights, graph.hops),
        storage=storage_cost(store.size for store in stores),
        probes=probe_cost((step.incoming, step.copies) for step in steps),
        shipped=probe_cost((step.incoming, step.copies) for step in steps if step.shipped),
        latency=0.0,
        hops=graph.hops,
        steps=steps,
        stores=stores,
    )
    return replace(graph, rules=rules, cost=cost)


def _with_estimate(space: Space, graph: PhysicalGraph, rule: Rule) -> Rule:
    if not isinstance(rule, ProbeRule):
        return rule
    edge, store = graph.edge(rule.edge), graph.store(rule.store)
    known, inside = space.estimator.mask(rule.known), space.estimator.mask(store.aliases)
    start = space.query.aliases.index(rule.start)
    incoming, outgoing = space.tuples(start, known), space.tuples(start, known | inside)
    spread, shipped = space.spread(store.layout), edge.kind != LOCAL
    copies = space.copies(spread, known)
    cost = space.work(start, known, inside, spread, ANYWHERE, incoming, shipped)
    step = StepCost(rule.start, store.aliases, edge.hop, incoming, copies, shipped, outgoing, cost)
    return replace(rule, estimate=step)


def _store(space: Space, store: StoreNode) -> StoreCost:
    mask = space.estimator.mask(store.aliases)
    return StoreCost(store.aliases, space.size(mask), space.estimator.rate(mask))


def _storing(space: Space, store: StoreNode) -> float:
    found = _store(space, store)
    copies = space.partitions if store.layout.kind == "replicated" else 1
    return store_cost(space.weights, found.rate, found.size, copies, True)
