"""Runs trials in which files are appended while a session runs, and judges them by the definition.

`python -m tests.spark.appending FIRST TRIALS MASTER` runs a campaign on a Spark of its own, beginning with a seed: with
the master `local[2,4]`, Spark itself runs tasks again that failed; with `local-cluster[2,2,1024]`, also a second time
those that are slow.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

import weft
import weft.session.run
from tests.spark.appending_trials import (
    SCHEMA,
    WINDOWS,
    FaultySink,
    FaultySource,
    Trial,
    append,
    random_sql,
)
from tests.spark.sessions import running
from weft.connectors.files.parquet_sink import ParquetSink
from weft.connectors.files.source import FilesSource
from weft.connectors.memory.sink import MemorySink
from weft.logical.query.query import Query
from weft.runtime.local import LocalExecutor
from weft.runtime.spark.session import create_spark
from weft.testing import reference_join

__all__ = ["differences", "executed", "load"]

# Spark begins a second attempt at a task that takes longer than half of the others, where there are several executors.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "10ms",
}


class Course:
    """A trial under way in a directory, on a Spark."""

    def __init__(self, trial: Trial, spark: Any, root: Path) -> None:
        self.trial, self.spark, self.root = trial, spark, root
        self.rng = random.Random(trial.seed + 1)
        self.sinks: dict[str, MemorySink | ParquetSink] = {}
        self.later: dict[str, bool] = {}  # queries that came later, and whether they still run
        self.backfilled: set[str] = set()  # those of them that also give the results of the past
        (root / "faults").mkdir()
        for stream in range(trial.streams):
            (root / f"s{stream}").mkdir()

    def session(self) -> weft.Session:
        """A session with the queries of the beginning."""
        trial = self.trial
        options = weft.Options(partitions=trial.partitions, tasks=2)
        execution = "auto" if trial.execution == "local" else trial.execution
        session = weft.Session(
            checkpoint=self.root / "ck", spark=self.spark, options=options, execution=execution
        )
        for stream in range(trial.streams):
            session.stream(f"s{stream}", self._source(stream), event_time="ts", lateness="1 hour")
        for number, text in enumerate(trial.queries):
            name = f"q{number}"
            sink = self.sinks.setdefault(name, self._sink(name, number))
            session.query(text, name=name, sink=sink, strategy=trial.strategy)
        return session

    def _source(self, stream: int) -> FilesSource:
        source = weft.files(
            "parquet",
            str(self.root / f"s{stream}"),
            schema=SCHEMA,
            max_files_per_batch=self.trial.most_files,
        )
        values = [getattr(source, field.name) for field in fields(FilesSource)]
        return FaultySource(*values) if self.trial.faulty else source

    def _sink(self, name: str, number: int) -> MemorySink | ParquetSink:
        if (self.trial.seed + number) % 2:
            return weft.to_memory()
        kills = self.trial.faulty and self.trial.execution != "local"  # there, the task is this process
        return FaultySink(self.root / name) if kills else weft.to_parquet(self.root / name)

    def run(self) -> weft.Session:
        """Append all files while the session runs, changes and starts again; the session, when all is done."""
        appending = threading.Thread(target=self._append_all)
        session, begun = self.session(), False
        for left in range(self.trial.restarts, -1, -1):
            with running(session):
                if not begun:
                    appending.start()
                    begun = True
                for _ in range(self.trial.changes if left == 0 else 0):
                    time.sleep(self.rng.random() * 0.4)
                    self._change(session)
                if left:
                    time.sleep(self.rng.random())
                else:
                    appending.join()
                    session.process_all_available()
                    self._put(0, 0, self.trial.table(9, 0), "rename")  # it is not read again
                    session.process_all_available()
            session = self.session() if left else session
        return session

    def _append_all(self) -> None:
        rng = random.Random(self.trial.seed + 2)
        for number in range(self.trial.files):
            for stream in range(self.trial.streams):
                self._put(stream, number, self.trial.table(stream, number), self.trial.writing)
                time.sleep(rng.random() * self.trial.pause)

    def _put(self, stream: int, number: int, table: pa.Table, writing: str) -> None:
        out = pa.BufferOutputStream()
        pq.write_table(table, out, row_group_size=self.trial.row_group)
        file = self.root / f"s{stream}" / f"{number:04}.parquet"
        append(file, out.getvalue().to_pybytes(), writing, random.Random(number))

    def _change(self, session: weft.Session) -> None:
        """A query comes, or one that came later goes."""
        alive = [name for name, runs in self.later.items() if runs]
        if alive and self.rng.random() < 0.4:
            name = self.rng.choice(alive)
            session.stop_query(name)
            self.later[name] = False
            return
        name = f"later{len(self.later)}"
        self.later[name], self.sinks[name] = True, weft.to_memory()
        text, backfill = random_sql(self.rng, self.trial.streams, WINDOWS), self.rng.random() < 0.5
        session.query(text, name=name, sink=self.sinks[name], backfill=backfill)
        if backfill:
            self.backfilled.add(name)

    def complete_from(self, session: weft.Session, name: str) -> int | None:
        """The time, in microseconds, from which on a query has to have every result; None: it need not have any."""
        if name not in self.later:
            return 0
        progress = session.query_progress(name)
        if name not in self.backfilled or not self.later[name] or progress.status != "running":
            return None
        since = progress.complete_from
        return 0 if since is None else round(since.timestamp() * 1e6)

    def results(self, name: str) -> pa.Table:
        """What a query has given."""
        sink = self.sinks[name]
        if isinstance(sink, MemorySink):
            return sink.results()
        batches = [pq.read_table(sink.batch_directory(batch), partitioning=None) for batch in sink.batches()]
        return pa.concat_tables(batches) if batches else pa.table({})


def differences(trial: Trial, spark: Any, root: Path) -> list[str]:
    """Run a trial in an empty directory; what is not as the definition, computed by DuckDB, wants it."""
    course = Course(trial, spark, root)
    session = course.run()
    found = []
    for planned in session.queries:
        progress = session.query_progress(planned.name)
        if progress.status != "running" and planned.name not in course.later:
            found.append(f"{planned.name} is {progress.status}: {progress.reason}")
        answer, wanted = counted(course.results(planned.name)), definition(trial, planned.query)
        if answer - wanted:
            found.append(f"{planned.name} has too much: {_shown(answer - wanted)}")
        since = course.complete_from(session, planned.name)
        if since is not None and (missing := definition(trial, planned.query, since) - answer):
            found.append(f"{planned.name} lacks: {_shown(missing)}")
    return found + list(_wrongly_stored(trial, session))


def definition(trial: Trial, query: Query, since: int = 0) -> Counter[tuple[int, ...]]:
    """What a query has to give of the tuples from a time on."""
    tables = {}
    for input_ in query.inputs:
        table = trial.whole(input_.stream.name)
        times = table["ts"].cast(pa.int64()).to_numpy()
        tables[input_.alias] = table.filter(pa.array(times >= since))
    return counted(reference_join(query, tables))


def counted(table: pa.Table) -> Counter[tuple[int, ...]]:
    """A table of whole numbers as a multiset."""
    return Counter(zip(*(table[name].to_pylist() for name in sorted(table.column_names)), strict=True))


def _shown(rows: Counter[tuple[int, ...]]) -> str:
    return f"{rows.total()} rows, as {list(rows.items())[:3]}"


def _wrongly_stored(trial: Trial, session: weft.Session) -> Iterator[str]:
    """Stores of one input that do not have all of its tuples, once or, replicated, in every partition."""
    every = trial.files * trial.rows
    for name, store in session.progress["q0"][-1].stores.items() if trial.keeps_all else ():
        if "⋈" not in name and store.rows not in (every, every * trial.partitions):
            yield f"store {name} has {store.rows} rows of {every}"


# Around a trial


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many processes busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


@contextmanager
def executed(execution: str) -> Iterator[None]:
    """Sessions run their batches so; "local" is in this process, which users cannot ask for."""
    original = weft.session.run.executor_for
    if execution == "local":
        weft.session.run.executor_for = lambda *args: LocalExecutor(args[2], readers=args[3])
    try:
        yield
    finally:
        weft.session.run.executor_for = original


def main(first: int, trials: int, master: str) -> int:
    """Run a campaign; how many trials were wrong."""
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # where a local cluster finds its executors
    for name, value in SPECULATION.items():
        SparkSession.builder.config(name, value)
    spark, wrong = create_spark(master), 0
    spark.sparkContext.setLogLevel("OFF")
    for seed in range(first, first + trials):
        execution = ("jobs", "jobs", "resident", "local")[seed % 4]
        trial = Trial.drawn(seed, execution)
        with tempfile.TemporaryDirectory() as folder, executed(execution):
            (root := Path(folder) / str(seed)).mkdir()
            found = differences(trial, spark, root)
        wrong += bool(found)
        print(seed, execution, found or "as it should be", trial if found else "", flush=True)
    spark.stop()
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]) > 0)
