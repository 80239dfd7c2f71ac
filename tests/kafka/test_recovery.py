"""Sessions and brokers that are killed lose nothing and do nothing twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from tests.kafka.topics import Topics, json_values
from weft.testing.kafka_broker import Broker

ROOT = Path(__file__).parents[2]
COUNT = 1200


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.kafka.program", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_every_result_is_there_once_whatever_is_killed(
    topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    chance = random.Random(0)
    left, right, out = topics.make(2), topics.make(3), topics.make(2)
    rows = [{"id": number, "ts": f"2024-01-01T00:00:{number % 60:02d}Z"} for number in range(COUNT)]
    for partition in range(2):
        topics.write(left, json_values(rows[partition::2]), partition)
    for partition in range(3):
        topics.write(right, json_values(rows[partition::3]), partition)
    arguments = (broker.address, left, right, out, str(tmp_path / "ck"))
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
    found = [row["id"] for row in topics.rows(out, COUNT)]
    assert sorted(found) == list(range(COUNT))
    assert before < COUNT, "the last run had nothing to do: kill sooner"
