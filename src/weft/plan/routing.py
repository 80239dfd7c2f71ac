"""The values that stores can be partitioned by, and which tuples can compute them.

Guarantees: a *route* is a value that several inputs agree on: an equality class, or one side of an equality over three
or more inputs (`t.c` in `r.a + s.b = t.c`), which only tuples that know the other side can compute. Routes are numbered
alike wherever a query is planned, priced or lowered.

Where no equality leads to a store, a band may: its route is the number of the *cell* of the stored value. Cells are
some times as wide as the band, so a tuple that knows the bounds knows the one or two cells between them (a `CellSpan`).
Bounds of event times are not used for this, since all tuples that arrive together would be in one cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from weft.logical.expr.bounds import ValueRange, bounds, cell, last_cell, ranges
from weft.logical.expr.expression import Call, Expr, aliases, to_sql
from weft.logical.expr.user_functions import has_user_call
from weft.logical.query.horizon import is_time_bound
from weft.logical.query.query import Query
from weft.plan.join_plan import Layout
from weft.plan.schedule import CELL, NO_KEY, Spread

__all__ = ["CellSpan", "Equality", "Routing", "equalities"]


@dataclass(frozen=True, slots=True)
class Equality:
    """A probe by equality: the value a tuple brings and the value stored tuples are looked up by."""

    probe: Expr
    stored: Expr

    def __str__(self) -> str:
        return f"{self.probe} = {self.stored}"


class CellSpan(NamedTuple):
    """Two expressions between whose cells the partners are, and the inputs that must be known to compute them."""

    needed: frozenset[str]
    first: Expr
    last: Expr


class Routing:
    """The routes of a query."""

    def __init__(self, query: Query) -> None:
        self.derived = [pair for residual in query.residuals for pair in _sides(residual)]
        self.members: list[dict[str, Expr]] = [
            dict(zip(key.aliases, key.members, strict=True)) for key in query.keys
        ]
        for one, _ in self.derived:
            if len(aliases(one)) == 1 and self.number(one) == NO_KEY:
                self.members.append({next(iter(aliases(one))): one})
        self.bands: dict[int, ValueRange] = {}
        self.spans: dict[int, list[CellSpan]] = {}
        for alias, other in permutations(query.aliases, 2):
            for band in _bands(query, other, alias):
                self._add_band(alias, other, band)

    def _add_band(self, alias: str, other: str, band: ValueRange) -> None:
        width = band.width * CELL
        by = cell(band.stored, width)
        if self.number(by) == NO_KEY:
            self.members.append({alias: by})
        route = self.number(by)
        ends = (last_cell(band.low.limit, width), last_cell(band.high.limit, width))
        self.bands.setdefault(route, band)
        self.spans.setdefault(route, []).append(CellSpan(frozenset({other}), *ends))

    def number(self, expr: Expr) -> int:
        """The route an expression belongs to."""
        return next((i for i, members in enumerate(self.members) if expr in members.values()), NO_KEY)

    def spread(self, layout: Layout) -> Spread:
        """A layout as routing sees it."""
        key = NO_KEY if layout.by is None else self.number(layout.by)
        return Spread("ranged" if key in self.spans else layout.kind, key, tuple(map(to_sql, layout.heavy)))

    def sources(self, route: int) -> list[tuple[frozenset[str], Expr]]:
        """The ways to know a route's value: the inputs needed, and the expression over them."""
        members = self.members[route]
        own = [(frozenset({alias}), expr) for alias, expr in members.items()]
        return own + [(aliases(other), other) for one, other in self.derived if one in members.values()]

    def ways(self, route: int, known: frozenset[str]) -> tuple[Expr, ...]:
        """The expressions over the known inputs that give a route's value."""
        if route == NO_KEY:
            return ()
        return tuple(expr for needed, expr in self.sources(route) if needed <= known)

    def span(self, route: int, known: frozenset[str]) -> CellSpan | None:
        """The span of a route's cells in which partners of tuples with these inputs are; None if they cannot tell."""
        return next((span for span in self.spans.get(route, ()) if span.needed <= known), None)


def _bands(query: Query, other: str, alias: str) -> Iterator[ValueRange]:
    """The bands that one input sets to a value of another, except those of event times."""
    plain = [predicate for predicate in query.predicates if not has_user_call(predicate)]
    found = bounds(plain, frozenset({other}), frozenset({alias}))
    return ranges([bound for bound in found if not is_time_bound(query, bound.predicate)])


def _sides(residual: Expr) -> list[tuple[Expr, Expr]]:
    """An n-ary equality both ways round, if no input is on both sides."""
    if isinstance(residual, Call) and residual.function == "=" and not has_user_call(residual):
        left, right = residual.args
        if not aliases(left) & aliases(right):
            return [(left, right), (right, left)]
    return []


def equalities(query: Query, known: frozenset[str], store: frozenset[str]) -> tuple[Equality, ...]:
    """The equalities by which tuples that know some inputs can look up a store.

    All queries that join these inputs alike get the same equalities in the same order, whatever else they join.
    """
    found: list[Equality] = []
    for key in query.keys:
        probe = next((m for m in key.members if aliases(m) <= known), None)
        stored = next((m for m in key.members if aliases(m) <= store), None)
        if probe is not None and stored is not None:
            found.append(Equality(probe, stored))
    found.sort(key=str)
    for residual in query.residuals:
        found += [
            Equality(other, one)
            for one, other in _sides(residual)
            if aliases(one) and aliases(one) <= store and aliases(other) <= known
        ]
    return tuple(found)
