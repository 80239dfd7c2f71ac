"""What is expected of a graph, whoever made it.

Guarantees: the figures are those of `evaluate.price`: a step's tuples from the estimator, its copies and whether it is
shipped from its edge.
"""

from __future__ import annotations

from dataclasses import replace

from weft.logical.expr import to_sql
from weft.logical.query import Query
from weft.logical.user_functions import user_functions
from weft.optimizer.cost import hop_cost, probe_cost, storage_cost, store_cost
from weft.optimizer.space import Options, Space
from weft.plan.graph import PhysicalGraph, StoreNode
from weft.plan.join_plan import CallCost, Cost, StepCost, StoreCost
from weft.plan.rules import ProbeRule, Rule
from weft.plan.schedule import ANYWHERE, LOCAL
from weft.stats.statistics import Statistics, predicate_name

__all__ = ["calls_of", "estimated"]


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


def calls_of(query: Query, statistics: Statistics) -> tuple[CallCost, ...]:
    """What is expected of users' functions in a query: in every condition, and in what it gives."""
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


def _storing(space: Space, store: StoreNode) -> float:
    found = _store(space, store)
    copies = space.partitions if store.layout.kind == "replicated" else 1
    return store_cost(space.weights, found.rate, found.size, copies, True)
