"""Topics read by tasks of Spark's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weft
from tests.kafka.topics import Topics, json_values


@pytest.mark.parametrize("execution", ["resident", "jobs"])
def test_tasks_of_spark_read_topics(topics: Topics, spark: Any, execution: str, tmp_path: Path) -> None:
    one, two, out = topics.make(2), topics.make(1), topics.make(1)
    rows = [{"id": number, "ts": "2024-01-01T00:00:00Z"} for number in range(100)]
    session = weft.Session(checkpoint=str(tmp_path / "ck"), spark=spark, execution=execution)
    for name, topic in (("a", one), ("b", two)):
        topics.write(topic, json_values(rows))
        session.stream(
            name, weft.kafka(topics.address, topic, schema="id long, ts timestamp"), event_time="ts"
        )
    session.query(
        "SELECT a.id FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.id = b.id",
        name="q",
        sink=weft.to_kafka(topics.address, out),
    )
    session.start()
    session.process_all_available()
    session.stop()
    assert sorted(row["id"] for row in topics.rows(out, 100)) == list(range(100))
