"""A batch's place in the total order, as every task is told it (design, D5 and D8).

Guarantees: plain data that says which of the batch's own tuples a probe sees, and how many tuples of a relation have
arrived when it happens. Nothing else about the order is known anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from weft.errors import PlanError
from weft.kernels.outer.relation import FOREVER

__all__ = ["ENDED", "NEVER", "UNKNOWN", "BatchOrder", "Clock", "Count"]


class Count(NamedTuple):
    """How many tuples of an input came in earlier batches, and how many come in this one."""

    before: int
    arrived: int


# Clocks of queries that close rows: before their first batch; while some stream has not shown its time; at the end.
NEVER, UNKNOWN, ENDED = -FOREVER - 1, 1 - FOREVER, FOREVER + 1


class Clock(NamedTuple):
    """Up to which time the rows of a query were closed before a batch, and up to which they are in it."""

    before: int
    now: int


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """A batch: its number, the driver order of its inputs, and the counts of those with `ROWS` windows.

    ``clocks`` are those of the queries that close rows.
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
        """Whether tuples of one input come after all those of another in this batch."""
        return self.order.index(other) < self.order.index(start)

    def arrived(self, alias: str, start: str) -> int:
        """How many tuples of an input have come when tuples of ``start`` probe."""
        before, arrived = self.counts[alias]
        return before + (arrived if self.sees(start, alias) else 0)

    def oldest(self, alias: str, rows: int, start: str) -> int:
        """The first number of a tuple inside a `ROWS` window when tuples of ``start`` probe."""
        return self.arrived(alias, start) - rows

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for the plan of the batch."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BatchOrder:
        """What `to_dict` stands for."""
        counts = {alias: Count(*count) for alias, count in data["counts"].items()}
        clocks = {name: Clock(*clock) for name, clock in data["clocks"].items()}
        return cls(data["number"], tuple(data["order"]), data["partitions"], counts, clocks)
