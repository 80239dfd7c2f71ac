"""The part of one query in the space of joint plans: its sub-joins, and the steps between them.

Guarantees: inputs are numbered as in `Query.aliases` and sets of them are bit masks. No step makes a cross product
where a predicate leads on to an input. From every input there is a way to the whole query that visits inputs only, so a
query has a plan whatever is stored. For example, `b.k + c.k = a.k` leads from `a` to the join of `b` and `c` only;
where that is not stored, `a` is first joined with `b` without a predicate, as in plans of single queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.logical.expr.expression import Expr, aliases
from weft.logical.query.canonical import joined_on
from weft.logical.query.query import Query
from weft.optimizer.space import Options, Space
from weft.plan.join_plan import Names
from weft.stats.estimate import bits
from weft.stats.statistics import Statistics

__all__ = ["QueryLattice", "SubJoin", "is_wide"]

# (count, size): a query with more than ``count`` connected sets of inputs stores only those of up to ``size`` inputs.
MANY = ((256, 1), (64, 2))

# A query is wide if its walks can reach more sets of inputs than this; a star of more than nine inputs is, for example.
WIDE = 512


class SubJoin(NamedTuple):
    """A join that several queries may have: the inputs, sorted, and the predicates that join them."""

    aliases: Names
    on: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class QueryLattice:
    """The sub-joins of a query by mask, and its steps (start, known, store), those of shorter walks first."""

    space: Space
    joins: Mapping[int, SubJoin]
    steps: tuple[tuple[int, int, int], ...]
    passed: Mapping[str, float]

    @classmethod
    def from_query(
        cls, query: Query, statistics: Statistics, options: Options, intermediate: bool
    ) -> QueryLattice:
        """The lattice of a query; ``intermediate`` says whether intermediate results may be stored."""
        space = Space(query, statistics, options)
        stores = _storable(space) if intermediate else [1 << i for i in range(space.count)]
        steps = [step for i in range(space.count) for step in _steps_from(space, i, stores)]
        steps.sort(key=lambda step: step[1].bit_count())
        masks = {*stores, *(known | store for _, known, store in steps)}
        joins = {mask: _sub_join(space, mask) for mask in sorted(masks)}
        passed = {
            alias: math.prod(statistics.selectivity(query, f) for f in query.filters if aliases(f) == {alias})
            for alias in query.aliases
        }
        return cls(space, joins, tuple(steps), passed)

    def wanted(self, mask: int) -> list[float]:
        """Tuples per second of each input of a sub-join, and its size, as this query wants them."""
        return [*(self.space.tuples(i, mask) for i in bits(mask)), self.space.size(mask)]

    def variant(self, names: Names) -> tuple[object, ...]:
        """The windows and filters of these inputs, in which queries that share their sub-join may differ."""
        query = self.space.query
        windows = tuple(query.input(name).window for name in names)
        return windows, tuple(f for f in query.filters if aliases(f) <= set(names))


def is_wide(space: Space) -> bool:
    """Whether a query has too many sub-joins to be planned together with others."""
    return 1 << space.count > WIDE and len(_sets(space, WIDE + 1)) > WIDE


def _sets(space: Space, most: int) -> set[int]:
    """The sets of inputs that walks reach if they visit inputs only; the search ends soon after ``most`` are found."""
    waiting = [1 << i for i in range(space.count)]
    seen = set(waiting)
    for known in waiting:
        if len(seen) > most:
            break
        for store in space.next_steps(known, tuple(1 << i for i in bits(space.full & ~known))):
            if known | store not in seen:
                seen.add(known | store)
                waiting.append(known | store)
    return seen


def _storable(space: Space) -> list[int]:
    """The sets of inputs that may be stored: connected ones; if these are many, only small ones, to limit steps."""
    sets = [mask for mask in sorted(_sets(space, space.full)) if space.storable(mask)]
    most = next((size for count, size in MANY if len(sets) > count), space.count)
    return [mask for mask in sets if mask.bit_count() <= most]


def _sub_join(space: Space, mask: int) -> SubJoin:
    names = space.names(mask)
    return SubJoin(names, joined_on(space.query, names))


def _steps_from(space: Space, start: int, stores: list[int]) -> Iterator[tuple[int, int, int]]:
    """All steps that tuples of an input may take; cross products only where no predicate leads on to an input."""
    waiting, seen = [1 << start], {1 << start}
    for known in waiting:
        free = tuple(store for store in stores if not store & known)
        inputs = space.next_steps(known, tuple(store for store in free if store.bit_count() == 1))
        worth = {*inputs, *space.next_steps(known, free)}
        for store in (store for store in free if store in worth):
            yield start, known, store
            if known | store not in seen:
                seen.add(known | store)
                waiting.append(known | store)
