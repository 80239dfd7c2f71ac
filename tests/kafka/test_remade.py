"""A topic that is deleted and made again under its name is another one, whose offsets are those of other records.

What users would lose: the records of the new topic before the old offset, in silence.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import weft
from tests.kafka.reading import SCHEMA, opened, taken
from tests.kafka.topics import Topics, json_values
from tests.shares import seeds
from weft.connectors.kafka import cursor as kafka_cursor
from weft.connectors.kafka.offsets import TopicOffsets
from weft.errors import SourceError

TIME = "2024-01-01 00:00:00"


def values(first: int, count: int) -> list[bytes]:
    """Records with numbers."""
    return json_values({"id": n, "name": "x", "ts": TIME} for n in range(first, first + count))


def ids(decoded: list[Any]) -> list[int]:
    """The numbers of the records that were read."""
    return sorted(row["id"] for one in decoded for row in one.batch.to_pylist())


def read(
    topics: Topics, topic: str, state: dict[str, Any], **options: Any
) -> tuple[list[int], dict[str, Any]]:
    """What a cursor that goes on from a state gives, and its state afterwards."""
    with opened(topics, topic, state, **options) as (source, cursor):
        return ids(taken(source, cursor)), cursor.state()


def test_a_topic_that_was_made_again_is_an_error(topics: Topics) -> None:
    """Whether it is longer than the old one was, or shorter."""
    for count in (60, 3):
        topic = topics.make(1)
        topics.write(topic, values(0, 11))
        before, state = read(topics, topic, {})
        assert before == list(range(11))
        topics.remake(topic)
        topics.write(topic, values(100, count))
        with pytest.raises(
            SourceError, match=f"topic {topic} was deleted and made again: its id is"
        ) as error:
            read(topics, topic, state)
        assert "starting=" in (error.value.hint or "")


def test_where_to_go_on_is_what_starting_says(topics: Topics) -> None:
    """All records of the new topic, those to come, or those from an offset on."""
    topic = topics.make(1)
    topics.write(topic, values(0, 11))
    _, state = read(topics, topic, {})
    topics.remake(topic)
    topics.write(topic, values(100, 20))
    assert read(topics, topic, state, starting="earliest")[0] == list(range(100, 120))
    assert read(topics, topic, state, starting="latest")[0] == []
    found, after = read(topics, topic, state, starting={0: 15})
    assert found == list(range(115, 120))
    assert read(topics, topic, after, starting="earliest")[0] == []  # it has begun again once


def test_it_is_noticed_while_it_is_read(topics: Topics) -> None:
    """Before a record of the new topic is taken for one of the old."""
    topic = topics.make(2)
    topics.write(topic, values(0, 11))
    with opened(topics, topic) as (source, cursor):
        taken(source, cursor)
        topics.remake(topic, 2)
        topics.write(topic, values(100, 60))
        cursor.catch_up()
        with pytest.raises(SourceError, match="was deleted and made again"):
            cursor.look(0.0)
    with opened(topics, topic, starting="earliest") as (source, cursor):
        assert ids(taken(source, cursor)) == list(range(100, 160))
        topics.remake(topic, 2)
        topics.write(topic, values(200, 5))
        cursor.catch_up()
        assert ids(taken(source, cursor)) == list(range(200, 205))


def test_a_part_of_the_old_topic_gives_no_records_of_the_new_one(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was planned and has to be repeated."""
    monkeypatch.setattr("weft.connectors.kafka.fetch._FRESH", 0.0)
    topic = topics.make(1)
    topics.write(topic, values(0, 11))
    with opened(topics, topic) as (source, cursor):
        parts = cursor.look(0.0).parts
    topics.remake(topic)
    topics.write(topic, values(100, 60))
    with pytest.raises(SourceError, match="was deleted and made again"):
        source.read("s", parts[0], "ts")
    told = weft.kafka(topics.address, topic, schema=SCHEMA, starting="earliest")
    found = told.read("s", parts[0], "ts")
    assert found.batch.num_rows == 0
    assert [(one.offset, 1 + one.more) for one in found.bad] == [(0, 11)]


def test_older_checkpoints_know_no_id_and_get_one(topics: Topics) -> None:
    """They go on; from then on the topic is known."""
    topic = topics.make(1)
    topics.write(topic, values(0, 5))
    _, state = read(topics, topic, {})
    old = {name: one for name, one in state.items() if name not in ("id", "begins")}
    topics.write(topic, values(5, 5))
    found, after = read(topics, topic, old)
    assert found == list(range(5, 10))
    assert after["id"] == state["id"]


def test_brokers_without_ids_are_watched_for_shorter_topics(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By where a topic ends, and by where it begins."""
    monkeypatch.setattr(TopicOffsets, "id", lambda _: None)
    monkeypatch.setattr(kafka_cursor, "_SHORT_FOR", 0.0)
    topic = topics.make(1)
    topics.write(topic, values(0, 11))
    _, ended = read(topics, topic, {})
    topics.delete_before(topic, 0, 5)
    _, begun = read(topics, topic, {})
    assert begun["begins"] == {"0": 5}
    topics.remake(topic)
    for state, count in ((ended, 3), (begun, 60)):
        topics.write(topic, values(100, count))
        with opened(topics, topic, state) as (_, cursor):
            cursor.look(0.0)
            with pytest.raises(SourceError, match=r"was deleted and made again: partition 0 (ends|begins)"):
                cursor.look(1.0)


@pytest.mark.parametrize("seed", seeds(2))
def test_topics_made_again_at_random(topics: Topics, tmp_path: Path, seed: int) -> None:
    """A session reads what is written, each record once, or says that the topic is another one."""
    rng = random.Random(f"remade {seed}")
    topic, wanted, written, allowed = topics.make(1), list[int](), 0, False
    for chapter in range(4):
        remade = chapter > 0 and rng.random() < 0.6
        if remade:
            topics.remake(topic)
        count = rng.randint(1, 30)
        topics.write(topic, values(written, count))
        wanted += range(written, written + count)
        written += count
        allowed = rng.random() < 0.5
        if remade and not allowed:
            with pytest.raises(SourceError, match="was deleted and made again"):
                run(topics, topic, tmp_path, {})
        found = run(topics, topic, tmp_path, {"starting": "earliest"})
        assert found == wanted


def run(topics: Topics, topic: str, root: Path, options: dict[str, Any]) -> list[int]:
    """Run a session until nothing is left; what its query has given, in all."""
    session = weft.Session(checkpoint=root / "ck", execution="local")
    session.stream("s", weft.kafka(topics.address, topic, schema=SCHEMA, **options), event_time="ts")
    session.query("SELECT s.id FROM s", name="q", sink=weft.to_parquet(root / "out"))
    session.start()
    try:
        session.process_all_available()
    finally:
        session.stop()
    files = sorted((root / "out").glob("batch=*/*.parquet"))
    return sorted(row["id"] for file in files for row in pq.ParquetFile(file).read().to_pylist())
