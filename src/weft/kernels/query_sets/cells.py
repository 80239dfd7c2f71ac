"""Between which of a list of sorted bounds every value lies.

Guarantees: the answer is exact, NULLs included. A value lies in one of the 2n + 2 cells of n bounds: cell 2i + 1 is the
i-th bound itself, cell 2i what is less than it and greater than the one before, cell 2n what is greater than all, and
cell 2n + 1 is NULL. Numbers are compared as words (`weft.bucket.words`), texts by their bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Array, Bytes, Longs, Mask, compiled, inner

__all__ = ["BLOCK", "Cells", "number_cells", "text_cells", "under"]

Cells = NDArray[np.uint32]

BLOCK = 1024
_1, _2 = np.uint32(1), np.uint32(2)


@inner
def under(bounds: Longs, values: Array, out: Cells) -> None:
    """How many of the bounds are less than each value: a binary search that takes every step for a block at once.

    No step has to wait for another, and there is no branch to mispredict, which makes it some four times as fast.
    """
    out[:] = 0
    size = bounds.size
    while size > 0:
        half = max(size >> 1, 1)
        step = np.uint32(half)
        for i in range(out.size):
            out[i] += step * np.uint32(bounds[out[i] + step - _1] < values[i])
        size = size - half if size > 1 else 0


@compiled
def number_cells(words: Array, valid: Mask, bounds: Longs, first: int, out: Cells) -> None:
    """Write the cell of every word, counted from `first`. Empty `valid` means that none is NULL."""
    size = np.uint32(bounds.size)
    for start in range(0, words.size if size else 0, BLOCK):
        values, part = words[start : start + BLOCK], out[start : start + BLOCK]
        under(bounds, values, part)
        for i in range(part.size):
            equal = (part[i] < size) & (bounds[min(part[i], size - _1)] == values[i])
            part[i] = np.uint32(first) + part[i] * _2 + np.uint32(equal)
    if not size:
        out[:] = first
    _put_nulls(valid, np.uint32(first) + size * _2 + _1, out)


@compiled
def text_cells(
    prefixes: Longs,
    offsets: Array,
    data: Bytes,
    valid: Mask,
    bounds: Longs,
    bound_offsets: Array,
    bound_data: Bytes,
    first: int,
    out: Cells,
) -> None:
    """Write the cells of texts, given their first bytes as words; more is read only where a bound has the same."""
    size = np.uint32(bounds.size)
    for start in range(0, prefixes.size, BLOCK):
        under(bounds, prefixes[start : start + BLOCK], out[start : start + BLOCK])
    for i in range(prefixes.size):
        low, equal = out[i], False
        high = _until(bounds, low, prefixes[i])
        while low < high and not equal:
            middle = (low + high) >> _1
            begin, end = bound_offsets[middle], bound_offsets[middle + _1]
            order = _order(data, offsets[i], offsets[i + 1], bound_data, begin, end)
            equal = order == 0
            low, high = (middle if equal else middle + _1, high) if order >= 0 else (low, middle)
        out[i] = np.uint32(first) + low * _2 + np.uint32(equal)
    _put_nulls(valid, np.uint32(first) + size * _2 + _1, out)


@inner
def _until(bounds: Longs, low: Any, word: Any) -> Any:
    """Where the bounds that have this word end, given where they start."""
    high = np.uint32(bounds.size)
    if low == high or bounds[low] != word:
        return low
    while low < high:
        middle = (low + high) >> _1
        low, high = (middle + _1, high) if bounds[middle] == word else (low, middle)
    return low


@inner
def _order(left: Bytes, at: Any, end: Any, right: Bytes, other: Any, other_end: Any) -> Any:
    """Negative where the left text is before the right one, 0 where they are equal."""
    size, other_size = np.int64(end) - np.int64(at), np.int64(other_end) - np.int64(other)
    for i in range(min(size, other_size)):
        difference = np.int64(left[at + i]) - np.int64(right[other + i])
        if difference:
            return difference
    return size - other_size


@inner
def _put_nulls(valid: Mask, cell: Any, out: Cells) -> None:
    for i in range(valid.size):
        if not valid[i]:
            out[i] = cell
