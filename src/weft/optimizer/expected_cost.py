"""The expected cost of a query's graph, whichever optimiser made its plan.

Guarantees: the figures are those of `single/evaluate.py: price`. A step's tuples come from the estimator; its edge says
how many copies there are and whether it is shipped. Stores that only serve to close rows of outer joins do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.logical.expr import to_sql
from weft.logical.query import Query
from weft.logical.user_functions import user_functions
from weft.optimizer.cost import hop_cost, probe_cost, storage_cost, store_cost
from weft.optimizer.space import Options, Space
from weft.plan.graph import PhysicalGraph, StoreNode
from weft.plan.join_plan import CallCost, Cost, StepCost, StoreCost
from weft.plan.rules import ProbeRule, Rule, StoreRule
from weft.plan.schedule import ANYWHERE, LOCAL
from weft.stats.statistics import Statistics, predicate_name

__all__ = ["calls_of", "with_estimates"]


def with_estimates(graph: PhysicalGraph, statistics: Statistics, options: Options) -> PhysicalGraph:
    """The graph of one query with its expected cost added, in all and for every step."""
    if not any(isinstance(rule, ProbeRule) for rule in graph.rules):
        return replace(graph, cost=Cost(0.0, 0.0, 0.0, 0.0, 0.0, 0))
    space = Space(graph.query, statistics, options)
    rules = tuple(_with_estimate(space, graph, rule) for rule in graph.rules)
    steps = tuple(rule.estimate for rule in rules if isinstance(rule, ProbeRule) and rule.estimate)
    probed = {rule.store for rule in rules if isinstance(rule, ProbeRule)}
    stores = [store for store in graph.stores if store.name in probed]
    work = sum(step.cost for step in steps) + sum(_adding(space, graph))
    work += sum(_keeping(space, store) for store in stores)
    delay = _latency(space, graph)
    cost = Cost(
        total=work + hop_cost(space.weights, graph.hops) + space.weights.latency * delay,
        storage=storage_cost(_size(space, store) * _copies(store) for store in stores),
        probes=probe_cost((step.incoming, step.copies) for step in steps),
        shipped=probe_cost((step.incoming, step.copies) for step in steps if step.shipped),
        latency=delay,
        hops=graph.hops,
        steps=steps,
        stores=tuple(_store(space, store) for store in stores),
    )
    return replace(graph, rules=rules, cost=cost)


def calls_of(query: Query, statistics: Statistics) -> tuple[CallCost, ...]:
    """The expected costs of users' functions in a query: in every condition, and in its select list."""
    conditions = (*query.conditions, *(query.outer.conditions if query.outer is not None else ()))
    found = [
        CallCost(
            name,
            statistics.function_cost(name),
            to_sql(term),
            predicate_name(query, term),
            statistics.selectivity(query, term),
        )
        for term in conditions
        for name in user_functions([term])
    ]
    given = user_functions(output.expr for output in query.projection)
    return (*found, *(CallCost(name, statistics.function_cost(name)) for name in given))


def _with_estimate(space: Space, graph: PhysicalGraph, rule: Rule) -> Rule:
    if not isinstance(rule, ProbeRule):
        return rule
    edge, store = graph.edge(rule.edge), graph.store(rule.store)
    known, inside = space.estimator.mask(rule.known), space.estimator.mask(store.aliases)
    start = space.query.aliases.index(rule.start)
    incoming, outgoing = space.tuples(start, known), space.tuples(start, known | inside)
    spread, shipped = space.spread(store.layout), edge.kind != LOCAL
    copies = space.copies(spread, known)
    work = space.work(start, known, inside, spread, ANYWHERE, incoming, shipped)
    cost = work + space.call_cost(start, known, inside)
    step = StepCost(rule.start, store.aliases, edge.hop, incoming, copies, shipped, outgoing, cost)
    return replace(rule, estimate=step)


def _store(space: Space, store: StoreNode) -> StoreCost:
    mask = space.estimator.mask(store.aliases)
    return StoreCost(store.aliases, space.size(mask), space.estimator.rate(mask))


def _size(space: Space, store: StoreNode) -> float:
    return space.size(space.estimator.mask(store.aliases))


def _copies(store: StoreNode) -> int:
    return store.layout.partitions if store.layout.kind == "replicated" else 1


def _keeping(space: Space, store: StoreNode) -> float:
    """The work of storing an input, and of keeping any store."""
    rate = space.estimator.rate(space.estimator.mask(store.aliases)) if len(store.aliases) == 1 else 0.0
    return store_cost(space.weights, rate, _size(space, store), _copies(store), True)


def _adding(space: Space, graph: PhysicalGraph) -> Iterator[float]:
    """The work of adding matches to intermediate results."""
    before = {name: rule for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
    for rule in graph.rules:
        if isinstance(rule, StoreRule) and rule.edge in before:
            store, start = graph.store(rule.store), space.query.aliases.index(before[rule.edge].start)
            tuples = space.tuples(start, space.estimator.mask(store.aliases))
            shipped = graph.edge(rule.edge).kind != LOCAL
            yield store_cost(space.weights, tuples, 0.0, _copies(store), shipped)


def _latency(space: Space, graph: PhysicalGraph) -> float:
    """The steps that a tuple takes, averaged over the inputs by their rates (ELat)."""
    steps = [sum(1 for _ in graph.probes(alias)) for alias in space.query.aliases]
    return sum(r * s for r, s in zip(space.rates, steps, strict=True)) / (sum(space.rates) or 1.0)
