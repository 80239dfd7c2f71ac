"""The set of predicates that joins some inputs of a query, named alike in all queries that have it.

Guarantees: the name of a set depends on streams and predicates only, neither on aliases nor on the order of a plan. It
is the sorted tuple of the predicates' names (`predicate_name`). Of an equality class, the set has those equalities that
make its first member (by name) equal to each of the others: n members are n - 1 equalities, whichever a plan checks.
Bounds on event times are left out, since they count as windows. If a query has a stream several times, a name may be in
the tuple several times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from weft.logical.expr.expression import BOOLEAN, Expr, aliases, make_call
from weft.logical.query.horizon import is_time_bound
from weft.logical.query.query import Query
from weft.stats.known import PredicateSet
from weft.stats.statistics import predicate_name

__all__ = ["PredicateSets"]

WHOLE = 10  # inputs; of larger queries only sets of few inputs, and the whole, are looked for
FEW = 3


class PredicateSets:
    """Names the sets of predicates of one query; sets of inputs are bit masks over `Query.aliases`."""

    def __init__(self, query: Query) -> None:
        index = {alias: i for i, alias in enumerate(query.aliases)}
        self._inputs = len(index)
        self._keys = [
            sorted(
                ((predicate_name(query, m), index[next(iter(aliases(m)))], m) for m in key.members),
                key=lambda member: member[:2],
            )
            for key in query.keys
        ]
        stated = [p for p in query.predicates if not is_time_bound(query, p)] + list(query.residuals)
        self._others = [(sum(1 << index[a] for a in aliases(p)), predicate_name(query, p)) for p in stated]
        self._query = query
        self._equalities: dict[tuple[Expr, Expr], str] = {}

    def names(self, mask: int) -> PredicateSet:
        """The predicates that are wholly inside some inputs."""
        found = [name for inside, name in self._others if inside & mask == inside]
        for members in self._keys:
            here = [member for _, place, member in members if mask >> place & 1]
            found += [self._equality(here[0], other) for other in here[1:]]
        return tuple(sorted(found))

    def _equality(self, left: Expr, right: Expr) -> str:
        found = self._equalities.get((left, right))
        if found is None:
            found = predicate_name(self._query, make_call("=", (left, right), BOOLEAN))
            self._equalities[left, right] = found
        return found

    def correlated(self, joint: Mapping[PredicateSet, float]) -> list[tuple[int, float]]:
        """The sets of inputs whose predicates are in ``joint``, those with the most predicates first."""
        pairs = (1 << a | 1 << b for a, b in combinations(range(self._inputs), 2))
        all_names = {name for mask in pairs for name in self.names(mask)} | {name for _, name in self._others}
        if not any(all_names.issuperset(names) for names in joint):
            return []
        found = [(names, mask) for mask in self._masks() if (names := self.names(mask)) in joint]
        ranked = sorted(found, key=lambda one: (-len(one[0]), one[1]))
        return [(mask, joint[names]) for names, mask in ranked]

    def _masks(self) -> Iterator[int]:
        """The sets of two inputs or more."""
        whole = (1 << self._inputs) - 1
        sizes = range(2, self._inputs if self._inputs <= WHOLE else FEW + 1)
        for size in sizes:
            for chosen in combinations(range(self._inputs), size):
                yield sum(1 << place for place in chosen)
        yield whole
