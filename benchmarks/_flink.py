"""Flink's SQL join as a contender, where its package is installed (`pip install apache-flink`, in any environment).

Guarantees: Flink has what suits it: its interval join, by key and time; as many slots as cores; one Java process that
stays warm; a checkpoint every quarter of the bound, since its sink of files makes results visible with them. It
reads and writes CSV, as its package has no Parquet. Its results are those of the other contenders, and all of them are
awaited: how many there must be is computed before the clock starts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from socket import create_server
from typing import Any

import duckdb
import pyarrow.parquet as pq
from benchmarks._flink_job import MARK
from benchmarks._harness import ContenderError
from benchmarks._joins import WINDOW, Join, Task
from pyarrow import csv

COLUMNS = "vid BIGINT, uid BIGINT, micros BIGINT, n BIGINT, price DOUBLE"
STATES = {"flink": "hashmap", "flink-rocksdb": "rocksdb"}  # where each contender keeps its state


def find_flink(given: str | None) -> str | None:
    """The interpreter that has Flink's package: the given one, or this; None if neither has."""
    if given is None:
        return sys.executable if importlib.util.find_spec("pyflink") is not None else None
    try:
        found = subprocess.run([given, "-c", "import pyflink"], capture_output=True, check=False)
    except OSError:
        return None
    return given if found.returncode == 0 else None


def write_csv(data: Path) -> None:
    """Write all Parquet files below a directory as CSV, as Flink reads it, in their place."""
    for file in sorted(data.rglob("*.parquet")):
        table = pq.read_table(file, partitioning=None)
        place = table.column_names.index("ts")
        table = table.set_column(place, "micros", table["ts"].cast("int64"))
        csv.write_csv(table, file.with_suffix(".csv"), csv.WriteOptions(include_header=False))
        file.unlink()


def flink_statements(join: Join, task: Task) -> list[str]:
    """The join in Flink's SQL, over tables of files."""
    found = [_table(name, task.data) for name in join.streams]
    shown = ", ".join(f"{stream}.{column} AS {stream}_{column}" for stream, column in join.outputs)
    types = ", ".join(f"{stream}_{column} {_TYPES[column]}" for stream, column in join.outputs)
    place = f"'connector' = 'filesystem', 'format' = 'csv', 'path' = 'file://{task.out}'"
    found.append(f"CREATE TABLE results ({types}) WITH ({place})")
    inputs = join.streams[0]
    for left, right, column in join.on:
        bounds = f"{right}.ts - INTERVAL '{WINDOW}' SECOND AND {right}.ts + INTERVAL '{WINDOW}' SECOND"
        inputs += f" JOIN {right} ON {left}.{column} = {right}.{column} AND {left}.ts BETWEEN {bounds}"
    times = ", ".join(f"{stream}.micros" for stream in join.streams)
    within = f"GREATEST({times}) - LEAST({times}) <= {WINDOW * 1_000_000}"
    return [*found, f"INSERT INTO results SELECT {shown} FROM {inputs} WHERE {within}"]


_TYPES = {"n": "BIGINT", "price": "DOUBLE"}


def _table(name: str, data: str) -> str:
    time = "ts AS TO_TIMESTAMP_LTZ(micros / 1000, 3), WATERMARK FOR ts AS ts"
    options = {
        "connector": "filesystem",
        "path": f"file://{data}/{name}",
        "format": "csv",
        "source.monitor-interval": "50 ms",
    }
    told = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({COLUMNS}, {time}) WITH ({told})"


class Flink:
    """A process of Flink's, which runs one join after the other."""

    def __init__(self, python: str, contender: str, cores: int, memory: str, bound: float) -> None:
        with create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        settings = {
            "parallelism.default": str(cores),
            "rest.bind-port": str(self.port),
            "rest.bind-address": "127.0.0.1",
            "rest.address": "127.0.0.1",
            "metrics.fetcher.update-interval": "100",
            "state.backend.type": STATES[contender],
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.interval": f"{round(bound * 1000 / 4)} ms",
            "execution.checkpointing.timeout": "60 s",
        }
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("_flink_job.py")), json.dumps(settings)],
            env={**os.environ, "JVM_ARGS": f"-Xmx{memory}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = next((line for line in self._process.stdout if line.startswith(MARK)), None)
        found: dict[str, Any] = {"error": "it ended"} if line is None else json.loads(line.removeprefix(MARK))
        if "error" in found:
            raise ContenderError(f"Flink: {found['error']}")
        return found

    def get(self, path: str) -> Any:
        """What Flink's own interface says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def start(self, join: Join, task: Task) -> FlinkRun:
        """Start a join over the files that come."""
        return FlinkRun(self, join, task)


class FlinkRun:
    """The join as a job of Flink's."""

    def __init__(self, flink: Flink, join: Join, task: Task) -> None:
        self._flink, self._out, self._streams = flink, Path(task.out), join.streams
        data = Path(task.work, "data")
        self._all, self._results = task.rows * len(join.streams), count_results(join, data)
        self._out.mkdir(parents=True)
        settings = {"execution.checkpointing.dir": f"file://{task.checkpoint}"}
        answer = flink.ask({"run": flink_statements(join, task), "settings": settings})
        self._job = answer["job"]

    def rows(self) -> int:
        """How many rows were read; all are processed only when all results are visible."""
        found = self._read()
        if found < self._all:
            return found
        seen = sum(_lines(file) for _, files in self.visible() for file in files)
        return self._all if seen == self._results else self._all - abs(self._results - seen)

    def _read(self) -> int:
        job = self._flink.get(f"/jobs/{self._job}")
        sources = [one["id"] for one in job["vertices"] if one["name"].startswith("Source")]
        query = "subtasks/metrics?get=numRecordsIn&agg=sum"
        found = (self._flink.get(f"/jobs/{self._job}/vertices/{one}/{query}") for one in sources)
        return int(sum(metric["sum"] for metrics in found for metric in metrics))

    def visible(self) -> list[tuple[float, Sequence[Path]]]:
        """Results become visible when a checkpoint renames their file."""
        files = (one for one in self._out.iterdir() if not one.name.startswith((".", "_")))
        return sorted((one.stat().st_ctime, [one]) for one in files)

    def own(self, since: float) -> dict[str, float]:  # noqa: ARG002
        """Nothing: Flink measures no such latency."""
        return {}

    def stop(self) -> None:
        """End the job."""
        self._flink.ask({"stop": True})


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def count_results(join: Join, data: Path) -> int:
    """How many results there are."""
    base = duckdb.connect()
    columns = {"vid": "BIGINT", "uid": "BIGINT", "ts": "BIGINT", "n": "BIGINT", "price": "DOUBLE"}
    for name in join.streams:
        base.read_csv(f"{data}/{name}/*.csv", header=False, columns=columns).create_view(name)
    text = join.batch_sql().replace(f"INTERVAL {WINDOW} SECONDS", str(WINDOW * 1_000_000))
    found: tuple[int] = base.sql(f"SELECT count(*) FROM ({text})").fetchall()[0]
    return found[0]
