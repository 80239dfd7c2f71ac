"""Sessions and brokers that are killed lose nothing and do nothing twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.registry import Registry, framed
from tests.kafka.topics import Topics, json_values
from weft.connectors.kafka.avro import parse_schema
from weft.connectors.kafka.values import plain_avro
from weft.logical.schema import Schema
from weft.service.kafka_broker import Broker

TIME = {"type": "long", "logicalType": "timestamp-millis"}
RESULT = parse_schema('{"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "long"]}]}')
ROOT = Path(__file__).parents[2]
COUNT = 1200


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.kafka.program", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run_and_kill(topics: Topics, broker: Broker, folder: Path, registry: str, values: list[bytes]) -> str:
    """Kill sessions, once the broker too, and let the last one end; gives the topic of the results."""
    chance = random.Random(0)
    left, right, out = topics.make(2), topics.make(3), topics.make(2)
    for partition in range(2):
        topics.write(left, values[partition::2], partition)
    for partition in range(3):
        topics.write(right, values[partition::3], partition)
    arguments = (broker.address, left, right, out, str(folder / "ck"), registry)
    for attempt in range(4):
        program = start(*arguments)
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(chance.uniform(0, 0.5))
        if attempt == 1:
            broker.kill()
            broker.start()
            time.sleep(0.5)
        program.kill()
        program.communicate()
    before = len(topics.read(out))
    final = start(*arguments, "end")
    _, errors = final.communicate(timeout=120)
    assert final.returncode == 0, errors.decode()
    assert before < COUNT, "the last run had nothing to do: kill sooner"
    return out


def test_every_result_is_there_once_whatever_is_killed(
    topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    rows = [{"id": number, "ts": f"2024-01-01T00:00:{number % 60:02d}Z"} for number in range(COUNT)]
    out = run_and_kill(topics, broker, tmp_path, "-", json_values(rows))
    assert sorted(row["id"] for row in topics.rows(out, COUNT)) == list(range(COUNT))


@pytest.mark.slow
def test_every_result_of_avro_values_is_there_once_whatever_is_killed(
    topics: Topics, broker: Broker, registry: Registry, tmp_path: Path
) -> None:
    """The same with schemas by number: a session that starts again finds the number that its results had before."""
    rows = [{"id": number, "ts": 1704067200000 + number % 60} for number in range(COUNT)]
    fields = [{"name": "id", "type": "long"}, {"name": "ts", "type": TIME}]
    values = framed(registry, "some-topic", {"type": "record", "name": "row", "fields": fields}, rows)
    out = run_and_kill(topics, broker, tmp_path, registry.url, values)
    found = [message.value() or b"" for message in topics.read(out, COUNT)]
    assert len({value[:5] for value in found}) == 1
    results = plain_avro([value[5:] for value in found], Schema.parse("id long").fields, RESULT)
    assert results.wrong == {}
    assert sorted(results.rows.column("id").to_pylist()) == list(range(COUNT))
