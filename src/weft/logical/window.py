"""Windows: which tuples of a relation a result may contain.

Guarantees: a window is positive. `Range` bounds the age of a tuple against the newest in the result, `Rows` its
distance in the total order, `Unbounded` nothing (design, section 3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from weft.errors import QueryError

__all__ = ["UNBOUNDED", "Range", "Rows", "Unbounded", "Window", "format_duration", "parse_duration"]

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
    """The last ``count`` tuples of the relation when the result's last tuple arrives."""

    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count < 1 << 63:
            raise QueryError(
                f"a window of {self.count} rows makes no sense",
                hint="ROWS takes 1 or more",
            )

    def __str__(self) -> str:
        return f"ROWS {self.count}"


@dataclass(frozen=True, slots=True)
class Unbounded:
    """All tuples that ever arrived."""

    def __str__(self) -> str:
        return "UNBOUNDED"


Window = Range | Rows | Unbounded
UNBOUNDED = Unbounded()

_UNITS = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_SHORT = {"d": "day", "h": "hour", "min": "minute", "m": "minute", "sec": "second", "s": "second"}
_SHORT |= {"ms": "millisecond", "us": "microsecond"}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)


def parse_duration(text: str) -> timedelta:
    """The span of time a text names.

    >>> parse_duration("1 hour 30 minutes"), parse_duration("5s")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=5))
    """
    total, position = timedelta(0), 0
    while position < len(text.rstrip()):
        match = _PART.match(text, position)
        span = _unit(match[2]) if match else None
        if match is None or span is None:
            raise _unreadable(text)
        try:
            total += float(match[1]) * span
        except OverflowError:
            raise _unreadable(text) from None
        position = match.end()
    if position == 0:
        raise _unreadable(text)
    return total


def _unit(name: str) -> timedelta | None:
    lower = name.lower()
    return _UNITS.get(_SHORT.get(lower, lower.removesuffix("s")))


def _unreadable(text: str) -> QueryError:
    return QueryError(
        f"cannot read {text.strip()!r} as a duration",
        hint="write a number and a unit from microseconds to days, as in 10 MINUTES",
    )


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back exactly.

    >>> format_duration(timedelta(seconds=90)), format_duration(timedelta(minutes=10))
    ('90 SECONDS', '10 MINUTES')
    """
    for name, span in _UNITS.items():
        count, rest = divmod(duration, span)
        if not rest and count:
            return f"{count} {name.upper()}{'' if count == 1 else 'S'}"
    return "0 SECONDS"
