"""Results as keys and values of Kafka's records.

Guarantees: whole columns become texts; nothing loops over fields. A JSON value has every column of its row, NULL as
`null`; times are ISO 8601 in UTC, binary values base64, decimals numbers with all their digits, and numbers that are
not finite are texts (`"NaN"`), as Spark writes them. `weft.kafka` reads all but the latter back as they were.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.kernels.expr.print_texts import render

__all__ = ["json_values", "key_values"]

_CONTROL = {
    **{chr(code): f"\\u{code:04x}" for code in range(32)},
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def json_values(rows: pa.RecordBatch) -> pa.Array:
    """A JSON object for each row, as bytes.

    >>> json_values(pa.record_batch({"id": [1, None], "name": ['a"b', "c"]})).to_pylist()
    [b'{"id":1,"name":"a\\\\"b"}', b'{"id":null,"name":"c"}']
    """
    pieces: list[Any] = []
    for place, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        pieces += [f"{',' if place else '{'}{json.dumps(name, ensure_ascii=False)}:"]
        pieces += [pc.fill_null(_json_text(column), "null")]
    return pc.cast(pc.binary_join_element_wise(*pieces, "}", ""), pa.binary())


def key_values(rows: pa.RecordBatch, column: str) -> pa.Array:
    """The values of a column as bytes: of binary ones and texts as they are, of others their texts."""
    values = rows.column(column)
    if pa.types.is_binary(values.type):
        return values
    return pc.cast(values if pa.types.is_string(values.type) else render(values), pa.binary())


def _json_text(values: Any) -> Any:
    """The values of a column as JSON; NULL stays NULL."""
    kind = values.type
    if pa.types.is_string(kind):
        return _quoted(_escaped(values))
    if pa.types.is_binary(kind):
        texts = [None if value is None else b2a_base64(value, newline=False) for value in values.to_pylist()]
        return _quoted(pa.array(texts, pa.binary()).cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _quoted(pc.replace_substring(render(values), " ", "T"), "Z")
    if pa.types.is_date(kind):
        return _quoted(render(values))
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), render(values), _quoted(render(values)))
    return render(values)


def _quoted(texts: Any, end: str = "") -> Any:
    return pc.binary_join_element_wise('"', texts, f'{end}"', "")


def _escaped(texts: Any) -> Any:
    """Texts with what JSON strings may not have written as JSON does; what does not occur costs a look."""
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]"), min_count=0).as_py():
        for letter, written in _CONTROL.items():
            texts = pc.replace_substring(texts, letter, written)
    return texts
