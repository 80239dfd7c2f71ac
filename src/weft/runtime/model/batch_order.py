"""A batch's place in the total order, as every task is told it (design, D5 and D8).

Guarantees: plain data that says which of the batch's own tuples a probe sees, and how many tuples of an input have
arrived when it happens. No other module decides anything about the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.errors import PlanError
from weft.kernels.outer.relation import AT_ONCE, FOREVER

__all__ = ["ENDED", "NEVER", "UNKNOWN", "BatchOrder", "Clock", "Count"]


class Count(NamedTuple):
    """How many tuples of an input came in earlier batches, and how many come in this one."""

    before: int
    arrived: int


# Special clocks of queries that close rows: NEVER before the first batch of the query, UNKNOWN while one of its streams
# has no watermark yet, ENDED when the input has ended. They lie outside all times, and are ordered like this; rows that
# are final AT_ONCE are so before UNKNOWN.
NEVER, UNKNOWN, ENDED = -FOREVER - 1, AT_ONCE + 1, FOREVER + 1


class Clock(NamedTuple):
    """Up to which time the rows of a query were closed before a batch, and up to which they are in it."""

    before: int
    now: int


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """A batch's number, the driver order of its inputs, and its number of partitions.

    ``counts`` are of the inputs whose tuples are counted, by alias; ``clocks`` are of the queries that close rows or
    hold results back, by name.
    """

    number: int
    order: tuple[str, ...]
    partitions: int
    counts: Mapping[str, Count] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.order)) < len(self.order):
            raise PlanError(f"batch {self.number}: an input is in the driver order twice: {self.order}")
        if self.partitions < 1:
            raise PlanError(f"batch {self.number} cannot run in {self.partitions} partitions")

    def sees(self, start: str, other: str) -> bool:
        """Whether all tuples of ``other`` come before those of ``start`` in this batch, so that these see them."""
        return self.order.index(other) < self.order.index(start)

    def arrived(self, alias: str, start: str) -> int:
        """How many tuples of an input have come when tuples of ``start`` probe."""
        before, arrived = self.counts[alias]
        return before + (arrived if self.sees(start, alias) else 0)

    def oldest(self, alias: str, rows: int, start: str) -> int:
        """The number of the oldest tuple inside an input's `ROWS` window when tuples of ``start`` probe."""
        return self.arrived(alias, start) - rows
