"""Bands on two values at once, through one order: the cells of a grid.

Guarantees: numbering cells keeps the order of values, so whatever lies between two bounds lies in a cell between
theirs; infinities, NaN and what is too far away go to the outermost cells, on the side where they belong. The place of
a row in a grid is the cell of its first value and, within that, the piece of a cell of its second. Cells of the first
are as wide as its band, so a probe tuple looks into two or three of them, and in each at the rows whose second value is
near enough. `grid_ranges` holds every row within both bands, and some others, once for each tuple; a tuple with a bound
that is NULL has no ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket
from weft.bucket.compiled import Array, Ints, Longs, Mask, compiled, frozen
from weft.bucket.index import Order
from weft.bucket.memory import fresh, take
from weft.bucket.words import Column, flatten
from weft.kernels.expr.datum import valid_rows
from weft.kernels.expr.grid_cells import LAST_CELL, cells_of
from weft.kernels.probe.band import Band, band_ranges
from weft.kernels.probe.ranges import Ranges

__all__ = ["Grid", "grid", "grid_ranges"]

# A tuple whose bounds are further apart than this, in cells, looks at all rows between them.
_FEW = 3


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The pieces of a grid that probe tuples look at: from one place to another, and the tuple of each."""

    limits: Band
    owners: Ints


def grid(
    first: tuple[Column, Column], width: float, second: tuple[Column, Column], fine: float
) -> Grid | None:
    """The pieces that tuples with these lower and upper bounds look at; None if there are none."""
    valid = valid_rows([flatten(side) for side in (*first, *second)])
    (begin, end), (low, high) = (
        [cells_of(s, w) for s in side] for side, w in ((first, width), (second, fine))
    )
    known = np.ones(begin.size, np.bool_) if valid is None else valid
    count = _count(begin, end, low, high, known)
    owners, places = fresh(count, np.int32), (fresh(count, np.int64), fresh(count, np.int64))
    _pieces(begin, end, low, high, known, owners, *places)
    return Grid(Band(*map(pa.array, places)), frozen(owners)) if count else None


def grid_ranges(looked: Grid, run: Bucket, order: Order) -> Ranges:
    """For one run, the ranges of entries in the pieces that tuples look at."""
    found = band_ranges(looked.limits, run, order)
    return Ranges(frozen(take(looked.owners, found.probe)), found.start, found.stop, found.permutation)


@compiled
def _count(first: Longs, last: Longs, low: Longs, high: Longs, valid: Mask) -> int:
    total = 0
    for i in range(first.size):
        if valid[i] and first[i] <= last[i] and low[i] <= high[i]:
            between = last[i] - first[i]
            total += between + 1 if between <= _FEW else 1
    return total


@compiled
def _pieces(
    first: Longs, last: Longs, low: Longs, high: Longs, valid: Array, owners: Ints, begin: Longs, end: Longs
) -> None:
    place = 0
    for i in range(first.size):
        if not (valid[i] and first[i] <= last[i] and low[i] <= high[i]):
            continue
        if last[i] - first[i] > _FEW:
            owners[place], begin[place] = i, first[i] << 32
            end[place] = (last[i] << 32) + 2 * LAST_CELL
            place += 1
            continue
        for cell in range(first[i], last[i] + 1):
            owners[place] = i
            begin[place] = (cell << 32) + (low[i] + LAST_CELL)
            end[place] = (cell << 32) + (high[i] + LAST_CELL)
            place += 1
