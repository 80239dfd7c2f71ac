"""Topics as streams, read from a real broker."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.kafka.reading import SCHEMA, opened, taken
from tests.kafka.topics import Topics, json_values
from weft.connectors.formats.records import Decoded
from weft.connectors.kafka import offsets as kafka_offsets
from weft.errors import SourceError


def at(second: int) -> str:
    return f"2024-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


def rows(first: int, end: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}", "ts": at(number % 600)} for number in range(first, end)]


def run(topics: Topics, topic: str, checkpoint: Path, **options: Any) -> weft.Session:
    """A session that joins a topic with itself, so that every record with a valid row gives one result."""
    options = {"schema": SCHEMA, **options}
    session = weft.Session(checkpoint=str(checkpoint), execution="local")
    session.stream("a", weft.kafka(topics.address, topic, **options), event_time="ts", lateness="1 hour")
    session.query(
        "SELECT x.id, x.name FROM a [RANGE 1 HOUR] AS x, a [RANGE 1 HOUR] AS y WHERE x.id = y.id",
        name="q",
        sink=weft.to_parquet(checkpoint.parent / "out"),
    )
    session.start()
    return session


def ids(folder: Path) -> list[int]:
    import pyarrow.dataset as ds

    found = ds.dataset(folder / "out", partitioning="hive").to_table()
    return sorted(found.column("id").to_pylist()) if found.num_columns else []


def test_every_record_of_several_partitions_is_read_once(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(3)
    for partition in range(3):
        topics.write(topic, json_values(rows(partition * 100, partition * 100 + 100)), partition)
    session = run(topics, topic, tmp_path / "ck")
    session.process_all_available()
    topics.write(topic, json_values(rows(300, 310)), 1)
    session.process_all_available()
    session.stop()
    assert ids(tmp_path) == list(range(310))


def test_a_session_goes_on_where_it_was(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(2)
    topics.write(topic, json_values(rows(0, 50)))
    session = run(topics, topic, tmp_path / "ck", max_records_per_batch=20)
    session.process_all_available()
    session.stop()
    topics.write(topic, json_values(rows(50, 80)), 1)
    session = run(topics, topic, tmp_path / "ck", max_records_per_batch=7)
    session.process_all_available()
    session.stop()
    assert ids(tmp_path) == list(range(80))


def found_ids(decoded: list[Decoded]) -> list[int]:
    return sorted(number for one in decoded for number in one.batch.column("id").to_pylist())


def test_bad_records_are_set_aside_with_their_place(topics: Topics) -> None:
    topic = topics.make(2)
    good = json_values(rows(0, 3))
    values = [good[0], b"{no json", b"", b'{"id": "x"}', good[1], b"[1]", b'{"id": 9}', b"  ", good[2]]
    topics.write(topic, values, partition=1)
    with opened(topics, topic) as (source, cursor):
        (decoded,) = taken(source, cursor)
    assert decoded.batch.column("id").to_pylist() == [0, 1, 2]
    assert [record.offset for record in decoded.bad] == [1, 2, 3, 5, 6, 7]
    assert {record.file for record in decoded.bad} == {f"topic {topic}, partition 1"}
    assert decoded.bad[0].raw == b"{no json"
    assert "event time is NULL" in decoded.bad[4].reason


def test_columns_tell_of_the_record(topics: Topics) -> None:
    topic = topics.make(2, retention_ms="-1")
    message = {"key": b"k", "timestamp": 1704067200123, "headers": [("h", b"1"), ("h", None)]}
    topics.write(topic, [b"one", None], 1, **message)
    schema = "value string, _key string, _topic string, _partition int, _offset long, _timestamp timestamp"
    with opened(topics, topic, schema=f"{schema}, _headers string", format="raw") as (source, cursor):
        (decoded,) = taken(source, cursor, "_timestamp")
    time = datetime(2024, 1, 1, 0, 0, 0, 123000, timezone.utc)
    common = {"_key": "k", "_topic": topic, "_partition": 1, "_timestamp": time}
    headers = {"_headers": '[["h", "1"], ["h", null]]'}
    assert decoded.batch.to_pylist() == [
        {"value": "one", **common, "_offset": 0, **headers},
        {"value": None, **common, "_offset": 1, **headers},
    ]


def test_a_stream_begins_where_it_is_told_to(topics: Topics) -> None:
    topic = topics.make(2, retention_ms="-1")
    base = datetime(2024, 1, 1, tzinfo=timezone.utc)
    for number, value in enumerate(json_values(rows(0, 10))):
        since = int((base + timedelta(seconds=number)).timestamp() * 1000)
        topics.write(topic, [value], number % 2, timestamp=since)
    expected: list[tuple[Any, list[int]]] = [
        ("earliest", list(range(10))),
        ("latest", []),
        ({0: 3}, [1, 3, 5, 6, 7, 8, 9]),
        (base + timedelta(seconds=7), [7, 8, 9]),
        ("2024-01-01T00:00:09", [9]),
    ]
    for starting, ids_then in expected:
        with opened(topics, topic, starting=starting) as (source, cursor):
            assert found_ids(taken(source, cursor)) == ids_then, starting
    with pytest.raises(SourceError, match="partition 7"), opened(topics, topic, starting={7: 0}):
        pass


def test_new_partitions_are_noticed_and_read_from_their_beginning(topics: Topics) -> None:
    topic = topics.make(1)
    topics.write(topic, json_values(rows(0, 5)))
    with opened(topics, topic, starting="latest") as (source, cursor):
        assert taken(source, cursor) == []
        topics.grow(topic, 2)
        topics.write(topic, json_values(rows(5, 8)), 1)
        cursor.catch_up()
        assert found_ids(taken(source, cursor)) == [5, 6, 7]
        assert cursor.state()["positions"] == {"0": 5, "1": 3}


def test_records_that_expired_are_named_or_counted(topics: Topics) -> None:
    topic = topics.make(1)
    topics.write(topic, json_values(rows(0, 10)))
    state = {"topic": topic, "positions": {"0": 2}}
    topics.delete_before(topic, 0, 6)
    with opened(topics, topic, state) as (_, cursor), pytest.raises(SourceError) as error:
        cursor.look(0.0)
    assert "partition 0: offsets 2 to 5 have expired" in str(error.value)
    with opened(topics, topic, state, expired="skip") as (source, cursor):
        (decoded,) = taken(source, cursor)
        assert cursor.state()["positions"] == {"0": 10}
    assert found_ids([decoded]) == [6, 7, 8, 9]
    assert [(record.offset, record.reason) for record in decoded.bad] == [
        (2, "the records from here to before offset 6 have expired")
    ]


def test_a_range_that_expired_since_its_plan_was_made_is_an_error(topics: Topics) -> None:
    topic = topics.make(1)
    topics.write(topic, json_values(rows(0, 10)))
    with opened(topics, topic) as (source, cursor):
        (part,) = cursor.look(0.0).parts
        topics.delete_before(topic, 0, 6)
        fresh = weft.kafka(topics.address, topic, schema=SCHEMA, client_id="another")
        with pytest.raises(SourceError, match="they have expired"):
            fresh.read("s", part, "ts")
        assert source.schema is not None


def test_only_what_was_committed_is_read(topics: Topics) -> None:
    """Markers of transactions and what was aborted take offsets, but give no rows and keep nobody waiting."""
    topic = topics.make(1)
    topics.write_in_transaction(topic, json_values(rows(0, 3)), commit=True)
    topics.write_in_transaction(topic, json_values(rows(3, 6)), commit=False)
    topics.write_in_transaction(topic, json_values(rows(6, 9)), commit=True)
    topics.read(topic, 6)
    with opened(topics, topic, max_records_per_batch=4) as (source, cursor):
        found = [found_ids(taken(source, cursor)) for _ in range(3)]
        assert cursor.look(0.0).parts == ()
    assert sorted(number for some in found for number in some) == [0, 1, 2, 6, 7, 8]


def test_offsets_are_committed_to_a_group_after_their_batch(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(1)
    topics.write(topic, json_values(rows(0, 12)))
    session = run(topics, topic, tmp_path / "ck", group="lags")
    session.process_all_available()
    session.stop()
    assert topics.committed(topic, "lags") == 12


def test_csv_values_are_lines_without_a_header(topics: Topics) -> None:
    topic = topics.make(1)
    values = [b"1,a,2024-01-01T00:00:00", b"2", b'3,"x\ny",2024-01-01T00:00:01', b'4,"open,2024-01-01', b""]
    topics.write(topic, values)
    with opened(topics, topic, format="csv") as (source, cursor):
        (decoded,) = taken(source, cursor)
    assert decoded.batch.select(["id", "name"]).to_pylist() == [
        {"id": 1, "name": "a"},
        {"id": 3, "name": "x\ny"},
    ]
    assert [record.offset for record in decoded.bad] == [1, 3, 4]


def test_a_topic_that_is_not_there_is_an_error(topics: Topics) -> None:
    with pytest.raises(SourceError, match="no_such_topic"), opened(topics, "no_such_topic"):
        pass


def test_a_checkpoint_is_of_one_topic(topics: Topics) -> None:
    with pytest.raises(SourceError, match="has read topic other"), opened(topics, "t", {"topic": "other"}):
        pass


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"auto_offset_reset": "latest"}, "there is no option"),
        ({"grup": "x"}, "group"),
        ({"sasl_password": "plain-text"}, "is a secret"),
        ({"starting": "soon"}, "starting is not understood"),
        ({"schema": "id long, _offset string"}, "_offset"),
        ({"format": "raw"}, "one column"),
        ({"format": "avrro"}, "unknown format"),
        ({"expired": "ignore"}, "expired"),
        ({"max_records_per_batch": 0}, "1 or more"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(given: dict[str, Any], told: str) -> None:
    with pytest.raises(SourceError, match=told) as error:
        weft.kafka("h:1", "t", **{"schema": SCHEMA, **given})
    assert "plain-text" not in str(error.value)


def test_secrets_do_not_leave_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the pickled source nor an error shows a secret, and a reference that leads nowhere is named."""
    import pickle

    (tmp_path / "secret").write_text("from-a-file\n")
    monkeypatch.setenv("WEFT_TEST_PASSWORD", "from-the-environment")
    more: dict[str, Any] = {
        "sasl_password": "env:WEFT_TEST_PASSWORD",
        "ssl_key_password": f"file:{tmp_path / 'secret'}",
    }
    source = weft.kafka("h:1", "t", schema=SCHEMA, **more)
    shown = repr(source).encode() + pickle.dumps(source)
    assert b"from-the-environment" not in shown
    assert b"from-a-file" not in shown
    config = source.options.config(SourceError)
    assert (config["sasl.password"], config["ssl.key.password"]) == ("from-the-environment", "from-a-file")
    assert source.options.without_secrets("wrong: from-a-file", SourceError) == "wrong: …"
    monkeypatch.delenv("WEFT_TEST_PASSWORD")
    with pytest.raises(SourceError, match="WEFT_TEST_PASSWORD"):
        source.options.config(SourceError)


def look_for_a_while(cursor: Any) -> None:
    for _ in range(600):
        time.sleep(0.05)
        cursor.look(0.0)


def test_a_topic_that_is_deleted_while_it_is_read_stops_the_session(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once, for brokers that are just starting know no topics either."""
    monkeypatch.setattr(kafka_offsets, "_MISSING_FOR", 0.3)
    topic = topics.make(1)
    with opened(topics, topic) as (_, cursor):
        assert not cursor.look(0.0).parts
        topics.delete(topic)
        with pytest.raises(SourceError, match=f"topic {topic} at .*UNKNOWN_TOPIC"):
            look_for_a_while(cursor)


def test_servers_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_offsets, "_ANSWER", 0.5)
    with (
        pytest.raises(SourceError, match=r"(?s)topic t at 127.0.0.1:1: .*hint: are the servers right"),
        opened(Topics("127.0.0.1:1"), "t"),
    ):
        pass
