"""The numbered sub-joins of many queries, and how many tuples each has (CLASH 7.1).

Guarantees: queries are canonical, so a *sub-join* (inputs, and what joins them) that two queries have has one number
here. Where queries share a sub-join but differ in filters or windows, its tuples are those that any of them wants: no
more than the sum of what each wants, and no more than the widest windows and all filters together let through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

from weft.logical.expr.expression import aliases
from weft.logical.query.query import Query
from weft.optimizer.joint.space.query_lattice import QueryLattice, SubJoin
from weft.optimizer.space import Options
from weft.stats.statistics import Statistics

__all__ = ["SubJoins"]


class SubJoins:
    """The sub-joins of some queries, by number, with their rates and sizes."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        statistics: Statistics,
        options: Options | None = None,
        *,
        intermediate: bool = True,
        known: SubJoins | None = None,
    ) -> None:
        """Number the sub-joins; ``intermediate`` lets them be stored, and ``known`` has some of the queries already."""
        self.queries = dict(queries)
        self.statistics = statistics
        self.options = options or Options()
        self.intermediate = intermediate
        self._lattices: dict[str, QueryLattice] = {
            name: known._lattices[name]
            if known is not None and known.queries.get(name) == query
            else QueryLattice.from_query(query, statistics, self.options, intermediate)
            for name, query in self.queries.items()
        }
        self._numbers: dict[SubJoin, int] = {}
        self._members: list[
            list[tuple[str, int]]
        ] = []  # for each sub-join, the queries that have it, and its mask there
        self._of: dict[str, dict[int, int]] = {}  # for each query, the numbers of its sub-joins, by mask
        for name, lattice in self._lattices.items():
            self._of[name] = {mask: self._number(join, name, mask) for mask, join in lattice.joins.items()}
        self.joins: list[SubJoin] = list(self._numbers)
        self._figures: dict[int, tuple[tuple[float, ...], float]] = {}

    def _number(self, join: SubJoin, name: str, mask: int) -> int:
        number = self._numbers.setdefault(join, len(self._numbers))
        if number == len(self._members):
            self._members.append([])
        self._members[number].append((name, mask))
        return number

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """The inputs of all queries, sorted."""
        return tuple(sorted({alias for query in self.queries.values() for alias in query.aliases}))

    def find(self, name: str, names: Iterable[str]) -> int:
        """The sub-join of some inputs of a query."""
        return self._of[name][self._lattices[name].space.estimator.mask(frozenset(names))]

    def whole(self, name: str) -> int:
        """The sub-join that answers a query."""
        return self._of[name][self._lattices[name].space.full]

    def sub_joins(self, name: str) -> tuple[int, ...]:
        """The sub-joins of a query that may be stored: single inputs and the MIRs of 7.1, without the query itself."""
        part, numbers = self._lattices[name], self._of[name]
        stored = {mask for _, _, mask in part.steps}
        return tuple(number for mask, number in numbers.items() if mask in stored)

    def users(self, join: int) -> tuple[str, ...]:
        """The queries that have a sub-join."""
        return tuple(name for name, _ in self._members[join])

    def within(self, join: int, names: Iterable[str]) -> int:
        """The sub-join of some of the inputs of a sub-join."""
        return self.find(self._members[join][0][0], names)

    def tuples(self, start: str, join: int) -> float:
        """Results of a sub-join per second whose last tuple is of input ``start``."""
        return self._figures_of(join)[0][self.joins[join].aliases.index(start)]

    def rate(self, join: int) -> float:
        """Results of a sub-join per second."""
        return math.fsum(self._figures_of(join)[0])

    def size(self, join: int) -> float:
        """How many results of a sub-join are alive at once."""
        return self._figures_of(join)[1]

    def _figures_of(self, join: int) -> tuple[tuple[float, ...], float]:
        found = self._figures.get(join)
        if found is None:
            found = self._figures[join] = self._estimate(join)
        return found

    def _estimate(self, join: int) -> tuple[tuple[float, ...], float]:
        """Tuples per input, and the size, of the union of what all queries with the sub-join want."""
        names = self.joins[join].aliases
        variants: dict[object, tuple[QueryLattice, int]] = {}
        for name, mask in self._joining(join):
            variants.setdefault(self._lattices[name].variant(names), (self._lattices[name], mask))
        wanted = [part.wanted(mask) for part, mask in variants.values()]
        if len(wanted) > 1:
            union = math.prod(self._passing(join, name) for name in names)
            parts = [math.prod(part.passed[name] for name in names) for part, _ in variants.values()]
            united = [
                min(
                    math.fsum(column),
                    union * max(x / p if p else 0.0 for x, p in zip(column, parts, strict=True)),
                )
                for column in zip(*wanted, strict=True)
            ]
        else:
            united = wanted[0]
        return tuple(united[:-1]), united[-1]

    def _joining(self, join: int) -> list[tuple[str, int]]:
        """The queries that join what a sub-join gives, or answer with it; a query of one input stores nothing."""
        found = [(name, mask) for name, mask in self._members[join] if len(self.queries[name].inputs) > 1]
        return found or self._members[join]

    def _passing(self, join: int, alias: str) -> float:
        """The part of an input's tuples that some query with this sub-join wants."""
        filters: dict[object, float] = {}
        for name, _ in self._joining(join):
            part = self._lattices[name]
            own = tuple(f for f in part.space.query.filters if aliases(f) == {alias})
            filters.setdefault(own, part.passed[alias])
        return 1 - math.prod(1 - passed for passed in filters.values())
