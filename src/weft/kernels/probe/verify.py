"""The comparison of values by which matches of hashed keys are verified.

Guarantees: two rows compare equal where `weft.bucket.words` gives equal keys equal words: NaN equals NaN and -0.0
equals 0.0, and neither the width of an integer nor chunks, offsets or dictionaries matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Array, Bytes, Ints, Mask, compiled, load64
from weft.bucket.memory import fresh
from weft.bucket.words import Column, decimal_halves, flatten, key_words, text_buffers

__all__ = ["equal_values"]


def equal_values(left: Sequence[Column], right: Sequence[Column], left_rows: Ints, right_rows: Ints) -> Mask:
    """Whether the values of paired rows are equal in every column; none of them is NULL."""
    same = fresh(left_rows.size, np.bool_)
    same.fill(True)
    for one, other in zip(left, right, strict=True):
        for here, there in zip(_parts(flatten(one)), _parts(flatten(other)), strict=True):
            if isinstance(here, tuple):
                (starts, content), (other_starts, other_content) = here, there
                _same_texts(starts, content, other_starts, other_content, left_rows, right_rows, same)
            else:
                _same_words(here, there, left_rows, right_rows, same)
    return same


def _parts(array: Any) -> list[Any]:
    """The arrays that decide about equality: words, or the offsets and bytes of texts."""
    if pa.types.is_decimal(array.type) and array.type.precision > 18:
        halves = decimal_halves(array)
        return [np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])]
    words = key_words([array])
    return [words.values] if words.exact else [text_buffers(array)]


@compiled
def _same_words(left: Array, right: Array, left_rows: Ints, right_rows: Ints, same: Mask) -> None:
    for i in range(same.size):
        same[i] &= np.int64(left[left_rows[i]]) == np.int64(right[right_rows[i]])


@compiled
def _same_texts(
    left_starts: Array,
    left: Bytes,
    right_starts: Array,
    right: Bytes,
    left_rows: Ints,
    right_rows: Ints,
    same: Mask,
) -> None:
    for i in range(same.size):
        here, there = np.int64(left_starts[left_rows[i]]), np.int64(right_starts[right_rows[i]])
        size = np.int64(left_starts[left_rows[i] + 1]) - here
        equal = same[i] and size == np.int64(right_starts[right_rows[i] + 1]) - there
        at = 0
        while equal and at + 8 <= size:
            equal = load64(left, here + at) == load64(right, there + at)
            at += 8
        while equal and at < size:
            equal = left[here + at] == right[there + at]
            at += 1
        same[i] = equal
