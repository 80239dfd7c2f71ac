"""What inputs and probes brought, as figures that stay the same from the task that counts them to the page.

Guarantees: immutable, and added up with `+`, in whatever order. A figure is one field of one class here: tasks report
it, metrics and totals hold it, and whoever shows figures goes through `REASONS`. So a further reason for which tuples
are set aside is a field of `TupleCounts`, and the line where a task counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields, replace
from operator import add, sub

from weft.logical.codec import compact

__all__ = ["REASONS", "InputFigures", "StepFigures", "TupleCounts"]


@compact
@dataclass(frozen=True, slots=True)
class TupleCounts:
    """How many tuples came: ``rows`` took part, counted before the queries' filters; the others were set aside.

    They were ``late``, were ``untimed`` (had no event time), or were ``malformed`` (could not be read).
    """

    rows: int = 0
    late: int = 0
    untimed: int = 0
    malformed: int = 0

    def __add__(self, other: TupleCounts) -> TupleCounts:
        return TupleCounts(*map(add, self._counts(), other._counts()))

    def __sub__(self, other: TupleCounts) -> TupleCounts:
        return TupleCounts(*map(sub, self._counts(), other._counts()))

    def _counts(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in _COUNTS)

    @property
    def counts(self) -> TupleCounts:
        """The counts alone."""
        return TupleCounts(*self._counts())

    @property
    def set_aside(self) -> dict[str, int]:
        """How many tuples did not take part, by reason."""
        return {reason: getattr(self, reason) for reason in REASONS}


_COUNTS = tuple(one.name for one in fields(TupleCounts))

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
        sums = InputFigures(*map(add, self._counts(), other._counts()))
        if not isinstance(other, InputFigures):
            return replace(sums, oldest=self.oldest, newest=self.newest, behind=self.behind)
        oldest, newest = _of_both(min, self.oldest, other.oldest), _of_both(max, self.newest, other.newest)
        return replace(sums, oldest=oldest, newest=newest, behind=self.behind + other.behind)


def _of_both(pick: Callable[[int, int], int], some: int | None, other: int | None) -> int | None:
    """What is picked of two times, of which each may be unknown."""
    if some is None or other is None:
        return other if some is None else some
    return pick(some, other)


@dataclass(frozen=True, slots=True)
class StepFigures:
    """How many tuples probed over an edge, and how many matches they found.

    ``copies`` of the probes are repetitions: a tuple with a heavy value probes in all partitions.
    """

    probes: int = 0
    matches: int = 0
    copies: int = 0

    def __add__(self, other: StepFigures) -> StepFigures:
        return StepFigures(*map(add, astuple(self), astuple(other)))

    @property
    def tuples(self) -> int:
        """How many tuples probed, where one that probes in all partitions counts once."""
        return self.probes - self.copies

    @property
    def matches_per_probe(self) -> float:
        """How many matches a tuple had on average."""
        return self.matches / self.tuples if self.tuples else 0.0
