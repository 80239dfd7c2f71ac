"""Lists, maps and structs, made and taken apart as whole columns.

Guarantees: what is not there, a place beyond the end of a list or a key that a map does not have, is NULL. No value is
looked at alone: places are computed, and values taken from the flat column that lies inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Longs, Mask
from weft.kernels.expr.datum import ColumnFunction, columns_of, constant_of, numbers

__all__ = ["FUNCTIONS"]


def _array(args: Sequence[Any], kind: pa.DataType) -> Any:
    columns = columns_of(args)
    rows, width = len(columns[0]), len(columns)
    flat = pa.concat_arrays([column.cast(kind.value_type) for column in columns])
    order = (np.arange(rows)[:, None] + np.arange(width)[None, :] * rows).ravel()
    offsets = np.arange(0, rows * width + 1, width, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat.take(pa.array(order)), type=kind)


def _named_struct(args: Sequence[Any], kind: pa.DataType) -> Any:
    columns = columns_of(args)[1::2]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _field(args: Sequence[Any], kind: pa.DataType) -> Any:  # noqa: ARG001
    (structs, *_) = columns_of(args)
    return pc.struct_field(structs, constant_of(args[1]))


def _item(args: Sequence[Any], kind: pa.DataType) -> Any:  # noqa: ARG001
    many, wanted = columns_of(args)
    starts = many.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    there = pc.and_(many.is_valid(), wanted.is_valid()).to_numpy(zero_copy_only=False)
    if pa.types.is_map(many.type):
        return _by_key(many, wanted, starts, there)
    places, sizes = numbers(wanted).astype(np.int64), np.diff(starts)
    there = there & (places >= 0) & (places < sizes)
    return _picked(many.values, starts[:-1] + places, there)


def _by_key(maps: Any, keys: Any, starts: Longs, there: Mask) -> Any:
    """The value of each map under a key; the keys of a map are different."""
    sizes = np.where(there, np.diff(starts), 0)
    rows = np.repeat(np.arange(sizes.size), sizes)
    entries = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + starts[:-1][rows]
    same = pc.equal(maps.keys.take(pa.array(entries)), keys.take(pa.array(rows)))
    found = np.flatnonzero(pc.fill_null(same, False).to_numpy(zero_copy_only=False))
    places, known = np.zeros(sizes.size, np.int64), np.zeros(sizes.size, np.bool_)
    places[rows[found]], known[rows[found]] = entries[found], True
    return _picked(maps.items, places, known)


def _picked(values: Any, places: Longs, there: Mask) -> Any:
    """The values at some places; NULL where there is none."""
    return values.take(pa.array(np.where(there, places, 0), mask=~there))


FUNCTIONS: Mapping[str, ColumnFunction] = {
    "array": _array,
    "named_struct": _named_struct,
    ".": _field,
    "[]": _item,
}
