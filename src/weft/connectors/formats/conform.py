"""Converts columns that already have a type to the declared one.

Guarantees: only what keeps every value is accepted: the same type however Arrow stores it (dictionaries, views,
other units of time), or a narrower number; anything else is a `SourceError` naming file, column and both types. A
time without a zone is in UTC; parts of a microsecond are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.connectors.formats.columns import ConvertedColumn, Mask, as_text, match_columns
from weft.connectors.formats.records import SourceFile, Target
from weft.errors import SourceError
from weft.kernels.expr.arrow import TIMESTAMP, arrow_type
from weft.logical.schema import DataType, parse_type

__all__ = [
    "check_types",
    "conform",
    "weft_type",
]


def check_types(schema: pa.Schema, target: Target, file: SourceFile) -> list[int]:
    """Where each declared column is in the file; a `SourceError` if its type there cannot be converted."""
    places = match_columns(schema.names, target, file)
    for field, place in zip(target.schema, places, strict=True):
        kind = _plain(schema.field(place).type)
        if not _fits(kind, field.type):
            shown = weft_type(kind) or kind
            raise SourceError(
                f"{file.source}: file {file.path}: column {field.name}: expected type {field.type}, found {shown}",
                hint="declare the stream anew if its schema changed, or rewrite the file",
            )
    return places


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


_SAME = {
    "string": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "binary": (
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
        pa.types.is_fixed_size_binary,
    ),
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date,),
    "timestamp": (pa.types.is_timestamp,),
}


def _fits(kind: pa.DataType, type_: DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if type_.is_integer:
        return pa.types.is_integer(kind) and _inside(kind, arrow_type(type_))
    if type_.name in ("float", "double"):
        return bool(pa.types.is_floating(kind) and kind.bit_width <= arrow_type(type_).bit_width)
    if type_.is_nested:
        return weft_type(kind) == type_
    if type_.name == "decimal":
        digits = type_.precision - type_.scale
        if pa.types.is_uint64(kind):
            return digits >= _UNSIGNED_DIGITS
        return bool(
            pa.types.is_decimal(kind) and kind.scale <= type_.scale and kind.precision - kind.scale <= digits
        )
    return any(test(kind) for test in _SAME.get(type_.name, ()))


_UNSIGNED_DIGITS = 20  # of the largest number of 64 bits without a sign


def _inside(kind: pa.DataType, other: pa.DataType) -> bool:
    one, two = np.iinfo(kind.to_pandas_dtype()), np.iinfo(other.to_pandas_dtype())
    return bool(two.min <= one.min and one.max <= two.max)


def conform(values: Any, type_: DataType) -> ConvertedColumn:
    """A column that `check_types` accepted as one of the declared type."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(_nonempty(chunks, values.type))
    if pa.types.is_dictionary(array.type):
        array = pc.cast(array, array.type.value_type)
    if pa.types.is_null(array.type):
        return ConvertedColumn(pa.nulls(len(array), arrow_type(type_)))
    if type_.name == "timestamp":
        return _timestamps(array)
    if type_.name == "string":
        return _strings(array)
    kind = arrow_type(type_)
    return ConvertedColumn(
        array if array.type == kind else pc.cast(array, kind, safe=pa.types.is_decimal(kind))
    )


def _nonempty(chunks: Sequence[Any], kind: pa.DataType) -> Sequence[Any]:
    return chunks or [pa.array([], kind)]


def _strings(array: Any) -> ConvertedColumn:
    text = array if pa.types.is_string(array.type) else pc.cast(array, pa.string())
    try:
        text.validate(full=True)
        return ConvertedColumn(text)
    except pa.ArrowInvalid:
        return as_text(pc.cast(text, pa.binary()))


_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}


def _timestamps(array: Any) -> ConvertedColumn:
    factor = _MICROSECONDS.get(array.type.unit)
    if factor is None:
        return ConvertedColumn(_microseconds(array))
    limit = np.iinfo(np.int64).max // factor
    counts = array.view(pa.int64())
    inside = pc.and_(pc.greater_equal(counts, -limit), pc.less_equal(counts, limit))
    if pc.all(inside, min_count=0).as_py():
        return ConvertedColumn(_microseconds(array))
    bad: Mask = pc.fill_null(pc.invert(inside), False).to_numpy(False)
    return ConvertedColumn(_microseconds(pc.if_else(inside, array, pa.scalar(None, array.type))), bad, counts)


def _microseconds(array: Any) -> Any:
    kind = pa.timestamp("us", array.type.tz)
    return (array if array.type == kind else pc.cast(array, kind, safe=False)).view(TIMESTAMP)


_NAMES = {
    **dict(
        zip((pa.int8(), pa.int16(), pa.int32(), pa.int64()), ("byte", "short", "int", "long"), strict=True)
    ),
    **dict(zip((pa.uint8(), pa.uint16(), pa.uint32()), ("short", "int", "long"), strict=True)),
    **dict(zip((pa.float16(), pa.float32(), pa.float64()), ("float", "float", "double"), strict=True)),
}


def weft_type(kind: pa.DataType) -> DataType | None:
    """The type that holds all values of an Arrow type; None where there is none."""
    kind = _plain(kind)
    if pa.types.is_uint64(kind):
        return DataType("decimal", 20, 0)
    if pa.types.is_nested(kind):
        return _nested(kind)
    if kind in _NAMES:
        return DataType(_NAMES[kind])
    if pa.types.is_decimal(kind):
        fits = kind.precision <= 38 and 0 <= kind.scale <= kind.precision
        return DataType("decimal", kind.precision, kind.scale) if fits else None
    return next((DataType(name) for name, tests in _SAME.items() if any(test(kind) for test in tests)), None)


def _nested(kind: pa.DataType) -> DataType | None:
    """The type of lists, maps and structs whose parts have a type."""
    if pa.types.is_struct(kind):
        parts = [(kind.field(place).name, kind.field(place).type) for place in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        parts = [("", kind.key_type), ("", kind.item_type)]
    elif _is_list(kind):
        parts = [("", kind.value_type)]
    else:
        return None
    types = [weft_type(inner) for _, inner in parts]
    if None in types or not parts or not all(not name or name.isidentifier() for name, _ in parts):
        return None
    word = "struct" if pa.types.is_struct(kind) else "map" if pa.types.is_map(kind) else "array"
    named = (f"{name}:{type_}" if name else str(type_) for (name, _), type_ in zip(parts, types, strict=True))
    return parse_type(f"{word}<{','.join(named)}>")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
