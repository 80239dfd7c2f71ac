"""Rows become values of Avro, whole columns at once, written by compiled code.

Guarantees: a value has the fields of the schema in their order; times keep their microseconds and decimals their
digits. What a schema cannot hold is an `AvroError` when an encoder is made, and a NULL where the schema has none when
rows are encoded: nothing is written in another form than the schema says. The compiled code runs twice, first to
measure and then to write, and both go the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Bytes, Integer, compiled, frozen
from weft.connectors.kafka.avro.schema import AvroError, AvroField, AvroSchema, AvroType
from weft.errors import nearest

__all__ = [
    "Encoder",
    "encode_rows",
    "schema_of",
    "write_rows",
]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES: dict[str, Any] = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date32[day]": {"type": "int", "logicalType": "date"},
    "duration[us]": "long",
}
# How the writer writes a column: as a number of variable length, as one byte, as 4 or 8 bytes, or with its length.
_NUMBER, _BYTE, _FOUR, _EIGHT, _SIZED = range(5)
_WRITTEN = {"boolean": _BYTE, "int": _NUMBER, "long": _NUMBER, "float": _FOUR, "double": _EIGHT}
_UNITS = {"millis": 1_000, "micros": 1}


def schema_of(rows: pa.Schema, name: str) -> str:
    """A schema for rows: a record of that name, every field of which may be NULL.

    >>> schema_of(pa.schema([("id", pa.int64())]), "row")
    '{"type":"record","name":"row","fields":[{"name":"id","type":["null","long"],"default":null}]}'
    """
    fields = list[dict[str, Any]]()
    for column in rows:
        if not _NAME.fullmatch(column.name):
            raise AvroError(f"column {column.name!r} has no name that Avro permits: select it AS another one")
        fields.append({"name": column.name, "type": ["null", _type_of(column)], "default": None})
    record = {"type": "record", "name": re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII), "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def _type_of(column: pa.Field) -> Any:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if pa.types.is_decimal(kind):
        facts = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **facts}
    if str(kind) not in _TYPES:
        raise AvroError(f"column {column.name} is a {kind}, which Avro has no type for")
    return _TYPES[str(kind)]


@dataclass(frozen=True, slots=True)
class _Written:
    """How the values of a field are written: of which column, as what, and which branch of a union they are."""

    column: str
    type: AvroType
    branch: int  # -1: the field is no union
    null: int  # the branch of NULL; -1: there is none


@dataclass(frozen=True, slots=True)
class Encoder:
    """How rows are written by a schema; ``prefix`` stands before each value."""

    fields: tuple[_Written, ...]
    prefix: bytes = b""

    @classmethod
    def make(cls, schema: AvroSchema, rows: pa.Schema, prefix: bytes = b"") -> Encoder:
        """An encoder; an `AvroError` if a column is not in the schema, or a field has no column to fill it."""
        record = schema.resolve(schema.root)
        if record.kind != "record":
            raise AvroError(f"the schema is {record}, and not that of a record")
        names = [field.name for field in record.fields]
        for column in rows.names:
            if column not in names:
                raise AvroError(f"the schema has no field for column {column}: {nearest(column, names)}")
        return cls(tuple(_written(schema, field, rows) for field in record.fields), prefix)


def _written(schema: AvroSchema, field: AvroField, rows: pa.Schema) -> _Written:
    branches, union = schema.branches(field.type), schema.resolve(field.type).kind == "union"
    null = next((at for at, branch in enumerate(branches) if branch.kind == "null"), -1)
    if field.name not in rows.names:
        if null < 0:
            raise AvroError(
                f"field {field.name} of the schema is no column of the results, and cannot be NULL"
            )
        return _Written("", branches[null], null if union else -1, null)
    kind = rows.field(field.name).type
    place = next((at for at, branch in enumerate(branches) if _holds(branch, kind)), None)
    if place is None:
        raise AvroError(
            f"field {field.name} of the schema is {schema.resolve(field.type)}, and the column {kind}"
        )
    return _Written(field.name, branches[place], place if union else -1, null)


def _holds(type_: AvroType, kind: pa.DataType) -> bool:
    """Whether a type of Avro's holds every value of a type of Arrow's."""
    if pa.types.is_timestamp(kind):
        return "timestamp-" in type_.logical and type_.logical.rpartition("-")[2] in _UNITS
    if pa.types.is_decimal(kind):
        whole = type_.precision - type_.scale >= kind.precision - kind.scale
        return type_.kind == "bytes" and type_.logical == "decimal" and type_.scale >= kind.scale and whole
    if pa.types.is_date(kind):
        return type_.logical == "date"
    if type_.logical not in ("", "uuid"):
        return False
    wider = {"int": ("int", "long", "double"), "float": ("float", "double")}
    avro_type = _TYPES.get(str(kind))
    return isinstance(avro_type, str) and type_.kind in wider.get(avro_type, (avro_type,))


def encode_rows(encoder: Encoder, rows: pa.RecordBatch) -> Any:
    """A value for each row, as an Arrow array of binary values."""
    count = rows.num_rows
    numbers = np.zeros((len(encoder.fields), count), np.int64)
    valid = np.zeros((len(encoder.fields), count), np.bool_)
    forms, texts = np.zeros((len(encoder.fields), 3), np.int64), list[tuple[Array, Array]]()
    for place, field in enumerate(encoder.fields):
        forms[place] = _WRITTEN.get(field.type.kind, _SIZED), field.branch, field.null
        if field.column:
            values, text = _numbers(rows.column(field.column), field.type)
            valid[place] = rows.column(field.column).is_valid().to_numpy(False)
            if field.null < 0 and not valid[place].all():
                raise AvroError(f"column {field.column} has a NULL, which its schema does not permit")
            numbers[place] = values
            texts.append(text)
        else:
            texts.append((np.zeros(count + 1, np.int64), np.zeros(0, np.uint8)))
    return _written_values(encoder.prefix, forms, numbers, valid, texts)


def _written_values(
    prefix: bytes, forms: Array, numbers: Array, valid: Array, texts: Sequence[tuple[Array, Array]]
) -> Any:
    """Let the writer write, after the texts of all columns have been put into one piece of data."""
    bases = np.cumsum([0, *(len(data) for _, data in texts)])
    places = np.array([offsets + base for (offsets, _), base in zip(texts, bases[:-1].tolist(), strict=True)])
    data = np.concatenate([data for _, data in texts]) if texts else np.zeros(0, np.uint8)
    before = frozen(np.frombuffer(prefix, np.uint8))
    count = numbers.shape[1]
    offsets = np.zeros(count + 1, np.int64)
    cells = tuple(map(frozen, (numbers, valid, places.reshape(len(texts), count + 1), data)))
    write_rows(before, frozen(forms), cells, offsets, np.zeros(0, np.uint8), False)
    if offsets[-1] >= 1 << 31:
        raise AvroError("the values of one piece of a batch are more than 2 GiB")
    written = np.empty(int(offsets[-1]), np.uint8)
    write_rows(before, frozen(forms), cells, offsets, written, True)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(written)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, 0)


def _numbers(values: Any, type_: AvroType) -> tuple[Array, tuple[Array, Array]]:
    """The numbers of a column, or where its texts stand and what they are."""
    count, kind = len(values), values.type
    none = (np.zeros(count + 1, np.int64), np.zeros(0, np.uint8))
    if pa.types.is_decimal(kind):
        return np.zeros(count, np.int64), _decimal_bytes(values, type_)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.zeros(count, np.int64), _pieces(values)
    if type_.kind in ("float", "double"):
        wide = pc.fill_null(pc.cast(values, pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        if type_.kind == "double":
            return wide.view(np.int64), none
        return wide.astype(np.float32).view(np.int32).astype(np.int64), none
    if pa.types.is_date(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        values = values.view(pa.int64())
    whole = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy(zero_copy_only=False)
    unit = _UNITS[type_.logical.rpartition("-")[2]] if "timestamp-" in type_.logical else 1
    return (whole if unit == 1 else whole // unit), none


def _pieces(values: Any) -> tuple[Array, Array]:
    """Where the texts or bytes of a column stand, and all of them."""
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(
        np.int64
    )
    return places, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _decimal_bytes(values: Any, type_: AvroType) -> tuple[Array, Array]:
    """Decimals as 16 bytes each, the highest first, at the scale of the schema."""
    scaled = pc.cast(values, pa.decimal128(38, type_.scale))
    words = np.frombuffer(scaled.buffers()[1], np.uint8)[
        scaled.offset * 16 : (scaled.offset + len(scaled)) * 16
    ]
    flipped = words.reshape(-1, 16)[:, ::-1].reshape(-1)
    return np.arange(len(values) + 1, dtype=np.int64) * 16, np.ascontiguousarray(flipped)


_ONE, _SEVEN, _LOW, _MORE = np.uint64(1), np.uint64(7), np.uint64(127), np.uint64(128)


@compiled
def _write_number(written: Bytes, at: Integer, number: Integer, really: bool) -> int:
    """Write a number of variable length; gives the place behind it."""
    value = np.int64(number)
    bits = (np.uint64(value) << _ONE) ^ np.uint64(value >> 63)
    while bits >= _MORE:
        if really:
            written[at] = np.uint8((bits & _LOW) | _MORE)
        at += 1
        bits >>= _SEVEN
    if really:
        written[at] = np.uint8(bits)
    return at + 1


@compiled
def write_rows(prefix: Bytes, forms: Array, cells: Any, offsets: Array, written: Bytes, really: bool) -> None:
    """Write rows, or only find out where each begins, into ``offsets``.

    ``forms`` has for each field how it is written, the branch of its values (-1: no union), and that of NULL; ``cells``
    are the numbers of all fields, which of them are there, where texts stand in the data, and the data.
    """
    numbers, valid, places, data = cells
    at = 0
    for row in range(len(offsets) - 1):
        offsets[row] = at
        for place in range(len(prefix)):
            if really:
                written[at + place] = prefix[place]
        at += len(prefix)
        for field in range(len(forms)):
            form, branch, null = forms[field, 0], forms[field, 1], forms[field, 2]
            if not valid[field, row]:
                if branch >= 0 or null > 0:
                    at = _write_number(written, at, null, really)
                continue
            if branch >= 0:
                at = _write_number(written, at, branch, really)
            if form == _NUMBER:
                at = _write_number(written, at, numbers[field, row], really)
                continue
            size = 1 if form == _BYTE else 4 if form == _FOUR else 8
            if form == _SIZED:
                begin = places[field, row]
                size = places[field, row + 1] - begin
                at = _write_number(written, at, size, really)
                if really:
                    for place in range(size):
                        written[at + place] = data[begin + place]
            elif really:
                bits = np.uint64(numbers[field, row])
                for place in range(size):
                    written[at + place] = np.uint8((bits >> np.uint64(8 * place)) & np.uint64(255))
            at += size
    offsets[len(offsets) - 1] = at
