"""Which queries are executed together, and which separately (AJoin, section 4, "Query Grouping").

Guarantees: queries are canonical. A group is formed, or takes a query in, only if executing it shared costs less by
Equation 2 than executing its parts separately; queries that join nothing in common are never in one group. Finding the
best groups is NP-hard; these are found greedily, and are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from weft.logical.expr.expression import Call, Column, Expr, aliases, columns
from weft.logical.query.canonical import joined_on
from weft.logical.query.query import Query
from weft.optimizer.groups.overlap import Overlap
from weft.stats.estimate import Estimator
from weft.stats.statistics import DEFAULTS, Statistics

__all__ = ["Groups", "SharingCosts", "TwoWayJoin", "groups", "join_cost", "sub_joins"]

Groups = tuple[tuple[str, ...], ...]


def join_cost(
    cardinalities: tuple[float, float],
    keys: tuple[float, float],
    matches: float,
    *,
    index: tuple[bool, bool] = (True, True),
    materialise: bool = True,
) -> float:
    """COST of S1 ⋈ S2 (Equation 2): indexing either side, intersecting the indexes, materialising the matches.

    >>> join_cost((100, 50), (20, 10), 500)
    660
    """
    indexing = sum(needed * count for needed, count in zip(index, cardinalities, strict=True))
    return indexing + min(keys) + materialise * matches


@dataclass(frozen=True, slots=True)
class TwoWayJoin:
    """A join of two inputs, the same in every query that has it."""

    left: str
    right: str
    on: tuple[Expr, ...]


def sub_joins(query: Query) -> Iterator[TwoWayJoin]:
    """The two-way joins of a canonical query, without cross products."""
    for left, right in combinations(query.aliases, 2):
        on = joined_on(query, (left, right))
        if on:
            yield TwoWayJoin(left, right, on)


def groups(
    queries: Mapping[str, Query],
    overlap: Overlap,
    statistics: Statistics,
    *,
    join: TwoWayJoin | None = None,
) -> Groups:
    """Group queries as in Figure 7a: start with the pairs that gain most by sharing, and add all queries that gain too.

    With ``join``, only the queries that have this sub-join are grouped, and only its cost is considered.
    """
    costs = SharingCosts(queries, overlap, statistics, join)
    waiting = list(costs.names)
    gains = sorted(
        ((-gain, pair) for pair in combinations(waiting, 2) if (gain := costs.gain(pair[:1], pair[1])) > 0),
    )
    found: list[tuple[str, ...]] = []
    for _, pair in gains:
        if pair[0] in waiting and pair[1] in waiting:
            group = _grown(costs, pair, [name for name in waiting if name not in pair])
            waiting = [name for name in waiting if name not in group]
            found.append(group)
    return _ordered(costs.names, (*found, *((name,) for name in waiting)))


def _grown(costs: SharingCosts, group: tuple[str, ...], others: list[str]) -> tuple[str, ...]:
    for name in others:
        if costs.gain(group, name) > 0:
            group = (*group, name)
    return group


def _ordered(names: Sequence[str], found: Iterable[tuple[str, ...]]) -> Groups:
    """The groups, and the members of each, in the order of the queries."""
    position = {name: i for i, name in enumerate(names)}
    inside = (tuple(sorted(group, key=position.__getitem__)) for group in found)
    return tuple(sorted(inside, key=lambda group: position[group[0]]))


@dataclass(frozen=True, slots=True)
class _Figures:
    """A sub-join without filters, per second: the tuples that arrive on either side, their keys, and the matches."""

    arrivals: tuple[float, float]
    keys: tuple[float, float]
    matches: float

    def widest(self, other: _Figures) -> _Figures:
        """The figures of the longer windows."""
        return self if self.matches >= other.matches else other


class _Index(NamedTuple):
    """An input, indexed by the columns that it is joined on, or by what a theta join compares."""

    alias: str
    by: tuple[str, ...]


class SharingCosts:
    """The costs of groups of queries by Equation 2, summed over their sub-joins, which are numbered here."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        overlap: Overlap,
        statistics: Statistics,
        only: TwoWayJoin | None = None,
    ) -> None:
        """Estimate the sub-joins of all queries; with ``only``, no other sub-join is considered."""
        self._overlap = overlap
        numbers: dict[TwoWayJoin, int] = {}
        self._figures: dict[str, dict[int, _Figures]] = {}
        self._indexes: dict[str, dict[_Index, float]] = {}
        for name, query in queries.items():
            found = [join for join in sub_joins(query) if only in (None, join)]
            estimator = Estimator(replace(query, filters=()), statistics)
            self._figures[name] = {
                numbers.setdefault(join, len(numbers)): _figures(estimator, join) for join in found
            }
            self._indexes[name] = {
                index: estimator.rates[query.aliases.index(index.alias)]
                for join in found
                for index in _indexes(join)
            }
        self._joins = list(numbers)
        self.names = [name for name, figures in self._figures.items() if figures or only is None]
        self._known: dict[tuple[int, tuple[str, ...]], float] = {}

    def gain(self, group: tuple[str, ...], name: str) -> float:
        """What a group and a query cost separately, less what they cost shared; what is not in common cancels out.

        An input that both join on the same columns is indexed once, by whichever sub-joins; but a group that has no
        sub-join in common with a query gains nothing by it.
        """
        if not self.have_common(group, (name,)):
            return 0.0
        found = self._gain_of_indexes(group, name)
        for join in self._figures[name]:
            having = tuple(member for member in group if join in self._figures[member])
            if having:
                separately = self._cost(join, having) + self._cost(join, (name,))
                found += separately - self._computed(join, (*having, name))
        return found

    def _gain_of_indexes(self, group: tuple[str, ...], name: str) -> float:
        found = 0.0
        for index in self._indexes[name]:
            having = tuple(member for member in group if index in self._indexes[member])
            if having:
                separately = self._indexing(index, having) + self._indexing(index, (name,))
                found += separately - self._indexing(index, (*having, name))
        return found

    def best_group(self, groups: Sequence[tuple[str, ...]], name: str) -> tuple[float, int]:
        """The gain of the group that gains most by taking a query in, and its place; (0, -1) if there is no group."""
        gains = [(self.gain(group, name), -place) for place, group in enumerate(groups)]
        best, place = max(gains, default=(0.0, 1))
        return best, -place

    def total(self, groups: Iterable[tuple[str, ...]]) -> float:
        """What all groups cost, each executed by itself."""
        return math.fsum(cost for group in groups for cost in self._parts(group))

    def _parts(self, group: tuple[str, ...]) -> Iterator[float]:
        for join in sorted({join for name in group for join in self._figures[name]}):
            yield self._cost(join, tuple(name for name in group if join in self._figures[name]))
        for index in sorted({index for name in group for index in self._indexes[name]}):
            yield self._indexing(index, tuple(name for name in group if index in self._indexes[name]))

    def have_common(self, one: Iterable[str], other: Iterable[str]) -> bool:
        """Whether two groups of queries have a sub-join in common."""
        mine = {join for name in one for join in self._figures[name]}
        return any(join in mine for name in other for join in self._figures[name])

    def likeness(self, one: Sequence[str], other: Sequence[str]) -> float:
        """How much two groups want the same tuples of the inputs that both join: 1 if they do, 0 if they never do."""
        found = 1.0
        for alias in sorted(self._inputs(one) & self._inputs(other)):
            mine, theirs = ([n for n in group if alias in self._inputs((n,))] for group in (one, other))
            union = self._overlap.part(alias, (*mine, *theirs))
            common = self._overlap.part(alias, mine) + self._overlap.part(alias, theirs) - union
            found = min(found, common / union if union else 1.0)
        return found

    def _inputs(self, names: Iterable[str]) -> set[str]:
        joins = [self._joins[join] for name in names for join in self._figures[name]]
        return {alias for join in joins for alias in (join.left, join.right)}

    def _cost(self, join: int, names: tuple[str, ...]) -> float:
        known = self._known.get((join, names))
        if known is None:
            known = self._known[join, names] = self._computed(join, names)
        return known

    def _computed(self, join: int, names: tuple[str, ...]) -> float:
        """COST with Crd of the unions, but for indexing, which is paid once for all sub-joins that use an index.

        In Weft every match is made into a tuple, so b_m is always set.
        """
        figures = self._figures[names[0]][join]
        for name in names[1:]:
            figures = figures.widest(self._figures[name][join])
        sides = self._joins[join]
        left, right = self._overlap.part(sides.left, names), self._overlap.part(sides.right, names)
        arrivals = figures.arrivals[0] * left, figures.arrivals[1] * right
        keys = min(figures.keys[0], arrivals[0]), min(figures.keys[1], arrivals[1])
        return join_cost(arrivals, keys, figures.matches * left * right, index=(False, False))

    def _indexing(self, index: _Index, names: tuple[str, ...]) -> float:
        """Crd of the union of what queries index: b_i is set once for an input and the columns it is joined on."""
        return max(self._indexes[name][index] for name in names) * self._overlap.part(index.alias, names)


def _figures(estimator: Estimator, join: TwoWayJoin) -> _Figures:
    query, statistics = estimator.query, estimator.statistics
    left, right = query.aliases.index(join.left), query.aliases.index(join.right)
    keys = _keys(query, join.left, join, statistics), _keys(query, join.right, join, statistics)
    matches = estimator.rate(1 << left | 1 << right)
    return _Figures((estimator.rates[left], estimator.rates[right]), keys, matches)


def _indexes(join: TwoWayJoin) -> Iterator[_Index]:
    """The index of either side: by the sides of equalities that are its own, or by the whole of a theta join."""
    sides = [arg for expr in join.on if isinstance(expr, Call) and expr.function == "=" for arg in expr.args]
    for alias in (join.left, join.right):
        own = sorted(str(side) for side in sides if aliases(side) == {alias})
        yield _Index(alias, tuple(own or map(str, join.on)))


def _keys(query: Query, alias: str, join: TwoWayJoin, statistics: Statistics) -> float:
    """DistKey of a side: the distinct values that it is joined by; in a theta join, every tuple counts as one."""
    equalities = [expr for expr in join.on if isinstance(expr, Call) and expr.function == "="]
    mine = {column for expr in equalities for column in columns(expr) if column.alias == alias}
    return (
        math.prod(_distinct(query, column, statistics) for column in sorted(mine, key=str))
        if mine
        else math.inf
    )


def _distinct(query: Query, column: Column, statistics: Statistics) -> float:
    stream = query.input(column.alias).stream.name
    return statistics.stream(stream).distinct.get(column.name, DEFAULTS.distinct)
