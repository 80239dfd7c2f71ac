"""Topics of Kafka: joined by Weft and by Spark's own stream–stream join, fetched and decoded, written.

A broker of Apache Kafka's runs on this machine (`make kafka` fetches it; `--servers` names another), and shares its
cores. Each stream of a join is put into a topic of JSON values, one of Avro values, and JSON files. Weft (on Spark, by
resident tasks) joins the files and both kinds of topics, Spark's join (spark-sql-kafka and spark-avro, fetched by
Maven) a prefix of both kinds of topics, since it is slow. Each runs in a process of its own; all must have the same
results, by count and checksum, and count from the second batch on. Then one process, and two at once, fetch and decode
a topic, range by range, and `--profile` shows where the time of the one goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import multiprocessing
import pstats
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
from benchmarks._data import SCHEMA, Shape, link_streams, write_streams
from benchmarks._digest import digest
from benchmarks._harness import conclude, make_console, make_parser, make_table, run_alone, say
from benchmarks._joins import JOINS, Join, Task
from benchmarks._progress import batch_seconds, wait_for, wait_for_weft, weft_batches
from benchmarks._spark_peers import joined, plain_spark, streaming_settings
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

import weft
from weft.connectors.formats.records import Target
from weft.connectors.kafka.avro import Encoder, encode_rows, parse_schema
from weft.connectors.kafka.fetch import collector_at_rest, read_range
from weft.connectors.kafka.options import KafkaOptions
from weft.connectors.kafka.records import Origin, decode_messages
from weft.connectors.kafka.sink_values import json_values
from weft.connectors.kafka.values import ValueFormat
from weft.errors import ConfigError
from weft.logical.schema import Schema
from weft.service.kafka_broker import cache, fetch_files

LATENESS = "1 second"  # partitions are not read in step
AVRO = json.dumps(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "vid", "type": "long"},
            {"name": "uid", "type": "long"},
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "n", "type": "long"},
            {"name": "price", "type": "double"},
        ],
    }
)


@dataclass(frozen=True, slots=True)
class KafkaTask:
    """The task of one contender: `weft` or `spark`, from `files`, or from topics of `json` or `avro` values."""

    join: str
    engine: str
    values: str
    address: str
    topics: dict[str, str]
    data: str
    work: str
    rows: int
    batch_rows: int  # of each stream, in four files
    jars: str
    cores: int = 2
    memory: str = "6g"
    keys: int = 1_000_000
    rate: int = 100_000
    launched: float = 0.0

    @property
    def out(self) -> str:
        """Where the results go."""
        return str(Path(self.work, "out"))


def run_contender(task: KafkaTask) -> dict[str, Any]:
    """Run the contender that the task names."""
    run = run_weft if task.engine == "weft" else run_spark
    return run(JOINS[task.join], task)


def run_weft(join: Join, task: KafkaTask) -> dict[str, Any]:
    """Join what is in topics, or in files of JSON, by Weft on resident tasks."""
    known = weft.StreamStatistics(rate=task.rate, distinct={"vid": task.keys, "uid": task.keys})
    session = weft.Session(
        checkpoint=f"{task.work}/checkpoint",
        master=f"local[{task.cores}]",
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        options=weft.Options(partitions=task.cores),
    )
    for name in join.streams:
        session.stream(name, _source(task, name), event_time="ts", lateness=LATENESS)
    session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(task.out))
    session.start(available_now=True)
    say(f"weft, {task.values}: Spark is there")
    wait_for_weft(session, f"weft, {task.values}")
    total, timed = time.time() - task.launched, weft_batches(session)
    session.stop()
    return {"total": total, "seconds": [alone for _, alone, _ in timed]}


def _source(task: KafkaTask, name: str) -> Any:
    if task.values == "files":
        return weft.files("json", f"{task.data}/{name}", schema=SCHEMA, max_files_per_batch=4)
    more: dict[str, Any] = {"format": "avro", "avro_schema": AVRO} if task.values == "avro" else {}
    more["max_records_per_batch"] = task.batch_rows
    return weft.kafka(task.address, task.topics[name], schema=SCHEMA, **more)


def run_spark(join: Join, task: KafkaTask) -> dict[str, Any]:
    """The same by Spark's stream–stream join, with the state store that is the faster of its two."""
    common = {name: getattr(task, name) for name in ("join", "work", "data", "rows", "cores", "memory")}
    peer = Task(**common, contender="rocksdb", files_per_batch=0, join_state_format=4)
    found = ":".join(str(jar) for jar in sorted(Path(task.jars).rglob("*.jar")))
    jars = {"spark.driver.extraClassPath": found, "spark.sql.session.timeZone": "UTC"}
    spark = plain_spark("spark", task.cores, task.memory, {**streaming_settings(peer), **jars})
    say(f"spark, {task.values}: Spark is there")
    frames = {name: _stream(spark, task, name) for name in join.streams}
    writer = joined(join, frames).writeStream.format("parquet").option("path", task.out)
    writer = writer.option("checkpointLocation", f"{task.work}/checkpoint").outputMode("append")
    query = writer.trigger(availableNow=True).start()
    wait_for(query, f"spark, {task.values}")
    return {"total": time.time() - task.launched, "seconds": batch_seconds(query)}


def _stream(spark: SparkSession, task: KafkaTask, name: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", task.address)
    reader = reader.option("subscribe", task.topics[name]).option("startingOffsets", "earliest")
    records = reader.option("maxOffsetsPerTrigger", task.batch_rows).load()
    if task.values == "avro":
        value = from_avro(F.col("value"), AVRO)
    else:
        value = F.from_json(F.col("value").cast("string"), SCHEMA)
    frame = records.select(value.alias("row")).select("row.*").withWatermark("ts", LATENESS)
    return frame.select(*(F.col(column).alias(f"{name}_{column}") for column in frame.columns))


FASTER, DECODED = 10, 1_000_000  # times Spark's, and JSON records a second on two cores
PARTITIONS = 2
_RANGE = 1 << 17
_PEERS = {"spark-sql-kafka-0-10_2.13": "4.2.0", "spark-avro_2.13": "4.0.1"}  # the newest published
_CLIENTS = (
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # for delegation tokens, which nobody uses here
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


@contextmanager
def servers(given: str | None, folder: Path) -> Iterator[str]:
    """The address of a broker: the given one, or one that runs while it is used."""
    if given is not None:
        yield given
        return
    from weft.service.kafka_broker import Broker, why_missing

    missing = why_missing()
    if missing is not None:
        raise SystemExit(f"weft bench kafka: {missing}")
    broker = Broker(folder / "broker")
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


def spark_jars() -> Path:
    """The jars that Spark's own source of Kafka needs, fetched if they are not there.

    They are of this Spark's version, or of the newest that Maven has, where this one's are not published.
    """
    place = cache() / "spark-kafka" / pyspark.__version__
    for name, published in _PEERS.items():
        try:
            fetch_files(place / name, [f"org.apache.spark:{name}:{pyspark.__version__}"])
        except ConfigError:
            say(f"{name} of Spark {pyspark.__version__} is not published: that of {published} is taken")
            fetch_files(place / name, [f"org.apache.spark:{name}:{published}"])
    fetch_files(place / "clients", _CLIENTS)
    return place


def values_of(table: Any, kind: str) -> list[bytes]:
    """The rows of a file as values."""
    (rows,) = table.combine_chunks().to_batches()
    if kind == "json":
        return json_values(rows).to_pylist()  # type: ignore[no-any-return]
    return encode_rows(Encoder.make(parse_schema(AVRO), rows.schema), rows).to_pylist()  # type: ignore[no-any-return]


def fill(address: str, data: Path, kind: str, into: Path | None) -> str:
    """A topic of a stream's rows, one partition after the other in every file; JSON also as files."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    for future in admin.create_topics([NewTopic(name, PARTITIONS)]).values():
        future.result(30)
    sending = {"bootstrap.servers": address, "log_level": 2, "queue.buffering.max.messages": 10_000_000}
    producer = Producer({**sending, "queue.buffering.max.kbytes": 2_000_000})
    for at, file in enumerate(files := sorted(data.iterdir())):
        say(f"topic {name} of {kind} values: {at} of {len(files)} files are in")
        values = values_of(pq.read_table(file), kind)
        for partition in range(PARTITIONS):
            producer.produce_batch(name, [{"value": one} for one in values[partition::PARTITIONS]], partition)
        producer.flush(120)
        if into is not None:
            into.mkdir(parents=True, exist_ok=True)
            (into / f"{file.stem}.json").write_bytes(b"\n".join(values) + b"\n")
    return name


def race(
    join: Join, address: str, root: Path, options: Any
) -> tuple[dict[str, tuple[int, float]], list[str]]:
    """By contender the rows and the seconds of a join; and what was wrong."""
    found, wrong = dict[str, tuple[int, float]](), list[str]()
    shape = Shape(options.rows, max(1, options.batch_rows // 4), options.rate, options.keys)
    files_of_prefix = min(shape.files, max(1, options.spark_rows // shape.file_rows))
    sizes = {"all": shape.rows, "prefix": min(shape.rows, files_of_prefix * shape.file_rows)}
    write_streams(root / "all", join.streams, shape)
    link_streams(root / "all", root / "prefix", join.streams, files_of_prefix)
    places = dict[tuple[str, str], dict[str, str]]()
    for part, rows in sizes.items() if "spark" in options.only else [("all", shape.rows)]:
        say(f"{join.name}: topics of {rows:,} rows of each stream")
        for kind in ("json", "avro"):
            files = root / "files" if (part, kind) == ("all", "json") else None
            places[part, kind] = {
                name: fill(address, root / part / name, kind, files and files / name) for name in join.streams
            }
    jars = str(spark_jars()) if "spark" in options.only else ""
    contenders = [("weft", "files"), ("weft", "json"), ("weft", "avro"), ("spark", "json"), ("spark", "avro")]
    for engine, kind in [one for one in contenders if one[0] in options.only]:
        part = "prefix" if engine == "spark" else "all"
        work = root / f"{engine}-{kind}"
        work.mkdir()
        topics = places[part, "json" if kind == "files" else kind]
        common = {
            "cores": options.cores,
            "memory": options.memory,
            "keys": options.keys,
            "rate": options.rate,
        }
        task = KafkaTask(join.name, engine, kind, address, topics, str(root / "files"), str(work), sizes[part],
                         options.batch_rows, jars, **common)  # fmt: skip
        say(f"{join.name}: {engine} from {kind}")
        answer = run_alone(run_contender, task, options.timeout)
        rows, seconds = from_second_batch(answer["seconds"], sizes[part], options.batch_rows)
        found[f"{join.name}: {engine}, {kind}"] = (rows * len(join.streams), seconds)
        results = digest(task.out, join.streams, sizes[part])
        say(f"{join.name}: {engine} from {kind}: {results[0]:,} results")
        if "weft" in options.only:
            expected = digest(str(root / "weft-files" / "out"), join.streams, sizes[part])
            wrong += [] if results == expected else [f"{engine}, {kind}: {results} instead of {expected}"]
    return found, wrong


def from_second_batch(seconds: list[float], rows: int, batch_rows: int) -> tuple[int, float]:
    """The rows of each stream and the seconds of all batches but the first, which warms up; of one alone if it is all.

    >>> from_second_batch([9.0, 1.0, 2.0], 250, 100)
    (150, 3.0)
    """
    return (rows - batch_rows, sum(seconds[1:])) if rows > batch_rows else (rows, sum(seconds))


@dataclass(frozen=True, slots=True)
class Records:
    """A topic of so many records in `PARTITIONS` partitions, and the format of its values."""

    address: str
    topic: str
    kind: str
    rows: int

    def fetch_and_decode(self, partitions: Iterable[int]) -> tuple[float, float]:
        """The seconds of fetching all records of some partitions, and of decoding them, range by range as tasks do."""
        options, target = KafkaOptions(self.address), Target(Schema.parse(SCHEMA), "ts")
        format_ = ValueFormat(self.kind, avro_schema=AVRO if self.kind == "avro" else None)
        fetching = decoding = 0.0
        for partition in partitions:
            origin, end = Origin("bench", self.topic, partition), len(range(partition, self.rows, PARTITIONS))
            for first in range(0, end, _RANGE):
                with collector_at_rest():  # as in tasks
                    begun = time.perf_counter()
                    found = read_range(options, origin, first, min(end, first + _RANGE), 60)
                    between = time.perf_counter()
                    decoded = decode_messages(found, format_, target, origin)
                    decoding += time.perf_counter() - between
                    fetching += between - begun
                    del found
                if decoded.bad:
                    raise SystemExit(f"weft bench kafka: {decoded.bad[0]}")
        return fetching, decoding

    def by_one_process(self) -> tuple[float, float]:
        """The seconds of fetching and of decoding all partitions, one after the other."""
        return self.fetch_and_decode(range(PARTITIONS))

    def by_two_processes(self) -> tuple[float, float]:
        """The seconds until two processes, each with half of the partitions, have fetched and decoded all records.

        They begin together. The second figure is what the slower one spent on decoding alone, beside the other.
        """
        context = multiprocessing.get_context("spawn")
        begin = context.Barrier(2)
        with ProcessPoolExecutor(2, context, _set_barrier, (begin,)) as processes:
            jobs = [processes.submit(_half, self, half) for half in range(2)]
            found = [job.result() for job in jobs]
        return max(whole for whole, _ in found), max(decoding for _, decoding in found)


_BARRIER: list[Any] = []


def _set_barrier(barrier: Any) -> None:
    _BARRIER.append(barrier)


def _half(records: Records, half: int) -> tuple[float, float]:
    """What one of two processes takes for its half, in all and for decoding alone; it has warmed up before."""
    mine = range(half, PARTITIONS, 2)
    records.fetch_and_decode(mine)
    _BARRIER[0].wait(120)
    fetching, decoding = records.fetch_and_decode(mine)
    return fetching + decoding, decoding


def decode(address: str, root: Path, options: Any) -> dict[str, tuple[int, float]]:
    """How fast one process, and two at once, fetch and decode topics of either kind; the second time counts."""
    found = dict[str, tuple[int, float]]()
    rows = options.rows
    write_streams(root / "decode", ("v",), Shape(rows, rows, options.rate, options.keys))
    for kind in ("json", "avro"):
        records = Records(address, fill(address, root / "decode" / "v", kind, None), kind, rows)
        records.by_one_process()
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        fetching, decoding = records.by_one_process()
        profile.disable()
        if options.profile:
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(12)
        found[f"fetch {kind}"], found[f"decode {kind}"] = (rows, fetching), (rows, decoding)
        found[f"fetch and decode {kind}"] = (rows, fetching + decoding)
        both, decoding = records.by_two_processes()
        found[f"decode {kind}, two processes"] = (rows, decoding)
        found[f"fetch and decode {kind}, two processes"] = (rows, both)
    return found


def verdicts(taken: dict[str, tuple[int, float]]) -> Iterator[tuple[str, bool]]:
    """What is aimed at, and whether it was reached."""
    rates = {name: rows / seconds for name, (rows, seconds) in taken.items()}
    for name, rate in rates.items():
        if ": spark, " in name and name.replace("spark", "weft") in rates:
            times = rates[name.replace("spark", "weft")] / rate
            yield (
                f"{name.replace('spark, ', '')}: {FASTER} × Spark's own join ({times:.1f} ×)",
                times >= FASTER,
            )
    for what in ("decode json, two processes", "fetch and decode json, two processes"):
        if what in rates:
            yield f"{what}: {DECODED:,} records/s ({rates[what]:,.0f})", rates[what] >= DECODED


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts; 1 if results differ, or with ``--strict`` if a target is missed."""
    parser = make_parser("kafka", __doc__, "cores timeout strict", timeout=1_800.0)
    add = parser.add_argument
    add("--rows", type=int, default=1_200_000, help="rows of each stream (%(default)s)")
    add(
        "--spark-rows",
        type=int,
        default=300_000,
        help="rows of each stream for Spark's own join (%(default)s)",
    )
    add("--batch-rows", type=int, default=300_000, help="rows of each stream in a batch (%(default)s)")
    add("--rate", type=int, default=100_000, help="rows a second of event time of each stream")
    add("--keys", type=int, default=1_000_000, help="values of a key")
    add("--joins", default="pair,chain3", type=lambda text: text.split(","), help="some of pair,chain3,star3")
    add("--only", default="weft,spark,decode", type=lambda text: text.split(","), help="some of these")
    add("--memory", default="6g", help="heap of the Spark that Weft is compared with")
    add("--servers", help="brokers to use instead of one of our own")
    add("--profile", action="store_true", help="show where fetching and decoding spend their time")
    options = parser.parse_args(arguments)
    taken, wrong = dict[str, tuple[int, float]](), list[str]()
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder, ExitStack() as until_the_end:
        address = until_the_end.enter_context(servers(options.servers, Path(folder)))
        for name in options.joins if {"weft", "spark"} & set(options.only) else ():
            found, trouble = race(JOINS[name], address, Path(folder, name), options)
            taken, wrong = taken | found, wrong + trouble
        if "decode" in options.only:
            taken |= decode(address, Path(folder), options)
    return report(taken, wrong, options)


def report(taken: dict[str, tuple[int, float]], wrong: list[str], options: argparse.Namespace) -> int:
    """Print what was measured."""
    table = make_table("Topics of Kafka", ("what", "records", "seconds", "records/s"))
    for name, (rows, seconds) in taken.items():
        table.add_row(name, f"{rows:,}", f"{seconds:.2f}", f"{rows / seconds:,.0f}")
    console = make_console()
    console.print(table)
    troubles = [f"results differ: {trouble}" for trouble in wrong]
    return conclude(console, options, verdicts(taken), troubles, ratios=ratios(taken))


def ratios(taken: dict[str, tuple[int, float]]) -> dict[str, float]:
    """Weft's records a second over those of Spark's own join."""
    rates = {name: rows / seconds for name, (rows, seconds) in taken.items()}
    pairs = {name: name.replace("spark", "weft") for name in rates if ": spark, " in name}
    return {
        f"{name.replace('spark, ', '')} ÷ Spark": rates[mine] / rates[name]
        for name, mine in pairs.items()
        if mine in rates
    }
