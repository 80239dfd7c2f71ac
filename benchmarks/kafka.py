"""How fast topics of Kafka are read: fetched, decoded, joined; and how fast results are written to one.

A broker of Apache Kafka's runs on this machine (`make kafka` fetches it; `--servers` names another), and shares its
cores. Two topics of JSON values are filled, then timed in this process: fetching all records of one, decoding them into
columns, joining both by Weft into a count, the same join from JSON files, and the same from topics into a topic. The
last line is the rate at which the sink takes results, beside the join.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks._process import say
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

import weft
from weft.kafka_options import KafkaOptions
from weft.logical.schema import Schema
from weft.sources.kafka_format import ValueFormat
from weft.sources.kafka_read import read_range
from weft.sources.kafka_records import Origin, decode_messages
from weft.sources.records import Target

__all__ = ["main"]

DECODED = 1_000_000  # records a second that are to be decoded
SCHEMA = "id long, usr long, name string, ts timestamp"
PARTITIONS = 2


@contextmanager
def servers(given: str | None, folder: Path) -> Iterator[str]:
    """The address of a broker: the given one, or one that runs while it is used."""
    if given is not None:
        yield given
        return
    from weft.testing.kafka_broker import Broker, why_missing

    missing = why_missing()
    if missing is not None:
        raise SystemExit(f"weft bench kafka: {missing}")
    broker = Broker(folder / "broker")
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


def values_of(rows: int) -> list[bytes]:
    """JSON values of some hundred bytes."""
    form = '{"id": %d, "usr": %d, "name": "user number %d", "ts": "2024-01-01T00:%02d:%02d.%06dZ"}'
    times = ((at // 60_000 % 60, at // 1_000 % 60, at % 1_000 * 1_000) for at in range(rows))
    return [(form % (at, at % 977, at, *times_of)).encode() for at, times_of in enumerate(times)]


def make_topic(address: str, values: list[bytes]) -> str:
    """A topic of these values, partition by partition."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    for future in admin.create_topics([NewTopic(name, PARTITIONS)]).values():
        future.result(30)
    sending = {"bootstrap.servers": address, "log_level": 2, "queue.buffering.max.messages": 10_000_000}
    producer = Producer({**sending, "queue.buffering.max.kbytes": 2_000_000})
    for partition in range(PARTITIONS):
        producer.produce_batch(name, [{"value": one} for one in values[partition::PARTITIONS]], partition)
        producer.flush(60)
    return name


def fetched_and_decoded(address: str, topic: str, rows: int) -> tuple[float, float]:
    """The seconds of fetching all records, and of decoding them."""
    options, target = KafkaOptions(address), Target(Schema.parse(SCHEMA), "ts")
    begun, fetching, decoding = time.perf_counter(), 0.0, 0.0
    for partition in range(PARTITIONS):
        origin = Origin("bench", topic, partition)
        begun = time.perf_counter()
        found = read_range(options, origin, 0, len(range(partition, rows, PARTITIONS)), 60)
        between = time.perf_counter()
        decoded = decode_messages(found, ValueFormat("json"), target, origin)
        if decoded.bad:
            raise SystemExit(f"weft bench kafka: {decoded.bad[0]}")
        fetching += between - begun
        decoding += time.perf_counter() - between
    return fetching, decoding


def joined(sources: dict[str, Any], work: Path, sink: Any) -> float:
    """The seconds of a join, from its start to the last commit."""
    session = weft.Session(checkpoint=str(work), execution="local")
    for name, source in sources.items():
        session.stream(name, source, event_time="ts", lateness="1 hour")
    session.query(
        "SELECT a.id, a.name FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.id = b.id", name="q", sink=sink
    )
    begun = time.perf_counter()
    session.start()
    session.process_all_available()
    taken = time.perf_counter() - begun
    session.stop()
    return taken


def measure(address: str, root: Path, rows: int) -> dict[str, tuple[int, float]]:
    """By what was timed, the records and the seconds."""
    say(f"two topics of {rows:,} JSON values")
    values = values_of(rows)
    topics = {name: make_topic(address, values) for name in ("a", "b")}
    out = make_topic(address, [])
    for name in topics:
        (root / name).mkdir()
        (root / name / "part.json").write_bytes(b"\n".join(values) + b"\n")
    fetching, decoding = fetched_and_decoded(address, topics["a"], rows)
    read = {name: weft.kafka(address, topic, schema=SCHEMA) for name, topic in topics.items()}
    files = {name: weft.files("json", str(root / name), schema=SCHEMA) for name in topics}
    joined(files, root / "warm", weft.to_count())
    return {
        "fetch": (rows, fetching),
        "decode": (rows, decoding),
        "join from files": (2 * rows, joined(files, root / "files", weft.to_count())),
        "join from topics": (2 * rows, joined(read, root / "topics", weft.to_count())),
        "join from topics to a topic": (
            2 * rows,
            joined(read, root / "both", weft.to_kafka(address, out, key="id")),
        ),
    }


def main(arguments: list[str]) -> int:
    """Print the table and the verdict; 1 if the target is missed and ``--strict`` given."""
    parser = argparse.ArgumentParser(prog="weft bench kafka", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="records of each topic")
    parser.add_argument("--servers", help="brokers to use instead of one of our own")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if the target is missed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        root = Path(folder)
        with servers(options.servers, root) as address:
            taken = measure(address, root, options.rows)
    table = Table(title=f"Topics of {options.rows:,} JSON records")
    for head in ("what", "records", "seconds", "records/s"):
        table.add_column(head, justify="left" if head == "what" else "right")
    for name, (rows, seconds) in taken.items():
        table.add_row(name, f"{rows:,}", f"{seconds:.2f}", f"{rows / seconds:,.0f}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    rate = taken["decode"][0] / taken["decode"][1]
    reached = rate >= DECODED
    told = f"{DECODED:,} JSON records/s decoded by one core ({rate:,.0f})"
    console.print(f"verdict: {'reached' if reached else 'missed '}  {told}", highlight=False)
    return int(options.strict and not reached)
