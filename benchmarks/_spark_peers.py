"""Spark's own joins as contenders: stream–stream with either state store, and batch.

Guarantees: Spark has the settings that suit it: as many shuffle partitions as cores for streams (each holds a state
store), two per core with adaptive execution for the batch; no batches without data; only the columns the join needs;
RocksDB with changelog checkpoints and the join's newest state format. Spark keeps one event time per stream, so a chain
of two joins carries the first stream's time on as a number and checks it after the second join.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks._data import SCHEMA
from benchmarks._harness import say
from benchmarks._joins import WINDOW, Join, Task
from benchmarks._progress import batch_seconds, jobs_and_stages, wait_for
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def run_streaming(join: Join, task: Task) -> dict[str, Any]:
    """Run Spark's stream–stream join."""
    spark = plain_spark(task.contender, task.cores, task.memory, streaming_settings(task))
    say(f"{task.contender}: Spark is there")
    query = streaming_query(spark, join, task, available_now=True)
    wait_for(query, task.contender)
    total = time.time() - task.launched
    done = [entry for entry in query.recentProgress if entry.numInputRows]
    jobs, stages = jobs_and_stages(spark, query.runId, len(done))
    return {
        "total": total,
        "rows": [entry.numInputRows for entry in done],
        "seconds": batch_seconds(query),
        "jobs": jobs,
        "stages": stages,
        **_state(done),
    }


def streaming_query(spark: SparkSession, join: Join, task: Task, *, available_now: bool = False) -> Any:
    """Start the join as a streaming query, over what is there or until it is stopped."""
    writer = joined(join, {name: _stream(spark, task, name) for name in join.streams}).writeStream
    writer = writer.format("parquet").option("path", task.out).option("checkpointLocation", task.checkpoint)
    writer = writer.outputMode("append")
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def streaming_settings(task: Task) -> dict[str, str]:
    """What suits a stream–stream join, with the state store that the contender is named after."""
    settings = {
        "spark.sql.shuffle.partitions": str(task.cores),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    if task.contender == "rocksdb":
        version = {"spark.sql.streaming.join.stateFormatVersion": str(task.join_state_format)}
        settings |= _ROCKSDB | version
    return settings


def plain_spark(name: str, cores: int, memory: str, settings: Mapping[str, str]) -> SparkSession:
    """A Spark session as a user would start it, with some settings."""
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    common = {"spark.ui.enabled": "false", "spark.driver.memory": memory}
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _stream(spark: SparkSession, task: Task, name: str) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", task.files_per_batch)
    frame = reader.parquet(f"{task.data}/{name}").withWatermark("ts", "0 seconds")
    return frame.select(*(F.col(column).alias(f"{name}_{column}") for column in frame.columns))


def joined(join: Join, frames: dict[str, DataFrame]) -> DataFrame:
    """Two-way joins one after the other; Spark itself drops the columns that no later join reads."""
    found = frames[join.streams[0]]
    times = []
    for left, right, column in join.on:
        near = f"{left}_ts BETWEEN {right}_ts - INTERVAL {WINDOW} SECONDS AND {right}_ts + INTERVAL {WINDOW} SECONDS"
        found = found.join(
            frames[right], (F.col(f"{left}_{column}") == F.col(f"{right}_{column}")) & F.expr(near)
        )
        found = found.withColumn(f"{left}_micros", F.expr(f"unix_micros({left}_ts)")).drop(f"{left}_ts")
        times.append(f"{left}_micros")
    if len(join.streams) > 2:
        all_times = ", ".join((*times, f"unix_micros({join.streams[-1]}_ts)"))
        found = found.where(f"greatest({all_times}) - least({all_times}) <= {WINDOW * 1_000_000}")
    return found.select(*(f"{stream}_{column}" for stream, column in join.outputs))


def _state(done: list[Any]) -> dict[str, float]:
    """The bytes per stored row after the batch with the most stored rows."""

    def rows(entry: Any) -> int:
        return sum(operator.numRowsTotal for operator in entry.stateOperators)

    most = max(done, key=rows)
    count, operators = max(1, rows(most)), most.stateOperators
    on_disk = sum(operator.customMetrics.get("rocksdbSstFileSize", 0) for operator in operators)
    memory = sum(operator.memoryUsedBytes for operator in operators)
    return {"state_rows": count, "state": memory / count, "state_on_disk": on_disk / count}


def run_batch(join: Join, task: Task) -> dict[str, Any]:
    """Run Spark's batch join of all rows, after a warm-up with one file of each stream."""
    spark = plain_spark(
        task.contender, task.cores, task.memory, {"spark.sql.shuffle.partitions": str(2 * task.cores)}
    )
    _batch(spark, join, task, "00000.parquet", f"{task.work}/warm_up")
    say("batch: Spark is there and warm")
    began = time.perf_counter()
    _batch(spark, join, task, "*.parquet", task.out)
    seconds = time.perf_counter() - began
    total = time.time() - task.launched
    jobs, stages = jobs_and_stages(spark, task.out)
    rows = task.rows * len(join.streams)
    return {"total": total, "rows": [rows], "seconds": [seconds], "jobs": jobs, "stages": stages}


def _batch(spark: SparkSession, join: Join, task: Task, files: str, out: str) -> None:
    spark.sparkContext.setJobGroup(out, out)
    for name in join.streams:
        spark.read.schema(SCHEMA).parquet(f"{task.data}/{name}/{files}").createOrReplaceTempView(name)
    spark.sql(join.batch_sql()).write.mode("overwrite").parquet(out)
