"""In which order the inputs of a batch are processed (MJoin driver selection, section 3.2).

Guarantees: a policy is a pure function of what is known; its order has every input once, ties broken by name. The
results are the same whatever the order; what differs is how early they come, and when memory is needed.

A batch is processed input by input: all tuples of one, then all of the next. For `timestamp` and `round_robin`, which
the paper states tuple by tuple, that means: by the oldest tuple of each input, and in turns from batch to batch. The
paper has one join over all inputs. Here there may be many queries, each over some inputs; what an input gives is then
the sum over all joins that it is part of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weft.errors import ConfigError, nearest

__all__ = ["DEFAULT", "POLICIES", "JoinFacts", "Observed", "driver_order"]

DEFAULT = "initial_output_size"


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """All queries that join just these inputs, and how many results they have had together."""

    inputs: tuple[str, ...]
    results: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known when a batch begins, by input.

    ``rows`` is how many tuples are in the batch (the paper's buffer), before any filter of a query; for inputs in
    ``estimated`` it is an estimate. ``oldest`` is the first time among them, in microseconds, where that is known.
    ``stored`` is how many tuples are stored (the paper's hash table), and ``arrived`` how many came in earlier batches.
    """

    batch: int
    rows: Mapping[str, int]
    oldest: Mapping[str, int] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    joins: tuple[JoinFacts, ...] = ()
    estimated: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs, sorted."""
        return tuple(sorted(self.rows))

    def selectivity(self, join: JoinFacts) -> float:
        """σ_MJoin: results per combination of tuples.

        A join that has had no result counts as one with a single result, so that it is not forgotten beside others.
        """
        combinations = math.prod(max(1, self.arrived.get(name, 0)) for name in join.inputs)
        return max(1, join.results) / combinations

    def results_of(self, name: str) -> int:
        """How many results the joins have had that an input is part of."""
        return sum(join.results for join in self.joins if name in join.inputs)


Policy = Callable[[Observed], tuple[str, ...]]


def timestamp(seen: Observed) -> tuple[str, ...]:
    """The input with the oldest tuple first."""
    return _sorted(seen, lambda name: seen.oldest.get(name, math.inf))


def round_robin(seen: Observed) -> tuple[str, ...]:
    """Each input is first in turn, from batch to batch."""
    names = seen.inputs
    first = seen.batch % len(names)
    return names[first:] + names[:first]


def consumption_rate(seen: Observed) -> tuple[str, ...]:
    """The most selective input first: ascending σ_Sj = |MJoin| / |S_j|."""
    return _sorted(seen, lambda name: seen.results_of(name) / max(1, seen.arrived.get(name, 0)))


def initial_output_size(seen: Observed) -> tuple[str, ...]:
    """The input that gives most results next: |buffer_j| · σ_MJoin · Π |ht_l|, equation (1)."""
    return _greedy(seen, lambda name, per_tuple: seen.rows[name] * per_tuple)


def output_rate(seen: Observed) -> tuple[str, ...]:
    """The input that gives most results per tuple next: equation (1) over |buffer_j|."""
    return _greedy(seen, lambda name, per_tuple: per_tuple if seen.rows[name] else 0.0)


def _sorted(seen: Observed, key: Callable[[str], float]) -> tuple[str, ...]:
    return tuple(sorted(seen.inputs, key=lambda name: (key(name), name)))


def _greedy(seen: Observed, score: Callable[[str, float], float]) -> tuple[str, ...]:
    """The input with the best score first, and so on; tuples that have been processed count as stored.

    ``score`` is given an input and how many results one of its tuples is expected to give.
    """
    tables = {name: seen.stored.get(name, 0) for name in seen.inputs}
    joins = [(join, seen.selectivity(join)) for join in seen.joins]
    order: list[str] = []
    while len(order) < len(tables):
        left = [name for name in tables if name not in order]
        scores = {name: score(name, _results_per_tuple(name, tables, joins)) for name in left}
        best = max(left, key=scores.__getitem__)  # the first by name, of those that score alike
        tables[best] += seen.rows[best]
        order.append(best)
    return tuple(order)


def _results_per_tuple(name: str, tables: Mapping[str, int], joins: list[tuple[JoinFacts, float]]) -> float:
    """σ_MJoin · Π |ht_l| over the other inputs of a join, summed over all joins of an input."""
    return sum(
        selectivity * math.prod(float(tables[other]) for other in join.inputs if other != name)
        for join, selectivity in joins
        if name in join.inputs
    )


POLICIES: dict[str, Policy] = {
    "timestamp": timestamp,
    "round_robin": round_robin,
    "consumption_rate": consumption_rate,
    "initial_output_size": initial_output_size,
    "output_rate": output_rate,
}


def driver_order(policy: str, seen: Observed) -> tuple[str, ...]:
    """The order of a batch's inputs under a policy."""
    chosen = POLICIES.get(policy)
    if chosen is None:
        raise ConfigError(f"there is no driver policy {policy!r}", hint=nearest(policy, POLICIES))
    return chosen(seen)
