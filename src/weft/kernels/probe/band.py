"""Range and band probes: tuples with bounds against runs that are indexed by the value of a column.

Guarantees: every pair of a probe tuple and a stored row with `low ≤ value ≤ high` (or `<` where an end is open) that is
inside the window is found once; pairs come run by run, and inside a run grouped by probe tuple. Where a bound is None,
there is no limit on that side; a bound that is NULL, and a value that is NULL, match nothing. NaN is greater than every
number, as in Spark SQL. Different texts or long decimals may have the same word, so their pairs are compared again as
values.

How it is fast: entries are in the order of their words, and those of other slots are all smaller or all greater, so
counting the smaller ones among `WIDTH` neighbours gives a bound without a branch. Longer slots are searched by halving.
The rules for fast loops in `equal` apply here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.bucket import Bucket, column
from weft.bucket.compiled import Array, Ints, Longs, Mask, compiled, frozen, inner
from weft.bucket.directory import value_slot
from weft.bucket.index import Index, Order
from weft.bucket.memory import fresh
from weft.bucket.words import Column, Words, flatten, value_words
from weft.errors import StateError
from weft.kernels.probe.equal import BLOCK, WIDTH, Places, fetch
from weft.kernels.probe.equality import check_types
from weft.kernels.probe.ranges import (
    NO_INTS,
    PORTION,
    Matches,
    Ranges,
    Window,
    join_matches,
    pairs,
    reachable,
)

__all__ = ["Band", "band", "band_portions", "band_ranges"]


@compiled
def _order_by_slot(
    words: Array, rows: Places, slots: int, origin: float, scale: float, floats: bool, bits: int, out: Places
) -> None:
    """Sort the tuples by the top bits of their slots, which is near the order of their words. Empty `rows`: all."""
    places = np.zeros((1 << bits) + 1, np.uint32)
    drop = max(0, _width(slots) - bits)
    keys = np.empty(out.size, np.uint16)
    for i in range(out.size):
        row = rows[i] if rows.size else np.uint32(i)
        keys[i] = value_slot(words[row], origin, scale, slots, floats) >> drop
        places[keys[i] + np.uint16(1)] += 1
    for value in range(1 << bits):
        places[value + 1] += places[value]
    for i in range(out.size):
        out[places[keys[i]]] = rows[i] if rows.size else np.uint32(i)
        places[keys[i]] += 1


@inner
def _width(slots: int) -> int:
    bits = 0
    while (1 << bits) < slots:
        bits += 1
    return bits


@compiled
def _bounds(
    words: Array,
    rows: Places,
    after: bool,
    stored: Array,
    permutation: Places,
    directory: Places,
    origin: float,
    scale: float,
    floats: bool,
    out: Places,
) -> None:
    """Write, for each tuple, how many entries are smaller than its word or, with `after`, smaller or equal."""
    base, end, wanted = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.int64)
    near = np.empty(BLOCK * WIDTH, np.int64)
    size = directory[directory.size - 1]
    simple = permutation.size == 0 and size >= WIDTH
    for first in range(0, rows.size, BLOCK):
        block = min(BLOCK, rows.size - first)
        for i in range(block):
            wanted[i] = words[rows[first + i]]
        for i in range(block):
            slot = np.uint64(value_slot(wanted[i], origin, scale, directory.size - 1, floats))
            base[i], end[i] = directory[slot], directory[slot + np.uint64(1)]
        if simple:
            _count(block, np.uint32(size - np.uint32(WIDTH)), after, stored, base, wanted, near, out[first:])
        for i in range(block):
            if not simple or end[i] > base[i] + np.uint32(WIDTH):
                out[first + i] = _bound(stored, permutation, base[i], end[i], wanted[i], after)


@inner
def _count(
    block: int,
    last: np.uint32,
    after: bool,
    stored: Array,
    base: Places,
    wanted: Longs,
    near: Longs,
    out: Places,
) -> None:
    for i in range(block):
        fetch(stored, np.uint64(min(base[i], last)), near, np.uint64(i * WIDTH))
    for i in range(block):
        smaller = np.uint32(0)
        for j in range(WIDTH):
            other = near[np.uint64(i * WIDTH + j)]
            smaller += np.uint32(other <= wanted[i]) if after else np.uint32(other < wanted[i])
        out[i] = min(base[i], last) + smaller


@inner
def _bound(stored: Array, permutation: Places, low: Any, high: Any, word: Any, after: bool) -> Any:
    while low < high:
        middle = np.uint32((low + high) >> np.uint32(1))
        other = stored[permutation[middle]] if permutation.size else stored[middle]
        if other < word or (after and other == word):
            low = np.uint32(middle + np.uint32(1))
        else:
            high = middle
    return low


@compiled
def _nonempty(rows: Places, low: Places, high: Places, probe: Ints, start: Ints, stop: Ints) -> Any:
    """Write the ranges that hold an entry to `probe`, `start` and `stop`, and return how many there are."""
    found: Any = np.uint64(0)
    for i in range(rows.size):
        probe[found], start[found], stop[found] = rows[i], low[i], high[i]
        found += np.uint64(high[i] > low[i])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The bounds of every probe tuple, of the type of the stored column."""

    low: Column | None = None
    high: Column | None = None
    low_open: bool = False
    high_open: bool = False

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise StateError("a band needs a bound", hint="without one, it is a theta probe")
        if self.low is not None and self.high is not None and len(self.low) != len(self.high):
            raise StateError("a band has as many lower as upper bounds")


def band(
    limits: Band,
    runs: Sequence[Bucket],
    order: Order,
    *,
    window: Window | None = None,
) -> Matches:
    """All matches of the tuples in the runs."""
    return join_matches(band_portions(limits, run, order, window=window) for run in runs)


def band_portions(
    limits: Band,
    run: Bucket,
    order: Order,
    *,
    window: Window | None = None,
    portion: int = PORTION,
) -> Iterator[tuple[Ints, Ints]]:
    """The matches in one run, a bounded number at a time."""
    if not reachable(run, window):
        return
    ranges = band_ranges(limits, run, order)
    exact = run.index(order).words.exact
    for probes, rows in pairs(ranges, run, window=window, portion=portion):
        if exact:
            yield probes, rows
        else:
            inside = _inside(limits, flatten(column(run.batch, order.columns[0])), probes, rows)
            yield probes[inside], rows[inside]


def band_ranges(limits: Band, run: Bucket, order: Order) -> Ranges:
    """For one run, the range of index entries between the bounds of each tuple.

    Where words are not exact, a range may also hold entries outside the bounds that have the same word as a bound.
    """
    index = run.index(order)
    for side in (limits.low, limits.high):
        if side is not None:
            check_types(side.type, column(run.batch, order.columns[0]).type, order)
    low, high = (None if side is None else value_words(side) for side in (limits.low, limits.high))
    rows = _in_order(index, low, high)
    start, stop = fresh(rows.size, np.uint32), fresh(rows.size, np.uint32)
    _fill(index, low, rows, limits.low_open and index.words.exact, 0, start)
    _fill(index, high, rows, not (limits.high_open and index.words.exact), index.rows, stop)
    out = [fresh(rows.size, np.int32) for _ in range(3)]
    found = _nonempty(rows, start, stop, *out)
    probes, first, last = (part[:found] for part in out)
    return Ranges(probes, first, last, index.permutation)


def _in_order(index: Index, low: Words | None, high: Words | None) -> Places:
    """The tuples whose bounds are not NULL, in the order of the stored rows."""
    words = low or high
    if words is None:
        return NO_INTS.view(np.uint32)
    valid = _both(None if low is None else low.valid, None if high is None else high.valid)
    rows = NO_INTS if valid is None else frozen(np.flatnonzero(valid).astype(np.int32))
    size = words.values.size if valid is None else rows.size
    if not size:
        return NO_INTS.view(np.uint32)
    out = fresh(size, np.uint32)
    slots, bits = index.directory.size - 1, max(1, min(10, size.bit_length() - 5))
    _order_by_slot(
        words.values, rows.view(np.uint32), slots, index.origin, index.scale, words.floats, bits, out
    )
    return frozen(out)


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _fill(index: Index, words: Words | None, rows: Places, after: bool, without: int, out: Places) -> None:
    if words is None:
        out[:] = without
        return
    permutation = NO_INTS if index.permutation is None else index.permutation
    place = (index.directory.view(np.uint32), index.origin, index.scale, words.floats)
    _bounds(words.values, rows, after, index.words.values, permutation.view(np.uint32), *place, out)


def _inside(limits: Band, stored: Any, probes: Ints, rows: Ints) -> Mask:
    """Whether the values themselves are within the bounds."""
    values = pc.take(stored, pa.array(rows))
    inside: Array = np.ones(rows.size, np.bool_)
    above = pc.greater if limits.low_open else pc.greater_equal
    below = pc.less if limits.high_open else pc.less_equal
    for side, compare in ((limits.low, above), (limits.high, below)):
        if side is not None:
            here = compare(values, pc.take(flatten(side), pa.array(probes)))
            inside &= here.to_numpy(zero_copy_only=False)
    return inside
