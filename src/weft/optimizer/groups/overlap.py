"""How much the filters of queries have in common.

It is measured on the query-sets of a sample of tuples (`Measured`) or, without a sample, estimated from the filters'
selectivities (`Estimated`): equal conditions pass the same tuples, and different ones are independent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.errors import StatisticsError
from weft.logical.expr.expression import Expr, aliases
from weft.logical.query.query import Query
from weft.stats.statistics import Statistics

__all__ = ["Estimated", "Measured", "Overlap"]

# A measured overlap remembers of so many unions of queries which query-sets they pass, and then begins anew.
MOST_KNOWN = 20_000


class Overlap(Protocol):
    """What is known about the tuples that the filters of several queries let through."""

    def part(self, alias: str, names: Collection[str]) -> float:
        """The part of an input's tuples that pass the filters of at least one of these queries."""
        ...

    def is_measured(self, name: str) -> bool:
        """Whether it was measured what the filters of a query let through."""
        ...


class Measured:
    """For each input, how many tuples of a sample have which query-set; bit i stands for the i-th query of ``names``.

    ``otherwise`` is asked about inputs that are not in the sample, and what queries that are not in it add to others.
    """

    def __init__(
        self,
        names: Sequence[str],
        samples: Mapping[str, Mapping[int, float]],
        otherwise: Overlap | None = None,
    ) -> None:
        self.names, self.samples, self.otherwise = tuple(names), samples, otherwise
        for alias, sample in samples.items():
            if any(bits >> len(self.names) or count < 0 for bits, count in sample.items()):
                raise StatisticsError(f"the sample of {alias} has query-sets that cannot be")
        self._places = {name: i for i, name in enumerate(self.names)}
        self._weights = {alias: _parts(sample) for alias, sample in samples.items() if sum(sample.values())}
        self._wanted = {alias: _wanted(samples[alias], len(self.names)) for alias in self._weights}
        self._passed: dict[tuple[str, tuple[str, ...]], NDArray[np.bool_]] = {}

    def part(self, alias: str, names: Collection[str]) -> float:
        """Crd of the union, as a part of the sample; every query-set is looked at once, however many the queries."""
        if alias not in self._weights:
            return self.otherwise.part(alias, names) if self.otherwise else 1.0
        measured = tuple(name for name in names if name in self._places)
        found = float(self._weights[alias] @ self._passing(alias, measured))
        return found if len(measured) == len(names) else self._with_others(alias, found, measured, names)

    def is_measured(self, name: str) -> bool:
        """Whether a query is in the sample."""
        return bool(self._weights) and name in self._places

    def _with_others(
        self, alias: str, found: float, measured: Collection[str], names: Collection[str]
    ) -> float:
        """The part with queries that are not in the sample: of what is left, they pass what the estimate says."""
        if self.otherwise is None:
            return 1.0
        left = 1 - self.otherwise.part(alias, measured) if measured else 1.0
        still = 1 - self.otherwise.part(alias, names)
        return 1 - (1 - found) * (still / left if left > 0 else 1.0)

    def _passing(self, alias: str, names: tuple[str, ...]) -> NDArray[np.bool_]:
        """Which query-sets have one of some queries; where it is known for all but the last, little work is left."""
        known = self._passed.get((alias, names))
        if known is not None:
            return known
        wanted, others = self._wanted[alias], self._passed.get((alias, names[:-1]))
        found: NDArray[np.bool_]
        if others is None or not names:
            found = np.any(wanted[[self._places[name] for name in names]], axis=0)
        else:
            found = others | wanted[self._places[names[-1]]]
        if len(self._passed) >= MOST_KNOWN:
            self._passed.clear()
        self._passed[alias, names] = found
        return found


def _parts(sample: Mapping[int, float]) -> NDArray[np.float64]:
    """The part of a sample's tuples that has each query-set."""
    counts = np.array(list(sample.values()), dtype=np.float64)
    found: NDArray[np.float64] = counts / counts.sum()
    return found


def _wanted(sample: Mapping[int, float], count: int) -> NDArray[np.bool_]:
    """For each query, by its bit, which of the query-sets it is in."""
    width = (count + 7) // 8
    raw = b"".join(bits.to_bytes(width, "little") for bits in sample)
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(len(sample), width)
    return np.ascontiguousarray(np.unpackbits(rows, axis=1, bitorder="little")[:, :count].T.astype(np.bool_))


class Estimated:
    """An estimate: equal filters pass the same tuples, more conditions pass fewer, other filters are independent."""

    def __init__(self, queries: Mapping[str, Query], statistics: Statistics) -> None:
        self._statistics = statistics
        self._selectivities: dict[Expr, float] = {}
        self._filters = {
            (name, alias): frozenset(self._known(query, f) for f in query.filters if aliases(f) == {alias})
            for name, query in queries.items()
            for alias in query.aliases
        }

    def _known(self, query: Query, condition: Expr) -> Expr:
        self._selectivities[condition] = self._statistics.selectivity(query, condition)
        return condition

    def part(self, alias: str, names: Collection[str]) -> float:
        """The part of an input's tuples that pass the filters of at least one of these queries."""
        filters = {self._filters[name, alias] for name in names}
        widest = [one for one in filters if not any(other < one for other in filters)]
        always = frozenset.intersection(*widest) if widest else frozenset()
        missed = math.prod(sorted(1 - self._passing(one - always) for one in widest))
        return self._passing(always) * (1 - missed)

    def is_measured(self, name: str) -> bool:  # noqa: ARG002
        """An estimate is no measurement."""
        return False

    def _passing(self, conditions: Iterable[Expr]) -> float:
        return math.prod(sorted(self._selectivities[condition] for condition in conditions))
