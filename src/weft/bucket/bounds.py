"""The facts about a bucket that are known without opening it.

Guarantees: bounds are plain data. Importing them loads no kernels, so a checkpoint can be inspected without these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["PLACES", "Bounds"]

PLACES = 1 << 64  # so many hashes there are; the places of rows in a store are of the same range


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many rows and bytes a bucket has, and its first and last event time in microseconds.

    The hashes of its rows are in the range from ``low`` on and before ``high``, where it is laid out by them.
    """

    rows: int
    bytes: int
    min_time: int | None = None
    max_time: int | None = None
    low: int = 0
    high: int = PLACES

    def to_dict(self) -> dict[str, Any]:
        """The bounds as a dictionary that JSON can hold; `Bounds(**data)` restores them."""
        return {name: getattr(self, name) for name in Bounds.__slots__}
