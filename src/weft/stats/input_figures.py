"""What inputs and probes brought, as figures that stay the same from the task that counts them to the page.

Guarantees: immutable, and added up with `+`, in whatever order. A figure is one field of one class here: tasks report
it, metrics and totals hold it, and whoever shows figures goes through `REASONS`. So a further reason for which tuples
are set aside is a field of `TupleCounts`, and the line where a task counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import add, attrgetter, sub
from typing import Any

from weft.logical.codec import compact

__all__ = ["REASONS", "EdgeFigures", "InputFigures", "StepFigures", "TupleCounts"]


@compact
@dataclass(frozen=True, slots=True)
class TupleCounts:
    """How many tuples came: ``rows`` took part, counted before the queries' filters; the others were set aside.

    They were ``late``, were ``untimed`` (had no event time), were ``malformed`` (could not be read), or were ``shed``
    (left out because not all could be processed in time).
    """

    rows: int = 0
    late: int = 0
    untimed: int = 0
    malformed: int = 0
    shed: int = 0

    def __add__(self, other: TupleCounts) -> TupleCounts:
        return TupleCounts(*map(add, _counts_of(self), _counts_of(other)))

    def __sub__(self, other: TupleCounts) -> TupleCounts:
        return TupleCounts(*map(sub, _counts_of(self), _counts_of(other)))

    @property
    def counts(self) -> TupleCounts:
        """The counts alone."""
        return TupleCounts(*_counts_of(self))

    @property
    def set_aside(self) -> dict[str, int]:
        """How many tuples did not take part, by reason."""
        return {reason: getattr(self, reason) for reason in REASONS}


_COUNTS = tuple(one.name for one in fields(TupleCounts))
_counts_of: Callable[[TupleCounts], tuple[int, ...]] = attrgetter(*_COUNTS)

# Why tuples are set aside, in the order in which the reasons are shown.
REASONS = tuple(name for name in _COUNTS if name != "rows")


@dataclass(frozen=True, slots=True)
class InputFigures(TupleCounts):
    """What an input brought: its counts, and the times of the tuples that took part.

    ``oldest`` and ``newest`` are the first and the last time, in microseconds; None if there are none. ``behind`` the
    watermark are all tuples that were late, also those that took part because late tuples are to be joined.
    """

    oldest: int | None = None
    newest: int | None = None
    behind: int = 0

    def __add__(self, other: TupleCounts) -> InputFigures:
        more = other if isinstance(other, InputFigures) else InputFigures(*_counts_of(other))
        both: tuple[Any, ...] = (
            *map(add, _counts_of(self), _counts_of(more)),
            _of_both(min, self.oldest, more.oldest),
            _of_both(max, self.newest, more.newest),
            self.behind + more.behind,
        )
        return InputFigures(*both)


def _of_both(pick: Callable[[int, int], int], some: int | None, other: int | None) -> int | None:
    """What is picked of two times, of which each may be unknown."""
    if some is None or other is None:
        return other if some is None else some
    return pick(some, other)


@compact
@dataclass(frozen=True, slots=True)
class EdgeFigures:
    """How many tuples were sent over an edge, and how many bytes their columns have: what communication costs.

    A tuple counts once for every partition that it is sent to, also one of the task that sends it; tuples that are
    where they are needed already are not sent. Bytes are those of Arrow's columns, before any packing.
    """

    tuples: int = 0
    bytes: int = 0

    def __add__(self, other: EdgeFigures) -> EdgeFigures:
        return EdgeFigures(self.tuples + other.tuples, self.bytes + other.bytes)


@compact
@dataclass(frozen=True, slots=True)
class StepFigures:
    """How many tuples probed over an edge, and how many matches they found.

    ``copies`` of the probes are repetitions: a tuple with a heavy value probes in all partitions.
    """

    probes: int = 0
    matches: int = 0
    copies: int = 0

    def __add__(self, other: StepFigures) -> StepFigures:
        return StepFigures(
            self.probes + other.probes, self.matches + other.matches, self.copies + other.copies
        )

    @property
    def tuples(self) -> int:
        """How many tuples probed, where one that probes in all partitions counts once."""
        return self.probes - self.copies

    @property
    def matches_per_probe(self) -> float:
        """How many matches a tuple had on average."""
        return self.matches / self.tuples if self.tuples else 0.0
