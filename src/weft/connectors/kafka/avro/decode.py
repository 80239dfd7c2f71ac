"""Values of Avro become whole columns.

Guarantees: what becomes of a value does not depend on its neighbours; each value gives a row or a reason. Columns come
as wide as Avro has them (`RawColumn`): whoever declared a narrower type checks whether the values fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Array, Bytes, Longs, frozen
from weft.connectors.kafka.avro import machine as m
from weft.connectors.kafka.avro.nested import default_value, json_text
from weft.connectors.kafka.avro.program import (
    Program,
    compile_program,
    decimal_scale,
    find_field,
    reads_whole,
)
from weft.connectors.kafka.avro.schema import AvroError, AvroField, AvroSchema
from weft.logical.schema import Field

__all__ = [
    "Decoder",
    "RawColumn",
    "Values",
    "decode_values",
    "join_values",
]

_REASONS = {
    m.ENDS: "the value ends too early",
    m.BRANCH: "there is no such branch of the union",
    m.TRUTH: "it is neither true nor false",
    m.SYMBOLS: "the enum has no such symbol",
    m.UNFIT: "its type is not the column's",
    m.LEFT: "bytes are left behind the value",
    m.VARINT: "a number is too long",
    m.LENGTH: "a length is negative",
    m.DEEP: "it is nested too deeply",
    m.RANGE: "the time is out of range",
}


@dataclass(frozen=True, slots=True)
class Values:
    """Many values in one piece of data: value i stands from ``starts[i]`` to ``ends[i]``."""

    data: bytes
    starts: Longs
    ends: Longs

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A column as Avro has it: int64, float64, binary, string or decimal(38); and which rows are no such value."""

    values: Any
    bad: Array | None = None


def join_values(values: Sequence[bytes]) -> Values:
    """Values one behind the other."""
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    return Values(b"".join(values), np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(values)], ends)


@dataclass(frozen=True, slots=True)
class Decoder:
    """A program for the values of one writer's schema, and the defaults of columns that it has not."""

    program: Program
    columns: tuple[Field, ...]
    defaults: tuple[Any, ...]

    @classmethod
    def make(
        cls, schema: AvroSchema, columns: tuple[Field, ...], reader: AvroSchema | None = None
    ) -> Decoder:
        """A decoder of values that were written by a schema; the reader's has aliases and defaults of columns."""
        program = compile_program(schema, columns, reader)
        missing = [source is None for source in program.sources]
        pairs = zip(columns, missing, strict=True)
        return cls(
            program, columns, tuple(_default(reader, column) if gone else None for column, gone in pairs)
        )


def _default(reader: AvroSchema | None, column: Field) -> Any:
    if reader is None:
        return None
    fields = reader.resolve(reader.root).fields
    place = find_field(fields, column.name)
    return None if place is None else default_value(reader, fields[place], column.type)


def decode_values(decoder: Decoder, values: Values) -> tuple[list[RawColumn], dict[int, str]]:
    """The columns of values, and for each value that cannot be decoded the reason; its row has no meaning."""
    program, rows, width = decoder.program, len(values), max(1, len(decoder.columns))
    symbols = b"".join(program.symbols)
    places = np.cumsum([len(values.data), *map(len, program.symbols)], dtype=np.int64)
    data: Bytes = frozen(np.frombuffer(values.data + symbols if symbols else values.data, np.uint8))
    begins, until = np.zeros((width, rows), np.int64), np.zeros((width, rows), np.int64)
    valid, codes = np.zeros((width, rows), np.bool_), np.zeros((rows, 2), np.int64)
    bounds = (frozen(values.starts), frozen(values.ends))
    tables = (frozen(program.nodes), frozen(program.children), frozen(places))
    m.decode_records(data, bounds, frozen(program.fields), tables, (begins, until, valid), codes)
    columns = [
        _column(decoder, number, _Cells(data, begins[number], until[number], valid[number]))
        for number in range(len(decoder.columns))
    ]
    return columns, _wrong(program, codes)


def _wrong(program: Program, codes: Array) -> dict[int, str]:
    """Why values are bad, with the field at which that was noticed."""
    rows = np.flatnonzero(codes[:, 0])
    reasons = dict[int, str]()
    for row, (code, field) in zip(rows.tolist(), codes[rows].tolist(), strict=True):
        named = f"field {program.names[field]}: " if program.names and code != m.LEFT else ""
        reasons[row] = f"not Avro of its schema: {named}{_REASONS[code]}"
    return reasons


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of one column as the machine left them."""

    data: Bytes
    found: Longs
    until: Longs
    valid: Array

    def numbers(self, kind: Any = np.int64) -> Any:
        """Numbers as an Arrow array."""
        return pa.array(self.found.view(kind), mask=None if self.valid.all() else ~self.valid)

    def pieces(self) -> Any:
        """Pieces of the data as an Arrow array of binary values."""
        sizes = np.where(self.valid, self.until - self.found, 0)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        if offsets[-1] >= 1 << 31:
            raise AvroError("the values of one column are more than 2 GiB")
        copied = np.empty(int(offsets[-1]), np.uint8)
        m.gather(self.data, self.found, self.until, self.valid, offsets, copied)
        whole = self.valid.all()
        bits = None if whole else pa.py_buffer(np.packbits(self.valid, bitorder="little"))
        buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(copied)]
        return pa.Array.from_buffers(pa.binary(), len(self.found), buffers, 0 if whole else -1)

    def decimals(self, scale: int) -> RawColumn:
        """Numbers of any length as decimals of 38 digits; longer ones are bad."""
        words, bad = np.zeros((len(self.found), 2), np.int64), np.zeros(len(self.found), np.bool_)
        m.decimals(self.data, self.found, self.until, self.valid, words, bad)
        bits = pa.py_buffer(np.packbits(self.valid & ~bad, bitorder="little"))
        buffers = [bits, pa.py_buffer(words)]
        values = pa.Array.from_buffers(pa.decimal128(38, scale), len(self.found), buffers, -1)
        return RawColumn(values, bad if bad.any() else None)


def _column(decoder: Decoder, number: int, cells: _Cells) -> RawColumn:
    source, column, schema = decoder.program.sources[number], decoder.columns[number], decoder.program.schema
    name, rows = column.type.name, len(cells.found)
    if source is None:
        default = decoder.defaults[number]
        return RawColumn(pa.nulls(rows) if default is None else pa.repeat(default, rows))
    if reads_whole(schema, source.type, column.type):
        return _nested(schema, source, cells)
    if not any(branch.kind != "null" for branch in schema.branches(source.type)):
        return RawColumn(pa.nulls(rows))
    if name == "decimal":
        return cells.decimals(decimal_scale(schema, source.type))
    if name in ("string", "binary"):
        return RawColumn(cells.pieces())
    return RawColumn(cells.numbers(np.float64 if name in ("float", "double") else np.int64))


def _nested(schema: AvroSchema, source: AvroField, cells: _Cells) -> RawColumn:
    """What is nested in a field, as texts of JSON: value by value, for there is no column that could hold it."""
    data, texts, bad = cells.data.tobytes(), list[str | None](), np.zeros(len(cells.found), np.bool_)
    bounds = zip(cells.found.tolist(), cells.until.tolist(), strict=True)
    for row, (start, end) in enumerate(bounds):
        text = None
        if cells.valid[row]:
            try:
                text = json_text(schema, source.type, data[start:end])
            except AvroError:
                bad[row] = True
        texts.append(text)
    return RawColumn(pa.array(texts, pa.string()), bad if bad.any() else None)
