"""Moments in microseconds since 1970, read from what people write and written so that people can read them.

Guarantees: any moment that 64 bits hold can be shown, also of years that Python does not know.
"""

from __future__ import annotations

import reprlib
from datetime import date, datetime, timedelta, timezone

from weft.errors import CatalogError

__all__ = ["AHEAD_OF_THE_CLOCK", "FARTHEST", "moment_of", "shown_time"]

FARTHEST = 1 << 60  # microseconds from 1970 that an event time can be; windows are added to it
AHEAD_OF_THE_CLOCK = "is ahead of the clock"  # why a record was set aside, as dead letters say it
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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
    found = value
    if isinstance(found, str):
        try:
            found = datetime.fromisoformat(found.strip().removesuffix("Z"))
        except ValueError:
            found = None
    if isinstance(found, date) and not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day)
    if not isinstance(found, datetime):
        raise CatalogError(
            f"{what} cannot be {reprlib.repr(value)}",
            hint='use a datetime, or a text such as "2026-01-31 12:00:00"',
        )
    aware = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(microseconds=1)
