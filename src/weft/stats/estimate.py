"""The rate and the size of every sub-query, from the figures of its inputs (CLASH 5.3 and 6.2).

Guarantees: an estimate depends on the *set* of inputs joined so far and on the input that started, not on the order in
which they were joined. Sets of inputs are bit masks over `Query.aliases`, because an optimiser asks a great many times.

The unit of time is the second. What a tuple of input i meets when it arrives is the *content* of the others: rate
times window for `RANGE` (and for what event-time predicates imply), n for `ROWS n`, and for an unbounded window all
that came before. Over a horizon H the latter averages, for u unbounded partners, H^u / (u + 1): with windows
unbounded throughout that is the factor 1/2, 1/3, … by which CLASH's 5.5 counts only partners that came first, and
with bounded windows it is 1. An event-time band between two inputs that were both there before counts by how much of
their common time it covers.

Predicates are taken to be independent, but for the sets that `Statistics.joint` knows: the factors of sets within the
inputs asked for are applied, the largest sets first, and of sets that have two inputs in common only the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import combinations, permutations

from weft.logical.expr.bounds import ValueRange, bounds, ranges
from weft.logical.expr.expression import BOOLEAN, Column, Expr, aliases, make_call
from weft.logical.query.horizon import is_time_bound, retention, time_bounds
from weft.logical.query.query import Key, Query
from weft.logical.query.window import Range, Rows
from weft.stats.predicate_sets import PredicateSets
from weft.stats.statistics import DEFAULTS, Statistics, predicate_name

__all__ = ["Estimator", "bits"]

# The least length of a span of event times, in seconds, where bounds say that times are equal.
INSTANT = 1e-3


def bits(mask: int) -> Iterator[int]:
    """The positions of the ones in a mask, ascending.

    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Estimator:
    """Answers for one query and one set of statistics; asked twice, it does not compute twice."""

    def __init__(self, query: Query, statistics: Statistics) -> None:
        self.query = query
        self.statistics = statistics
        self._index = {alias: i for i, alias in enumerate(query.aliases)}
        self._bounds = time_bounds(query)
        self._horizon = statistics.horizon.total_seconds()
        self._passed = [self._filter_selectivity(alias) for alias in query.aliases]
        self.rates = [self._rate(i, alias) for i, alias in enumerate(query.aliases)]
        self._tuples: dict[tuple[int, int], float] = {}
        self._selectivities: dict[int, float] = {}
        self._pairs: dict[tuple[Expr, Expr], float] = {}

    def mask(self, names: tuple[str, ...] | frozenset[str]) -> int:
        """The bit mask of some aliases."""
        return sum(1 << self._index[name] for name in names)

    def tuples(self, start: int, mask: int) -> float:
        """Results per second over the inputs of ``mask`` whose last tuple is of input ``start``."""
        found = self._tuples.get((start, mask))
        if found is None:
            contents = [self._contents[start][i] for i in bits(mask) if i != start]
            unbounded = sum(self._unbounded[start][i] for i in bits(mask) if i != start)
            product = math.prod(contents) * self._together(start, mask) * self.selectivity(mask)
            found = self._tuples[start, mask] = self.rates[start] * product / (unbounded + 1)
        return found

    def tuples_met(self, start: int, known: int, store: int) -> float:
        """How many results of a store a tuple meets within windows and time bounds, before conditions are checked."""
        both = known | store
        alone = self.tuples(start, known) * self.selectivity(both)
        separately = self.selectivity(known) * self.selectivity(store)
        return self.tuples(start, both) * separately / alone if alone else 0.0

    def pairs_looked_up(self, start: int, known: int, store: int) -> float:
        """Pairs per second that fulfil the equalities, before other conditions are checked."""
        both = frozenset(self.query.aliases[i] for i in bits(known | store))
        inside = [frozenset(self.query.aliases[i] for i in bits(mask)) for mask in (known, store)]
        new = [f for names, f in self._theta if names <= both and not any(names <= one for one in inside)]
        passed = math.prod(new)
        return self.tuples(start, known | store) / passed if passed else 0.0

    def rate(self, mask: int) -> float:
        """Results per second over the inputs of ``mask``."""
        return sum(self.tuples(i, mask) for i in bits(mask))

    def size(self, mask: int) -> float:
        """Results over the inputs of ``mask`` that are alive at once (5.3): what a store of them holds."""
        product = math.prod(self._residents[i] for i in bits(mask)) * self.selectivity(mask)
        return product if mask & (mask - 1) == 0 else min(product, self.rate(mask) * self._lifetime(mask))

    def selectivity(self, mask: int) -> float:
        """The part of all combinations over the inputs of ``mask`` that the join predicates let through."""
        found = self._selectivities.get(mask)
        if found is None:
            found = self.independent_selectivity(mask)
            if self.statistics.joint:
                found = min(1.0, found * self._correlation(mask))
            self._selectivities[mask] = found
        return found

    def independent_selectivity(self, mask: int) -> float:
        """The same as `selectivity`, if all predicates were independent."""
        names = frozenset(self.query.aliases[i] for i in bits(mask))
        found = math.prod(self._key_selectivity(key, names) for key in self.query.keys)
        return found * math.prod(f for predicate, f in self._theta if predicate <= names)

    def _correlation(self, mask: int) -> float:
        """How many times as many combinations match as if predicates were independent.

        Two inputs in common are what sets of predicates can have a predicate in common by.
        """
        taken: list[int] = []
        product = 1.0
        for inside, factor in self._correlated:
            if inside & mask == inside and all((inside & one).bit_count() < 2 for one in taken):
                taken.append(inside)
                product *= factor
        return product

    @cached_property
    def _correlated(self) -> list[tuple[int, float]]:
        """The sets of inputs whose predicates are not independent, the largest first, with their factors."""
        return PredicateSets(self.query).correlated(self.statistics.joint)

    @cached_property
    def _theta(self) -> list[tuple[frozenset[str], float]]:
        """Selectivities of all but equalities; event-time bounds are part of the windows already."""
        query = self.query
        said = {bound.predicate for band in self.bands for bound in (band.low, band.high)}
        stated = [p for p in query.predicates if not is_time_bound(query, p)] + list(query.residuals)
        found = [(aliases(b.low.predicate), self.statistics.band(query, b)) for b in self.bands]
        return found + [(aliases(p), self.statistics.selectivity(query, p)) for p in stated if p not in said]

    @cached_property
    def bands(self) -> tuple[ValueRange, ...]:
        """Values that one input bounds for another from both sides; those of event times are part of the windows."""
        return tuple(self._find_bands())

    def _find_bands(self) -> Iterator[ValueRange]:
        stated = [p for p in self.query.predicates if not is_time_bound(self.query, p)]
        for one, other in combinations(self.query.aliases, 2):
            taken: set[Expr] = set()
            for band in ranges(list(bounds(stated, frozenset({other}), frozenset({one})))):
                ends = {band.low.predicate, band.high.predicate}
                if not ends & taken:
                    taken |= ends
                    yield band

    def _key_selectivity(self, key: Key, names: frozenset[str]) -> float:
        """Selectivity of an equality class: a spanning tree of its least selective equalities.

        For uniform values that is 1 / the product of all distinct counts but the smallest.
        """
        inside = key.restrict(names)
        if inside is None:
            return 1.0
        pairs = combinations(range(len(inside.members)), 2)
        edges = sorted(
            ((self._pair(inside.members[a], inside.members[b]), a, b) for a, b in pairs), reverse=True
        )
        roots, product = list(range(len(inside.members))), 1.0
        for selectivity, a, b in edges:
            if roots[a] != roots[b]:
                product *= selectivity
                roots = [roots[a] if root == roots[b] else root for root in roots]
        return product

    def _pair(self, left: Expr, right: Expr) -> float:
        found = self._pairs.get((left, right))
        if found is None:
            found = self.statistics.selectivity(self.query, make_call("=", (left, right), BOOLEAN))
            self._pairs[left, right] = found
        return found

    def _filter_selectivity(self, alias: str) -> float:
        filters = [f for f in self.query.filters if aliases(f) == {alias}]
        found = math.prod(self.statistics.selectivity(self.query, f) for f in filters)
        if self.statistics.joint and len(filters) > 1:
            names = tuple(sorted(predicate_name(self.query, f) for f in filters))
            found = min(1.0, found * self.statistics.joint.get(names, 1.0))
        return found

    def _rate(self, i: int, alias: str) -> float:
        if self.query.inputs[i].stream.table:
            return 0.0  # its rows start nothing
        return self.statistics.stream(self.query.input(alias).stream.name).rate * self._passed[i]

    @cached_property
    def _contents(self) -> list[list[float]]:
        names = self.query.aliases
        return [[self.content(a, b)[0] for b in names] for a in names]

    @cached_property
    def _unbounded(self) -> list[list[bool]]:
        names = self.query.aliases
        return [[self.content(a, b)[1] for b in names] for a in names]

    def content(self, start: str, other: str) -> tuple[float, bool]:
        """How many tuples of ``other`` a tuple of ``start`` meets, and whether their number grows without limit."""
        i = self._index[other]
        if self.query.inputs[i].stream.table:
            return self._table_rows(i), False
        window = self.query.inputs[i].window
        counts = [self._counted(i, window)] if isinstance(window, Rows) else []
        span = self._spans[start, other] if start != other else 0.0
        if span is not None:
            counts.append(self.rates[i] * span)
        return (min(counts), False) if counts else (self.rates[i] * self._horizon, True)

    def _table_rows(self, i: int) -> float:
        """How many rows of a table pass the filters."""
        return self.statistics.rows(self.query.inputs[i].stream.name) * self._passed[i]

    def _counted(self, i: int, window: Rows) -> float:
        """How many tuples a `ROWS` window holds: its count, times the number of keys if it counts per key."""
        known = self.statistics.stream(self.query.inputs[i].stream.name).distinct
        keys = math.prod(known.get(name, DEFAULTS.distinct) for name in window.per)
        return window.count * keys * self._passed[i]

    @cached_property
    def _spans(self) -> dict[tuple[str, str], float | None]:
        return {pair: self._span(*pair) for pair in permutations(self.query.aliases, 2)}

    def _span(self, start: str, other: str) -> float | None:
        """In how many of the seconds before a tuple of ``start`` its partners of ``other`` lie; None: in all."""
        most = self._bounds.get((start, other))
        if most is None:
            return None
        if {start, other} in self._simultaneous:
            window = self.query.input(other).window
            return window.duration.total_seconds() if isinstance(window, Range) else self._horizon
        ahead = self._bounds.get((other, start))
        least = max(0.0, -ahead.total_seconds()) if ahead is not None else 0.0
        return max(INSTANT if most.total_seconds() >= least else 0.0, most.total_seconds() - least)

    @cached_property
    def _simultaneous(self) -> set[frozenset[str]]:
        """The pairs that an equality of event times joins; it counts by its selectivity, not as a window."""
        times = {input_.event_time: input_.alias for input_ in self.query.inputs}
        pairs = (combinations((m for m in key.members if m in times), 2) for key in self.query.keys)
        return {
            frozenset(times[m] for m in pair if isinstance(m, Column)) for found in pairs for pair in found
        }

    def _together(self, start: int, mask: int) -> float:
        """The part of the pairs that a tuple meets in two other inputs whose times are close enough to each other."""
        found = 1.0
        for i, j, width in self._widths:
            if mask >> i & 1 and mask >> j & 1 and start not in (i, j):
                found *= min(1.0, width / max(self._met(start, i), self._met(start, j)))
        return found

    def _met(self, start: int, other: int) -> float:
        """The seconds in which partners lie, at least an instant."""
        span = self._spans[self.query.aliases[start], self.query.aliases[other]]
        return max(INSTANT, self._horizon if span is None else span)

    @cached_property
    def _widths(self) -> list[tuple[int, int, float]]:
        """Pairs of inputs whose times are bound to each other both ways, and by how many seconds in all."""
        found = []
        for a, b in combinations(self.query.aliases, 2):
            bounds = [self._bounds[pair] for pair in ((a, b), (b, a)) if pair in self._bounds]
            if len(bounds) == 2 and {a, b} not in self._simultaneous:
                width = max(INSTANT, sum(bound.total_seconds() for bound in bounds))
                found.append((self._index[a], self._index[b], width))
        return found

    @cached_property
    def _residents(self) -> list[float]:
        return [self._resident(i, alias) for i, alias in enumerate(self.query.aliases)]

    def _resident(self, i: int, alias: str) -> float:
        if self.query.inputs[i].stream.table:
            return self._table_rows(i)
        window = self.query.inputs[i].window
        counts = [self._counted(i, window)] if isinstance(window, Rows) else []
        counted = bool(self.query.inputs[i].counted_per)  # then time decides nothing
        kept = None if counted else retention(self.query, alias, self._bounds)
        counts.append(self.rates[i] * (self._horizon if kept is None else kept.total_seconds()))
        return min(counts)

    def _lifetime(self, mask: int) -> float:
        """Seconds until no partner outside can reach a result any more."""
        inside = [alias for alias, i in self._index.items() if mask >> i & 1]
        longest = 0.0
        for other in self.query.driving:
            if other not in inside:
                known = [self._bounds[other, alias] for alias in inside if (other, alias) in self._bounds]
                longest = max(longest, min(known).total_seconds() if known else self._horizon)
        return longest or self._horizon
