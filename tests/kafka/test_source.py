"""Topics as streams, read from a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import weft
from tests.kafka.topics import Topics, json_values

SCHEMA = "id long, name string, ts timestamp"


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
