"""Matches of several inputs that are joined on one key, as ranges and not as rows (design, D9).

Guarantees: a `FactorisedMatches` has one `Factor` per input that was probed, all by the same tuples; its size grows
with the tuples and the runs, never with the matches it stands for. `products` splits it into `Product`s, in which every
combination of a tuple with one entry of each factor is a match, and every match is in exactly one of them. So matches
are counted by multiplying lengths of ranges, and an aggregate over them needs the entries of each range once.

Windows make that possible. A match is inside its windows iff each of its tuples is at most the width of its window
older than the newest one (design, section 3). So once the newest tuple is chosen, what the other inputs may add no
longer depends on each other. The first product has the matches whose newest tuple is the one that probed, which needs
no pairs; for partners that are newer than that, which come in the same batch, the pairs of these two tuples alone are
made, in bounded portions. Of tuples with equal times the one that probed counts as the newest, then the first factor's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.bucket.bucket import Bucket
from weft.bucket.compiled import Ints, Longs, compiled, frozen, inner
from weft.bucket.memory import fresh, take, zeros
from weft.errors import StateError
from weft.kernels.probe.ranges import NO_INTS, NO_LONGS, PORTION, Ranges, expand

__all__ = ["EntryRanges", "Factor", "FactorisedMatches", "NewestPartner", "Product", "RangeColumn", "add_at"]


@dataclass(frozen=True, slots=True, eq=False)
class RangeColumn:
    """For every tuple, the entries of the index of ``run`` that it matches: ``start`` up to ``stop``, none if equal.

    The entries of one tuple are in the order of their rows' event times.
    """

    start: Ints
    stop: Ints
    permutation: Ints | None  # of the index; None where entries are rows
    run: Bucket

    @classmethod
    def of(cls, ranges: Ranges, tuples: int, run: Bucket) -> RangeColumn:
        """A column of ranges, of which each tuple has at most one."""
        start, stop = zeros(tuples, np.int32), zeros(tuples, np.int32)
        start[ranges.probe], stop[ranges.probe] = ranges.start, ranges.stop
        return cls(frozen(start), frozen(stop), ranges.permutation, run)

    @property
    def times(self) -> Longs:
        """The event times of the run's rows; an error if it has none."""
        if self.run.times is None:
            raise StateError("a window needs the times of the stored rows")
        return self.run.times


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """The matches of tuples in one input: a column of ranges for each run in which there are any.

    ``window`` is how much older than the newest tuple of a match one of this input may be; None if by any amount.
    """

    columns: tuple[RangeColumn, ...]
    window: int | None = None

    def counts(self, tuples: int) -> Longs:
        """How many matches each tuple has in this input."""
        counts: Longs = zeros(tuples, np.int64)
        for one in self.columns:
            counts += one.stop
            counts -= one.start
        return counts


@dataclass(frozen=True, slots=True, eq=False)
class EntryRanges:
    """For every row of a product, the entries from ``start`` up to ``stop`` of a run's index."""

    start: Ints
    stop: Ints


@dataclass(frozen=True, slots=True, eq=False)
class NewestPartner:
    """The newest tuple of matches, if it is not the one that probed: its factor, the column in it, and the rows."""

    factor: int
    column: int
    rows: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Matches that are all combinations of what each of their inputs adds.

    ``probe`` are the tuples that probed, one for every row of the product, or None for all of them in turn. ``newest``
    are the times of the newest tuples, if windows depend on them. ``partner`` is the newest tuple where another one
    probed; its factor has no spans. ``spans`` are those of every factor, in the order of its columns.
    """

    tuples: int
    probe: Ints | None
    newest: Longs | None
    partner: NewestPartner | None
    spans: tuple[tuple[EntryRanges, ...], ...]

    def multiplicities(self, without: int | None = None) -> Longs:
        """How many matches each row of the product stands for, or would if the factor ``without`` had one entry."""
        counts: Longs = np.ones(self.tuples, np.int64)
        for number, factor in enumerate(self.spans):
            if number == without or (self.partner is not None and number == self.partner.factor):
                continue
            lengths: Longs = zeros(self.tuples, np.int64)
            for one in factor:
                lengths += one.stop
                lengths -= one.start
            counts *= lengths
        return counts


@dataclass(frozen=True, slots=True, eq=False)
class FactorisedMatches:
    """Matches of tuples in several inputs, each of which was probed on its own.

    ``times`` are the tuples' own (largest) event times; they are needed only if a factor has a window. Each pair of a
    tuple and an entry of a factor is inside the windows of these two.
    """

    tuples: int
    times: Longs | None
    factors: tuple[Factor, ...]

    def first(self, number: int) -> FactorisedMatches:
        """The matches in the first so many inputs, before the others were probed."""
        return replace(self, factors=self.factors[:number])

    @property
    def windowed(self) -> bool:
        """Whether it depends on the newest tuple which others are matches."""
        return len(self.factors) > 1 and any(factor.window is not None for factor in self.factors)

    def counts(self) -> Longs:
        """How many matches each tuple has."""
        if not self.windowed:
            counts: Longs = np.ones(self.tuples, np.int64)
            for factor in self.factors:
                counts *= factor.counts(self.tuples)
            return counts
        total: Longs = zeros(self.tuples, np.int64)
        for product in self.products():
            found = product.multiplicities()
            if product.probe is None:
                total += found
            else:
                add_at(total, product.probe, found)
        return total

    def products(self, portion: int = PORTION) -> Iterator[Product]:
        """The matches as products, of which those for a newest partner have at most ``portion`` rows each."""
        if not self.windowed:
            spans = tuple(
                tuple(EntryRanges(c.start, c.stop) for c in factor.columns) for factor in self.factors
            )
            yield Product(self.tuples, None, self.times, None, spans)
            return
        times = self._times
        older = tuple(
            tuple(EntryRanges(c.start, _cut(c, times)) for c in factor.columns) for factor in self.factors
        )
        yield Product(self.tuples, None, times, None, older)
        for number, factor in enumerate(self.factors):
            for place, column in enumerate(factor.columns):
                yield from self._newer(number, place, column, older[number][place].stop, portion)

    @property
    def _times(self) -> Longs:
        if self.times is None:
            raise StateError("windows need the times of the tuples that probe")
        return self.times

    def _newer(
        self, number: int, place: int, column: RangeColumn, first: Ints, portion: int
    ) -> Iterator[Product]:
        """The matches whose newest tuple is of one factor and one run: entries from ``first`` on."""
        rows = np.flatnonzero(first < column.stop).astype(np.int32)
        if not rows.size:
            return
        newer = Ranges(rows, take(first, rows), take(column.stop, rows), column.permutation)
        for probe, stored in expand(newer, portion):
            newest = take(column.times, stored)
            spans = tuple(
                () if other == number else self._spans(factor, frozen(probe), newest, other < number)
                for other, factor in enumerate(self.factors)
            )
            yield Product(probe.size, probe, newest, NewestPartner(number, place, stored), spans)

    def _spans(self, factor: Factor, probe: Ints, newest: Longs, before: bool) -> tuple[EntryRanges, ...]:
        """What a factor adds to pairs with these newest tuples; ``before`` says that equal times are not its."""
        low = NO_LONGS if factor.window is None else newest - factor.window
        high = newest - 1 if before else newest
        found = []
        for one in factor.columns:
            start, stop = fresh(probe.size, np.int32), fresh(probe.size, np.int32)
            permutation = NO_INTS if one.permutation is None else one.permutation
            arrays = one.start, one.stop, one.times, permutation
            _narrow(probe, low, high, *arrays, start, stop)
            found.append(EntryRanges(start, stop))
        return tuple(found)


def _cut(column: RangeColumn, times: Longs) -> Ints:
    """Where the entries end, in each tuple's range, that are not newer than the tuple."""
    stop = fresh(times.size, np.int32)
    permutation = NO_INTS if column.permutation is None else column.permutation
    _narrow_all(times, column.start, column.stop, column.times, permutation, stop)
    return frozen(stop)


@inner
def _first_after(low: Any, high: Any, time: Any, times: Longs, permutation: Ints) -> Any:
    """The first of entries low to high that is later than a time; most often that is the end, so that comes first."""
    if low < high:
        last = permutation[high - 1] if permutation.size else high - 1
        if times[last] <= time:
            return high
    while low < high:
        middle = (low + high) >> 1
        row = permutation[middle] if permutation.size else middle
        if times[row] <= time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _narrow_all(
    newest: Longs, start: Ints, stop: Ints, times: Longs, permutation: Ints, out_stop: Ints
) -> None:
    for i in range(newest.size):
        out_stop[i] = _first_after(np.int64(start[i]), np.int64(stop[i]), newest[i], times, permutation)


@compiled
def _narrow(
    probe: Ints,
    low: Longs,
    high: Longs,
    start: Ints,
    stop: Ints,
    times: Longs,
    permutation: Ints,
    out_start: Ints,
    out_stop: Ints,
) -> None:
    """Write the part of each tuple's range that is inside a window, both ends included; empty `low` means no start."""
    for i in range(probe.size):
        first, end = np.int64(start[probe[i]]), np.int64(stop[probe[i]])
        if low.size and first < end:
            row = permutation[first] if permutation.size else first
            if times[row] < low[i]:
                first = _first_after(first, end, low[i] - 1, times, permutation)
        out_start[i] = first
        out_stop[i] = _first_after(first, end, high[i], times, permutation)


@compiled
def add_at(total: Longs, places: Ints, values: Longs) -> None:
    """Add each value at its place, where places may repeat."""
    for i in range(places.size):
        total[places[i]] += values[i]
