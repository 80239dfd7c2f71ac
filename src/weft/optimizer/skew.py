"""Heavy values of keys in a query's plans: which of them may be scattered, and what they add to the cost of a step.

Guarantees: without known heavy values no cost changes. Which values are scattered depends on a store's own values
alone, not on the query, so that queries can share the store. A value that is frequent only on the other side is not
scattered: its many tuples would be sent to all partitions to find the few that are stored. The formulas are in
`cost.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from weft.logical.expr.expression import Column, Expr, Literal, to_sql
from weft.logical.query.query import Query
from weft.logical.schema import DataType
from weft.optimizer.cost import Weights, heavy_copies, waiting
from weft.plan.routing import Routing
from weft.plan.schedule import NO_KEY, ProbePlace, Spread
from weft.plan.workload import WorkloadPlan
from weft.stats.estimate import Estimator
from weft.stats.skew import Distribution, HeavyValue, agreement, fits, joined_distribution, key_column
from weft.stats.statistics import Statistics

__all__ = ["BOUNDS", "Skew", "heavy_as_laid_out"]

# A value is not scattered if it has less than this part of what a partition has on average. With many tasks at once,
# smaller values matter too, but scattering them costs more copies; so layouts with either bound are offered.
BOUNDS = (0.5, 0.125)
MOST = 16  # at most so many values of a store are scattered
# So many times the share of an average partition is enough of a value for it to be scattered.
HEAVY = 1.5 * min(BOUNDS)


class Skew:
    """The costs of heavy values in the plans of one query; every figure is computed once."""

    def __init__(
        self,
        query: Query,
        routing: Routing,
        estimator: Estimator,
        weights: Weights,
        partitions: int,
        tasks: int,
        scatters: bool,
    ) -> None:
        self.query, self._routing, self._estimator, self._weights = query, routing, estimator, weights
        self._partitions, self._tasks = partitions, min(tasks, partitions)
        self._scatters = scatters and partitions > 1
        columns = [key_column(expr) for route in routing.members for expr in route.values()]
        known = (self._distribution(column) for column in columns if column is not None)
        self.is_known = partitions > 1 and any(one.heavy for one in known)
        self.of = lru_cache(None)(self._of)
        self.heavy = lru_cache(None)(self._heavy)
        self._unit = lru_cache(None)(self._extra_of_one)

    def _distribution(self, column: Column) -> Distribution:
        return self._estimator.statistics.distribution(self.query, column)

    def _of(self, key: int, mask: int) -> Distribution | None:
        """The distribution of a key's values over the join of some inputs; None if nothing but an even one is known."""
        members = self._routing.members[key] if key >= 0 else {}
        columns = [key_column(members.get(alias)) for alias in self._names(mask)]
        parts = [self._distribution(column) for column in columns if column is not None]
        return joined_distribution(parts) if any(part.heavy for part in parts) else None

    def _heavy(self, key: int, mask: int) -> dict[tuple[str, ...], tuple[Literal, ...]]:
        """The values that a store of these inputs, partitioned by a key, may scatter, as SQL and as literals."""
        found = self.of(key, mask) if self.is_known and self._scatters else None
        members = self._routing.members[key]
        by = next((members[a] for a in self._names(mask) if a in members), None)
        if found is None or by is None or key_column(by) is None:
            return {}
        ranked = sorted(found.heavy.items(), key=lambda item: (-item[1], str(item[0])))
        shares = [(share * self._partitions, Literal(v, by.type)) for v, share in ranked if fits(v, by.type)]
        often = [[value for share, value in shares[:MOST] if share > bound] for bound in BOUNDS]
        sets = [tuple(sorted(some, key=to_sql)) for some in often if some]
        return {tuple(map(to_sql, some)): some for some in sets}

    def _names(self, mask: int) -> list[str]:
        return [alias for i, alias in enumerate(self.query.aliases) if mask >> i & 1]

    def copies(self, spread: Spread, known: int) -> float:
        """The average number of copies of a tuple that knows its partition."""
        return heavy_copies(self._probing(spread, known), self._partitions)

    def _probing(self, spread: Spread, known: int) -> float:
        """The part of probing tuples that have a value which is scattered."""
        found = self.of(spread.key, known) if spread.heavy else None
        if found is None:
            return 0.0
        return sum(share for value, share in found.heavy.items() if _text(value) in spread.heavy)

    def extra(
        self,
        start: int,
        known: int,
        store: int,
        spread: Spread,
        place: ProbePlace,
        tuples: float,
        shipped: bool,
    ) -> float:
        """What a step costs beyond even work: copies of tuples with heavy values, and waiting for the busiest task."""
        if not self.is_known:
            return 0.0
        if spread.kind == "replicated" and not shipped:  # tuples are where their own key has placed them
            spread = Spread("partitioned", place.key, place.heavy)
            return tuples * self._unit(start, known, store, spread, shipped, False)
        if spread.kind != "partitioned":
            return 0.0
        return tuples * self._unit(start, known, store, spread, shipped, True)

    def _extra_of_one(
        self, start: int, known: int, store: int, spread: Spread, shipped: bool, copied: bool
    ) -> float:
        weights, count = self._weights, self._partitions
        probes = self.of(spread.key, known) if spread.key != NO_KEY else None
        if probes is None:
            return 0.0
        one = weights.probe + (weights.ship if shipped else 0.0)
        share = self._probing(spread, known) if copied else 0.0
        copying = share * (count * (weights.probe + weights.ship) - one)
        matches = self.of(spread.key, known | store) or probes
        pairs = weights.match * self._pairs(start, known, store, spread.key)
        light = [value for value in matches.heavy if _text(value) not in spread.heavy]
        waits = (
            waiting([(one, probes.share(v)), (pairs, matches.share(v)), (copying, 0.0)], count, self._tasks)
            for v in light
        )
        return copying + max(waits, default=0.0)

    def _pairs(self, start: int, known: int, store: int, key: int) -> float:
        """How many stored tuples a tuple is compared with.

        Where the key alone leads to them, the distribution of its values gives the number; a selectivity that was
        measured for several conditions together does not say how much each of them lets through.
        """
        keys = [
            route
            for route in self._routing.members
            if self._leads(route, known) and self._leads(route, store)
        ]
        sides = [self.of(key, known), self.of(key, store)]
        if keys == [self._routing.members[key]] and None not in sides:
            return self._estimator.tuples_met(start, known, store) * agreement(
                [s for s in sides if s is not None]
            )
        tuples = self._estimator.tuples(start, known)
        return self._estimator.pairs_looked_up(start, known, store) / tuples if tuples else 0.0

    def _leads(self, route: Mapping[str, Expr], mask: int) -> bool:
        return any(alias in route for alias in self._names(mask))


def _text(value: HeavyValue) -> str:
    """A value as the SQL text that `Spread` has."""
    return to_sql(Literal(value, DataType("string" if isinstance(value, str) else "long")))


def heavy_as_laid_out(statistics: Statistics, plan: WorkloadPlan) -> Statistics:
    """The statistics in which, of each column by which a plan scatters values, exactly these values are heavy.

    If more or fewer values were heavy now, new queries would get other layouts and could not share the plan's stores.
    """
    streams = {i.alias: i.stream.name for answer in plan.answers for i in answer.query.inputs}
    heavy: dict[str, dict[str, dict[HeavyValue, float]]] = {}
    for store in plan.stores:
        column, values = key_column(store.layout.by), [literal.value for literal in store.layout.heavy]
        if column is None or not values:
            continue
        stream = streams[column.alias]
        counted, least = statistics.stream(stream).heavy.get(column.name, {}), HEAVY / store.layout.partitions
        shares = {v: max(counted.get(v, 0.0), least) for v in values if isinstance(v, HeavyValue)}
        total = max(1.0, math.fsum(shares.values()))
        heavy.setdefault(stream, {})[column.name] = {v: share / total for v, share in shares.items()}
    return statistics.with_heavy(heavy)
