"""Rows become Avro values that fastavro reads back."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from weft.connectors.kafka.avro import AvroError, Encoder, encode_rows, parse_schema, schema_of
from weft.connectors.kafka.values import plain_avro
from weft.logical.schema import Schema

TIME = pa.timestamp("us", "UTC")
COLUMNS = (
    "b boolean, i8 byte, i32 int, i64 long, f float, d double, n decimal(20,4), s string, x binary, "
    "day date, t timestamp"
)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 1, 1)).map(
    lambda one: one.replace(tzinfo=timezone.utc)
)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "b": (pa.bool_(), st.booleans()),
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "d": (pa.float64(), st.floats(allow_nan=False)),
    "n": (pa.decimal128(20, 4), st.integers(-(10**20) + 1, 10**20 - 1).map(lambda one: Decimal(one).scaleb(-4))),
    "s": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=200)),
    "x": (pa.binary(), st.binary(max_size=200)),
    "day": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 1, 1))),
    "t": (TIME, MOMENTS),
}  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True))
    count, skipped = draw(st.integers(0, 12)), draw(st.integers(0, 3))
    arrays = []
    for name in names:
        kind, values = KINDS[name]
        found = draw(st.lists(st.none() | values, min_size=count + skipped, max_size=count + skipped))
        arrays.append(pa.array(found, kind))
    return pa.record_batch(arrays, names).slice(skipped)


@given(batches())
@examples(60)
def test_what_is_written_is_read_by_fastavro_and_by_weft(batch: pa.RecordBatch) -> None:
    text = schema_of(batch.schema, "some-topic")
    values = encode_rows(Encoder.make(parse_schema(text), batch.schema), batch).to_pylist()
    parsed = fastavro.parse_schema(json.loads(text))
    assert [
        fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values
    ] == batch.to_pylist()
    declared = Schema(tuple(field for field in Schema.parse(COLUMNS) if field.name in batch.schema.names))
    found = plain_avro(values, declared.fields, parse_schema(text))
    assert found.wrong == {}
    assert found.rows.select(batch.schema.names).to_pylist() == batch.to_pylist()


def encoder(fields: list[dict[str, Any]], **columns: pa.DataType) -> Encoder:
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    return Encoder.make(parse_schema(schema), pa.schema(list(columns.items())))


def test_a_given_schema_is_followed() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "more", "type": ["string", "null"], "default": "x"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "i", "type": ["null", "string", "long"]},
    ]
    made = encoder(fields, i=pa.int32(), t=TIME)
    rows = pa.record_batch({"i": pa.array([1, None], pa.int32()), "t": pa.array([1_999, 0]).cast(TIME)})
    assert encode_rows(made, rows).to_pylist() == [b"\x02\x02\x04\x02", b"\x02\x00\x00"]


@pytest.mark.parametrize(
    ("fields", "columns", "told"),
    [
        ([{"name": "a", "type": "long"}], {"b": pa.int64()}, "no field for column b"),
        ([{"name": "a", "type": "long"}, {"name": "b", "type": "int"}], {"a": pa.int64()}, "field b .* cannot be NULL"),
        ([{"name": "a", "type": "int"}], {"a": pa.int64()}, "field a of the schema is int, and the column int64"),
        ([{"name": "a", "type": "long"}], {"a": TIME}, "field a"),
        ([{"name": "a", "type": {"type": "array", "items": "int"}}], {"a": pa.int32()}, "field a"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_hold_the_results_is_refused(
    fields: list[dict[str, Any]], columns: dict[str, pa.DataType], told: str
) -> None:
    with pytest.raises(AvroError, match=told):
        encoder(fields, **columns)


def test_a_null_that_a_schema_does_not_permit_is_an_error() -> None:
    made = encoder([{"name": "a", "type": "long"}], a=pa.int64())
    with pytest.raises(AvroError, match="column a has a NULL"):
        encode_rows(made, pa.record_batch({"a": pa.array([1, None])}))


def test_names_that_avro_has_not_are_refused() -> None:
    with pytest.raises(AvroError, match="AS another"):
        schema_of(pa.schema([("größe", pa.int64())]), "t")
    assert json.loads(schema_of(pa.schema([("a", pa.int64())]), "1st.topic-ü"))["name"] == "_1st_topic__"
