"""The runner on Spark: one streaming query, one job per batch (design, D2).

Guarantees: a batch is a chain of `mapInArrow` stages with a shuffle by partition number between them, one per hop, and
nothing else; its plan is written before it runs, its results are committed before its manifest, and a batch that is
replayed does what it did. Only the public DataFrame API is used.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from weft.errors import ConfigError, StateError, WeftError
from weft.kernels.datum import arrow_type
from weft.logical.query import Query
from weft.logical.schema import Stream
from weft.plan.graph import PhysicalGraph
from weft.runtime.batch import longest
from weft.runtime.checkpoint import Checkpoint, Manifest, Plan, RunFile, merged_runs
from weft.runtime.driver import DEFAULT, Observed, driver_order
from weft.runtime.interpret import StepCount
from weft.runtime.metrics import (
    BatchMetrics,
    InputMetrics,
    StepMetrics,
    StoreMetrics,
    sum_steps,
    sum_stores,
)
from weft.runtime.turn import Turn
from weft.runtime.watermark import Watermarks
from weft.runtime.worker import NOTE, Job, Message, hop_task, read_task, to_rows

__all__ = ["Running", "SparkRunner", "Target", "create_spark", "launch"]

_ROW = "partition int, target string, bucket binary"


def create_spark(master: str) -> SparkSession:
    """A Spark session with the settings that suit short jobs of few, large rows."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks need the environment Weft is installed in
    builder = SparkSession.builder.master(master).appName("weft")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@dataclass(frozen=True, slots=True)
class Target:
    """A query to run: its graph, and where its results go."""

    graph: PhysicalGraph
    sink: Any


@dataclass
class SparkRunner:
    """Runs graphs over streams on Spark."""

    spark: SparkSession
    checkpoint: Checkpoint
    streams: Mapping[str, Stream]
    sources: Mapping[str, Any]
    queries: Mapping[str, Target]
    partitions: int
    driver: str = DEFAULT
    metrics: dict[str, list[BatchMetrics]] = field(default_factory=dict)
    set_aside: Callable[[int, bytes], None] | None = (
        None  # what to do with a batch's bad records, as JSON lines
    )
    failure: WeftError | None = None

    def start(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        """Take the checkpoint and begin; batches follow each other until the query is stopped."""
        for name, running in self.queries.items():
            _check(name, running.graph.query)
        self.checkpoint.open(self._identity())
        self.checkpoint.clean()
        for name, running in self.queries.items():
            running.sink.open(_schema(running.graph.query), str(self.checkpoint.root))
            running.sink.recover(self.checkpoint.last())
            self.metrics.setdefault(name, [])
        writer = self._input().writeStream.foreachBatch(self.process)
        location = str(self.checkpoint.root / "spark")
        return writer.option("checkpointLocation", location).trigger(**trigger).start()

    def _identity(self) -> dict[str, Any]:
        streams = {name: [str(s.schema), s.event_time] for name, s in sorted(self.streams.items())}
        queries = {name: str(running.graph.query) for name, running in sorted(self.queries.items())}
        return {"streams": streams, "queries": queries, "partitions": self.partitions}

    def _input(self) -> DataFrame:
        frames = [
            source.load(self.spark).select(F.lit(name).alias("stream"), "path", "content")
            for name, source in self.sources.items()
        ]
        union: DataFrame = reduce(DataFrame.union, frames)
        return union

    def process(self, rows: DataFrame, number: int) -> None:
        """One batch."""
        try:
            self._process(rows, number)
        except WeftError as error:
            self.failure = error
            raise

    def _process(self, rows: DataFrame, number: int) -> None:
        if self.checkpoint.manifest(number) is not None:
            return  # Spark lost its own mark of it, not we ours
        before = self.checkpoint.manifest(number - 1)
        if before is None:
            raise StateError(
                f"the checkpoint has lost batch {number - 1}", hint="use a new checkpoint directory"
            )
        plan = self.checkpoint.plan(number) or self._plan(number, before)
        began = time.perf_counter()
        notes = self._run(rows, number)
        self._commit(plan, before, notes, time.perf_counter() - began)

    def _plan(self, number: int, before: Manifest) -> Plan:
        graphs = {name: running.graph.to_json() for name, running in self.queries.items()}
        turns = {
            name: Turn(number, self._order(name, number, before), self.partitions).to_dict()
            for name in graphs
        }
        plan = Plan(number, time.time_ns() // 1000, graphs, turns)
        self.checkpoint.write_plan(plan)
        return plan

    def _order(self, name: str, number: int, before: Manifest) -> tuple[str, ...]:
        """The driver order, from what the batches so far did; this one's rows are taken to be the last one's."""
        query = self.queries[name].graph.query
        done = self.metrics.get(name) or []
        rows = {a: done[-1].inputs[a].rows if done and a in done[-1].inputs else 1 for a in query.aliases}
        held = done[-1].stores if done else {}
        stored = {alias: held[alias].rows for alias in query.aliases if alias in held}
        arrived = {alias: before.arrived.get(name, {}).get(alias, 0) for alias in query.aliases}
        seen = Observed(number, rows, {}, stored, arrived, sum(one.results for one in done))
        return driver_order(self.driver, seen)

    def _run(self, rows: DataFrame, number: int) -> list[Message]:
        sinks = {n: r.sink if hasattr(r.sink, "write_part") else None for n, r in self.queries.items()}
        job = Job(str(self.checkpoint.root), number, self.sources, self.streams, sinks)
        for running in self.queries.values():
            running.sink.begin(number)
        # As many tasks as partitions; more only cost their start.
        frame = rows.coalesce(self.partitions).mapInArrow(_reader(job), _ROW)
        for hop in range(1, 1 + max(running.graph.hops for running in self.queries.values())):
            frame = frame.repartitionById(self.partitions, F.col("partition"))
            frame = frame.mapInArrow(_hopper(job, hop), _ROW)
        return [message for batch in frame.toArrow().to_batches() for message in _messages(batch)]

    def _commit(self, plan: Plan, before: Manifest, notes: list[Message], seconds: float) -> None:
        """Results first, then the manifest: a crash in between repeats the batch, and the sinks expect that."""
        told = _Told.of(notes)
        for name, running in self.queries.items():
            if hasattr(running.sink, "write_part"):
                running.sink.commit_parts(plan.number, [p["name"] for p in told.parts if p["query"] == name])
            else:
                running.sink.commit(plan.number, told.results.get(name, []))
        if self.set_aside is not None:
            self.set_aside(plan.number, b"\n".join(told.bad))
        manifest = self._manifest(plan, before, told, seconds)
        self.checkpoint.commit(manifest)
        for name, found in manifest.metrics.items():
            self.metrics[name].append(_read_metrics(found))

    def _manifest(self, plan: Plan, before: Manifest, told: _Told, seconds: float) -> Manifest:
        runs = {
            query: {store: dict(parts) for store, parts in stores.items()}
            for query, stores in before.runs.items()
        }
        for query, stores in merged_runs(told.runs).items():
            for store, parts in stores.items():
                runs.setdefault(query, {}).setdefault(store, {}).update(parts)
        for query, store, partition, found in told.runs:
            if not found:
                runs.get(query, {}).get(store, {}).pop(partition, None)
        marks, active, arrived, metrics = {}, {}, {}, {}
        for name, running in self.queries.items():
            inputs = [one for one in told.inputs if one["query"] == name]
            water = self._water(running.graph.query, name, before, inputs, plan.now)
            marks[name], active[name] = dict(water.marks), dict(water.active)
            counted = before.arrived.get(name, {})
            rows = {a: sum(i["rows"] for i in inputs if i["alias"] == a) for a in running.graph.query.aliases}
            arrived[name] = {alias: counted.get(alias, 0) + count for alias, count in rows.items()}
            held = [
                (s, r.bounds) for s, parts in runs.get(name, {}).items() for f in parts.values() for r in f
            ]
            turn = Turn.from_dict(plan.turns[name])
            metrics[name] = asdict(
                BatchMetrics(
                    plan.number,
                    turn.order,
                    {a: _input_metrics(inputs, a) for a in running.graph.query.aliases},
                    sum_steps(told.steps.get(name, [])),
                    sum_stores(held),
                    told.rows(name),
                    marks[name],
                    (*told.seconds(), seconds),
                )
            )
        return Manifest(plan.number, runs, marks, active, arrived, metrics)

    def _water(
        self, query: Query, name: str, before: Manifest, inputs: list[dict[str, Any]], now: int
    ) -> Watermarks:
        newest: dict[str, int] = {}
        for one in inputs:
            stream = query.input(one["alias"]).stream.name
            if one["newest"] is not None:
                newest[stream] = max(one["newest"], newest.get(stream, one["newest"]))
        old = Watermarks(before.marks.get(name, {}), before.active.get(name, {}))
        return old.advance(query, newest, now)


@dataclass(frozen=True, slots=True)
class Running:
    """A running set of queries."""

    runner: SparkRunner
    query: StreamingQuery

    @property
    def metrics(self) -> dict[str, list[BatchMetrics]]:
        """What every batch of every query did."""
        return self.runner.metrics

    def process_all_available(self) -> None:
        """Wait until all that is there is processed."""
        try:
            self.query.processAllAvailable()
        finally:
            self._raise()

    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait for the end, so many seconds at most; whether it has come."""
        try:
            self.query.awaitTermination(timeout)
        finally:
            self._raise()
        return not self.query.isActive

    def _raise(self) -> None:
        """An error of the user's, such as a file of another schema, as itself."""
        if self.runner.failure is not None:
            raise self.runner.failure

    def stop(self) -> None:
        """Stop, and let the checkpoint go."""
        self.query.stop()
        self.runner.checkpoint.close()


def launch(
    spark: SparkSession | str,
    root: Path,
    streams: Mapping[str, Stream],
    sources: Mapping[str, Any],
    queries: Mapping[str, tuple[PhysicalGraph, Any]],
    partitions: int,
    *,
    available_now: bool = False,
    set_aside: Callable[[int, bytes], None] | None = None,
) -> Running:
    """Start queries on a Spark session, or on one made for a master."""
    session = create_spark(spark) if isinstance(spark, str) else spark
    targets = {name: Target(graph, sink) for name, (graph, sink) in queries.items()}
    checkpoint = Checkpoint(root)
    runner = SparkRunner(session, checkpoint, streams, sources, targets, partitions, set_aside=set_aside)
    trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
    try:
        return Running(runner, runner.start(trigger))
    except BaseException:
        runner.checkpoint.close()
        raise


@dataclass
class _Told:
    """What the tasks of a batch told the driver."""

    inputs: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[str, list[StepCount]] = field(default_factory=dict)
    runs: list[tuple[str, str, int, tuple[RunFile, ...]]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    bad: list[bytes] = field(default_factory=list)
    times: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, notes: list[Message]) -> _Told:
        told = cls()
        for message in notes:
            kind, _, query = message.target.removeprefix(NOTE).partition("\t")
            if kind == "result":
                with pa.ipc.open_stream(pa.py_buffer(message.data)) as reader:
                    told.results.setdefault(query, []).extend(reader)
            elif kind == "bad":
                told.bad.append(message.data)
            else:
                told._take(kind, json.loads(message.data))
        return told

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "input":
            self.inputs.append(content)
        elif kind == "step":
            self.steps.setdefault(content.pop("query"), []).append(StepCount(**content))
        elif kind == "runs":
            found = tuple(RunFile.from_dict(run) for run in content["runs"])
            self.runs.append((content["query"], content["store"], content["partition"], found))
        elif kind == "part":
            self.parts.append(content)
        elif kind == "seconds":
            self.times[content["hop"]] = max(content["seconds"], self.times.get(content["hop"], 0.0))

    def rows(self, query: str) -> int:
        """How many results a query had."""
        here = sum(batch.num_rows for batch in self.results.get(query, []))
        return int(here + sum(part["rows"] for part in self.parts if part["query"] == query))

    def seconds(self) -> tuple[float, ...]:
        """The slowest task of every hop, the sources' first."""
        return tuple(self.times[hop] for hop in sorted(self.times))


def _check(name: str, query: Query) -> None:
    counted = [alias for alias in query.aliases if longest(query, alias) is not None]
    if counted:
        raise ConfigError(
            f"query {name}: ROWS windows ({', '.join(counted)}) do not run on Spark yet", hint="use RANGE"
        )


def _schema(query: Query) -> pa.Schema:
    return pa.schema([(output.name, arrow_type(output.expr.type)) for output in query.projection])


def _input_metrics(inputs: list[dict[str, Any]], alias: str) -> InputMetrics:
    mine = [one for one in inputs if one["alias"] == alias]
    return InputMetrics(*(sum(one[name] for one in mine) for name in ("rows", "late", "untimed")))


def _read_metrics(found: Mapping[str, Any]) -> BatchMetrics:
    return BatchMetrics(
        found["number"],
        tuple(found["order"]),
        {a: InputMetrics(**one) for a, one in found["inputs"].items()},
        {e: StepMetrics(**one) for e, one in found["steps"].items()},
        {s: StoreMetrics(**one) for s, one in found["stores"].items()},
        found["results"],
        found["watermarks"],
        tuple(found["seconds"]),
    )


def _reader(job: Job) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = (
            (stream, path, content)
            for batch in batches
            for stream, path, content in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        return to_rows(read_task(job, files))

    return read


def _hopper(job: Job, hop: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a hop runs inside a Spark task")
        messages = (message for batch in batches for message in _messages(batch))
        return to_rows(hop_task(job, hop, context.partitionId(), messages))

    return run


def _messages(batch: pa.RecordBatch) -> Iterator[Message]:
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield Message(*row)
