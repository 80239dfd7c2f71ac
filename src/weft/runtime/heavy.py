"""Heavy values of keys, as batches show them: sampled, remembered, and told apart from what the plan expects.

Guarantees: pure. Every few batches a read task counts the commonest values among some of its tuples, in the columns by
which the plan places tuples (`kernels/sample.py`); what it tells is merged into what was known, the older the less it
counts. `Lookout` says when that asks for another plan: clearly, since a new plan reads all that is stored, and not
soon after the last time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.logical.expr import Column
from weft.plan.graph import PhysicalGraph
from weft.stats.skew import HeavyValue, key_column

__all__ = ["EVERY", "Counted", "HeavyShares", "Lookout", "Seen", "next_heavy", "watched"]

EVERY = 4  # so many batches one is sampled
SAMPLE = 20_000  # values of a column are counted, of a task
TOLD = 32  # values are told, and remembered
LEAST = 0.005  # is the least share that is remembered
SEVERAL = 5  # times a value must come in a sample to be told: less may be chance
NEWEST = 0.5  # is how much a new sample counts beside all before it

# By stream and column: values and their shares, the largest first. Plain data, since values may be numbers.
HeavyShares = Mapping[str, Mapping[str, tuple[tuple[HeavyValue, float], ...]]]


@dataclass(frozen=True, slots=True)
class Counted:
    """The commonest values of a column among some tuples; ``rows`` are those that these stand for."""

    stream: str
    column: str
    rows: int
    sampled: int
    values: tuple[tuple[HeavyValue, int], ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Counted:
        """What `dataclasses.asdict` made, also after a way through JSON."""
        return cls(**{**data, "values": tuple((value, number) for value, number in data["values"])})


def watched(graph: PhysicalGraph, alias: str) -> tuple[Column, ...]:
    """The columns of an input by whose values tuples are placed."""
    every = [*(edge.by for edge in graph.edges), *(store.layout.by for store in graph.stores)]
    columns = [column for by in every if (column := key_column(by)) is not None]
    return tuple(sorted({column for column in columns if column.alias == alias}, key=str))


Known = dict[str, dict[str, tuple[tuple[HeavyValue, float], ...]]]


def next_heavy(before: HeavyShares, told: Iterable[Counted]) -> Known:
    """The shares after a batch: those before, with what its tasks counted."""
    samples: dict[tuple[str, str], list[Counted]] = {}
    for one in told:
        if one.sampled:
            samples.setdefault((one.stream, one.column), []).append(one)
    found: Known = {stream: dict(columns) for stream, columns in before.items()}
    for (stream, column), counted in sorted(samples.items()):
        columns = found.setdefault(stream, {})
        columns[column] = _merged(columns.get(column), _shares(counted))
    return found


def _shares(counted: Iterable[Counted]) -> dict[HeavyValue, float]:
    """The shares over all tasks, each by the rows it stands for."""
    counts: dict[HeavyValue, float] = {}
    total = 0.0
    for one in counted:
        total += one.rows
        for value, number in one.values:
            counts[value] = counts.get(value, 0.0) + number * one.rows / one.sampled
    return {value: count / total for value, count in counts.items()} if total else {}


def _merged(
    old: tuple[tuple[HeavyValue, float], ...] | None, new: Mapping[HeavyValue, float]
) -> tuple[tuple[HeavyValue, float], ...]:
    shares = dict(new)
    if old is not None:
        known = dict(old)
        every = [*known, *(value for value in new if value not in known)]
        shares = {v: NEWEST * new.get(v, 0.0) + (1 - NEWEST) * known.get(v, 0.0) for v in every}
    ranked = sorted(shares.items(), key=lambda item: (-item[1], str(item[0])))
    return tuple((value, _short(share)) for value, share in ranked[:TOLD] if share >= LEAST)


def _short(share: float) -> float:
    """A share in few digits, rounded down: together they are never more than all."""
    return math.floor(share * 1e6) / 1e6


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
