"""The space of plans of many queries together (CLASH 7.1), which every joint optimiser searches.

Guarantees: sub-joins are numbered (`sub_joins.py`), and one that two queries have has one number. The cost of a step
depends on the first input, on the sub-join known and on the store visited, not on how the sub-join was reached; so a
walk is a path through a lattice of sub-joins. `cost_of` counts every step that walks have in common once, and every
store once.

Every step is priced as shipped, and hops are not priced: where a tuple is depends on its whole way, which a lattice of
sets does not know. `optimizer/single/evaluate.py` knows it for one query.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from weft.logical.query.query import Query
from weft.optimizer.cost import Weights, call_cost, store_cost
from weft.optimizer.joint.space.query_lattice import QueryLattice, SubJoin
from weft.optimizer.joint.space.sub_joins import SubJoins
from weft.optimizer.space import Options
from weft.plan.join_plan import Cost, Layout, Names, StoreCost
from weft.plan.schedule import ANYWHERE
from weft.plan.workload import Answer, SharedStore, Upkeep, Walk, WorkloadPlan
from weft.stats.statistics import Statistics

__all__ = ["PROBES_ONLY", "SubJoin", "WalkStep", "Ways", "Workspace"]

# Weights that count the probe cost of 6.1 and nothing else: tuples sent, each once per copy.
PROBES_ONLY = Weights(ship=0.0, probe=1.0, store=0.0, keep=0.0, hop=0.0, match=0.0)


class WalkStep(NamedTuple):
    """A step of a walk: tuples of ``start`` that know sub-join ``known`` visit a store, and then know ``target``."""

    start: str
    known: int
    store: int
    target: int
    cost: float


# The stores, by number, that tuples of each input visit.
Ways = Mapping[str, tuple[int, ...]]


class Workspace(SubJoins):
    """The sub-joins, stores and steps of some queries, by number; each figure is computed only once."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        statistics: Statistics,
        options: Options | None = None,
        *,
        replicated: bool = True,
        intermediate: bool = True,
        known: Workspace | None = None,
    ) -> None:
        """Make the space; ``replicated`` and ``intermediate`` allow replicated stores and stored intermediate results.

        ``known`` is a workspace with the same settings that has some of the queries already.
        """
        super().__init__(queries, statistics, options, intermediate=intermediate, known=known)
        self.replicated = replicated
        self.stores: list[SharedStore] = []
        self._store_numbers: dict[SharedStore, int] = {}
        self._own: dict[int, int] = {}  # the number of a store in `stores`, by its `id`
        self._stored: list[int] = []  # the sub-join of each store
        self._kept: list[float] = []
        self._layouts: dict[int, tuple[int, ...]] = {}
        self._steps: dict[tuple[str, str], list[WalkStep]] = {}

    def adding(self, queries: Mapping[str, Query]) -> Workspace:
        """The workspace with more queries."""
        return self._with({**self.queries, **queries})

    def without(self, names: Iterable[str]) -> Workspace:
        """The workspace with fewer queries."""
        gone = set(names)
        return self._with({name: query for name, query in self.queries.items() if name not in gone})

    def only(self, names: Iterable[str]) -> Workspace:
        """The workspace of some of the queries."""
        return self._with({name: self.queries[name] for name in names})

    def _with(self, queries: Mapping[str, Query]) -> Workspace:
        return Workspace(
            queries,
            self.statistics,
            self.options,
            replicated=self.replicated,
            intermediate=self.intermediate,
            known=self,
        )

    # -- Stores --------------------------------------------------------------------------------------------------

    def layouts(self, join: int) -> tuple[int, ...]:
        """The stores a sub-join may be kept in: by any key that leads outside in a query with it, else scattered."""
        found = self._layouts.get(join)
        if found is None:
            every = dict.fromkeys(
                part.space.layout(mask, spread)
                for name, mask in self._members[join]
                for part in (self._lattices[name],)
                if mask != part.space.full
                for spread in part.space.spreads(mask)
                if self.replicated or spread.kind != "replicated" or part.space.spreads(mask) == (spread,)
            )
            useful = [layout for layout in every if layout.kind != "scattered"]
            fitting = useful if any(layout.kind == "partitioned" for layout in useful) else every
            found = self._layouts[join] = tuple(self._store(join, layout) for layout in fitting)
        return found

    def _store(self, join: int, layout: Layout) -> int:
        store = SharedStore(self.joins[join].aliases, layout, self.joins[join].on)
        self._store_numbers[store] = self._own[id(store)] = len(self.stores)
        self.stores.append(store)
        self._stored.append(join)
        self._kept.append(self._keeping(join, layout))
        return len(self.stores) - 1

    def _keeping(self, join: int, layout: Layout) -> float:
        count = _copies(layout)
        shipped = layout.kind != "scattered" or len(self.joins[join].aliases) == 1
        return store_cost(self.options.weights, self.rate(join), self.size(join), count, shipped)

    def store_number(self, store: SharedStore) -> int:
        """The number of a store."""
        # Most plans consist of the workspace's own stores, which `id` finds faster than hashing.
        known = self._own.get(id(store))
        if known is not None:
            return known
        if store not in self._store_numbers:
            self.layouts(self._numbers[SubJoin(store.aliases, store.on)])
        return self._store_numbers[store]

    def join_of(self, store: int) -> int:
        """The sub-join that a store keeps."""
        return self._stored[store]

    def stored(self, store: int) -> float:
        """How many tuples a store holds, copies counted."""
        return self.size(self._stored[store]) * _copies(self.stores[store].layout)

    def size_of(self, store: SharedStore) -> float | None:
        """How many tuples one copy of a store holds, whatever its layout; None if no query has its sub-join."""
        join = self._numbers.get(SubJoin(store.aliases, store.on))
        return None if join is None else self.size(join)

    def work(self, name: str, start: str, known: Names, store: Names, layout: Layout, shipped: bool) -> float:
        """The cost of a step of a query, given whether its tuples are ``shipped``."""
        space, tuples = self._lattices[name].space, self.tuples(start, self.find(name, known))
        mask, spread, i = space.estimator.mask, space.spread(layout), space.query.aliases.index(start)
        return space.work(i, mask(known), mask(store), spread, ANYWHERE, tuples, shipped)

    def keeping(self, store: int) -> float:
        """The work of adding to a store and of keeping it, without that of the walks that compute it."""
        return self._kept[store]

    # -- Steps ---------------------------------------------------------------------------------------------------

    def steps(self, name: str, start: str) -> list[WalkStep]:
        """The steps that tuples of an input may take to answer a query, in the order of what they know."""
        found = self._steps.get((name, start))
        if found is None:
            for alias in self.queries[name].aliases:
                self._steps[name, alias] = []
            part, numbers = self._lattices[name], self._of[name]
            for i, known, mask in part.steps:
                self._steps[name, part.space.query.aliases[i]] += self._laid_out(
                    part, numbers, i, known, mask
                )
            found = self._steps[name, start]
        return found

    def _laid_out(
        self, part: QueryLattice, numbers: Mapping[int, int], i: int, known: int, mask: int
    ) -> Iterator[WalkStep]:
        start, space = part.space.query.aliases[i], part.space
        tuples = self.tuples(start, numbers[known])
        calls = self._calls(start, numbers[known], numbers[mask], numbers[known | mask])
        delay = self.delay_cost(start)
        for store in self.layouts(numbers[mask]):
            layout = self.stores[store].layout
            cost = space.work(i, known, mask, space.spread(layout), ANYWHERE, tuples, True)
            yield WalkStep(start, numbers[known], store, numbers[known | mask], cost + calls + delay)

    def delay_cost(self, start: str) -> float:
        """What it costs that tuples of an input take one step more, where latency has a price (ELat, 5.6)."""
        weight = self.options.weights.latency
        return weight * self._parts[start] if weight else 0.0

    @cached_property
    def _parts(self) -> dict[str, float]:
        """Which part of all tuples are of each input, by the highest rate that a query expects of it."""
        rates: dict[str, float] = {}
        for part in self._lattices.values():
            for alias, rate in zip(part.space.query.aliases, part.space.rates, strict=True):
                rates[alias] = max(rate, rates.get(alias, 0.0))
        total = math.fsum(rates.values()) or 1.0
        return {alias: rate / total for alias, rate in rates.items()}

    def _calls(self, start: str, known: int, stored: int, target: int) -> float:
        """The work of users' functions where two sub-joins meet, by the figures of the first query that has both."""
        name, _ = self._members[target][0]
        space = self._lattices[name].space
        if not space.calls_functions:
            return 0.0
        here = space.estimator.mask(self.joins[known].aliases)
        there = space.estimator.mask(self.joins[stored].aliases)
        return call_cost(self.tuples(start, target), space.checks(here, there))

    def call_cost(self, name: str, start: str, known: Names, store: Names) -> float:
        """The work of users' functions in a step of a query: tuples that know some inputs visit a store of others."""
        joins = (self.find(name, names) for names in (known, store, (*known, *store)))
        return self._calls(start, *joins) if self._lattices[name].space.calls_functions else 0.0

    def upkeep_steps(self, join: int, start: str) -> list[WalkStep]:
        """The steps by which tuples of an input may compute a sub-join."""
        inside = set(self.joins[join].aliases)
        every = self.steps(self._members[join][0][0], start)
        return [step for step in every if inside.issuperset(self.joins[step.target].aliases)]

    def steps_of(self, walk: Walk, whole: int) -> list[WalkStep]:
        """The steps of a walk that computes a sub-join."""
        by = self._by(self._members[whole][0][0], walk.start)
        known, found = self.within(whole, (walk.start,)), []
        for visit in walk.visits:
            step = by[known, self.store_number(visit)]
            found.append(step)
            known = step.target
        return found

    def _by(self, name: str, start: str) -> dict[tuple[int, int], WalkStep]:
        if (name, start) not in self._index:
            self._index[name, start] = {(step.known, step.store): step for step in self.steps(name, start)}
        return self._index[name, start]

    @cached_property
    def _index(self) -> dict[tuple[str, str], dict[tuple[int, int], WalkStep]]:
        return {}

    # -- Plans ---------------------------------------------------------------------------------------------------

    def plan(self, answers: Mapping[str, Ways], upkeep: Mapping[int, Ways]) -> WorkloadPlan:
        """A plan of walks given as numbers of stores: per query, and per intermediate result that is stored."""
        found = [
            Answer(name, self.queries[name], self._walks(self.queries[name].aliases, ways))
            for name, ways in answers.items()
        ]
        kept = [
            Upkeep(self.stores[store], self._walks(self.stores[store].aliases, ways))
            for store, ways in upkeep.items()
        ]
        return self.priced(WorkloadPlan(()).with_answers(found, kept))

    def _walks(self, starts: Names, ways: Ways) -> tuple[Walk, ...]:
        return tuple(Walk(start, tuple(self.stores[store] for store in ways[start])) for start in starts)

    def priced(self, plan: WorkloadPlan) -> WorkloadPlan:
        """The plan with its cost."""
        steps = self._distinct(plan)
        stores = [self.store_number(store) for store in plan.stores]
        sent = math.fsum(step.cost for step in steps)
        per_tuple = self.options.weights.probe + self.options.weights.ship
        calls = math.fsum(self._calls(s.start, s.known, self.join_of(s.store), s.target) for s in steps)
        delays = math.fsum(self.delay_cost(step.start) for step in steps)
        probes = (sent - calls - delays) / per_tuple if per_tuple else 0.0
        sizes = [
            StoreCost(self.stores[n].aliases, self.size(self.join_of(n)), self.rate(self.join_of(n)))
            for n in stores
        ]
        cost = Cost(
            total=sent + math.fsum(self.keeping(store) for store in stores),
            storage=math.fsum(map(self.stored, stores)),
            probes=probes,
            shipped=probes,
            latency=math.fsum(self._parts[step.start] for step in steps),
            hops=0,
            stores=tuple(sizes),
        )
        return WorkloadPlan(plan.answers, plan.upkeep, cost)

    def cost_of(self, plan: WorkloadPlan) -> float:
        """The cost of a plan; every shared step, and every store, counts once."""
        steps = math.fsum(step.cost for step in self._distinct(plan))
        return steps + math.fsum(self.keeping(self.store_number(store)) for store in plan.stores)

    def _distinct(self, plan: WorkloadPlan) -> list[WalkStep]:
        """The distinct steps of a plan; steps of two walks are the same if the walks are the same up to there."""
        found: dict[tuple[WalkStep, ...], WalkStep] = {}
        walks = [(walk, self.whole(answer.name)) for answer in plan.answers for walk in answer.walks]
        for one in plan.upkeep:
            walks += [(walk, self.join_of(self.store_number(one.store))) for walk in one.walks]
        for walk, whole in walks:
            steps = tuple(self.steps_of(walk, whole))
            for i, step in enumerate(steps):
                found.setdefault(steps[: i + 1], step)
        return list(found.values())


def _copies(layout: Layout) -> int:
    return layout.partitions if layout.kind == "replicated" else 1
