"""The runner on Spark: one streaming query, one job per batch (design, D2).

Guarantees: the plan of a batch, with the changes of queries that take effect with it, is written before it runs, its
results are committed before its manifest, and a batch that is replayed does what it did. Where the graph changes, one
more job before the batch lays the stored past out for it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from weft.errors import QueryError, StateError, WeftError
from weft.kernels.arrow import arrow_type
from weft.logical.query import Query
from weft.logical.schema import Stream
from weft.plan.part import Part, part_of
from weft.runtime.asked import Asked
from weft.runtime.changes import Changelog, Changes
from weft.runtime.checkpoint import Checkpoint, Manifest, Plan
from weft.runtime.driver import DEFAULT, Observed, driver_order
from weft.runtime.log import log_batch
from weft.runtime.messages import Exchange
from weft.runtime.metrics import BatchMetrics
from weft.runtime.program import Program
from weft.runtime.progress import History, own_metrics
from weft.runtime.relay import Relay
from weft.runtime.spark_session import create_spark, is_on_one_machine, own_session, sources_have_names
from weft.runtime.stages import run_boundary, run_stages
from weft.runtime.standing import Decide, Decision, Samples, Standing, refused
from weft.runtime.told import Told, facts_of, next_manifest, relaid_manifest
from weft.runtime.turn import Turn
from weft.runtime.worker import Job

__all__ = ["Running", "SparkRunner", "launch"]

_LOG = logging.getLogger("weft")
ATTEMPTS = 3  # of a batch

# The one graph that all queries share.
GRAPH = "queries"

SetAside = Callable[[int, bytes, int, int], None]
Restore = Callable[[Mapping[str, Any]], Any]


@dataclass
class SparkRunner:
    """Runs queries over streams on Spark.

    ``decide`` plans the queries that are to run; ``restore`` makes a sink again that a query had before a crash.
    ``set_aside`` takes a batch's bad records as JSON lines, and how many of all records so far were bad; it may raise.
    """

    spark: SparkSession
    checkpoint: Checkpoint
    streams: Mapping[str, Stream]
    sources: Mapping[str, Any]
    decide: Decide
    restore: Restore
    partitions: int
    driver: str = DEFAULT
    set_aside: SetAside | None = None
    state_limit: int | None = None  # bytes per query
    log: Changelog = field(default_factory=Changelog)
    standing: Standing = field(default_factory=Standing)
    sinks: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    samples: Samples | None = None
    failure: WeftError | None = None
    query: StreamingQuery | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)  # held while a batch runs
    _identity: str = ""
    _attempt: str = ""  # at a batch
    _blueprint: str = ""  # of what stands

    def start(self, queries: Mapping[str, tuple[Asked, Any]], trigger: Mapping[str, Any]) -> StreamingQuery:
        """Take the checkpoint and begin; batches follow each other until the query is stopped."""
        spark, named = self._session()
        self._identity = self.checkpoint.open(
            {name: [str(s.schema), s.event_time] for name, s in sorted(self.streams.items())},
            partitions=self.partitions,
            named=named,
        )
        self.checkpoint.clean()
        last = self.checkpoint.last()
        self._resume(queries, last)
        self.checkpoint.claim()
        writer = self._input(spark, named).writeStream.foreachBatch(self.process)
        location = str(self.checkpoint.root / "spark")
        self.query = writer.option("checkpointLocation", location).trigger(**trigger).start()
        return self.query

    def _resume(self, queries: Mapping[str, tuple[Asked, Any]], last: int) -> None:
        """The queries that ran before go on as they were; those that are new begin with the next batch."""
        plan = self.checkpoint.plan(last + 1) or self.checkpoint.plan(last)
        if plan is not None:
            self.standing = Standing.from_blueprint(self.checkpoint.blueprint(plan.standing))
        before = self.checkpoint.manifest(last) or Manifest()
        if GRAPH in before.metrics and self.standing.program:
            program = self._program(last)
            if program is not None:
                self.history.add(program.graph, BatchMetrics.from_dict(before.metrics[GRAPH]))
        for name, asked in self.standing.asked.items():
            self.sinks[name] = self._known_sink(name, asked, queries)
        for name, (asked, sink) in queries.items():
            if name not in self.standing.asked and name not in self.standing.stopped:
                self.sinks[name] = sink
                self.log.begin(name, asked, sink)
        failed = {name: f"failed: {why}" for name, why in before.failed.items()}
        for name, why in {**self.checkpoint.stops(), **failed}.items():
            if name in self.sinks:
                self.log.stop(name, why)
        for name, sink in self.sinks.items():
            query = (self.standing.asked.get(name) or queries[name][0]).query
            self._open(sink, query, last)

    def _open(self, sink: Any, query: Query, last: int) -> None:
        sink.open(_schema(query), self._identity)
        sink.recover(last)

    def _known_sink(self, name: str, asked: Asked, queries: Mapping[str, tuple[Asked, Any]]) -> Any:
        """The sink of a query that ran before: the one it was given again, or one like it."""
        root = self.checkpoint.root
        if name in queries:
            if queries[name][0].query != asked.query:
                raise StateError(
                    f"{root} belongs to other streams or queries: there, query {name} is {asked.query}",
                    hint="give the new query another name, or use a new checkpoint directory",
                )
            return queries[name][1]
        if asked.sink is None:
            raise StateError(
                f"{root} belongs to other streams or queries: it knows a query {name}",
                hint="register it again with its sink, which cannot be made from what is stored",
            )
        return self.restore(asked.sink)

    def _program(self, number: int) -> Program | None:
        """What a batch was run by."""
        plan = self.checkpoint.plan(number)
        if plan is None:
            return None
        return Standing.from_blueprint(self.checkpoint.blueprint(plan.standing)).program

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
        began, self._attempt = time.perf_counter(), uuid.uuid4().hex
        plan = self.checkpoint.plan(number) or self._plan(number, before)
        past = Told()
        if plan.changed:
            past = self._lay_out(plan, before)
            before = self.checkpoint.relaid(number) or before
        told = self._run(plan, lambda job: run_stages(rows, job, self._hops, self.partitions)).with_past(past)
        self._commit(plan, before, told, began)

    def _plan(self, number: int, before: Manifest) -> Plan:
        """What a batch will do; queries that were asked for, or stopped, since the last one are in it."""
        changes = self.log.take()
        relay = self._change(changes, before) if changes else None
        if changes or not self._blueprint:
            self._blueprint = self.checkpoint.write_blueprint(self.standing.to_blueprint())
        blueprint = self._blueprint
        program = self.standing.program
        turns = {}
        if program is not None:
            turns[GRAPH] = Turn(number, self._order(program, number, before), self.partitions).to_dict()
        graphs = dict.fromkeys(turns, blueprint)
        plan = Plan(number, time.time_ns() // 1000, blueprint, graphs, turns)
        if relay is not None:
            relays = {GRAPH: asdict(relay)} if relay.is_needed else {}
            plan = replace(plan, relays=relays, changed=(GRAPH,))
        self.checkpoint.write_plan(plan)
        return plan

    def _change(self, changes: Changes, before: Manifest) -> Relay:
        """Plan for other queries; a new one that cannot be planned is refused, and the others go on."""
        known = {n: why for n, why in changes.stop.items() if n in self.sinks}
        stopped = {n: why for n, why in known.items() if n not in self.standing.stopped}
        asked = {n: a for n, a in self.standing.asked.items() if n not in stopped}
        begun = {name: one for name, (one, _) in changes.begin.items()}
        facts = facts_of(before, GRAPH)
        gone = {**self.standing.stopped, **stopped}

        def decide(wanted: Mapping[str, Asked]) -> Decision | None:
            return self.decide(self.standing, wanted, facts, self.samples) if wanted else None

        wanted = {**asked, **begun}
        try:
            decision = decide(wanted)
        except WeftError:
            for name, why in refused(decide, asked, begun).items():
                _LOG.warning("query %s is refused: %s", name, why)
                gone[name] = f"refused: {why}"
                del wanted[name]
            decision = decide(wanted)
        if decision is None:
            self.standing = Standing(stopped=gone)
            return Relay()
        program = Program(decision.graph)
        self.standing = Standing(wanted, decision.plan, program, gone, decision.fresh)
        return decision.relay

    @property
    def _hops(self) -> int:
        return self.standing.program.graph.hops if self.standing.program else 0

    def _order(self, program: Program, number: int, before: Manifest) -> tuple[str, ...]:
        """The driver order, from what the batches so far did; this one's rows are taken to be the last one's."""
        graph = program.graph
        last = self.history.last
        inputs = last.inputs if last else {}
        held = last.stores if last else {}
        seen = Observed(
            number,
            {alias: inputs[alias].rows if alias in inputs else 1 for alias in graph.aliases},
            {a: inputs[a].oldest or 0 for a in graph.aliases if a in inputs and inputs[a].oldest is not None},
            {alias: held[alias].rows for alias in graph.aliases if alias in held},
            {alias: before.arrived.get(graph.input(alias).stream.name, 0) for alias in graph.aliases},
            sum(before.results.values()),
        )
        return driver_order(self.driver, seen)

    def _lay_out(self, plan: Plan, before: Manifest) -> Told:
        """The job at a boundary, if there is anything to do; then what the batch begins with is fixed."""
        relay = Relay.from_dict(plan.relays[GRAPH]) if GRAPH in plan.relays else Relay()
        told = Told()
        if relay.is_needed:
            told = self._run(
                plan, lambda job: run_boundary(self.spark, job, self._hops, self.partitions), boundary=True
            )
        old = self._program(plan.number - 1)
        manifest = relaid_manifest(before, GRAPH, old, self.standing.program, relay, told)
        self.checkpoint.write_relaid(plan.number, manifest)
        return told

    def _run(self, plan: Plan, stages: Callable[[Job], Any], boundary: bool = False) -> Told:
        """A job, again if it fails: a killed worker or a lost executor need not end the query.

        Spark runs single tasks again by itself, but not in local mode, and not where it cannot tell that a task did
        the same as before: ours name the files they wrote. What failed attempts wrote is nobody's.
        """
        for attempt in range(1, ATTEMPTS + 1):
            if boundary or not plan.relays:
                for name in self.standing.asked:
                    self.sinks[name].begin(plan.number)
            try:
                told = Told.of(stages(self._job(plan.number, boundary)))
            except PySparkException as error:
                stopped = self.query is not None and not self.query.isActive
                if stopped or attempt == ATTEMPTS:
                    raise
                _LOG.warning("batch %d failed and is run again: %s", plan.number, str(error).split("\n")[0])
                continue
            if told.errors:
                raise told.errors[0]
            return told
        raise RuntimeError("there is no last attempt")

    def _job(self, number: int, boundary: bool) -> Job:
        running = {name: self.sinks[name] for name in self.standing.asked}
        return Job(
            str(self.checkpoint.root),
            self._identity,
            number,
            self.sources,
            self.streams,
            {name: sink for name, sink in running.items() if hasattr(sink, "write_part")},
            self._exchange(number),
            frozenset(name for name, sink in running.items() if hasattr(sink, "commit_count")),
            boundary,
            self._attempt,
        )

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
        for name in self.standing.asked:
            self._answer(name, plan.number, told)
        figures = {
            "started": plan.now / 1e6,
            "elapsed": time.perf_counter() - began,
            "backlog": self._backlog(),
        }
        program = self.standing.program
        programs = {} if program is None else {GRAPH: program}
        manifest = next_manifest(plan, before, told, programs, figures)
        self.checkpoint.commit(manifest)
        if program is not None:
            metrics = BatchMetrics.from_dict(manifest.metrics[GRAPH])
            self.history.add(program.graph, metrics)
            self._log(program, metrics)
            self.samples = _samples(program, told) or self.samples
            self._police(program, manifest, told)

    def _log(self, program: Program, metrics: BatchMetrics) -> None:
        """A line per query, under its author's names."""
        if _LOG.isEnabledFor(logging.INFO):
            for name, asked in sorted(self.standing.asked.items()):
                log_batch(name, own_metrics(metrics, name, _part(program, name, asked.names)))

    def _answer(self, name: str, number: int, told: Told) -> None:
        """A batch's results to their sink; a sink that refuses them stops its query, not the others."""
        sink, failed = self.sinks[name], name in told.failed
        try:
            if hasattr(sink, "write_part"):
                sink.commit_parts(number, [] if failed else told.parts.get(name, []))
            elif hasattr(sink, "commit_count"):
                sink.commit_count(number, told.rows(name))
            else:
                sink.commit(number, [] if failed else told.results.get(name, []))
        except WeftError as error:
            if len(self.standing.asked) == 1:
                raise
            told.failed[name] = f"{type(error).__name__}: {error.message}"

    def _police(self, program: Program, manifest: Manifest, told: Told) -> None:
        """Stop queries that failed, or whose state is larger than it may be."""
        for name, why in told.failed.items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self.log.stop(name, f"failed: {why}")
        if self.state_limit is None:
            return
        for name in program.members:
            size = state_of(program, manifest, name)
            if size > self.state_limit:
                why = f"its state is {size:,.0f} bytes, more than the limit of {self.state_limit:,}"
                _LOG.warning("query %s is stopped: %s", name, why)
                self.log.stop(name, f"stopped: {why}")

    def add(self, name: str, asked: Asked, sink: Any) -> None:
        """Run one more query from the next batch on; a sink that cannot take its results is refused at once."""
        if name in self.standing.stopped:
            raise QueryError(f"a query {name!r} ran before, and was stopped", hint="choose another name")
        self._open(sink, asked.query, self.checkpoint.last())
        self.sinks[name] = sink
        self.log.begin(name, asked, sink)

    def stop(self, name: str) -> None:
        """Run a query no longer, from the next batch on, whichever session runs that."""
        if name in self.sinks:
            self.checkpoint.write_stop(name, "stopped")
            self.log.stop(name, "stopped")

    def state_of(self, name: str) -> float:
        """The bytes of a query's stores, after the last batch."""
        manifest, program = self.checkpoint.manifest(self.checkpoint.last()), self.standing.program
        known = manifest is not None and program is not None and name in program.members
        return state_of(program, manifest, name) if known and program and manifest else 0.0

    def _backlog(self) -> dict[str, int]:
        """The files that wait, by stream, as far as Spark has told."""
        progress = self.query.lastProgress if self.query else None
        found = progress.sources if progress else []
        waiting = {
            name: one.metrics.get("numFilesOutstanding")
            for name, one in zip(self.sources, found, strict=False)
        }
        return {name: int(count) for name, count in waiting.items() if count is not None}


@lru_cache(maxsize=1024)
def _part(program: Program, name: str, names: tuple[tuple[str, str], ...]) -> Part:
    return part_of(program.graph, name, dict(names))


def state_of(program: Program, manifest: Manifest, name: str) -> float:
    """The bytes that a query's stores hold; those of stores it shares are divided among their users."""
    mine = [store for store in program.stores.values() if name in store.node.users]
    return sum(manifest.bytes_of(GRAPH, store.identity) / len(store.node.users) for store in mine)


def _samples(program: Program, told: Told) -> Samples | None:
    """The query-sets that tasks told of; what is no query's place is nobody's."""
    if not told.samples:
        return None
    slots = {member.slot: name for name, member in program.members.items()}
    names = tuple(slots.get(slot, "") for slot in range(1 + max(slots)))
    return Samples(names, told.samples)


@dataclass(frozen=True, slots=True)
class Running:
    """A running set of queries."""

    runner: SparkRunner
    query: StreamingQuery

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
    queries: Mapping[str, tuple[Asked, Any]],
    decide: Decide,
    restore: Restore,
    partitions: int,
    *,
    driver: str = DEFAULT,
    available_now: bool = False,
    set_aside: SetAside | None = None,
    state_limit: int | None = None,
) -> Running:
    """Start queries on a Spark session, or on one made for a master."""
    session = create_spark(spark) if isinstance(spark, str) else spark
    runner = SparkRunner(
        session,
        Checkpoint(root),
        streams,
        sources,
        decide,
        restore,
        partitions,
        driver,
        set_aside,
        state_limit,
    )
    trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
    try:
        return Running(runner, runner.start(queries, trigger))
    except BaseException:
        runner.checkpoint.close()
        raise


def _ascii(name: str) -> str:
    """A stream's name as Spark wants the name of a source."""
    return "".join(char if char.isascii() else f"_u{ord(char):x}_" for char in name)


def _schema(query: Query) -> pa.Schema:
    return pa.schema([(output.name, arrow_type(output.expr.type)) for output in query.projection])
