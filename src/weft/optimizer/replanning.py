"""When heavy values ask for another plan.

Guarantees: clearly, since a new plan reads all that is stored; once for the same values; and not soon after the last
time. Whether the new plan is another one is a question of its cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.plan.graph import PhysicalGraph
from weft.stats.skew import HeavyShares, HeavyValue, key_column

__all__ = ["Lookout", "Seen"]

# Of a graph's keys, as (stream, column, value): heavy values that its stores do not know, and those that are none now.
Seen = frozenset[tuple[str, str, HeavyValue]]


@dataclass
class Lookout:
    """When heavy values ask for another plan: once for the same ones, and not soon after the last time.

    A value is clearly heavy with ``enter`` times the share that a partition has on average, and clearly is not below
    ``leave`` times it, which is far less than the optimiser scatters; in between, the plan stays as it is.
    """

    enter: float = 0.75
    leave: float = 0.05
    pause: int = 8  # batches between two plans
    last: int = 0
    considered: Seen = field(default_factory=frozenset)

    def asks(self, graph: PhysicalGraph, heavy: HeavyShares, number: int) -> bool:
        """Whether to plan again before a batch; if so, the same values will not ask again."""
        if number < self.last + self.pause:
            return False
        found = self.surprises(graph, heavy)
        if not found or found <= self.considered:
            return False
        self.last, self.considered = number, found
        return True

    def surprises(self, graph: PhysicalGraph, heavy: HeavyShares) -> Seen:
        """What the layouts of a graph do not expect."""
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
