"""Columns as 64-bit words: `key_words` for equality, `value_words` for order.

Guarantees: equal keys have equal words whatever the width or layout of their columns; NaN equals NaN and comes last,
-0.0 equals 0.0. If `Words.exact` is true (integers, times, booleans, floats, decimals of up to 18 digits), equal words
also mean equal keys, and nothing is hashed; otherwise the matches found must be verified on the values. NULL has no
word (`Words.valid`). Words of integers and times are views of the column: no copy, no space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Bytes, Floats, Longs, Mask, compiled, frozen, load64, mix
from weft.errors import StateError

__all__ = [
    "Column",
    "Words",
    "decimal_halves",
    "family",
    "flatten",
    "from_words",
    "is_plain",
    "key_words",
    "plain_words",
    "text_buffers",
    "validity",
    "value_words",
]

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """One word per row: int64, or int32 where that is how wide the column is."""

    values: Array
    valid: Mask | None  # None if no row is NULL
    exact: bool
    view: bool  # whether `values` is the column's own memory
    floats: bool = False  # whether the words are floats in disguise, see `_float_words`


def flatten(column: Column) -> Any:
    """One plain array: chunks joined, dictionaries and extensions resolved."""
    array: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # combining no chunks gives a chunked array again
        array = pa.array([], array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def key_words(columns: Sequence[Column]) -> Words:
    """The words by which rows are equal on all of the columns together."""
    arrays = [flatten(column) for column in columns]
    if len(arrays) == 1:
        return _key_word(arrays[0])
    parts = [_key_word(array) for array in arrays]
    words = np.zeros(len(arrays[0]), np.int64)
    valid: Mask | None = None
    for part in parts:
        words = fold(words, part.values)
        valid = part.valid if valid is None else valid if part.valid is None else valid & part.valid
    return Words(frozen(words), valid, exact=False, view=False)


def value_words(column: Column) -> Words:
    """Words in the order of the column's values; where not exact, unequal values may share one."""
    array = flatten(column)
    kind = array.type
    if pa.types.is_decimal(kind):
        return _saturated_decimal(array)
    if _is_text(kind):
        return Words(frozen(prefixes(*text_buffers(array))), validity(array), exact=False, view=False)
    if pa.types.is_uint64(kind):  # with the sign bit flipped, the signed order is that of the unsigned values
        shifted = _fixed(array, np.int64) ^ np.int64(-(2**63))
        return Words(frozen(shifted), validity(array), exact=True, view=False)
    return _key_word(array)


def _key_word(array: Any) -> Words:
    kind, valid = array.type, validity(array)
    view = _VIEWS.get(kind.id)
    if view is not None and not (pa.types.is_timestamp(kind) and kind.unit != "us"):
        return Words(_fixed(array, view), valid, exact=True, view=True)
    if pa.types.is_timestamp(kind):  # microseconds are Spark's resolution, so finer times are cut
        return _key_word(array.cast(pa.timestamp("us", kind.tz), safe=False))
    if pa.types.is_floating(kind):
        return Words(_float_words(array), valid, exact=True, view=False, floats=True)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        to = pa.int64() if kind == pa.uint32() else pa.int32()
        return Words(frozen(_filled(array.cast(to))), valid, exact=True, view=False)
    if pa.types.is_decimal(kind):
        return _decimal(array, valid)
    if _is_text(kind):
        return Words(frozen(hash_texts(*text_buffers(array))), valid, exact=False, view=False)
    if pa.types.is_null(kind):
        return Words(frozen(np.zeros(len(array), np.int64)), valid, exact=True, view=False)
    raise StateError(f"a column of type {kind} cannot be a key", hint="join on a field of it instead")


_VIEWS: dict[int, type[np.signedinteger[Any]]] = {
    **dict.fromkeys((pa.int32().id, pa.date32().id, pa.time32("s").id), np.int32),
    **dict.fromkeys((pa.int64().id, pa.uint64().id, pa.timestamp("us").id, pa.duration("us").id), np.int64),
    **dict.fromkeys((pa.date64().id, pa.time64("us").id), np.int64),
}


def family(kind: Any) -> str:
    """The family of a type, within which words are comparable: integers of all widths, or decimals of one scale."""
    if pa.types.is_dictionary(kind):
        return family(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"decimal of scale {kind.scale}{'' if kind.precision <= 18 else ', long'}"
    names = {"integer": pa.types.is_integer, "float": pa.types.is_floating, "text": _is_text}
    names |= {"timestamp": pa.types.is_timestamp, "duration": pa.types.is_duration}
    return next((name for name, check in names.items() if check(kind)), str(kind))


def validity(array: Any) -> Mask | None:
    """Which rows are not NULL; None where all are."""
    if array.null_count == 0:
        return None
    return cast(Mask, frozen(pc.is_valid(array).to_numpy(zero_copy_only=False)))


_PLAIN = {pa.int64().id, pa.timestamp("us").id, pa.float64().id, pa.uint64().id, pa.duration("us").id}


def is_plain(array: Any) -> bool:
    """Whether a column is nothing but 64-bit values, none of them NULL."""
    return isinstance(array, pa.Array) and array.type.id in _PLAIN and array.null_count == 0


def plain_words(array: Any) -> Array:
    """The bits of a plain column, without a copy."""
    return _fixed(array, np.int64)


def from_words(words: Array, kind: Any) -> Any:
    """The plain column of a type that has these bits, without a copy."""
    return pa.Array.from_buffers(kind, words.size, [None, pa.py_buffer(words)], 0)


def _fixed(array: Any, dtype: type[np.generic], per_row: int = 1) -> Array:
    """The values of a fixed-width column, without a copy; those of NULLs are arbitrary."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return frozen(np.empty(0, dtype))
    width = np.dtype(dtype).itemsize * per_row
    values = np.frombuffer(data, dtype, len(array) * per_row, array.offset * width)
    return frozen(values)


def _filled(array: Any) -> Array:
    plain = pc.fill_null(array, pa.scalar(0, array.type)) if array.null_count else array
    return cast(Array, plain.to_numpy(zero_copy_only=False))


def _float_words(array: Any) -> Array:
    """Floats as integers in the same order: negative ones have their lower bits inverted; NaN and zero are unique."""
    return frozen(disguise(_fixed(array.cast(pa.float64()), np.float64)))


def _decimal(array: Any, valid: Mask | None) -> Words:
    exact = array.type.precision <= 18
    halves = decimal_halves(array)
    words = halves[:, 0].copy() if exact else fold(halves[:, 0].copy(), halves[:, 1].copy())
    return Words(frozen(words), valid, exact=exact, view=False)


def decimal_halves(array: Any) -> Longs:
    """The low and the high 64 bits of decimals."""
    kind = pa.decimal128(min(38, array.type.precision), array.type.scale)
    wide = array if array.type == kind else array.cast(kind)
    return _fixed(wide, np.int64, per_row=2).reshape(-1, 2)


def _saturated_decimal(array: Any) -> Words:
    """The words of decimals; a decimal beyond 64 bits takes the least or the greatest word, which keeps the order."""
    halves = decimal_halves(array)
    low, high = halves[:, 0], halves[:, 1]
    fits = high == low >> 63
    words = np.where(fits, low, np.where(high < 0, np.int64(-(2**63)), np.int64(2**63 - 1)))
    return Words(frozen(words), validity(array), exact=array.type.precision <= 18, view=False)


def _is_text(kind: Any) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    views = (pa.types.is_string_view, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in (*checks, *views))


def text_buffers(array: Any) -> tuple[Array, Bytes]:
    """Where each text starts in the bytes of all, with the end of the last one more, and these bytes."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.large_binary())
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.int64 if large else np.int32
    _, starts, data = array.buffers()
    if starts is None or not len(array):
        return frozen(np.zeros(1, dtype)), frozen(np.empty(0, np.uint8))
    offsets = np.frombuffer(starts, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return frozen(offsets), frozen(content)


_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_29 = np.uint64(29)
_8 = np.uint64(8)
_LOWER = np.int64(2**63 - 1)


@compiled
def disguise(values: Floats) -> Longs:
    """The words of floats, as `_float_words` describes them; `directory._reveal` turns a word into its float again."""
    plain = np.empty(values.size, np.float64)
    bits = plain.view(np.int64)
    for i in range(values.size):
        plain[i] = np.nan if np.isnan(values[i]) else values[i] + 0.0  # -0.0 + 0.0 is 0.0
        bits[i] ^= (bits[i] >> 63) & _LOWER
    return bits


@compiled
def fold(words: Longs, more: Array) -> Longs:
    """The words of a composite key, from those of its first columns and of the next one."""
    out = np.empty(words.size, np.int64)
    for i in range(words.size):
        out[i] = np.int64(mix(np.uint64(words[i]) * _FACTOR + np.uint64(np.int64(more[i])) + _29))
    return out


@compiled
def hash_texts(offsets: Array, data: Bytes) -> Longs:
    """A hash per text, 8 bytes at a time."""
    out = np.empty(offsets.size - 1, np.int64)
    for i in range(out.size):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        state = np.uint64(end - at) * _FACTOR
        while at + 8 <= end:
            state = (state ^ load64(data, at)) * _FACTOR
            state ^= state >> _29
            at += 8
        rest = np.uint64(0)
        while at < end:
            rest = (rest << _8) | np.uint64(data[at])
            at += 1
        out[i] = np.int64((state ^ rest) * _FACTOR)
    return out


@compiled
def prefixes(offsets: Array, data: Bytes) -> Longs:
    """The first 8 bytes of every text as a number, so that order is kept as far as they reach."""
    out = np.empty(offsets.size - 1, np.int64)
    for i in range(out.size):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        word = np.uint64(0)
        for j in range(8):
            word <<= _8
            if at + j < end:
                word |= np.uint64(data[at + j])
        out[i] = np.int64(word ^ np.uint64(1 << 63))
    return out
