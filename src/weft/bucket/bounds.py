"""What is known of a bucket without opening it.

Guarantees: plain data; to read it needs no kernels, so a checkpoint can be looked at without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many rows and bytes a bucket has, and its first and last event time in microseconds."""

    rows: int
    bytes: int
    min_time: int | None = None
    max_time: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The bounds as a dictionary that JSON can hold; `Bounds(**data)` makes them again."""
        return {name: getattr(self, name) for name in Bounds.__slots__}
