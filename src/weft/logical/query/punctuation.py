"""A punctuation: up to where an ordered output is complete (SplitJoin, section 5.1).

Guarantees: a frozen value; what it says of the first rows of an output stays true whatever comes later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

__all__ = ["LAST", "Punctuation"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND

# The last moment that Python knows, in microseconds: after the end of the input, results of all times are there.
LAST = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class Punctuation:
    """The first ``rows`` rows of an output are all results up to here, and only those.

    In an order of arrival: all whose last tuple is among the first ``tuples`` tuples of the query's inputs since its
    first batch. In the order of event time: all whose largest time is at most ``time``, which is the last moment that
    Python knows once the input has ended.
    """

    rows: int
    tuples: int | None = None
    time: datetime | None = None

    @classmethod
    def from_mark(cls, rows: int, mark: int, timed: bool) -> Punctuation:
        """A punctuation whose mark is a number of tuples or, if ``timed``, a time in microseconds since 1970."""
        if not timed:
            return cls(rows, tuples=mark)
        return cls(rows, time=_EPOCH + min(max(mark, _FIRST), LAST) * _MICROSECOND)
