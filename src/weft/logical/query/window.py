"""Windows: which tuples of a relation a result may contain.

Guarantees: a window is positive. `Range` bounds the age of a tuple against the newest in the result, `Rows` its
distance in the total order, among all tuples of its relation or among those with the same key, `Unbounded` nothing
(design, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from weft.errors import QueryError
from weft.logical.names import identifier
from weft.logical.times import format_duration

__all__ = [
    "UNBOUNDED",
    "Range",
    "Rows",
    "Unbounded",
    "Window",
]

# Longer spans overflow microseconds in 64 bits once they are added to a timestamp.
_LONGEST = timedelta(days=100_000)


@dataclass(frozen=True, slots=True)
class Range:
    """Tuples at most ``duration`` older than the newest of the result."""

    duration: timedelta

    def __post_init__(self) -> None:
        if not timedelta(0) < self.duration <= _LONGEST:
            raise QueryError(
                f"a window of {self.duration} makes no sense",
                hint="a RANGE is longer than nothing and at most 100000 days",
            )

    def __str__(self) -> str:
        return f"RANGE {format_duration(self.duration)}"


@dataclass(frozen=True, slots=True)
class Rows:
    """The last ``count`` tuples of the relation when the result's last tuple arrives.

    With ``per``, names of columns in order, the last of those with the same values there; NULL is a value of its own.
    """

    count: int
    per: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if list(self.per) != sorted(set(self.per)):
            raise QueryError(
                f"the columns {', '.join(self.per)} of a window are not distinct and sorted",
                hint="name each of them once, in order",
            )
        if not 1 <= self.count < 1 << 63:
            raise QueryError(
                f"a window of {self.count} rows makes no sense",
                hint="ROWS takes 1 or more, and less than 2⁶³",
            )

    def __str__(self) -> str:
        per = f" PER {', '.join(map(identifier, self.per))}" if self.per else ""
        return f"ROWS {self.count}{per}"


@dataclass(frozen=True, slots=True)
class Unbounded:
    """All tuples that ever arrived."""

    def __str__(self) -> str:
        return "UNBOUNDED"


Window = Range | Rows | Unbounded
UNBOUNDED = Unbounded()
