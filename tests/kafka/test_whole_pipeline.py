"""The whole of it: topics and tables in and out, a query that comes later, a broker and a session that are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.kafka.topics import Topics, json_values
from tests.kafka.whole import CARDS, PAID, SALES, STREAMS
from tests.shares import seeds
from weft.testing import reference_join
from weft.testing.kafka_broker import Broker

deltalake = pytest.importorskip("deltalake", reason='needs pip install "weft[delta]"')

ROOT = Path(__file__).parents[2]
CUSTOMERS, ORDERS, PHASES = 20, 120, 3


class Program:
    """A life of the program; what it says goes to a file of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = (folder / f"life-{time.monotonic_ns()}.log").open("w+b")
        command = [sys.executable, "-m", "tests.kafka.whole", str(folder), *arguments]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process = subprocess.Popen(command, cwd=ROOT, **pipes)
        assert self._answer() == "started"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if not line:
            self._process.wait(60)
            self._log.seek(0)
            raise AssertionError(self._log.read().decode())
        return line

    def tell(self, word: str) -> None:
        """Ask for something, and do not wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()

    def do(self, word: str) -> None:
        """Ask for something, and wait until it is done."""
        self.tell(word)
        assert self._answer() == word

    def kill(self) -> None:
        """End it as a loss of power would."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Wait for its end."""
        self._process.communicate(timeout=120)
        self._log.close()


def phase(rng: random.Random, number: int) -> dict[str, list[dict[str, Any]]]:
    """The orders and payments of a phase: payments are of any order so far, some twice, some of none."""
    ids = range(number * ORDERS, (number + 1) * ORDERS)
    moment = "2024-01-01T00:{:02d}:{:02d}Z"
    orders = [
        {
            "id": one,
            "customer": rng.randrange(CUSTOMERS + 3),
            "amount": f"{rng.randrange(5000) / 100:.2f}",
            "ts": moment.format(number, one % 60),
        }
        for one in ids
    ]
    payments = [
        {
            "bill": rng.randrange((number + 1) * ORDERS + 10),
            "method": rng.choice(["card", "cash", 'ü"', None]),
            "ts": moment.format(number, one % 60),
        }
        for one in ids
    ]
    return {"orders": orders, "payments": payments}


def as_table(rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    """Rows as they are in a topic, in the types of their stream."""
    written = {name: pa.string() if name in ("amount", "ts") else type_ for name, type_ in types.items()}
    table = pa.Table.from_pylist(rows, pa.schema(list(written.items())))
    return table.cast(pa.schema(list(types.items())))


_TIME = pa.timestamp("us", "UTC")
TYPES = {
    "orders": {"id": pa.int64(), "customer": pa.int64(), "amount": pa.decimal128(12, 2), "ts": _TIME},
    "payments": {"bill": pa.int64(), "method": pa.string(), "ts": _TIME},
}


def wanted(sql: str, tables: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """The results of a query by the definition."""
    session = weft.Session()
    for name, columns in STREAMS.items():
        session.stream(name, columns, event_time="since" if name == "customers" else "ts")
    aliases = {"o": tables["orders"], "p": tables["payments"], "c": tables["customers"]}
    query = session.parse(sql)
    return counted(reference_join(query, {alias: aliases[alias] for alias in query.aliases}))


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """How often each row is there, whatever the order."""
    return Counter(tuple(str(value) for value in row.values()) for row in table.to_pylist())


def customers() -> pa.Table:
    """All customers."""
    numbers = range(CUSTOMERS)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "name": [f"customer {number}" for number in numbers],
            "country": [("DE", "FR", None)[number % 3] for number in numbers],
            "since": pa.array([0] * CUSTOMERS, pa.int64()).cast(_TIME),
        }
    )


def lake(path: Path) -> pa.Table:
    """What a reader of a Delta table sees."""
    return deltalake.DeltaTable(str(path)).to_pyarrow_table()


@pytest.mark.parametrize("seed", seeds(1))
def test_the_whole_of_it_is_right_whatever_is_killed(
    seed: int, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    """A query comes while others run, the broker restarts, the session is killed; each result is there once."""
    rng = random.Random(seed)
    phases = [phase(rng, number) for number in range(PHASES)]
    names = {"orders": topics.make(2), "payments": topics.make(3)}
    paid = topics.make(2)
    deltalake.write_deltalake(str(tmp_path / "customers"), customers())

    def write(number: int) -> None:
        for stream, topic in names.items():
            for partition in range(2):
                topics.write(topic, json_values(phases[number][stream][partition::2]), partition)

    arguments = (broker.address, names["orders"], names["payments"], paid)
    write(0)
    program = Program(tmp_path, *arguments)
    program.do("settle")
    program.do("add")  # it sees what is stored, and gives what later orders and payments bring about
    write(1)
    program.tell("settle")
    time.sleep(rng.uniform(0, 0.4))
    broker.kill()
    broker.start()
    time.sleep(rng.uniform(0, 0.4))
    program.kill()
    write(2)
    for _ in range(2):
        program = Program(tmp_path, *arguments)
        program.tell("settle")
        time.sleep(rng.uniform(0, 0.4))
        program.kill()
    program = Program(tmp_path, *arguments)
    program.do("end")
    program.close()

    def tables(count: int) -> dict[str, pa.Table]:
        given = {
            stream: as_table([row for one in phases[:count] for row in one[stream]], types)
            for stream, types in TYPES.items()
        }
        return {**given, "customers": customers()}

    everything = tables(PHASES)
    results = wanted(PAID, everything)
    assert counted(pa.Table.from_pylist(topics.rows(paid, results.total()))) == results
    assert counted(lake(tmp_path / "sales").select(["country", "id", "amount", "ts"])) == wanted(
        SALES, everything
    )
    later = wanted(CARDS, everything) - wanted(CARDS, tables(1))
    assert later
    assert counted(lake(tmp_path / "cards")) == later
