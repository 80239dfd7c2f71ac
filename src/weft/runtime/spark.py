"""The runner on Spark: one streaming query, one job per batch (design, D2).

Guarantees: the plan of a batch is written before it runs, its results are committed before its manifest, and a batch
that is replayed does what it did.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from weft.errors import StateError, WeftError
from weft.kernels.arrow import arrow_type
from weft.logical.query import Query
from weft.logical.schema import Stream
from weft.plan.graph import PhysicalGraph
from weft.runtime.checkpoint import Checkpoint, Manifest, Plan
from weft.runtime.driver import DEFAULT, Observed, driver_order
from weft.runtime.log import log_batch
from weft.runtime.messages import Exchange
from weft.runtime.metrics import BatchMetrics
from weft.runtime.spark_session import create_spark, is_on_one_machine, own_session, sources_have_names
from weft.runtime.stages import run_stages
from weft.runtime.told import Told, next_manifest
from weft.runtime.turn import Turn
from weft.runtime.worker import Job

__all__ = ["Running", "SparkRunner", "Target", "launch"]

_LOG = logging.getLogger("weft")
ATTEMPTS = 3  # of a batch
KEPT = 999  # batches whose metrics are remembered, beside the last one

SetAside = Callable[[int, bytes, int, int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """A query to run: its graph, and where its results go."""

    graph: PhysicalGraph
    sink: Any


@dataclass
class SparkRunner:
    """Runs graphs over streams on Spark.

    ``set_aside`` takes a batch's bad records as JSON lines, and how many of all records so far were bad; it may raise.
    """

    spark: SparkSession
    checkpoint: Checkpoint
    streams: Mapping[str, Stream]
    sources: Mapping[str, Any]
    queries: dict[str, Target]
    partitions: int
    driver: str = DEFAULT
    set_aside: SetAside | None = None
    metrics: dict[str, list[BatchMetrics]] = field(default_factory=dict)
    failure: WeftError | None = None
    query: StreamingQuery | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)  # held while a batch runs
    _identity: str = ""

    def start(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        """Take the checkpoint and begin; batches follow each other until the query is stopped."""
        spark, named = self._session()
        self._identity = self.checkpoint.open(
            {name: [str(s.schema), s.event_time] for name, s in sorted(self.streams.items())},
            {name: str(running.graph.query) for name, running in sorted(self.queries.items())},
            partitions=self.partitions,
            named=named,
        )
        self.checkpoint.clean()
        last = self.checkpoint.last()
        self._keep_graphs(last)
        before = self.checkpoint.manifest(last) or Manifest()
        for name, running in self.queries.items():
            running.sink.open(_schema(running.graph.query), self._identity)
            running.sink.recover(last)
            known = before.metrics.get(name)
            self.metrics[name] = [BatchMetrics.from_dict(known)] if known else []
        self.checkpoint.claim()
        writer = self._input(spark, named).writeStream.foreachBatch(self.process)
        location = str(self.checkpoint.root / "spark")
        self.query = writer.option("checkpointLocation", location).trigger(**trigger).start()
        return self.query

    def _keep_graphs(self, last: int) -> None:
        """Queries that ran before go on by the graph they had: their stores are laid out for it."""
        plan = self.checkpoint.plan(last)
        for name, text in (plan.graphs if plan else {}).items():
            self.queries[name] = Target(PhysicalGraph.from_json(text), self.queries[name].sink)

    def _session(self) -> tuple[SparkSession, bool]:
        """The session that reads, and whether sources have names, so that more can be added later.

        A DataFrame belongs to the user's session; its sources have names only if the user gave them some.
        """
        if any(hasattr(source, "frame") for source in self.sources.values()):
            return self.spark, sources_have_names(self.spark)
        return own_session(self.spark), True

    def _input(self, spark: SparkSession, named: bool) -> DataFrame:
        frames = []
        for name, source in self.sources.items():
            reader = spark.readStream.name(_ascii(name)) if named else spark.readStream
            frames.append(source.load(reader).select(F.lit(name).alias("stream"), "path", "content"))
        union: DataFrame = reduce(DataFrame.union, frames)
        return union

    def process(self, rows: DataFrame, number: int) -> None:
        """One batch."""
        try:
            with self.busy:
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
        began = time.perf_counter()
        plan = self.checkpoint.plan(number) or self._plan(number, before)
        told = self._run(rows, number)
        if told.errors:
            raise told.errors[0]
        self._commit(plan, before, told, began)

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
        aliases = self.queries[name].graph.query.aliases
        last = self.metrics[name][-1] if self.metrics[name] else None
        inputs = last.inputs if last else {}
        held = last.stores if last else {}
        seen = Observed(
            number,
            {alias: inputs[alias].rows if alias in inputs else 1 for alias in aliases},
            {alias: one.oldest for alias, one in inputs.items() if one.oldest is not None},
            {alias: held[alias].rows for alias in aliases if alias in held},
            before.arrived.get(name, {}),
            before.results.get(name, 0),
        )
        return driver_order(self.driver, seen)

    def _run(self, rows: DataFrame, number: int) -> Told:
        """The job, again if it fails: a killed worker or a lost executor need not end the query.

        Spark runs single tasks again by itself, but not in local mode, and not where it cannot tell that a task did
        the same as before: ours name the files they wrote. What failed attempts wrote is nobody's.
        """
        for attempt in range(1, ATTEMPTS + 1):
            for running in self.queries.values():
                running.sink.begin(number)
            try:
                return self._job(rows, number)
            except PySparkException as error:
                stopped = self.query is not None and not self.query.isActive
                if stopped or attempt == ATTEMPTS:
                    raise
                _LOG.warning("batch %d failed and is run again: %s", number, str(error).split("\n")[0])
        raise RuntimeError("there is no last attempt")

    def _job(self, rows: DataFrame, number: int) -> Told:
        sinks = {n: r.sink if hasattr(r.sink, "write_part") else None for n, r in self.queries.items()}
        exchange = self._exchange(number)
        root = str(self.checkpoint.root)
        job = Job(root, self._identity, number, self.sources, self.streams, sinks, exchange)
        hops = max(running.graph.hops for running in self.queries.values())
        return Told.of(run_stages(rows, job, hops, self.partitions))

    def _exchange(self, number: int) -> Exchange:
        """Files, if all tasks are on this machine."""
        if not is_on_one_machine(self.spark):
            return Exchange()
        return Exchange(str(self.checkpoint.exchange(number)))

    def _commit(self, plan: Plan, before: Manifest, told: Told, began: float) -> None:
        """Results first, then the manifest: a crash in between repeats the batch, and the sinks expect that."""
        if self.set_aside is not None:
            bad = before.records.get("bad", 0) + len(told.bad)
            self.set_aside(plan.number, b"\n".join(told.bad), bad, before.records.get("seen", 0) + told.seen)
        planned = {
            name: self.queries[name] for name in plan.graphs
        }  # a query may have come since it was planned
        for name, running in planned.items():
            if hasattr(running.sink, "write_part"):
                running.sink.commit_parts(plan.number, told.part_names(name))
            else:
                running.sink.commit(plan.number, told.results.get(name, []))
        figures = {
            "started": plan.now / 1e6,
            "elapsed": time.perf_counter() - began,
            "backlog": self._backlog(),
        }
        queries = {name: running.graph.query for name, running in planned.items()}
        manifest = next_manifest(plan, before, told, queries, figures)
        self.checkpoint.commit(manifest)
        for name, found in manifest.metrics.items():
            metrics = BatchMetrics.from_dict(found)
            self.metrics[name] = [*self.metrics[name][-KEPT:], metrics]
            log_batch(name, metrics)

    def _backlog(self) -> dict[str, int]:
        """The files that wait, by stream, as far as Spark has told."""
        progress = self.query.lastProgress if self.query else None
        found = progress.sources if progress else []
        waiting = {
            name: one.metrics.get("numFilesOutstanding")
            for name, one in zip(self.sources, found, strict=False)
        }
        return {name: int(count) for name, count in waiting.items() if count is not None}


@dataclass(frozen=True, slots=True)
class Running:
    """A running set of queries."""

    runner: SparkRunner
    query: StreamingQuery

    @property
    def metrics(self) -> dict[str, list[BatchMetrics]]:
        """What every batch of every query did."""
        return self.runner.metrics

    @property
    def graphs(self) -> dict[str, PhysicalGraph]:
        """What every query runs by."""
        return {name: target.graph for name, target in self.runner.queries.items()}

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
        """Stop after the batch under way, and let the checkpoint go.

        Spark cancels the batch it runs. Between two of them it keeps its own books for a while, and is stopped then.
        """
        with self.runner.busy:
            pass
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
    driver: str = DEFAULT,
    available_now: bool = False,
    set_aside: SetAside | None = None,
) -> Running:
    """Start queries on a Spark session, or on one made for a master."""
    session = create_spark(spark) if isinstance(spark, str) else spark
    targets = {name: Target(graph, sink) for name, (graph, sink) in queries.items()}
    runner = SparkRunner(
        session, Checkpoint(root), streams, sources, targets, partitions, driver, set_aside=set_aside
    )
    trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
    try:
        return Running(runner, runner.start(trigger))
    except BaseException:
        runner.checkpoint.close()
        raise


def _ascii(name: str) -> str:
    """A stream's name as Spark wants the name of a source."""
    return "".join(char if char.isascii() else f"_u{ord(char):x}_" for char in name)


def _schema(query: Query) -> pa.Schema:
    return pa.schema([(output.name, arrow_type(output.expr.type)) for output in query.projection])
