"""Hashes of keys, and the comparison that hashes are verified by.

Guarantees: the hash of a key depends on its values alone (not on the width of an integer, chunks, offsets or
dictionaries), is the same in every process and on every platform, and is 64 bits wide. NULL keys are told apart by a
mask. NaN equals NaN and -0.0 equals 0.0 in both functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.bucket.compiled import Array, Bytes, Ints, Mask, compiled, load64, mix
from weft.bucket.memory import fresh
from weft.bucket.words import Column, decimal_halves, flatten, key_words, text_buffers

__all__ = ["equal_values", "hash_columns"]


def hash_columns(columns: Sequence[Column]) -> tuple[NDArray[np.uint64], Mask | None]:
    """The hash of every row over all columns, and which rows have no NULL in them (None: all)."""
    words = key_words(columns)
    out = fresh(words.values.size, np.uint64)
    _mix_all(words.values, out)
    return out, words.valid


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
    """What decides about equality: words, or the bytes of texts."""
    if pa.types.is_decimal(array.type) and array.type.precision > 18:
        halves = decimal_halves(array)
        return [np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])]
    words = key_words([array])
    return [words.values] if words.exact else [text_buffers(array)]


@compiled
def _mix_all(words: Array, out: NDArray[np.uint64]) -> None:
    for i in range(words.size):
        out[i] = mix(np.int64(words[i]))


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
