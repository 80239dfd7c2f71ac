"""Columns as PostgreSQL takes them: types, whole tables as the text that COPY reads, and what a table must have.

Guarantees: every value arrives as it is, texts with quotes, line breaks and NULLs among them. A text with a zero
character, which PostgreSQL cannot hold, is refused by the server, and with it the batch. What a table lacks is an error
that names the column, the right or the address that does not fit; nothing is written then.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from weft.errors import SinkError

__all__ = [
    "check_address",
    "check_kind",
    "check_table_columns",
    "column_type",
    "copy_text",
]


# The types a column is made with, and further ones that hold every value of it.
_TYPES: tuple[tuple[pa.DataType, str, tuple[str, ...]], ...] = (
    (pa.int8(), "smallint", ("integer", "bigint", "numeric")),
    (pa.int16(), "smallint", ("integer", "bigint", "numeric")),
    (pa.int32(), "integer", ("bigint", "numeric")),
    (pa.int64(), "bigint", ("numeric",)),
    (pa.bool_(), "boolean", ()),
    (pa.float32(), "real", ("double precision",)),
    (pa.float64(), "double precision", ()),
    (pa.string(), "text", ("character varying",)),
    (pa.binary(), "bytea", ()),
    (pa.date32(), "date", ()),
    (pa.timestamp("us", tz="UTC"), "timestamp with time zone", ()),
)
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def column_type(type_: pa.DataType) -> str:
    """The type of a PostgreSQL column for values of an Arrow type.

    >>> column_type(pa.int64()), column_type(pa.decimal128(10, 2))
    ('bigint', 'numeric(10,2)')
    """
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    return next(name for kind, name, _ in _TYPES if kind == type_)


def wider_types(type_: pa.DataType) -> tuple[str, ...]:
    """Further types of PostgreSQL's that hold every value of an Arrow type.

    >>> wider_types(pa.int32())
    ('bigint', 'numeric')
    """
    return next((more for kind, _, more in _TYPES if kind == type_), ("numeric",))


def copy_text(table: pa.Table) -> bytes:
    """Rows as CSV for COPY: NULL is nothing, an empty text is a pair of quotes."""
    columns = [_as_text(column) for column in table.columns]
    out = io.BytesIO()
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    csv.write_csv(pa.table(columns, names=[str(number) for number in range(len(columns))]), out, options)
    return out.getvalue()


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose values CSV would not write as PostgreSQL reads them, as texts."""
    if pa.types.is_binary(column.type):
        return pa.chunked_array([_hex_texts(chunk) for chunk in column.chunks], pa.string())
    if pa.types.is_timestamp(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.string())
    return column


def _hex_texts(chunk: pa.BinaryArray) -> pa.StringArray:
    r"""Bytes as PostgreSQL writes them: `\x` and two hexadecimal digits for each."""
    offsets = np.frombuffer(chunk.buffers()[1], dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = chunk.buffers()[2]
    whole = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    used = whole[offsets[0] : offsets[-1]]
    digits = np.empty(2 * len(used), dtype=np.uint8)
    digits[0::2], digits[1::2] = _HEX[used >> 4], _HEX[used & 15]
    starts = pa.array((offsets - offsets[0]) * 2, pa.int32())
    texts = pa.StringArray.from_buffers(len(chunk), starts.buffers()[1], pa.py_buffer(digits))
    prefixed = pc.binary_join_element_wise(pa.scalar("\\x"), texts, "")
    return pc.if_else(chunk.is_valid(), prefixed, pa.scalar(None, pa.string()))


_ADDRESS = re.compile(r"(?P<jdbc>jdbc:)?(?P<kind>[a-z][\w.-]*)(?P<driver>\+\w+)?:(?(jdbc)|//)", re.IGNORECASE)
_TABLES = ("r", "p", "f")  # tables, partitioned and foreign ones, in the words of pg_class


def check_address(connection: str) -> None:
    """Refuse the address of another kind of database; what else a connection has to be, the client knows."""
    address = _ADDRESS.match(connection)
    if address is None or (kind := address["kind"].lower()) in ("env", "file"):
        return
    if kind not in ("postgresql", "postgres"):
        raise SinkError(
            f"to_postgres: the connection is to {kind}, and only PostgreSQL can be written to",
            hint="for others use weft.foreach_batch, and note the batch's number in the transaction that adds its rows",
        )
    if address["jdbc"] or address["driver"]:
        raise SinkError(
            f"to_postgres: a connection that begins with {address[0]} is for another client",
            hint="begin it with postgresql://",
        )


def check_kind(table: str, kind: str, may_insert: bool, may_update: bool, *, merged: bool) -> None:
    """Refuse what is no table, and one whose rows the user must not add to, or must not change if rows are merged."""
    if kind not in _TABLES:
        raise SinkError(
            f"to_postgres: {table} is not a table", hint="write to a table, and not to a view of it"
        )
    if not may_insert or (merged and not may_update):
        rights = "INSERT, SELECT and UPDATE" if merged else "INSERT"
        raise SinkError(
            f"to_postgres: the user of the connection lacks rights on the table {table}",
            hint=f"GRANT {rights.replace(' and', ',')} ON {table} TO …",
        )


def check_table_columns(place: str, schema: pa.Schema, there: Mapping[str, tuple[str, bool]]) -> None:
    """Refuse a table whose columns do not hold the results; ``there`` has their types and whether a value is needed."""
    for column in schema:
        if column.name not in there:
            raise SinkError(
                f"to_postgres: the results have a column {column.name}, the table {place} has none",
                hint=f"its columns are {', '.join(there)}: fit the query to them, or write to another table",
            )
        wanted, there_type = column_type(column.type), there[column.name][0]
        if there_type not in (wanted, *wider_types(column.type)):
            raise SinkError(
                f"to_postgres: column {column.name} of the table {place} has the type {there_type}, results {wanted}",
                hint="CAST it in the query, or write to another table",
            )
    needed = [name for name, (_, required) in there.items() if required and name not in schema.names]
    if needed:
        raise SinkError(
            f"to_postgres: the table {place} needs a value for {needed[0]}, the results have none",
            hint="select it in the query, or give the column a default",
        )
