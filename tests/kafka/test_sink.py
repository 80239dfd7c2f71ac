"""Results as records of a topic, on a real broker."""

from __future__ import annotations

import json
import os
import random
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.kafka.strikes import Strikes, struck
from tests.kafka.topics import Topics
from weft.connectors.kafka.sink import KafkaSink
from weft.connectors.sink_descriptions import describe_sink, make_sink
from weft.errors import SinkError
from weft.service.kafka_broker import Broker

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, 'c"\n\\é']})


def opened(topics: Topics, topic: str, last: int = -1, owner: str = "own", **given: Any) -> KafkaSink:
    sink = weft.to_kafka(topics.address, topic, **given)
    sink.open(ROWS.schema, owner)
    sink.recover(last)
    return sink


def test_a_batch_that_is_there_is_not_sent_again(topics: Topics) -> None:
    topic = topics.make(3)
    sink = opened(topics, topic, key="id")
    sink.commit(0, ROWS)
    sink.commit(0, ROWS)
    sink.commit(1, [])
    again = opened(topics, topic, -1, key="id")  # the checkpoint does not know of batch 0
    again.commit(0, ROWS)
    again.commit(2, ROWS.slice(0, 1))
    found = topics.read(topic, 4)
    assert sorted(int(message.key() or b"") for message in found) == [1, 1, 2, 3]
    assert {json.loads(message.value() or b"")["name"] for message in found} == {"a", None, 'c"\n\\é'}
    assert len({message.partition() for message in found if message.key() == b"1"}) == 1


def test_a_batch_that_was_interrupted_is_not_seen(topics: Topics) -> None:
    """Records of a transaction that never ended disappear when the session is there again."""
    topic = topics.make(1)
    sink = opened(topics, topic)
    target = sink._opened()
    target._producer.begin_transaction()
    target._producer.produce(topic, b'{"id":99}')
    target._producer.flush(10)
    again = opened(topics, topic)
    again.commit(0, ROWS)
    assert [row["id"] for row in topics.rows(topic, 3)] == [1, 2, 3]


def test_a_session_that_was_replaced_writes_no_more(topics: Topics) -> None:
    """Of two processes with the same checkpoint, the one that came first fails and adds nothing."""
    topic = topics.make(1)
    first = opened(topics, topic)
    first.commit(0, ROWS)
    opened(topics, topic, 0).commit(1, ROWS.slice(0, 1))
    with pytest.raises(SinkError, match="has taken over"):
        first.commit(1, ROWS)
    assert [row["id"] for row in topics.rows(topic, 4)] == [1, 2, 3, 1]


def test_a_topic_that_is_ahead_of_its_checkpoint_is_refused(topics: Topics) -> None:
    topic = topics.make(1)
    opened(topics, topic).commit(7, ROWS)
    with pytest.raises(SinkError, match="has batch 7, but the checkpoint ends with 3"):
        opened(topics, topic, 3)
    opened(topics, topic, 3, owner="another")


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_broker_that_dies_and_comes_back_loses_and_doubles_nothing(
    topics: Topics, broker: Broker, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """It dies right after it has said that a batch is committed, which brokers of Kafka 4.3 may forget half of."""
    topic = topics.make(2)
    sink = opened(topics, topic)
    strikes = Strikes(broker, [("after commit_transaction", 1)] * times, random.Random(times))
    struck(monkeypatch, strikes)
    for batch in range(2):
        sink._opened()._disconnect()
        sink.commit(batch, ROWS)
    strikes.end()
    assert len(strikes.done) == times
    assert sorted(row["id"] for row in topics.rows(topic, 6)) == [1, 1, 2, 2, 3, 3]


def test_values_come_back_as_they_were(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(1)
    schema = "i int, l long, f double, d decimal(10,2), b boolean, s string, x binary, day date, ts timestamp"
    columns = {
        "i": pa.array([1, None], pa.int32()),
        "l": pa.array([2**62, -1], pa.int64()),
        "f": pa.array([1e20, 0.1]),
        "d": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
        "b": pa.array([True, None]),
        "s": pa.array(['\x00\t"ü\u2028', ""]),
        "x": pa.array([b"\x00\xff", None]),
        "day": pa.array([date(1999, 12, 31), None]),
        "ts": pa.array([datetime(2024, 1, 1, 0, 0, 0, 123456, timezone.utc)] * 2, pa.timestamp("us", "UTC")),
    }
    table = pa.table(columns)
    sink = weft.to_kafka(topics.address, topic)
    sink.open(table.schema, "types")
    sink.recover(-1)
    sink.commit(0, table)
    from weft.ports.source import CursorContext, MemoryBlobs

    source = weft.kafka(topics.address, topic, schema=schema)
    cursor = source.open(CursorContext("s", {}, MemoryBlobs(), tmp_path))
    topics.read(topic, 2)
    cursor.catch_up()
    (part,) = cursor.look(0.0).parts
    found = source.read("s", part, "ts")
    cursor.close()
    assert found.bad == ()
    assert pa.Table.from_batches([found.batch]).to_pylist() == table.to_pylist()


def test_a_sink_is_made_again_from_its_description() -> None:
    os.environ["WEFT_TEST_PASSWORD"] = "hush-hush"
    sink = weft.to_kafka("h:1", "t", key="id", name="n", sasl_password="env:WEFT_TEST_PASSWORD")
    described = describe_sink(sink)
    assert described is not None
    assert "hush" not in json.dumps(described) + repr(sink)
    assert make_sink(described) == sink
    assert sink.options.config(SinkError)["sasl.password"] == "hush-hush"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"compresion_type": "zstd"}, "there is no option"),
        ({"transactional_id": "x"}, "there is no option"),
        ({"sasl_password": "plain-text"}, "is a secret"),
        ({"format": "xml"}, "unknown format"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(given: dict[str, Any], told: str) -> None:
    with pytest.raises(SinkError, match=told) as error:
        weft.to_kafka("h:1", "t", **given)
    assert "plain-text" not in str(error.value)


def test_groups_that_change_have_their_keys_as_a_key(topics: Topics) -> None:
    """A topic that is compacted would keep other records than the last one of each group."""
    topic = topics.make(3)
    sink = make_sink(describe_sink(weft.to_kafka(topics.address, topic).keyed(["id", "name"])) or {})
    sink.open(ROWS.schema, "own")
    sink.recover(-1)
    for batch in (0, 0, 1):
        sink.commit(batch, ROWS)
    found = topics.read(topic, 6)
    keys = [json.loads(message.key() or b"") for message in found]
    assert sorted(map(str, keys)) == sorted(str(row) for row in ROWS.to_pylist() * 2)
    homes = {(str(key), message.partition()) for key, message in zip(keys, found, strict=True)}
    assert len(homes) == 3
    alone = topics.make(1)
    whole = weft.to_kafka(topics.address, alone).keyed([])
    whole.open(ROWS.schema, "own")
    whole.recover(-1)
    whole.commit(0, ROWS.slice(0, 1))
    assert [message.key() for message in topics.read(alone, 1)] == [b"{}"]


def test_groups_that_change_want_no_other_key(topics: Topics) -> None:
    with pytest.raises(SinkError, match="the key is id"):
        weft.to_kafka(topics.address, "t", key="id").keyed(["id"])
