"""The cells of a grid: values cut into pieces of one width, and numbered in order.

Guarantees: numbering cells keeps the order of values, so whatever lies between two bounds lies in a cell between
theirs; infinities, NaN and what is too far away go to the outermost cells, on the side where they belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Floats, Longs, compiled, frozen
from weft.bucket.memory import fresh
from weft.bucket.words import Column, flatten
from weft.kernels.expr.datum import ColumnFunction, numbers, valid_rows, with_nulls

__all__ = ["FUNCTIONS", "LAST_CELL", "cells_of"]

# The number of the last cell on either side of zero. It fits 32 bits, since a place in a grid packs the numbers of two
# cells into 64.
LAST_CELL = 1 << 30


def cells_of(values: Column, width: float, part: float = 0.0, more: float = 0.0) -> Longs:
    """The number of the cell of every value, which is first moved by ``part`` of its size and by ``more``.

    The cell of NULL is arbitrary. Infinity moved down gives NaN, which is in the same cell as infinity.
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
    return (first << 32) + (second + LAST_CELL)


FUNCTIONS: dict[str, ColumnFunction] = {"cell": _cell, "grid": _place}


@compiled
def _cells(values: Floats, width: float, part: float, more: float, out: Longs) -> None:
    for i in range(values.size):
        place = values[i] / width if part == 0 else (values[i] + abs(values[i]) * part + more) / width
        place = place if place < LAST_CELL else np.float64(LAST_CELL)  # NaN too, as it is not less
        out[i] = np.int64(np.floor(place if place > -LAST_CELL else np.float64(-LAST_CELL)))
