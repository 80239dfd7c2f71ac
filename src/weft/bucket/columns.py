"""Arrow columns as the kernels take them: some of their rows, their values as numbers, rows of several batches.

Guarantees: for columns of 64-bit values without NULLs there are short cuts that neither check nor copy needlessly; all
other columns go through Arrow's own functions.

`collect_rows` gives rows of several batches as one batch; every column is copied once, straight from where it is. A
*place* says which row: the number of a batch in the upper 32 bits, a row of it in the lower. Columns of fixed width and
texts, with NULLs or without, are copied by compiled loops that release the interpreter lock; other columns (nested
ones, booleans, views) go through Arrow, which joins them first. The rows of sorted runs that are merged come from each
run front to back, so these loops read a few streams and write one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import (
    Array,
    Bytes,
    Ints,
    Longs,
    compiled,
    copy_bytes,
    frozen,
    load_i8,
    load_i32,
    load_i64,
)
from weft.bucket.memory import fresh, take
from weft.bucket.words import from_words, is_plain, key_words, plain_words, validity

__all__ = ["collect_rows", "collect_values", "longs", "taken"]

_ROW = np.int64(0xFFFFFFFF)
_32 = np.int64(32)
_LONGEST = 2**31 - 1  # bytes of texts that offsets of 32 bits reach


def taken(values: Any, rows: Ints) -> Any:
    """The values at those rows."""
    if is_plain(values):
        return from_words(take(plain_words(values), rows), values.type)
    return pc.take(values, pa.array(rows), boundscheck=False)


def longs(array: Any) -> Longs:
    """A column of times or whole numbers, none of them NULL, without a copy."""
    values: Longs = key_words([array]).values
    return values


def collect_rows(batches: Sequence[pa.RecordBatch], places: Longs) -> pa.RecordBatch:
    """The rows at those places of batches with the same columns."""
    columns = [
        _collect_column(list(parts), places) for parts in zip(*(b.columns for b in batches), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _collect_column(parts: Sequence[Any], places: Longs) -> Any:
    """The values at those places of columns of one type."""
    kind = parts[0].type
    if _is_text(kind) and sum(map(_text_bytes, parts)) < _LONGEST:
        return _collect_texts(parts, places)
    width = _width(kind)
    if width is None:
        return _by_arrow(parts, places)
    data = [_values(part, width) for part in parts]
    out = collect_values(data, places)
    return pa.Array.from_buffers(kind, places.size, [_collect_validity(parts, places), pa.py_buffer(out)])


def collect_values(parts: Sequence[Array], places: Longs) -> Array:
    """The values at those places of arrays of one type, of 4 or 8 bytes a value."""
    out = fresh(places.size, parts[0].dtype)
    kernel = _collect64 if parts[0].dtype.itemsize == 8 else _collect32
    kernel(_addresses(parts), frozen(places), out.view(np.int64 if kernel is _collect64 else np.int32))
    return out


def _addresses(parts: Sequence[Array]) -> Longs:
    """Where the arrays begin in memory; they must be kept alive as long as these are used."""
    return frozen(np.array([part.ctypes.data for part in parts], np.int64))


def _width(kind: Any) -> int | None:
    """The bytes of a value that loops copy; None for types that are left to Arrow."""
    try:
        bits = kind.bit_width
    except ValueError:
        return None
    simple = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    return bits // 8 if simple and bits in (32, 64) else None


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _values(array: Any, width: int) -> Array:
    dtype = np.int64 if width == 8 else np.int32
    data = array.buffers()[1]
    if data is None or not len(array):
        return frozen(np.empty(0, dtype))
    return frozen(np.frombuffer(data, dtype, len(array), array.offset * width))


def _offsets(array: Any) -> Array:
    data = array.buffers()[1]
    if data is None or not data.size or not len(array):
        return frozen(np.zeros(1, np.int32))
    return frozen(np.frombuffer(data, np.int32, len(array) + 1, array.offset * 4))


def _text_bytes(array: Any) -> int:
    offsets = _offsets(array)
    return int(offsets[-1]) - int(offsets[0])


def _collect_texts(parts: Sequence[Any], places: Longs) -> Any:
    starts = [_offsets(part) for part in parts]
    contents = [_content(part) for part in parts]
    offsets = fresh(places.size + 1, np.int32)
    where = _addresses(starts)
    size = int(_measure(where, frozen(places), offsets))
    content = fresh(size, np.uint8)
    _copy_texts(where, _addresses(contents), frozen(places), offsets, content)
    buffers = [_collect_validity(parts, places), pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(parts[0].type, places.size, buffers)


def _content(array: Any) -> Bytes:
    data = array.buffers()[2]
    return frozen(np.empty(0, np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8))


def _collect_validity(parts: Sequence[Any], places: Longs) -> Any:
    """The bitmap of the values that are not NULL; None if there is no NULL."""
    valid = [validity(part) for part in parts]
    if all(mask is None for mask in valid):
        return None
    masks = [
        frozen((np.ones(len(part), np.bool_) if mask is None else mask).view(np.int8))
        for part, mask in zip(parts, valid, strict=True)
    ]
    out = fresh(places.size, np.int8)
    _collect8(_addresses(masks), frozen(places), out)
    return pa.py_buffer(np.packbits(out.view(np.bool_), bitorder="little"))


def _by_arrow(parts: Sequence[Any], places: Longs) -> Any:
    firsts = np.cumsum([0, *(len(part) for part in parts)][:-1])
    rows = firsts[places >> _32] + (places & _ROW)
    return pc.take(pa.concat_arrays(list(parts)), pa.array(rows), boundscheck=False)


@compiled
def _collect64(addresses: Longs, places: Longs, out: Longs) -> None:
    for i in range(places.size):
        out[i] = load_i64(addresses[np.uint64(places[i] >> _32)], places[i] & _ROW)


@compiled
def _collect32(addresses: Longs, places: Longs, out: Array) -> None:
    for i in range(places.size):
        out[i] = load_i32(addresses[np.uint64(places[i] >> _32)], places[i] & _ROW)


@compiled
def _collect8(addresses: Longs, places: Longs, out: Array) -> None:
    for i in range(places.size):
        out[i] = load_i8(addresses[np.uint64(places[i] >> _32)], places[i] & _ROW)


@compiled
def _measure(starts: Longs, places: Longs, offsets: Array) -> Any:
    """Write where each text will begin, and return the bytes of all."""
    size: Any = np.int64(0)
    for i in range(places.size):
        offsets[i] = size
        address, row = starts[np.uint64(places[i] >> _32)], places[i] & _ROW
        size += np.int64(load_i32(address, row + 1) - load_i32(address, row))
    offsets[places.size] = size
    return size


@compiled
def _copy_texts(starts: Longs, contents: Longs, places: Longs, offsets: Array, out: Bytes) -> None:
    for i in range(places.size):
        number = np.uint64(places[i] >> _32)
        begin = np.int64(load_i32(starts[number], places[i] & _ROW))
        copy_bytes(out, np.int64(offsets[i]), contents[number] + begin, np.int64(offsets[i + 1] - offsets[i]))
