"""Functions of JSON texts, by compiled loops.

Guarantees: as Spark's; a text that is no JSON gives NULL. Values are written without white space, numbers with a
fraction as Java prints doubles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Bytes, Longs, Mask
from weft.bucket.memory import fresh, zeros
from weft.bucket.words import text_buffers
from weft.kernels.expr.casts import render
from weft.kernels.expr.datum import ColumnFunction, constant_of, null_unless, valid_rows, with_nulls
from weft.kernels.expr.loops import json_texts, json_walk
from weft.kernels.expr.texts import built, from_pieces
from weft.logical.expr.builtin.json import path_steps

__all__ = ["FUNCTIONS"]

_NONE: Bytes = np.empty(0, np.uint8)
_NO_PLACES: Longs = np.empty(0, np.int64)


def _value_at(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The value that a path leads to, as a text."""
    text, path = args[0], constant_of(args[1])
    steps = None if path is None else path_steps(path)
    if steps is None:
        return pa.nulls(len(text), kind)
    names = [step.encode() for step in steps if isinstance(step, str)]
    codes, seen = zeros(len(steps), np.int64), 0
    for place, step in enumerate(steps):
        codes[place] = step if isinstance(step, int) else -1 - seen
        seen += isinstance(step, str)
    name_starts = np.cumsum([0, *map(len, names)]).astype(np.int64)
    name_bytes = np.frombuffer(b"".join(names) or b" ", np.uint8)
    starts, content = text_buffers(text)
    low, high = fresh(len(text), np.int64), fresh(len(text), np.int64)
    json_walk.find_values(starts, content, codes, name_starts, name_bytes, low, high)
    there = _there(low, args[:1])
    values, broken = _written(text, low, high, there)
    return null_unless(pa.array(there & ~broken), values)


def _there(low: Longs, args: Sequence[Any]) -> Mask:
    valid = valid_rows(args)
    there: Mask = low >= 0
    return there if valid is None else there & valid


def _written(text: Any, low: Longs, high: Longs, there: Mask) -> tuple[Any, Mask]:
    """The values between these places, empty where there is none, and which are strings with half of a pair."""
    _, content = text_buffers(text)
    low, high = np.where(there, low, -1), np.where(there, high, -1)
    ends, broken = zeros(low.size + 1, np.int64), zeros(low.size, np.bool_)
    none = (_NO_PLACES, _NONE, broken, ends, _NONE)
    count = json_texts.copy_values(content, low, high, _NO_PLACES, *none)
    places = zeros(2 * count, np.int64)
    printed: tuple[Any, Bytes] = (_NO_PLACES, _NONE)
    if count:
        json_texts.copy_values(content, low, high, places, *none)
        digits = from_pieces(text, places[::2].copy(), places[1::2].copy())
        plain = render(pc.cast(digits, pa.float64()))
        starts, letters = text_buffers(pc.replace_substring_regex(plain, "^-?Infinity$", '"\\0"'))
        printed = (starts.astype(np.int64), letters)
        json_texts.copy_values(content, low, high, _NO_PLACES, *printed, broken, ends, _NONE)
    out = fresh(int(ends[-1]), np.uint8)
    if out.size:
        json_texts.copy_values(content, low, high, _NO_PLACES, *printed, broken, ends, out)
    return built(ends, out), broken


def _length(args: Sequence[Any], kind: pa.DataType) -> Any:
    out = fresh(len(args[0]), np.int64)
    json_walk.count_elements(*text_buffers(args[0]), out)
    return with_nulls(out, _there(out, args), kind)


def _keys(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The keys of an object; each is written as a string would be."""
    text = args[0]
    starts, content = text_buffers(text)
    sizes = fresh(len(text), np.int64)
    json_walk.find_keys(starts, content, sizes, _NO_PLACES, _NO_PLACES)
    there = _there(sizes, args)
    count = int(np.maximum(sizes, 0).sum())
    low, high = zeros(count, np.int64), zeros(count, np.int64)
    if count:
        json_walk.find_keys(starts, content, sizes, low, high)
    keys, _ = _written(text, low - 1, high + 1, np.ones(count, np.bool_))
    offsets = np.concatenate(([0], np.cumsum(np.where(there, sizes, 0)))).astype(np.int32)
    if not there.all():
        keys = keys.filter(pa.array(np.repeat(there, np.maximum(sizes, 0))))
    return pa.ListArray.from_arrays(pa.array(offsets), keys, type=kind, mask=pa.array(~there))


FUNCTIONS: Mapping[str, ColumnFunction] = {
    "get_json_object": _value_at,
    "json_array_length": _length,
    "json_object_keys": _keys,
}
