"""Nexmark's queries by Flink, at its best: state on the heap for ever, no checkpoint, results thrown away.

Guarantees: it reads the same Parquet files as the others, all of them, as a streaming job over bounded input, and the
job has ended when its time is taken. What Flink lacks to read Parquet comes from Maven once, and Hadoop's classes from
Spark's package.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pyspark
from benchmarks._flink_job import MARK
from benchmarks._harness import ContenderError
from benchmarks._nexmark_data import SCHEMAS
from benchmarks._nexmark_queries import NexmarkQuery

from weft.service.kafka_broker import cache, fetch_jars

_TYPES = {"long": "BIGINT", "string": "STRING", "timestamp": "TIMESTAMP_LTZ(6)"}


def run_flink(query: NexmarkQuery, data: str, python: str, cores: int, memory: str) -> dict[str, Any]:
    """Run a query twice, a small time to warm up and then for the clock; its seconds, and results."""
    settings = {
        "parallelism.default": str(cores),
        "state.backend.type": "hashmap",
        "table.exec.state.ttl": "0",
        "table.exec.sink.upsert-materialize": "NONE",
        "pipeline.object-reuse": "true",
        "taskmanager.memory.network.fraction": "0.1",
    }
    launched = time.perf_counter()
    with subprocess.Popen(
        [python, str(Path(__file__).with_name("_flink_job.py")), json.dumps(settings)],
        env={**os.environ, "JVM_ARGS": f"-Xmx{memory}", "HADOOP_CLASSPATH": _class_path(python)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            seconds = [_timed(process, query, data) for _ in range(2)]
        finally:
            process.terminate()
    return {"total": time.perf_counter() - launched - seconds[0], "seconds": seconds[1:], "first": seconds[0]}


def _timed(process: subprocess.Popen[str], query: NexmarkQuery, data: str) -> float:
    """How long the job takes, from its submission to its end."""
    began = time.perf_counter()
    _ask(process, {"run": _statements(query, data), "settings": {}})
    _ask(process, {"wait": True})
    return time.perf_counter() - began


def _ask(process: subprocess.Popen[str], request: dict[str, Any]) -> None:
    if process.stdin is None or process.stdout is None:
        raise ContenderError("Flink has no pipes")
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    line = next((line for line in process.stdout if line.startswith(MARK)), None)
    answer = {"error": "it ended"} if line is None else json.loads(line.removeprefix(MARK))
    if "error" in answer:
        raise ContenderError(f"Flink: {answer['error']}")


def _statements(query: NexmarkQuery, data: str) -> list[str]:
    """Tables of the files, one that takes results and keeps none, and the query."""
    schemas = {**SCHEMAS, "side": "key long, value string"}
    made = [_table(name, schemas[name], data) for name, _ in query.inputs]
    results = ", ".join(f"{name} {kind}" for _, name, kind in query.outputs)
    made.append(f"CREATE TEMPORARY TABLE results ({results}) WITH ('connector' = 'blackhole')")
    return [*made, f"INSERT INTO results {query.flink_sql()}"]


def _table(name: str, schema: str, data: str) -> str:
    columns = [column.split(" ") for column in schema.split(", ")]
    told = ", ".join(f"`{column}` {_TYPES[kind]}" for column, kind in columns)
    place = f"'connector' = 'filesystem', 'format' = 'parquet', 'path' = 'file://{data}/{name}'"
    return f"CREATE TEMPORARY TABLE {name} ({told}) WITH ({place})"


def _class_path(python: str) -> str:
    """What Flink needs to read Parquet."""
    command = "from importlib.metadata import version; print(version('apache-flink'))"
    done = subprocess.run([python, "-c", command], capture_output=True, text=True, check=True)
    version = done.stdout.strip()
    folder = cache() / f"flink-parquet-{version}"
    fetch_jars(folder, [f"org.apache.flink:flink-sql-parquet:{version}"])
    hadoop = Path(str(pyspark.__file__)).parent.glob("jars/hadoop-client-*.jar")
    return os.pathsep.join(map(str, [*folder.glob("*.jar"), *hadoop]))
