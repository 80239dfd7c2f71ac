"""The decision whether heavy values are a reason to plan running queries again.

Guarantees: since laying out stores anew reads all that is stored, a new plan is asked for only if a value has clearly
become heavy or has clearly ceased to be, only once for the same values, and not within a few batches after the last
time. Whether the new plan differs from the old one is then up to the optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.plan.physical.graph import PhysicalGraph
from weft.stats.skew import HeavyShares, HeavyValue, key_column

__all__ = ["HeavyValueWatch", "Surprises"]

# As (stream, column, value): heavy values that no store scatters, and scattered values that are no longer heavy.
Surprises = frozenset[tuple[str, str, HeavyValue]]


@dataclass
class HeavyValueWatch:
    """Compares the heavy values that batches report with those that the running stores scatter.

    A value is clearly heavy if its share of a stream is ``enter`` times what a partition has on average, and clearly
    not heavy below ``leave`` times that, which is far less than the optimiser scatters; in between, the plan stays.
    """

    enter: float = 0.75
    leave: float = 0.05
    pause: int = 8  # the least number of batches between two plans
    last: int = 0
    considered: Surprises = field(default_factory=frozenset)

    def should_replan(self, graph: PhysicalGraph, heavy: HeavyShares, number: int) -> bool:
        """Whether to plan again before the batch of that number; if so, the same values give no reason again."""
        if number < self.last + self.pause:
            return False
        found = self.surprises(graph, heavy)
        if not found or found <= self.considered:
            return False
        self.last, self.considered = number, found
        return True

    def surprises(self, graph: PhysicalGraph, heavy: HeavyShares) -> Surprises:
        """The heavy values that the stores of a graph do not scatter, and scattered ones that are no longer heavy."""
        found = set()
        for store in graph.stores:
            by, partitions = key_column(store.layout.by), store.layout.partitions
            if by is None or partitions < 2:
                continue
            stream = graph.input(by.alias).stream.name
            shares = dict(heavy.get(stream, {}).get(by.name, ()))
            known = {literal.value for literal in store.layout.heavy if isinstance(literal.value, int | str)}
            new = {v for v, share in shares.items() if share * partitions > self.enter and v not in known}
            gone = {v for v in known if shares.get(v, 0.0) * partitions < self.leave}
            found |= {(stream, by.name, value) for value in (new | gone if shares else new)}
        return frozenset(found)
