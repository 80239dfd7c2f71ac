"""Rows of every type, and files of every format that hold them.

Guarantees: what is written is what other programs write: base64 for binary values in JSON, raw bytes in CSV, quotes
around each text, nothing for NULL.
"""

from __future__ import annotations

import base64
import io
import json
import string
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from weft.connectors.formats.columns import arrow_schema
from weft.connectors.formats.records import Target
from weft.logical.schema import Schema

Row = tuple[Any, ...]

SCHEMA = Schema.parse(
    "i byte, j short, k int, l long, f float, d double, m decimal(10,2), "
    "s string, x binary, b boolean, at date, ts timestamp"
)

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_infinity=False),
    "double": st.floats(allow_infinity=False),
    "decimal": st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2),
    "string": _texts,
    "binary": st.binary(max_size=7),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(timezone.utc)),
}


def rows(schema: Schema = SCHEMA, *, min_size: int = 0, max_size: int = 6) -> st.SearchStrategy[list[Row]]:
    """Rows with NULLs anywhere."""
    one = st.tuples(*(st.none() | VALUES[field.type.name] for field in schema))
    return st.lists(one, min_size=min_size, max_size=max_size)


def table(values: Sequence[Row], schema: Schema = SCHEMA) -> pa.Table:
    """The rows as Weft keeps them."""
    kinds = arrow_schema(Target(schema))
    columns = zip(*values, strict=True) if values else ([] for _ in kinds)
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, kinds, strict=True)],
        schema=kinds,
    )


def to_parquet(values: Sequence[Row], schema: Schema = SCHEMA) -> bytes:
    out = io.BytesIO()
    pq.write_table(table(values, schema), out)
    return out.getvalue()


def to_arrow_file(values: Sequence[Row], schema: Schema = SCHEMA) -> bytes:
    return _ipc(pa.ipc.new_file, table(values, schema))


def to_arrow_stream(values: Sequence[Row], schema: Schema = SCHEMA) -> bytes:
    return _ipc(pa.ipc.new_stream, table(values, schema))


def _ipc(open_writer: Callable[..., Any], content: pa.Table) -> bytes:
    out = io.BytesIO()
    with open_writer(out, content.schema) as writer:
        writer.write_table(content)
    return out.getvalue()


def to_json(values: Sequence[Row], schema: Schema = SCHEMA) -> bytes:
    return b"".join(json_line(row, schema) + b"\n" for row in values)


def json_line(row: Row, schema: Schema = SCHEMA) -> bytes:
    shown = {name: _in_json(value) for name, value in zip(schema.names, row, strict=True)}
    return json.dumps(shown, ensure_ascii=False).encode()


def _in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def to_csv(values: Sequence[Row], schema: Schema = SCHEMA) -> bytes:
    header = ",".join(schema.names).encode()
    return b"\n".join([header, *map(csv_line, values)]) + b"\n"


def csv_line(row: Row) -> bytes:
    return b",".join(map(_in_csv, row))


def _in_csv(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return b'"' + raw.replace(b'"', b'""') + b'"'
    return (value.isoformat(" ") if isinstance(value, datetime) else str(value)).encode()


WRITERS: dict[str, tuple[str, Callable[..., bytes]]] = {
    "parquet": ("parquet", to_parquet),
    "arrow file": ("arrow", to_arrow_file),
    "arrow stream": ("arrow", to_arrow_stream),
    "json": ("json", to_json),
    "csv": ("csv", to_csv),
}

PLAIN = Schema.parse("k int, s string, n short")
plain_rows = st.lists(
    st.tuples(
        st.integers(-9, 9),
        st.text(string.ascii_letters + "\n\u00e9", min_size=1, max_size=5),
        st.integers(-9, 9),
    ),
    max_size=40,
)
