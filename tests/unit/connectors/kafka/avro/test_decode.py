"""Avro values become columns, compared with fastavro."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.shares import seeds
from tests.unit.connectors.kafka.avro.random_avro import encoded, random_case
from weft.connectors.kafka.avro import AvroError, Decoder, parse_schema
from weft.connectors.kafka.values import DecodedValues, plain_avro
from weft.logical.schema import Schema


def decoded(schema: Any, columns: str, values: list[bytes]) -> DecodedValues:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return plain_avro(values, Schema.parse(columns).fields, parse_schema(text))


def record(*fields: Any) -> dict[str, Any]:
    """A record of fields f0, f1, … of these types."""
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"f{at}", "type": t} for at, t in enumerate(fields)],
    }


def plain(value: Any) -> Any:
    """A value as columns have it; what is nested is compared as JSON."""
    return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value


@pytest.mark.parametrize("seed", seeds(60))
def test_random_values_are_decoded_as_fastavro_wrote_them(seed: int) -> None:
    case = random_case(seed)
    found = decoded(case.schema, case.columns, encoded(case.schema, case.rows))
    assert found.wrong == {}
    assert found.good.tolist() == list(range(len(case.rows)))
    for field in Schema.parse(case.columns):
        values = found.rows.column(field.name).to_pylist()
        for value, row in zip(values, case.rows, strict=True):
            expected = row[field.name]
            if isinstance(expected, dict | list):
                value = json.loads(value)
            assert value == plain(expected), (field, value, expected)


@pytest.mark.parametrize("seed", seeds(40))
def test_a_damaged_value_harms_no_other(seed: int) -> None:
    """Whatever stands in a value, it gives a row or a reason, and its neighbours are decoded as before."""
    case, chance = random_case(seed, 12), random.Random(seed)
    values = encoded(case.schema, case.rows)
    before = decoded(case.schema, case.columns, values).rows.to_pylist()
    damaged, touched = list(values), set[int]()
    for at in chance.sample(range(12), 5):
        value = bytearray(values[at])
        match chance.randrange(4):
            case 0:
                value = value[: chance.randrange(len(value) + 1)]
            case 1:
                value += chance.randbytes(chance.randint(1, 4))
            case 2:
                value = bytearray(chance.randbytes(chance.randrange(30)))
            case _ if value:
                value[chance.randrange(len(value))] = chance.randrange(256)
        damaged[at] = bytes(value)
        touched.add(at)
    found = decoded(case.schema, case.columns, damaged)
    assert sorted([*found.good.tolist(), *found.wrong]) == list(range(12))
    rows = dict(zip(found.good.tolist(), found.rows.to_pylist(), strict=True))
    for at in set(range(12)) - touched:
        assert rows[at] == before[at] or "nan" in str(before[at]).lower()


def test_counts_and_lengths_that_lie_end_at_once() -> None:
    """A count of 2⁶² items, a length beyond the value or below zero, a number of 11 bytes."""
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    schema = record({"type": "array", "items": "null"}, {"type": "array", "items": "long"}, "string")
    values = [huge + b"\0\0\0", b"\0" + huge + b"\0\0", b"\0\0" + huge, b"\0\0\x01", b"\0\0" + b"\xff" * 11]
    found = decoded(schema, "f2 string", values)
    assert found.good.tolist() == [0]
    assert [found.wrong[at].rsplit(": ", 1)[1] for at in (1, 2, 3, 4)] == [
        "the value ends too early",
        "the value ends too early",
        "a length is negative",
        "a number is too long",
    ]


def test_nesting_without_end_is_refused() -> None:
    deep = {"type": "record", "name": "d", "fields": [{"name": "next", "type": ["null", "d"]}]}
    found = decoded(record(deep, "int"), "f1 int", [b"\2" * 5000 + b"\0\2", b"\2\0\4"])
    assert found.rows.to_pylist() == [{"f1": 2}]
    assert found.wrong == {0: "not Avro of its schema: field f0: it is nested too deeply"}


def test_a_union_of_several_types_gives_what_fits_the_column() -> None:
    schema = record(["null", "int", "string", "double"])
    values = encoded(schema, [{"f0": None}, {"f0": 3}, {"f0": "x"}, {"f0": 0.5}])
    numbers = decoded(schema, "f0 double", values)
    assert numbers.rows.column(0).to_pylist() == [None, 3.0, 0.5]
    assert numbers.wrong == {2: "not Avro of its schema: field f0: its type is not the column's"}
    assert decoded(schema, "f0 string", values).rows.column(0).to_pylist() == [None, "x"]


def test_integers_are_checked_one_by_one() -> None:
    found = decoded(
        record("long"), "f0 byte", encoded(record("long"), [{"f0": 1}, {"f0": 128}, {"f0": -128}])
    )
    assert found.rows.column(0).to_pylist() == [1, -128]
    assert found.wrong == {1: "column f0: 128 is not a value of type byte"}


def test_decimals_of_any_length() -> None:
    """Longer forms of the same number are read; more digits than declared are bad, and so is no byte at all."""
    schema = record({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2})

    def value(number: int, size: int) -> bytes:
        return bytes([2 * size]) + number.to_bytes(size, "big", signed=True)

    values = [value(-150, 2), value(-150, 30), value(150, 20), value(10**38, 17), value(10**30, 14), b"\0"]
    found = decoded(schema, "f0 decimal(20,3)", values)
    assert found.rows.column(0).to_pylist() == [Decimal("-1.500"), Decimal("-1.500"), Decimal("1.500")]
    assert sorted(found.wrong) == [3, 4, 5]


def test_times_out_of_range_and_texts_that_are_none() -> None:
    schema = record({"type": "long", "logicalType": "timestamp-millis"}, "string")
    values = encoded(
        record("long", "bytes"), [{"f0": 2**62, "f1": b""}, {"f0": 0, "f1": b"\xff"}, {"f0": 0, "f1": b"x"}]
    )
    found = decoded(schema, "f0 timestamp, f1 string", values)
    assert found.good.tolist() == [2]
    assert found.wrong[0] == "not Avro of its schema: field f0: the time is out of range"
    assert "is not a value of type string" in found.wrong[1]


def test_columns_that_a_writer_has_not_are_null_or_have_the_readers_default() -> None:
    writer = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "old", "type": "int"}, {"name": "ID", "type": "long"}],
    }
    times = {"type": "long", "logicalType": "timestamp-millis"}
    reader = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "new", "type": "int", "aliases": ["old"]},
            {"name": "s", "type": "string", "default": "ü"},
            {"name": "t", "type": times, "default": 1},
            {"name": "b", "type": "boolean", "default": True},
            {"name": "x", "type": ["null", "int"], "default": None},
            {"name": "n", "type": {"type": "array", "items": "int"}, "default": [1]},
        ],
    }
    columns = Schema.parse("id long, new int, s string, t timestamp, b boolean, x int, n string").fields
    decoder = Decoder.make(parse_schema(json.dumps(writer)), columns, parse_schema(json.dumps(reader)))
    from weft.connectors.kafka.avro.decode import join_values
    from weft.connectors.kafka.values import _decoded

    (row,) = _decoded(decoder, join_values(encoded(writer, [{"old": 5, "ID": 7}]))).rows.to_pylist()
    assert (row["id"], row["new"], row["s"], row["b"], row["x"], row["n"]) == (7, 5, "ü", True, None, "[1]")
    assert row["t"].microsecond == 1000


@pytest.mark.parametrize(
    ("type_", "column", "told"),
    [
        ("long", "f0 timestamp", "nobody knows its unit"),
        ("string", "f0 long", "a string, which cannot be a long"),
        ({"type": "array", "items": "int"}, "f0 int", "declare it as string"),
        ("double", "f0 int", "cannot be an int"),
    ],
)
def test_types_that_do_not_fit_are_an_error(type_: Any, column: str, told: str) -> None:
    with pytest.raises(AvroError, match=told):
        Decoder.make(parse_schema(json.dumps(record(type_))), Schema.parse(column).fields)


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '["null", "null"]', '["null", ["int"]]', '{"type": "record", "name": "r"}', '"nothing"',
        '{"type": "fixed", "name": "f", "size": "x"}', '{"type": "enum", "name": "e"}', '{"type": "array"}',
        '{"type": "record", "name": "1", "fields": []}', "[" * 500 + "]" * 500, "7",
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(AvroError):
        parse_schema(text)


def test_a_value_that_is_no_record_is_the_one_column() -> None:
    assert decoded('"string"', "word string", encoded("string", ["a", "b"])).rows.column(0).to_pylist() == [
        "a",
        "b",
    ]
    with pytest.raises(AvroError, match="one column"):
        Decoder.make(parse_schema('"string"'), Schema.parse("a string, b string").fields)


def test_no_values_are_no_rows() -> None:
    found = decoded(record("int"), "f0 int", [])
    assert found.rows.num_rows == 0
    assert np.array_equal(found.good, [])
