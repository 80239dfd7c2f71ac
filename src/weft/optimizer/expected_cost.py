"""The expected cost of a graph, whichever optimiser made its plan.

Guarantees: the figures are those of `single/evaluate.py: price`. A step's tuples come from the estimator; its edge says
how many copies there are and whether it is shipped. Stores that only serve to close rows of outer joins do not count.
What several queries share counts once: as much as for the query that has most to do there, up to what all of them have
to do, as their filters have nothing or all in common; half-way in between, since that is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from weft.logical.expr.expression import aliases, to_sql
from weft.logical.expr.user_functions import user_functions
from weft.logical.query.query import Query
from weft.optimizer.cost import hop_cost, probe_cost, storage_cost, store_cost
from weft.optimizer.space import Options, Space
from weft.plan.join_plan import CallCost, Cost, StepCost, StoreCost
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.plan.physical.rules import ProbeRule, Rule, StoreRule
from weft.plan.schedule import ANYWHERE, LOCAL
from weft.stats.statistics import Statistics, predicate_name

__all__ = ["calls_of", "shared_cost", "with_estimates"]


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


def shared_cost(graph: PhysicalGraph, statistics: Statistics, options: Options) -> float:
    """The expected cost of a graph of any number of queries; what they share counts once."""
    spaces = {
        member.name: Space(member.query, statistics, options)
        for member in graph.members
        if len(member.query.inputs) > 1
    }
    before = {name: rule for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
    work, probed = 0.0, set()
    for rule in graph.rules:
        if isinstance(rule, ProbeRule):
            probed.add(rule.store)
            work += _together(_step(spaces[name], graph, rule).cost for name in _distinct(graph, rule))
        elif isinstance(rule, StoreRule) and rule.edge in before:
            found = _distinct(graph, before[rule.edge])
            work += _together(_added(spaces[name], graph, rule, before[rule.edge].start) for name in found)
    for store in graph.stores:
        if store.name in probed or store.filling:
            names = [name for name in store.users if name in spaces][:VARIANTS]
            work += _together(_keeping(spaces[name], store) for name in names)
    return work + hop_cost(options.weights, graph.hops)


VARIANTS = 8  # of queries that share a step, at most so many are looked at


def _distinct(graph: PhysicalGraph, rule: ProbeRule) -> list[str]:
    """Users of a probe that differ in their filters or windows, and so in what they have to do there."""
    found: dict[object, str] = {}
    for name in rule.users:
        query = graph.member(name).query
        inputs = [query.input(alias) for alias in rule.known]
        key = (
            tuple(i.window for i in inputs),
            tuple(f for f in query.filters if aliases(f) <= set(rule.known)),
        )
        found.setdefault(key, name)
    return list(found.values())[:VARIANTS]


def _together(costs: Iterable[float]) -> float:
    """What several queries have to do together, where each alone has to do so much."""
    found = list(costs)
    return (max(found) + sum(found)) / 2 if found else 0.0


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
    return replace(rule, estimate=_step(space, graph, rule)) if isinstance(rule, ProbeRule) else rule


def _step(space: Space, graph: PhysicalGraph, rule: ProbeRule) -> StepCost:
    edge, store = graph.edge(rule.edge), graph.store(rule.store)
    known, inside = space.estimator.mask(rule.known), space.estimator.mask(store.aliases)
    start = space.query.aliases.index(rule.start)
    incoming, outgoing = space.tuples(start, known), space.tuples(start, known | inside)
    spread, shipped = space.spread(store.layout), edge.kind != LOCAL
    copies = space.copies(spread, known)
    work = space.work(start, known, inside, spread, ANYWHERE, incoming, shipped)
    cost = work + space.call_cost(start, known, inside)
    return StepCost(rule.start, store.aliases, edge.hop, incoming, copies, shipped, outgoing, cost)


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
            yield _added(space, graph, rule, before[rule.edge].start)


def _added(space: Space, graph: PhysicalGraph, rule: StoreRule, start: str) -> float:
    """The work of adding matches that tuples of one input have found to an intermediate result."""
    store = graph.store(rule.store)
    tuples = space.tuples(space.query.aliases.index(start), space.estimator.mask(store.aliases))
    shipped = graph.edge(rule.edge).kind != LOCAL
    return store_cost(space.weights, tuples, 0.0, _copies(store), shipped)


def _latency(space: Space, graph: PhysicalGraph) -> float:
    """The steps that a tuple takes, averaged over the inputs by their rates (ELat)."""
    steps = [sum(1 for _ in graph.probes(alias)) for alias in space.query.aliases]
    return sum(r * s for r, s in zip(space.rates, steps, strict=True)) / (sum(space.rates) or 1.0)
