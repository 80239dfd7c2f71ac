"""Avro and JSON values with schemas in a real registry, through a real broker."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import weft
from tests.kafka.reading import opened, taken
from tests.kafka.registry import Registry, client, framed
from tests.kafka.topics import Topics
from weft.errors import SinkError, SourceError

TIME = {"type": "long", "logicalType": "timestamp-millis"}
MOMENT = datetime(2024, 1, 1, tzinfo=timezone.utc)


def record(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return {"type": "record", "name": "row", "fields": fields}


def test_values_of_several_schemas_are_read_by_the_schemas_that_they_name(
    topics: Topics, registry: Registry
) -> None:
    topic = topics.make(1)
    old, new = record(id="int", ts=TIME), record(id="long", name=["null", "string"], ts=TIME)
    one = framed(registry, topic, old, [{"id": at, "ts": MOMENT} for at in (1, 2)])
    two = framed(registry, topic, new, [{"id": at, "name": f"n{at}", "ts": MOMENT} for at in (2**40, 4)])
    other = framed(registry, topic, record(id="string", ts=TIME), [{"id": "x", "ts": MOMENT}], "elsewhere")
    unknown, bare = b"\0\0\1\2\3xyz", b"{}"
    topics.write(topic, [one[0], two[0], unknown, bare, None, other[0], one[1], two[1], two[1][:-1], b""])
    given: dict[str, Any] = {
        "schema": "id long, name string, ts timestamp",
        "format": "avro",
        "registry": registry.url,
    }
    with opened(topics, topic, **given) as (source, cursor):
        (found,) = taken(source, cursor, None)
    assert found.batch.select(["id", "name"]).to_pylist() == [
        {"id": 1, "name": None},
        {"id": 2**40, "name": f"n{2**40}"},
        {"id": None, "name": None},
        {"id": 2, "name": None},
        {"id": 4, "name": "n4"},
    ]
    reasons = {record.offset: record.reason for record in found.bad}
    assert reasons[2] == f"the schema registry does not know schema {0x010203}"
    assert reasons[3] == reasons[9] == "it is too short to name a schema"
    assert "field id is a string, which cannot be a long" in reasons[5]
    assert reasons[8] == "not Avro of its schema: field ts: the value ends too early"
    assert {record.file for record in found.bad} == {f"topic {topic}, partition 0"}


def test_columns_that_no_schema_of_the_topic_has_are_refused_at_the_start(
    topics: Topics, registry: Registry
) -> None:
    topic = topics.make(1)
    framed(registry, topic, record(id="long", gone="string"), [])
    framed(registry, topic, record(id="long", name="string"), [])
    given: dict[str, Any] = {"format": "avro", "registry": registry.url}
    with opened(topics, topic, schema="id long, gone string", **given):
        pass
    with (
        pytest.raises(SourceError, match="column nam is not in the schema"),
        opened(topics, topic, schema="nam string", **given),
    ):
        pass
    with (
        pytest.raises(SourceError, match="cannot be a boolean"),
        opened(topics, topic, schema="id boolean", **given),
    ):
        pass
    with (
        pytest.raises(SourceError, match="has no subject nowhere"),
        opened(topics, topic, schema="id long", subject="nowhere", **given),
    ):
        pass
    with (
        pytest.raises(SourceError, match="kind AVRO"),
        opened(topics, topic, schema="id long", registry=registry.url),
    ):
        pass


def test_results_are_avro_that_others_read_and_weft_reads_back(
    topics: Topics, registry: Registry, tmp_path: Path
) -> None:
    source, out = topics.make(2), topics.make(1)
    schema = record(id="long", name=["null", "string"], ts=TIME)
    rows = [{"id": at, "name": None if at % 3 else "ü", "ts": MOMENT} for at in range(50)]
    topics.write(source, framed(registry, source, schema, rows))
    session = weft.Session(checkpoint=str(tmp_path / "ck"), execution="local")
    read = weft.kafka(
        topics.address,
        source,
        schema="id long, name string, ts timestamp",
        format="avro",
        registry=registry.url,
    )
    session.stream("a", read, event_time="ts", lateness="1 hour")
    session.query(
        "SELECT x.id, x.name, x.ts FROM a [RANGE 1 HOUR] AS x, a [RANGE 1 HOUR] AS y WHERE x.id = y.id",
        name="q",
        sink=weft.to_kafka(topics.address, out, key="id", format="avro", registry=registry.url),
    )
    session.start()
    session.process_all_available()
    session.stop()
    messages = topics.read(out, 50)
    number = int.from_bytes((messages[0].value() or b"")[1:5], "big")
    registered = client(registry).schema(number)
    assert registered is not None
    parsed = fastavro.parse_schema(json.loads(registered.text))
    bodies = [io.BytesIO((message.value() or b"")[5:]) for message in messages]
    found: list[Any] = [fastavro.schemaless_reader(body, parsed, None) for body in bodies]
    assert sorted(found, key=lambda row: row["id"]) == rows
    given: dict[str, Any] = {"schema": "id long, name string", "format": "avro", "registry": registry.url}
    with opened(topics, out, **given) as (again, cursor):
        read_back = [row for one in taken(again, cursor, None) for row in one.batch.to_pylist()]
    assert sorted(row["id"] for row in read_back) == list(range(50))


def test_json_behind_the_number_of_a_schema(topics: Topics, registry: Registry) -> None:
    """What a sink writes with JSON Schema is read back; JSON that names no schema, or one of Avro, is bad."""
    topic = topics.make(1)
    rows = pa.table({"id": [1, 2], "name": ["a", None]})
    sink = weft.to_kafka(topics.address, topic, registry=registry.url)
    sink.open(rows.schema, "own")
    sink.recover(-1)
    sink.commit(0, rows)
    avro = framed(registry, topic, record(id="long"), [{"id": 1}], "some-avro")
    topics.read(topic, 2)
    topics.write(topic, [b'{"id": 3}', avro[0]])
    with opened(topics, topic, schema="id long, name string", registry=registry.url) as (source, cursor):
        (found,) = taken(source, cursor, None)
    assert found.batch.to_pylist() == rows.to_pylist()
    assert "does not begin with the number of a schema" in found.bad[0].reason
    assert "is of the kind AVRO, and not JSON" in found.bad[1].reason


def test_a_schema_that_does_not_match_is_refused_before_anything_is_written(
    topics: Topics, registry: Registry
) -> None:
    topic = topics.make(1)
    rows = pa.schema([("id", pa.int64())])
    given: dict[str, Any] = {"format": "avro", "registry": registry.url}
    sink = weft.to_kafka(topics.address, topic, register=False, **given)
    sink.open(rows, "own")
    with pytest.raises(SinkError, match="has no such schema"):
        sink.recover(-1)
    sink = weft.to_kafka(topics.address, topic, avro_schema=json.dumps(record(id="string")), **given)
    with pytest.raises(SinkError, match="field id of the schema is string"):
        sink.open(rows, "own")
    with pytest.raises(SinkError, match="AS another"):
        weft.to_kafka(topics.address, topic, **given).open(pa.schema([("größe", pa.int64())]))


def test_plain_avro_needs_no_registry(topics: Topics, tmp_path: Path) -> None:
    topic, schema = topics.make(1), record(id="long", name="string")
    (tmp_path / "row.avsc").write_text(json.dumps(schema))
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    given: dict[str, Any] = {"format": "avro", "avro_schema": tmp_path / "row.avsc"}
    sink = weft.to_kafka(topics.address, topic, **given)
    sink.open(rows.schema, "own")
    sink.recover(-1)
    sink.commit(0, rows)
    topics.read(topic, 2)
    topics.write(topic, [b"\xff", b""])
    with opened(topics, topic, schema="id long, name string", **given) as (source, cursor):
        (found,) = taken(source, cursor, None)
    assert found.batch.to_pylist() == rows.to_pylist()
    assert len(found.bad) == 2
    with pytest.raises(SinkError, match="NULL"):
        sink.commit(1, pa.table({"id": [1], "name": pa.array([None], pa.string())}))


def test_a_registry_that_is_away_stops_the_start_and_spoils_no_record(topics: Topics) -> None:
    topic = topics.make(1)
    source = weft.kafka(
        topics.address,
        topic,
        schema="id long",
        format="avro",
        registry="http://127.0.0.1:1",
        timeout="1 second",
    )
    with pytest.raises(SourceError, match=r"http://127.0.0.1:1: .*refused"):
        source.format.decode([b"\0\0\0\0\1x"], source.schema.fields)
