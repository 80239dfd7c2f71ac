"""Range and band probes: tuples with bounds against runs that are indexed by the value of a column.

Guarantees: every pair of a probe tuple and a stored row with `low ≤ value ≤ high` (or `<` where an end is open) that is
inside the window is found once; pairs come run by run, and inside a run grouped by probe tuple. Where a bound is None,
there is no limit on that side; a bound that is NULL, and a value that is NULL, match nothing. NaN is greater than every
number, as in Spark SQL. Different texts or long decimals may have the same word, so their pairs are compared again as
values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.bucket import Bucket, column
from weft.bucket.compiled import Array, Ints, Mask, frozen
from weft.bucket.index import Index, Order
from weft.bucket.memory import fresh
from weft.bucket.words import Column, Words, flatten, value_words
from weft.errors import StateError
from weft.kernels.probe.equal import Places
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
from weft.kernels.probe.within import bounds, nonempty, order_by_slot

__all__ = ["Band", "band", "band_portions", "band_ranges"]


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
    found = nonempty(rows, start, stop, *out)
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
    order_by_slot(
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
    bounds(words.values, rows, after, index.words.values, permutation.view(np.uint32), *place, out)


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
