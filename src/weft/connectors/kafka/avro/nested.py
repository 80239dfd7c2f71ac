"""Single values of Avro in Python: what is nested, as JSON, and the defaults of fields.

Guarantees: bytes are base64, times ISO 8601 in UTC, decimals numbers with all their digits, unions the value alone;
NULL is None, not a text. It is for what no column can hold; everything else is decoded by `machine`.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any, TypeVar

import pyarrow as pa

from weft.connectors.kafka.avro.schema import AvroError, AvroField, AvroSchema, AvroType
from weft.logical.schema import DataType

__all__ = [
    "default_value",
    "json_text",
]

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_EMPTY = 10_000  # items without bytes in one array
_UNITS = {"millis": 1_000, "micros": 1}


def json_text(schema: AvroSchema, type_: AvroType, data: bytes) -> str | None:
    """The JSON of an encoded value, which `machine` has passed over before; None if it is NULL.

    An `AvroError` if it is none after all: `machine` looks at neither texts nor the symbols of enums.
    """
    try:
        value = _ValueReader(schema, data).read(type_)
    except (IndexError, UnicodeDecodeError):
        raise AvroError("it is not of its schema") from None
    return None if value is None else _dumped(value)


def _dumped(value: Any) -> str:
    """JSON of Python's values, with all digits of decimals."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_dumped(name)}:{_dumped(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{json.dumps(value)}"'
    return json.dumps(value, ensure_ascii=False)


@dataclass
class _ValueReader:
    """Reads values from bytes that hold them."""

    schema: AvroSchema
    data: bytes
    at: int = 0

    def read(self, type_: AvroType) -> Any:
        """The next value, as JSON has it."""
        type_ = self.schema.resolve(type_)
        match type_.kind:
            case "null":
                return None
            case "boolean":
                return self._bytes(1) == b"\1"
            case "int" | "long":
                return _time(self._long(), type_.logical)
            case "float":
                return struct.unpack("<f", self._bytes(4))[0]
            case "double":
                return struct.unpack("<d", self._bytes(8))[0]
            case "string":
                return self._text()
            case "bytes" | "fixed":
                return _bytes_value(self._bytes(type_.size if type_.kind == "fixed" else self._long()), type_)
            case "enum":
                return _at(type_.symbols, self._long())
            case "union":
                return self.read(_at(type_.parts, self._long()))
            case "record":
                return {field.name: self.read(field.type) for field in type_.fields}
            case "array":
                return [self.read(type_.parts[0]) for _ in self._items()]
        return {self._text(): self.read(type_.parts[0]) for _ in self._items()}

    def _text(self) -> str:
        return self._bytes(self._long()).decode()

    def _items(self) -> Any:
        """As many steps as there are items in the blocks of an array or a map."""
        count = self._long()
        while count:
            if count < 0:
                count = -count
                self._long()
            if count > max(len(self.data), _MOST_EMPTY):
                raise AvroError("an array has too many items")
            yield from range(count)
            count = self._long()

    def _bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def _long(self) -> int:
        bits = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            bits |= (byte & 127) << shift
            if byte < 128:
                return (bits >> 1) ^ -(bits & 1)
            shift += 7


def _at(things: Sequence[T], place: int) -> T:
    if place < 0:
        raise IndexError
    return things[place]


def _time(number: int, logical: str) -> Any:
    """A number, or the text of the time that it stands for."""
    try:
        if logical == "date":
            return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
        if "timestamp-" in logical and (unit := _UNITS.get(logical.rpartition("-")[2])):
            return (_EPOCH + timedelta(microseconds=number * unit)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        pass
    return number


def _bytes_value(data: bytes, type_: AvroType) -> Any:
    if type_.logical != "decimal":
        return b64encode(data).decode()
    return _decimal(data, type_.scale)


def _decimal(data: bytes, scale: int) -> Decimal:
    with localcontext() as context:
        context.prec = 400
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale)


def default_value(schema: AvroSchema, field: AvroField, wanted: DataType) -> Any:
    """The default of a field as a scalar that is as wide as a decoded column; None: it has none, or it is NULL."""
    if not field.default or field.default[0] is None:
        return None
    type_, default = schema.branches(field.type)[0], field.default[0]
    try:
        return _scalar(type_, default, wanted)
    except (TypeError, ValueError, AttributeError, pa.ArrowException):
        raise AvroError(f"the default of field {field.name} cannot be a {wanted}") from None


def _scalar(type_: AvroType, value: Any, wanted: DataType) -> Any:
    match wanted.name:
        case "string" if type_.kind in ("record", "array", "map"):
            return pa.scalar(_dumped(value), pa.string())
        case "string":
            return pa.scalar(value.encode(), pa.binary())
        case "binary":
            return pa.scalar(value.encode("latin-1"), pa.binary())
        case "decimal":
            number = _decimal(value.encode("latin-1"), type_.scale)
            return pa.scalar(number, pa.decimal128(38, type_.scale))
        case "float" | "double":
            return pa.scalar(float(value), pa.float64())
        case "timestamp":
            return pa.scalar(int(value) * _UNITS[type_.logical.rpartition("-")[2]], pa.int64())
    return pa.scalar(int(value), pa.int64())
