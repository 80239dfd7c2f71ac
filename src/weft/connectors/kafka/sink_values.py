"""Results as keys and values of Kafka's records, in the format that a sink was given.

Guarantees: whole columns become texts; nothing loops over fields. A JSON value has every column of its row, NULL as
`null`; times are ISO 8601 in UTC, binary values base64, decimals numbers with all their digits, and numbers that are
not finite are texts (`"NaN"`), as Spark writes them. `weft.kafka` reads all but the latter back as they were. A
`WrittenFormat` that exists is consistent. What its schema cannot hold is refused before anything is written; the
registry is asked for the schema's number once, when a sink is opened for writing.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.connectors.kafka.avro import AvroError, Encoder, encode_rows, parse_schema, schema_of
from weft.connectors.kafka.registry import RegistryOptions, SchemaRegistry
from weft.errors import SinkError, nearest
from weft.kernels.expr.casts import render

__all__ = [
    "Values",
    "WrittenFormat",
    "json_values",
    "key_values",
]


_CONTROL = {
    **{chr(code): f"\\u{code:04x}" for code in range(32)},
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def json_values(rows: pa.RecordBatch) -> pa.Array:
    """A JSON object for each row, as bytes; an empty one for rows without columns.

    >>> json_values(pa.record_batch({"id": [1, None], "name": ['a"b', "c"]})).to_pylist()
    [b'{"id":1,"name":"a\\\\"b"}', b'{"id":null,"name":"c"}']
    """
    if not rows.num_columns:
        return pa.array([b"{}"] * rows.num_rows, pa.binary())
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


_FORMATS = ("json", "avro", "raw")
_PATIENCE = 30.0  # seconds that a registry may be away
_JSON_TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": ["null", "boolean"]},
    "float": {"type": ["null", "number", "string"]},
    "double": {"type": ["null", "number", "string"]},
    "binary": {"type": ["null", "string"], "contentEncoding": "base64"},
    "date32[day]": {"type": ["null", "string"], "format": "date"},
    **{f"int{bits}": {"type": ["null", "integer"]} for bits in (8, 16, 32, 64)},
}
Values = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True, slots=True)
class WrittenFormat:
    """A format with what it needs. ``register`` says whether a schema that the registry has not is added to it."""

    name: str = "json"
    registry: RegistryOptions | None = None
    avro_schema: str | None = None
    subject: str | None = None
    register: bool = True

    def __post_init__(self) -> None:
        if self.name not in _FORMATS:
            raise SinkError(f"to_kafka: unknown format {self.name!r}", hint=nearest(self.name, _FORMATS))
        if self.registry is not None and self.name == "raw":
            raise SinkError("to_kafka: raw values have no schema in a registry")
        if self.registry is None and (self.subject is not None or not self.register):
            raise SinkError(
                "to_kafka: subject and register are about a registry, and none is given",
                hint='as in registry="http://localhost:8081"',
            )
        if self.avro_schema is not None and self.name != "avro":
            raise SinkError(f"to_kafka: avro_schema is given, but the format is {self.name}")
        if self.name == "avro" and self.registry is None and self.avro_schema is None:
            raise SinkError(
                "to_kafka: readers of Avro values need their schema",
                hint='give registry="http://…", where it is put, or avro_schema=…',
            )

    def check(self, rows: pa.Schema, topic: str) -> None:
        """Refuse results that the schema cannot hold, or whose names it cannot have."""
        if self.name == "avro":
            self._encoder(rows, topic, b"")

    def values(self, rows: pa.Schema, topic: str, raw: str | None) -> Values:
        """What makes values of rows; the registry, if there is one, is asked for the number of their schema."""
        if raw is not None:
            return lambda batch: key_values(batch, raw)
        prefix = b"" if self.registry is None else self._prefix(rows, topic)
        if self.name == "json":
            return lambda batch: _with_prefix(prefix, json_values(batch))
        encoder = self._encoder(rows, topic, prefix)
        return lambda batch: _encoded(encoder, batch)

    def _encoder(self, rows: pa.Schema, topic: str, prefix: bytes) -> Encoder:
        try:
            return Encoder.make(parse_schema(self._text(rows, topic)), rows, prefix)
        except AvroError as error:
            raise SinkError(f"to_kafka: topic {topic}: {error}") from None

    def _text(self, rows: pa.Schema, topic: str) -> str:
        """The schema of the values: the given one, or one made for the results."""
        if self.name == "json":
            return _json_schema(rows, topic)
        return self.avro_schema or schema_of(rows, f"{topic}_value")

    def _prefix(self, rows: pa.Schema, topic: str) -> bytes:
        if self.registry is None:
            raise SinkError("to_kafka: no registry is named")
        registry = SchemaRegistry(self.registry, "to_kafka", SinkError, _PATIENCE)
        kind, subject = "AVRO" if self.name == "avro" else "JSON", self.subject or f"{topic}-value"
        number = registry.register(subject, kind, self._text(rows, topic), create=self.register)
        return b"\0" + number.to_bytes(4, "big")


def _encoded(encoder: Encoder, batch: pa.RecordBatch) -> Any:
    try:
        return encode_rows(encoder, batch)
    except AvroError as error:
        raise SinkError(f"to_kafka: {error}") from None


def _with_prefix(prefix: bytes, values: Any) -> Any:
    return values if not prefix else pc.binary_join_element_wise(pa.scalar(prefix), values, pa.scalar(b""))


def _json_schema(rows: pa.Schema, topic: str) -> str:
    """A schema of JSON Schema's for rows, as `json_values` writes them."""
    properties = {
        column.name: _JSON_TYPES.get(str(column.type)) or _json_type(column.type) for column in rows
    }
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"{topic}_value", "type": "object"}
    return json.dumps({**head, "properties": properties}, ensure_ascii=False, separators=(",", ":"))


def _json_type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_timestamp(kind):
        return {"type": ["null", "string"], "format": "date-time"}
    return {"type": ["null", "number"]} if pa.types.is_decimal(kind) else {"type": ["null", "string"]}
