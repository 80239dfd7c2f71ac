"""In which order the inputs of a batch are processed (MJoin driver selection, section 3.2).

Guarantees: a policy is a pure function of what was observed; its order has every input once, ties broken by name.
The results are the same whatever the order; what differs is how early they come, and when memory is needed.

A batch is processed input by input: all tuples of one, then all of the next. For `timestamp` and `round_robin`, which
the paper states tuple by tuple, that means: by the oldest tuple of each input, and in turns from batch to batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weft.errors import ConfigError, nearest
from weft.plan.graph import PhysicalGraph
from weft.runtime.observe.metrics import BatchMetrics

__all__ = ["DEFAULT", "POLICIES", "Observed", "driver_order", "expected"]

DEFAULT = "initial_output_size"


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known when a batch begins, by input.

    ``rows`` is how many tuples are in the batch (the paper's buffer), and ``oldest`` the first time among them.
    ``stored`` is how many are in the input's store (its hash table), and ``arrived`` how many came in earlier batches.
    ``results`` is how many results all queries have had.
    """

    batch: int
    rows: Mapping[str, int]
    oldest: Mapping[str, int] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    results: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs, sorted."""
        return tuple(sorted(self.rows))

    @property
    def selectivity(self) -> float:
        """σ of the whole join: results per combination of tuples; 1 before anything is known."""
        combinations = math.prod(max(1, self.arrived.get(name, 0)) for name in self.inputs)
        return self.results / combinations if self.results else 1.0


def expected(
    number: int, graph: PhysicalGraph, last: BatchMetrics | None, arrived: Mapping[str, int], results: int
) -> Observed:
    """What is known before a batch is read, which is expected to be like the last one; ``arrived`` is by stream."""
    inputs = last.inputs if last else {}
    held = last.stores if last else {}
    return Observed(
        number,
        {alias: inputs[alias].rows if alias in inputs else 1 for alias in graph.aliases},
        {a: inputs[a].oldest or 0 for a in graph.aliases if a in inputs and inputs[a].oldest is not None},
        {alias: held[alias].rows for alias in graph.aliases if alias in held},
        {alias: arrived.get(graph.input(alias).stream.name, 0) for alias in graph.aliases},
        results,
    )


Policy = Callable[[Observed], tuple[str, ...]]


def timestamp(seen: Observed) -> tuple[str, ...]:
    """The input with the oldest tuple first."""
    last = max(seen.oldest.values(), default=0)
    return _sorted(seen, lambda name: seen.oldest.get(name, last))


def round_robin(seen: Observed) -> tuple[str, ...]:
    """Each input is first in turn, from batch to batch."""
    names = seen.inputs
    first = seen.batch % len(names)
    return names[first:] + names[:first]


def consumption_rate(seen: Observed) -> tuple[str, ...]:
    """The most selective input first: ascending σ_Sj = |MJoin| / |S_j|."""
    return _sorted(seen, lambda name: seen.results / max(1, seen.arrived.get(name, 0)))


def initial_output_size(seen: Observed) -> tuple[str, ...]:
    """The input that gives most results next: |buffer_j| · σ_MJoin · Π |ht_l|, equation (1)."""
    return _greedy(seen, lambda name, others: seen.rows[name] * seen.selectivity * others)


def output_rate(seen: Observed) -> tuple[str, ...]:
    """The input that gives most results per tuple next: equation (1) over |buffer_j|."""
    return _greedy(seen, lambda name, others: seen.selectivity * others if seen.rows[name] else 0.0)


def _sorted(seen: Observed, key: Callable[[str], float]) -> tuple[str, ...]:
    return tuple(sorted(seen.inputs, key=lambda name: (key(name), name)))


def _greedy(seen: Observed, score: Callable[[str, float], float]) -> tuple[str, ...]:
    """The input with the best score first, and so on; tuples that have been processed count as stored."""
    tables = {name: seen.stored.get(name, 0) for name in seen.inputs}
    order: list[str] = []
    while len(order) < len(tables):
        left = [name for name in tables if name not in order]
        scores = {name: score(name, _product(tables, name)) for name in left}
        best = max(left, key=lambda name: (scores[name], [-ord(char) for char in name]))
        tables[best] += seen.rows[best]
        order.append(best)
    return tuple(order)


def _product(tables: Mapping[str, int], but: str) -> float:
    return math.prod(float(size) for name, size in tables.items() if name != but)


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
