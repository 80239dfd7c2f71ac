"""Joins from topics of Kafka, by Weft and by Spark: `python -m benchmarks._kafka_run TASK ANSWER`, both JSON files.

Guarantees: both read the same topics with the same limit for a batch and the same lateness, decode the same columns,
and write Parquet. Times are those of batches, as in the other races.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._data import SCHEMA
from benchmarks._joins import JOINS, Join, Task
from benchmarks._process import say
from benchmarks._progress import batch_seconds, wait_for, wait_for_weft, weft_batches
from benchmarks._spark_peers import joined, plain_spark, streaming_settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

import weft

__all__ = ["AVRO", "LATENESS", "KafkaTask"]

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


def main(question: str, answer: str) -> None:
    """Run the contender that the task names."""
    task = KafkaTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    run = run_weft if task.engine == "weft" else run_spark
    Path(answer).write_text(json.dumps(run(JOINS[task.join], task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
