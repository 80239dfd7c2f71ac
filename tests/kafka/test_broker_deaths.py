"""A session lives on while its broker is killed at random moments, and the results are those of the definition."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.kafka.strikes import MOMENTS, Strikes, struck
from tests.kafka.topics import Topics, json_values
from tests.shares import seeds
from weft.service.kafka_broker import Broker
from weft.testing import reference_join

SCHEMA = "id long, k long, ts timestamp"
SQL = "SELECT l.id, r.id AS other FROM l [RANGE 1 HOUR], r [RANGE 1 HOUR] WHERE l.k = r.k"
ROWS = 240


def random_rows(chance: random.Random) -> list[dict[str, Any]]:
    """Rows with ids that occur several times, so that equal results are counted."""
    second = "2024-01-01T00:00:{:02d}Z"
    return [
        {"id": chance.randrange(ROWS // 2), "k": chance.randrange(ROWS), "ts": second.format(at % 60)}
        for at in range(ROWS)
    ]


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    moments = [
        datetime.strptime(row["ts"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc) for row in rows
    ]
    columns = {name: pa.array([row[name] for row in rows], pa.int64()) for name in ("id", "k")}
    return pa.table({**columns, "ts": pa.array(moments, pa.timestamp("us", "UTC"))})


def strike_plan(chance: random.Random) -> list[tuple[str, int]]:
    """Moments and how often they pass first; the moment after a commit comes soon, for brokers are weak there."""
    moments = chance.sample(MOMENTS, k=chance.randint(1, 2))
    plan = [(moment, 1 if "init" in moment else chance.randint(1, 2)) for moment in moments]
    plan.insert(chance.randint(0, len(plan)), ("after commit_transaction", chance.randint(1, 2)))
    return plan


@pytest.mark.parametrize("seed", seeds(1))
def test_results_are_there_once_whenever_the_broker_dies(
    seed: int, topics: Topics, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    tables, session = {}, weft.Session(checkpoint=tmp_path / "ck", execution="local")
    for name in ("l", "r"):
        rows, topic = random_rows(chance), topics.make(2)
        for partition in range(2):
            topics.write(topic, json_values(rows[partition::2]), partition)
        source = weft.kafka(
            broker.address, topic, schema=SCHEMA, max_records_per_batch=chance.choice([20, 60])
        )
        session.stream(name, source, event_time="ts", lateness="1 hour")
        tables[name] = as_table(rows)
    out, keyed = topics.make(chance.randint(1, 4)), chance.choice([None, "id"])
    expected = Counter(tuple(row.values()) for row in reference_join(session.parse(SQL), tables).to_pylist())
    session.query(SQL, name="q", sink=weft.to_kafka(broker.address, out, key=keyed))
    strikes = Strikes(broker, strike_plan(chance), chance)
    struck(monkeypatch, strikes)
    session.start()
    session.process_all_available()
    session.stop()
    strikes.end()
    assert strikes.done, "no moment came: the broker was never killed"
    found = Counter((row["id"], row["other"]) for row in topics.rows(out, expected.total()))
    assert found == expected, strikes.done
