"""Durations counted in fixed logarithmic classes, and how late results are, as such counts.

Guarantees: immutable; `a + b` counts what ``a`` and ``b`` count, in whatever order many are added. Classes do not
depend on the data, so the counts of any tasks, batches and queries can be added up: every doubling has 2 ** `BITS` of
them, from a microsecond to centuries. So a quantile is that of the durations themselves up to 1 / 2 ** (`BITS` + 1) of
its value, which is 1.6 %; zero is kept apart. It needs no NumPy, since a histogram has as many entries as there are
classes between its shortest and its longest duration: some dozens. A `Latency` is two histograms: from the arrival of a
result's last tuple, and from its event time, to its commit; decision 41 says what counts from when.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weft.logical.codec import compact

__all__ = ["BITS", "CLASSES", "NEGATIVE", "ZERO", "Histogram", "Latency", "class_of", "micros_of"]


BITS = 5
NEGATIVE, ZERO, _FIRST = 0, 1, 2  # the classes of what is below zero, of zero, and the first of all others
CLASSES = _FIRST + (62 << BITS)


def class_of(micros: int) -> int:
    """The class of a duration in microseconds.

    >>> class_of(-1), class_of(0), class_of(1), class_of(2), class_of(1_000_000) == class_of(1_010_000)
    (0, 1, 2, 34, True)
    """
    if micros < 1:
        return NEGATIVE if micros < 0 else ZERO
    mantissa, exponent = math.frexp(micros)
    return min(_FIRST + ((exponent - 1) << BITS) + int((2 * mantissa - 1) * (1 << BITS)), CLASSES - 1)


def micros_of(number: int) -> float:
    """The middle of a class, in microseconds; what is below zero counts as zero."""
    if number < _FIRST:
        return 0.0
    exponent, part = divmod(number - _FIRST, 1 << BITS)
    low = math.ldexp(1 + part / (1 << BITS), exponent)
    return low + math.ldexp(0.5, exponent - BITS)


@compact
@dataclass(frozen=True, slots=True)
class Histogram:
    """How many durations are in each class: ``counts`` are of the classes from ``first`` on.

    >>> some = Histogram.of([20_000, 20_000, 30_000, 500_000])
    >>> [round(one, 3) for one in (some.p50, some.p95, some.max)], some.count
    ([0.02, 0.504, 0.504], 4)
    """

    first: int = 0
    counts: tuple[int, ...] = ()

    def __repr__(self) -> str:
        if not self.count:
            return "<Histogram of nothing>"
        return f"<Histogram of {self.count:,}: half within {self.p50:.3g} s, all within {self.max:.3g} s>"

    @classmethod
    def of(cls, micros: Iterable[int]) -> Histogram:
        """The histogram of some durations in microseconds."""
        found: dict[int, int] = {}
        for one in micros:
            number = class_of(one)
            found[number] = found.get(number, 0) + 1
        return cls.from_classes(found)

    @classmethod
    def from_classes(cls, counts: Mapping[int, int]) -> Histogram:
        """The histogram with so many durations in each class."""
        used = {number: count for number, count in counts.items() if count}
        if not used:
            return cls()
        first, last = min(used), max(used)
        return cls(first, tuple(used.get(number, 0) for number in range(first, last + 1)))

    @classmethod
    def from_counts(cls, counts: Sequence[int], first: int = 0) -> Histogram:
        """The histogram with these counts of the classes from ``first`` on; there may be zeros at both ends."""
        return cls.from_classes({first + place: int(count) for place, count in enumerate(counts) if count})

    def __add__(self, other: Histogram) -> Histogram:
        if not self.counts or not other.counts:
            return other if not self.counts else self
        first = min(self.first, other.first)
        last = max(self.first + len(self.counts), other.first + len(other.counts))
        counts = [0] * (last - first)
        for one in (self, other):
            at = one.first - first
            counts[at : at + len(one.counts)] = map(int.__add__, counts[at:], one.counts)
        return Histogram(first, tuple(counts))

    @classmethod
    def sum(cls, some: Iterable[Histogram]) -> Histogram:
        """What all of them count, in one pass over their classes."""
        used = [one for one in some if one.counts]
        if len(used) < 2:
            return used[0] if used else cls()
        first = min(one.first for one in used)
        last = max(one.first + len(one.counts) for one in used)
        aligned = (
            (0,) * (one.first - first) + one.counts + (0,) * (last - one.first - len(one.counts))
            for one in used
        )
        return cls(first, tuple(map(sum, zip(*aligned, strict=True))))

    @property
    def count(self) -> int:
        """How many durations there are."""
        return sum(self.counts)

    @property
    def classes(self) -> dict[int, int]:
        """How many durations are in each class that has any."""
        return {self.first + place: count for place, count in enumerate(self.counts) if count}

    def quantile(self, part: float) -> float:
        """The duration, in seconds, that this part of all durations does not exceed; 0 if there are none."""
        wanted, seen = max(1, math.ceil(part * self.count - 1e-9)), 0
        for place, count in enumerate(self.counts):
            seen += count
            if seen >= wanted:
                return micros_of(self.first + place) / 1e6
        return 0.0

    @property
    def p50(self) -> float:
        """The median, in seconds."""
        return self.quantile(0.5)

    @property
    def p95(self) -> float:
        """What 95 of 100 durations do not exceed, in seconds."""
        return self.quantile(0.95)

    @property
    def p99(self) -> float:
        """What 99 of 100 durations do not exceed, in seconds."""
        return self.quantile(0.99)

    @property
    def max(self) -> float:
        """The longest duration, in seconds."""
        return self.quantile(1.0)

    @property
    def mean(self) -> float:
        """The average, in seconds; 0 if there are none."""
        total = sum(micros_of(number) * count for number, count in self.classes.items())
        return total / self.count / 1e6 if self.counts else 0.0

    def longer(self, micros: int) -> Histogram:
        """The histogram if every duration had taken so much longer; one below zero counts as zero before.

        Classes are taken for their middle, so the error of a quantile may double; it is still at most 3.2 %.
        """
        found: dict[int, int] = {}
        for number, count in self.classes.items():
            after = class_of(max(0, round(micros_of(number)) + micros))
            found[after] = found.get(after, 0) + count
        return Histogram.from_classes(found)


@dataclass(frozen=True, slots=True)
class Latency:
    """The latencies of results.

    ``processing`` is from the arrival of a result's last tuple to the commit of the result in its sink. ``event`` is
    from the result's event time, the largest of its tuples' (AJoin, 7), to the commit. ``ahead`` results had an event
    time later than the clock when their batch began; they count as if it had been then.
    """

    processing: Histogram = field(default_factory=Histogram)
    event: Histogram = field(default_factory=Histogram)
    ahead: int = 0

    @property
    def count(self) -> int:
        """How many results were measured."""
        return self.processing.count

    def __add__(self, other: Latency) -> Latency:
        return Latency(self.processing + other.processing, self.event + other.event, self.ahead + other.ahead)

    @classmethod
    def sum(cls, some: Iterable[Latency]) -> Latency:
        """What all of them count."""
        every = tuple(some)
        return cls(
            Histogram.sum(one.processing for one in every),
            Histogram.sum(one.event for one in every),
            sum(one.ahead for one in every),
        )

    def committed(self, micros: int) -> Latency:
        """The latencies of results whose ages are known at a moment and that are committed so much later."""
        ahead = self.ahead + self.event.classes.get(NEGATIVE, 0)
        later = max(0, micros)
        return Latency(self.processing.longer(later), self.event.longer(later), ahead)
