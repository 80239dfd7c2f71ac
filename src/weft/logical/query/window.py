"""Windows: which tuples of a relation a result may contain.

Guarantees: a window is positive. `Range` bounds the age of a tuple against the newest in the result, `Rows` its
distance in the total order, among all tuples of its relation or among those with the same key, `Unbounded` nothing
(design, section 3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from weft.errors import QueryError
from weft.logical.names import identifier

__all__ = [
    "UNBOUNDED",
    "Range",
    "Rows",
    "Unbounded",
    "Window",
    "format_duration",
    "parse_duration",
    "parse_interval",
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

_UNITS = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_WEEK = timedelta(weeks=1)  # read, but written as days
_SHORT = {"d": "day", "h": "hour", "min": "minute", "m": "minute", "sec": "second", "s": "second"}
_SHORT |= {"ms": "millisecond", "us": "microsecond"}
_PART = re.compile(r"\s*([+-]?)\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]+)\s*,?", re.IGNORECASE)


def parse_duration(text: str) -> timedelta:
    """The span of time a text names.

    >>> parse_duration("1 hour 30 minutes"), parse_duration("5s")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=5))
    """
    if "-" in text or "+" in text:
        raise _unreadable(text)
    return parse_interval(text)


def parse_interval(text: str) -> timedelta:
    """As `parse_duration`, but every part may have a sign, which is its own and not the next part's.

    >>> parse_interval("-1 day 2 hours") == timedelta(hours=-22)
    True
    """
    total, position = timedelta(0), 0
    while position < len(text.rstrip()):
        match = _PART.match(text, position)
        span = _unit(match[3]) if match else None
        if match is None or span is None:
            raise _unreadable(text)
        try:
            total += _exactly(match[1] + match[2], span, text)
        except OverflowError:
            raise _unreadable(text) from None
        position = match.end()
    if position == 0:
        raise _unreadable(text)
    return total


def _exactly(count: str, unit: timedelta, text: str) -> timedelta:
    micros = Fraction(count) * (unit // timedelta(microseconds=1))
    if micros.denominator != 1:
        raise QueryError(f"{text.strip()!r} is finer than a microsecond", hint="times have microseconds")
    return timedelta(microseconds=int(micros))


def _unit(name: str) -> timedelta | None:
    lower = name.lower()
    singular = lower.removesuffix("s")
    return _WEEK if singular == "week" else _UNITS.get(_SHORT.get(lower, singular))


def _unreadable(text: str) -> QueryError:
    return QueryError(
        f"cannot read {text.strip()!r} as a duration",
        hint="write a number and a unit from microseconds to weeks, as in 10 MINUTES",
    )


def format_duration(duration: timedelta) -> str:
    """A duration in the largest unit of which it is a whole number; `parse_duration` reads it back exactly.

    >>> format_duration(timedelta(seconds=90)), format_duration(timedelta(minutes=10))
    ('90 SECONDS', '10 MINUTES')
    """
    for name, span in _UNITS.items():
        count, rest = divmod(duration, span)
        if not rest and count:
            return f"{count} {name.upper()}{'' if count == 1 else 'S'}"
    return "0 SECONDS"
