"""Moments and durations, read from what people write and written so that people can read them.

Guarantees: any moment that 64 bits hold, in microseconds since 1970, can be shown, also of years that Python does not
know; `parse_duration` reads what `format_duration` writes exactly.
"""

from __future__ import annotations

import re
import reprlib
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction

from weft.errors import CatalogError, QueryError

__all__ = [
    "AHEAD_OF_THE_CLOCK",
    "FARTHEST",
    "format_duration",
    "moment_of",
    "parse_duration",
    "parse_interval",
    "shown_time",
]

FARTHEST = 1 << 60  # microseconds from 1970 that an event time can be; windows are added to it
AHEAD_OF_THE_CLOCK = "is ahead of the clock"  # why a record was set aside, as dead letters say it
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

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


def shown_time(micros: int) -> str:
    """A moment as people read it, in UTC.

    >>> shown_time(32_472_144_000_000_000), shown_time(1_500_000), shown_time(1 << 62)
    ('2999-01-01 00:00:00', '1970-01-01 00:00:01.500000', '4611686018427387904 microseconds after 1970')
    """
    try:
        return str(_EPOCH + timedelta(microseconds=micros)).removesuffix("+00:00")
    except OverflowError:
        when = "after" if micros > 0 else "before"
        return f"{abs(micros)} microseconds {when} 1970"


def moment_of(value: object, what: str) -> int:
    """A moment in microseconds, given as a datetime, a date or a text; without a zone it is in UTC.

    >>> moment_of("1970-01-01 00:00:01", "to"), moment_of(datetime(1970, 1, 2), "to")
    (1000000, 86400000000)
    """
    moment = value
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip().removesuffix("Z"))
        except ValueError:
            moment = None
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime):
        raise CatalogError(
            f"{what} cannot be {reprlib.repr(value)}",
            hint='use a datetime, or a text such as "2026-01-31 12:00:00"',
        )
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(microseconds=1)


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
