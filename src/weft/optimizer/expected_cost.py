"""The expected cost of a graph, whichever optimiser made its plan.

Guarantees: the figures are those of `single/evaluate.py: price`. A step's tuples come from the estimator; its edge says
how many copies there are and whether it is shipped. Stores that only serve to close rows of outer joins do not count.
What several queries share counts once: as much as for the query that has most to do there, up to what all of them have
to do, as their filters have all or nothing in common; half-way in between where that was not measured.

Where it was (`Part`), plans over different groups of queries can be compared: tuples count that at least one user
wants, and so does, as in Equation 2 of AJoin, every match. Some matches nobody wants: pairs of a tuple for some of a
store's users and a tuple for others, which are found and dropped. A plan that keeps such queries apart saves them, and
stores and probes more tuples twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from weft.logical.expr.expression import aliases, to_sql
from weft.logical.expr.user_functions import user_functions
from weft.logical.query.query import Query
from weft.optimizer.cost import hop_cost, parallelism, probe_cost, storage_cost, store_cost, task_capacity
from weft.optimizer.space import Options, Space
from weft.plan.join_plan import CallCost, Cost, StepCost, StoreCost
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.plan.physical.rules import ProbeRule, Rule, StoreRule
from weft.plan.schedule import ANYWHERE, LOCAL
from weft.stats.statistics import Statistics, predicate_name

__all__ = ["Part", "calls_of", "shared_cost", "with_estimates"]

# The part of an input's tuples, by its alias, that the filters of at least one of some queries let through.
Part = Callable[[str, Collection[str]], float]


def with_estimates(graph: PhysicalGraph, statistics: Statistics, options: Options) -> PhysicalGraph:
    """The graph of one query with its expected cost added, in all and for every step."""
    if not any(isinstance(rule, ProbeRule) for rule in graph.rules):
        return replace(graph, cost=Cost(0.0, 0.0, 0.0, 0.0, 0.0, 0))
    space = Space(graph.query, statistics, options)
    rules = tuple(_with_estimate(space, graph, rule) for rule in graph.rules)
    steps = tuple(rule.estimate for rule in rules if isinstance(rule, ProbeRule) and rule.estimate)
    probed = {rule.store for rule in rules if isinstance(rule, ProbeRule)}
    stores = [store for store in graph.stores if store.name in probed]
    adding, keeping = list(_adding(space, graph)), [(one.name, _keeping(space, one)) for one in stores]
    works = dict.fromkeys((one.name for one in graph.stores), 0.0)
    for name, amount in (*_probing(rules), *adding, *keeping):
        works[name] += amount
    work = sum(step.cost for step in steps) + sum(one for _, one in adding) + sum(one for _, one in keeping)
    delay = _latency(space, graph)
    cost = Cost(
        total=work + hop_cost(space.weights, graph.hops) + space.weights.latency * delay,
        storage=storage_cost(_size(space, store) * _copies(store) for store in stores),
        probes=probe_cost((step.incoming, step.copies) for step in steps),
        shipped=probe_cost((step.incoming, step.copies) for step in steps if step.shipped),
        latency=delay,
        hops=graph.hops,
        steps=steps,
        stores=tuple(_store(space, store, works[store.name]) for store in stores),
    )
    return replace(graph, rules=rules, cost=cost)


def shared_cost(
    graph: PhysicalGraph, statistics: Statistics, options: Options, part: Part | None = None
) -> float:
    """The expected cost of a graph of any number of queries; what they share counts once.

    ``part`` is what was measured of what their filters have in common, if it was.
    """
    prices: _Prices = _Halfway(graph, statistics, options)
    if part is not None:
        prices = _Measured(graph, statistics, options, part)
    before = {name: rule for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
    work, probed = 0.0, set()
    for rule in graph.rules:
        if isinstance(rule, ProbeRule):
            probed.add(rule.store)
            work += prices.step(rule)
        elif isinstance(rule, StoreRule) and rule.edge in before:
            work += prices.adding(rule, before[rule.edge])
    for store in graph.stores:
        if store.name in probed or store.filling:
            work += prices.keeping(store)
    return work + hop_cost(options.weights, graph.hops)


VARIANTS = 8  # of queries that share a step, at most so many are looked at


class _Prices(Protocol):
    """What the parts of a graph cost all of their users together."""

    def step(self, rule: ProbeRule) -> float:
        """The work of probing a store."""
        ...

    def adding(self, rule: StoreRule, found_by: ProbeRule) -> float:
        """The work of adding what a probe has found to an intermediate result."""
        ...

    def keeping(self, store: StoreNode) -> float:
        """The work of storing an input, and of keeping any store."""
        ...


class _Halfway:
    """Prices where it is not known what filters have in common: half-way between all and nothing."""

    def __init__(self, graph: PhysicalGraph, statistics: Statistics, options: Options) -> None:
        self._graph = graph
        self._spaces = {
            member.name: Space(member.query, statistics, options)
            for member in graph.members
            if len(member.query.inputs) > 1
        }

    def step(self, rule: ProbeRule) -> float:
        users = _distinct(self._graph, rule)
        return _together(_step(self._spaces[name], self._graph, rule).cost for name in users)

    def adding(self, rule: StoreRule, found_by: ProbeRule) -> float:
        users = _distinct(self._graph, found_by)
        return _together(_added(self._spaces[name], self._graph, rule, found_by.start) for name in users)

    def keeping(self, store: StoreNode) -> float:
        users = [name for name in store.users if name in self._spaces][:VARIANTS]
        return _together(_keeping(self._spaces[name], store) for name in users)


class _Measured:
    """Prices by what the filters of the users were seen to have in common; of several windows, the longest counts."""

    def __init__(self, graph: PhysicalGraph, statistics: Statistics, options: Options, part: Part) -> None:
        self._graph, self._part = graph, lru_cache(None)(part)
        self._unfiltered = {
            member.name: Space(replace(member.query, filters=()), statistics, options)
            for member in graph.members
            if len(member.query.inputs) > 1
        }

    def step(self, rule: ProbeRule) -> float:
        store = self._graph.store(rule.store)
        arriving = self._wanted(rule.known, rule.users)
        stored = self._wanted(store.aliases, self._users(store))
        wanted = self._wanted((*rule.known, *store.aliases), rule.users)
        return self._longest(
            rule.users,
            rule.known,
            lambda space: _shared_step(space, self._graph, rule, arriving, arriving * stored, wanted),
        )

    def adding(self, rule: StoreRule, found_by: ProbeRule) -> float:
        share = self._wanted(self._graph.store(rule.store).aliases, found_by.users)
        return share * self._longest(
            found_by.users, found_by.known, lambda space: _added(space, self._graph, rule, found_by.start)
        )

    def keeping(self, store: StoreNode) -> float:
        users = self._users(store)
        share = self._wanted(store.aliases, users)
        return share * self._longest(users, store.aliases, lambda space: _keeping(space, store))

    def _users(self, store: StoreNode) -> tuple[str, ...]:
        return tuple(name for name in store.users if name in self._unfiltered)

    def _wanted(self, inputs: Iterable[str], users: tuple[str, ...]) -> float:
        """The part of all combinations over some inputs that at least one user wants, at most.

        A combination is wanted only if each of its tuples is wanted by somebody, and by the same user.
        """
        names = tuple(inputs)
        each = math.prod(self._part(alias, users) for alias in names)
        if len(names) == 1:
            return each
        by_same = math.fsum(math.prod(self._part(alias, (user,)) for alias in names) for user in users)
        return min(each, by_same)

    def _longest(self, users: Iterable[str], inputs: Iterable[str], work: Callable[[Space], float]) -> float:
        """The work of the user whose windows make most of it, of those that differ in windows."""
        names, by_windows = tuple(inputs), dict[object, Space]()
        for user in users:
            space = self._unfiltered[user]
            windows = tuple(space.query.input(alias).window for alias in names)
            by_windows.setdefault(windows, space)
        return max(map(work, list(by_windows.values())[:VARIANTS]), default=0.0)


def _shared_step(
    space: Space, graph: PhysicalGraph, rule: ProbeRule, arriving: float, matched: float, wanted: float
) -> float:
    """The work of a probe that all of its users share.

    ``arriving`` is the part of all tuples that probe, ``matched`` the part of all matches that they find, and
    ``wanted`` the part that at least one user wants. As in Equation 2, a match costs what a tuple costs that probes.
    """
    edge, store = graph.edge(rule.edge), graph.store(rule.store)
    known, inside = space.estimator.mask(rule.known), space.estimator.mask(store.aliases)
    start = space.query.aliases.index(rule.start)
    incoming, matches = space.tuples(start, known) * arriving, space.tuples(start, known | inside)
    work = space.work(
        start, known, inside, space.spread(store.layout), ANYWHERE, incoming, edge.kind != LOCAL
    )
    calls = space.call_cost(start, known, inside) * wanted
    return work + calls + space.weights.probe * matches * matched


def _distinct(graph: PhysicalGraph, rule: ProbeRule) -> list[str]:
    """Users of a probe that differ in their filters or windows, and so in what they have to do there."""
    users: dict[object, str] = {}
    for name in rule.users:
        query = graph.member(name).query
        inputs = [query.input(alias) for alias in rule.known]
        key = (
            tuple(i.window for i in inputs),
            tuple(f for f in query.filters if aliases(f) <= set(rule.known)),
        )
        users.setdefault(key, name)
    return list(users.values())[:VARIANTS]


def _together(costs: Iterable[float]) -> float:
    """What several queries have to do together, where each alone has to do so much."""
    every = list(costs)
    return (max(every) + sum(every)) / 2 if every else 0.0


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


def _store(space: Space, store: StoreNode, work: float) -> StoreCost:
    """What is expected of a store that makes so much work."""
    mask = space.estimator.mask(store.aliases)
    size, rate = space.size(mask), space.estimator.rate(mask)
    return StoreCost(
        store.aliases, size, rate, parallelism(work), task_capacity(size, work) if work else None
    )


def _size(space: Space, store: StoreNode) -> float:
    return space.size(space.estimator.mask(store.aliases))


def _copies(store: StoreNode) -> int:
    return store.layout.partitions if store.layout.kind == "replicated" else 1


def _keeping(space: Space, store: StoreNode) -> float:
    """The work of storing an input, and of keeping any store."""
    rate = space.estimator.rate(space.estimator.mask(store.aliases)) if len(store.aliases) == 1 else 0.0
    return store_cost(space.weights, rate, _size(space, store), _copies(store), True)


def _probing(rules: Iterable[Rule]) -> Iterator[tuple[str, float]]:
    """The work of probing every store, step by step."""
    for rule in rules:
        if isinstance(rule, ProbeRule) and rule.estimate is not None:
            yield rule.store, rule.estimate.cost


def _adding(space: Space, graph: PhysicalGraph) -> Iterator[tuple[str, float]]:
    """The work of adding matches to every intermediate result."""
    before = {name: rule for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
    for rule in graph.rules:
        if isinstance(rule, StoreRule) and rule.edge in before:
            yield rule.store, _added(space, graph, rule, before[rule.edge].start)


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
