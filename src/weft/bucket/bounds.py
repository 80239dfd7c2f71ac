"""What is known of a bucket without opening it.

Guarantees: plain data; to read it needs no kernels, so a checkpoint can be looked at without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A bucket's size and times; times in microseconds, positions packed (`position`)."""

    rows: int
    bytes: int
    min_time: int | None = None
    max_time: int | None = None
    first: int | None = None
    last: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in Bounds.__slots__}
