"""Bands on two values at once, through one order: the cells of a grid.

Guarantees: numbering cells keeps the order of values, so whatever lies between two bounds lies in a cell between
theirs; infinities, NaN and what is too far away go to the outermost cells, on the side where they belong. The place of
a row in a grid is the cell of its first value and, within that, the piece of a cell of its second. Cells of the first
are as wide as its band, so a probe tuple looks into two or three of them, and in each at the rows whose second value is
near enough: `ranges` has them all, and some beside, once for each tuple. Where a bound is NULL there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket
from weft.bucket.compiled import Array, Floats, Ints, Longs, Mask, compiled, frozen
from weft.bucket.index import Order
from weft.bucket.memory import fresh, take
from weft.bucket.words import Column, flatten
from weft.kernels.band import Band, band_ranges
from weft.kernels.datum import Rule, numbers, valid_rows, with_nulls
from weft.kernels.ranges import Ranges

__all__ = ["RULES", "Grid", "cells_of", "grid", "grid_ranges"]

# So many cells are numbered to either side of zero; a place is 32 bits of the one and 32 of the other.
_LAST = 1 << 30
# A tuple whose bounds are further apart than this, in cells, looks at all rows between them.
_FEW = 3


def cells_of(values: Column, width: float, part: float = 0.0, more: float = 0.0) -> Longs:
    """The number of the cell of every value, moved by a part of its size and so much more; that of NULL is arbitrary.

    Moving infinity down gives NaN, which is in the same cell.
    """
    out = fresh(len(values), np.int64)
    _cells(_measures(flatten(values)), width, part, more, out)
    return out


def _measures(array: Any) -> Floats:
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    found: Floats = numbers(
        array if pa.types.is_floating(array.type) else array.cast(pa.float64(), safe=False)
    )
    return frozen(found.astype(np.float64, copy=False))


def _cell(args: Sequence[Any], kind: pa.DataType) -> Any:
    values, *sizes = args
    return with_nulls(cells_of(values, *(size.as_py() for size in sizes)), valid_rows([values]), kind)


def _place(args: Sequence[Any], kind: pa.DataType) -> Any:
    first, width, second, fine = args
    places = _places(cells_of(first, width.as_py()), cells_of(second, fine.as_py()))
    return with_nulls(places, valid_rows([first, second]), kind)


def _places(first: Longs, second: Longs) -> Longs:
    return (first << 32) + (second + _LAST)


RULES: dict[str, Rule] = {"cell": _cell, "grid": _place}


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The pieces of a grid that probe tuples look at: from one place to another, and the tuple of each."""

    limits: Band
    owners: Ints


def grid(
    first: tuple[Column, Column], width: float, second: tuple[Column, Column], fine: float
) -> Grid | None:
    """What tuples with these lower and upper bounds look at; None: nothing."""
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
def _cells(values: Floats, width: float, part: float, more: float, out: Longs) -> None:
    for i in range(values.size):
        place = values[i] / width if part == 0 else (values[i] + abs(values[i]) * part + more) / width
        place = place if place < _LAST else np.float64(_LAST)  # NaN too, which compares with nothing
        out[i] = np.int64(np.floor(place if place > -_LAST else np.float64(-_LAST)))


@compiled
def _count(first: Longs, last: Longs, low: Longs, high: Longs, valid: Mask) -> int:
    total = 0
    for i in range(first.size):
        if valid[i] and first[i] <= last[i] and low[i] <= high[i]:
            apart = last[i] - first[i]
            total += apart + 1 if apart <= _FEW else 1
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
            end[place] = (last[i] << 32) + 2 * _LAST
            place += 1
            continue
        for cell in range(first[i], last[i] + 1):
            owners[place] = i
            begin[place] = (cell << 32) + (low[i] + _LAST)
            end[place] = (cell << 32) + (high[i] + _LAST)
            place += 1
