"""The whole of it: topics and tables in and out, a query that comes later, a broker and a session that are killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kafka.topics import Topics, json_values
from tests.shares import seeds
from weft.service.client import Client
from weft.service.kafka_broker import Broker
from weft.service.pipeline import Pipeline, load_pipeline
from weft.testing import reference_join

deltalake = pytest.importorskip("deltalake", reason='needs pip install "weft[delta]"')

EXAMPLE = Path(__file__).parents[2] / "examples" / "whole.yaml"
CUSTOMERS, ORDERS, PHASES = 20, 120, 3
CARDS = """
    SELECT p.bill, o.amount, c.country FROM orders AS o, payments AS p, customers AS c
    WHERE o.id = p.bill AND o.customer = c.number AND p.method = 'card'
"""
_WEFT = str(Path(sys.executable).parent / "weft")
_TIME = pa.timestamp("us", "UTC")
TYPES = {
    "orders": {"id": pa.int64(), "customer": pa.int64(), "amount": pa.decimal128(12, 2), "ts": _TIME},
    "payments": {"bill": pa.int64(), "method": pa.string(), "ts": _TIME},
}


class Service:
    """A life of `weft serve` with the example's file, to be killed; what it says goes to a file of its own."""

    def __init__(self, file: Path) -> None:
        self._log = (file.parent / f"life-{time.monotonic_ns()}.log").open("w+b")
        command = [_WEFT, "serve", str(file), "--port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode()
        while said and "serving on " not in said:
            said = self.process.stdout.readline().decode()
        assert said, self.log()
        self.url = said.split("serving on ")[1].strip()
        self.client = Client(self.url)

    def __enter__(self) -> Service:
        """Wait until the session runs."""
        until(lambda: self.client.health().state == "running", self.log)
        return self

    def __exit__(self, *_: object) -> None:
        """End it, if it has not ended."""
        self.end(signal.SIGKILL)

    def log(self) -> str:
        """What it said of errors."""
        self._log.seek(0)
        return self._log.read().decode()

    def end(self, how: signal.Signals) -> None:
        """Send it a signal, and wait for its end."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.communicate(timeout=120)
        self._log.close()


def until(is_so: Callable[[], bool], say: Callable[[], str]) -> None:
    """Wait for something, two minutes at most."""
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end, say()
        time.sleep(0.1)


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


def wanted(pipeline: Pipeline, sql: str, tables: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """The results of a query by the definition."""
    query = pipeline.session.parse(sql)
    aliases = {"o": tables["orders"], "p": tables["payments"], "c": tables["customers"]}
    return counted(reference_join(query, {alias: aliases[alias] for alias in query.aliases}))


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """How often each row is there, whatever the order."""
    return Counter(tuple(map(_as_text, row.values())) for row in table.to_pylist())


def _as_text(value: object) -> str:
    """A value, whoever read it: DuckDB gives times without a zone."""
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)


def customers() -> pa.Table:
    """All customers."""
    numbers = range(CUSTOMERS)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "name": [f"customer {number}" for number in numbers],
            "country": [("DE", "FR", None)[number % 3] for number in numbers],
        }
    )


def lake(path: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    """What a reader of a Delta table sees."""
    return counted(deltalake.DeltaTable(str(path)).to_pyarrow_table().select(columns))


def read(service: Service) -> dict[str, int]:
    """How many rows of each topic took part in batches."""
    return {one.name: one.rows for one in service.client.streams() if one.name != "customers"}


def write(topics: Topics, names: dict[str, str], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Add rows to two partitions of each topic."""
    for stream, topic in names.items():
        for partition in range(2):
            topics.write(topic, json_values(rows[stream][partition::2]), partition)


@pytest.mark.parametrize(
    "execution",
    [
        "local",
        pytest.param("resident", marks=[pytest.mark.spark, pytest.mark.slow]),
        pytest.param("jobs", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_whole_of_it_is_right_whatever_is_killed(
    seed: int, execution: str, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    """A query comes while others run, the broker restarts, the session is killed twice; each result is there once."""
    rng = random.Random(seed)
    phases = [phase(rng, number) for number in range(PHASES)]
    names, paid = {"orders": topics.make(2), "payments": topics.make(3)}, topics.make(2)
    deltalake.write_deltalake(str(tmp_path / "customers"), customers())
    (tmp_path / "more").mkdir()
    text = EXAMPLE.read_text(encoding="utf-8").replace("/tmp/whole/", f"{tmp_path}/")
    for old, new in (
        ("127.0.0.1:9092", broker.address),
        ("kafka: orders", f"kafka: {names['orders']}"),
        ("kafka: payments", f"kafka: {names['payments']}"),
        ("kafka: paid", f"kafka: {paid}"),
        ("execution: auto", f"execution: {execution}\nmaster: local[2]"),
    ):
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "whole.yaml"
    file.write_text(text, encoding="utf-8")

    write(topics, names, phases[0])
    with Service(file) as service:
        until(lambda: read(service) == {"orders": ORDERS, "payments": ORDERS}, service.log)
        sink = json.dumps({"delta": f"{tmp_path}/more/cards", "compact": True})
        given = ["--name", "cards", "--sink", sink, "--url", service.url]
        added = subprocess.run(
            [_WEFT, "query", "add", CARDS, *given], check=False, capture_output=True, text=True
        )
        assert added.stdout.startswith("query cards: "), added.stderr
        until(lambda: service.client.query("cards").status == "running", service.log)
        write(topics, names, phases[1])
        time.sleep(rng.uniform(0, 0.4))
        broker.kill()
        broker.start()
        time.sleep(rng.uniform(0, 0.4))
    write(topics, names, phases[2])
    with Service(file):
        time.sleep(rng.uniform(0, 0.4))

    pipeline = load_pipeline(file)
    everything, first = tables(phases), tables(phases[:1])
    paid_wanted = wanted(pipeline, pipeline.queries["paid"], everything)
    sales_wanted = wanted(pipeline, pipeline.queries["sales"], everything)
    cards_wanted = wanted(pipeline, CARDS, everything) - wanted(pipeline, CARDS, first)
    assert cards_wanted

    def found() -> list[Counter[tuple[Any, ...]]]:
        return [
            counted(pa.Table.from_pylist(topics.rows(paid))),
            lake(tmp_path / "sales", "country", "id", "amount", "ts"),
            lake(tmp_path / "more" / "cards", "bill", "amount", "country"),
        ]

    totals = [one.total() for one in (paid_wanted, sales_wanted, cards_wanted)]
    with Service(file) as service:
        last = service
        until(
            lambda: [one.total() for one in found()] == totals,
            lambda: f"{[one.total() for one in found()]} of {totals}\n{last.log()}",
        )
        service.end(signal.SIGTERM)
    assert found() == [paid_wanted, sales_wanted, cards_wanted]


def tables(phases: list[dict[str, list[dict[str, Any]]]]) -> dict[str, pa.Table]:
    """The input as whole tables, by stream."""
    given = {stream: [row for one in phases for row in one[stream]] for stream in ("orders", "payments")}
    return {
        "customers": customers(),
        **{stream: as_table(rows, TYPES[stream]) for stream, rows in given.items()},
    }
