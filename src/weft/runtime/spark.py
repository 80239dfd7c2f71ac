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
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from weft.errors import QueryError, StateError, WeftError
from weft.kernels.arrow import result_schema
from weft.logical.query import Query
from weft.logical.schema import Stream
from weft.runtime.asked import Asked
from weft.runtime.changes import Changelog
from weft.runtime.checkpoint import Checkpoint, Manifest, Plan
from weft.runtime.deliver import deliver, figures_of, gather_all, hold
from weft.runtime.driver import DEFAULT, driver_order, expected
from weft.runtime.functions import PackedFunction, check_registered
from weft.runtime.gather import Gathered
from weft.runtime.interpret import LIMIT
from weft.runtime.job import Job
from weft.runtime.log import log_batch
from weft.runtime.messages import Exchange
from weft.runtime.metrics import BatchMetrics
from weft.runtime.program import Program
from weft.runtime.progress import History, own_metrics, state_of, too_large
from weft.runtime.pulse import Pulse
from weft.runtime.reading import TICK, read_all, session_for, waiting_files
from weft.runtime.relay import Relay
from weft.runtime.resume import Restore, resumed
from weft.runtime.spark_session import is_on_one_machine
from weft.runtime.stages import run_boundary, run_stages
from weft.runtime.standing import Asks, Decide, Samples, Standing, changed, never, relaid
from weft.runtime.step import PORTION_BYTES
from weft.runtime.succession import facts_of, next_manifest, relaid_manifest, samples_of
from weft.runtime.told import Told
from weft.runtime.turn import ENDED, Turn
from weft.runtime.watermark import Watermarks, clocks

__all__ = ["GRAPH", "SetAside", "SparkRunner"]

_LOG = logging.getLogger("weft")
ATTEMPTS = 3  # of a batch

# The one graph that all queries share.
GRAPH = "queries"

SetAside = Callable[[int, bytes, int, int], None]


@dataclass
class SparkRunner:
    """Runs queries over streams on Spark.

    ``decide`` plans the queries that are to run, ``asks`` says when heavy values are a reason to plan them again;
    ``restore`` makes a sink again that a query had before a crash.
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
    key_limit: int = LIMIT  # results of one key
    functions: Mapping[str, PackedFunction] = field(
        default_factory=dict
    )  # those that users have registered by now
    asks: Asks = never
    portion_bytes: int = PORTION_BYTES  # of what a task makes together
    result_limit: int | None = None  # results of one query in one batch
    log: Changelog = field(default_factory=Changelog)
    standing: Standing = field(default_factory=Standing)
    sinks: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    samples: Samples | None = None
    failure: WeftError | None = None
    query: StreamingQuery | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)  # held while a batch runs
    ending: bool = False  # whether all input has come
    pulse: Pulse = field(init=False)
    _identity: str = ""
    _attempt: str = ""  # at a batch
    _blueprint: str = ""  # of what stands

    def __post_init__(self) -> None:
        self.pulse = Pulse(self.checkpoint)

    def start(self, queries: Mapping[str, tuple[Asked, Any]], trigger: Mapping[str, Any]) -> StreamingQuery:
        """Take the checkpoint and begin; batches follow each other until the query is stopped."""
        spark, named = session_for(self.spark, self.sources)
        self._identity = self.checkpoint.open(
            {name: [str(s.schema), s.event_time] for name, s in sorted(self.streams.items())},
            partitions=self.partitions,
            named=named,
        )
        self.checkpoint.clean()
        last = self.checkpoint.last()
        self._resume(queries, last)
        self.checkpoint.claim()
        self._wake(last)
        read = read_all(spark, self.sources, named, self.checkpoint.ticks)
        writer = read.writeStream.foreachBatch(self.process)
        location = str(self.checkpoint.root / "spark")
        self.query = writer.option("checkpointLocation", location).trigger(**trigger).start()
        return self.query

    def _resume(self, queries: Mapping[str, tuple[Asked, Any]], last: int) -> None:
        """The queries that ran before go on as they were; those that are new begin with the next batch."""
        before = self.checkpoint.manifest(last) or Manifest()
        found = resumed(self.checkpoint, queries, self.restore, before, last)
        check_registered({name: one.query for name, one in found.standing.asked.items()}, self.functions)
        self.standing = found.standing
        self.sinks |= found.sinks
        if GRAPH in before.metrics and self.standing.program:
            program = Standing.of_batch(self.checkpoint, last).program
            if program is not None:
                self.history.add(program.graph, BatchMetrics.from_dict(before.metrics[GRAPH]))
        for name, (asked, sink) in found.begin.items():
            self.log.begin(name, asked, sink)
        for name, why in found.stop.items():
            self.log.stop(name, why)
        for name, sink in self.sinks.items():
            query = (self.standing.asked.get(name) or queries[name][0]).query
            self._open(sink, query, last)

    def _wake(self, last: int) -> None:
        """Have a batch begin if there has been something to do since the last one, though no stream brings anything."""
        program, manifest = self.standing.program, self.checkpoint.manifest(last)
        if program is not None and manifest is not None:
            self.pulse.after(program, manifest, GRAPH, self.log, time.time_ns() // 1000)

    def _open(self, sink: Any, query: Query, last: int) -> None:
        sink.open(result_schema(query), self._identity)
        sink.recover(last)

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
        self._check_open(rows, before)
        began, self._attempt = time.perf_counter(), uuid.uuid4().hex
        plan = self.checkpoint.plan(number) or self._plan(number, before)
        past = Told()
        if plan.changed:
            past = self._lay_out(plan, before)
            before = self.checkpoint.relaid(number) or before
        told = self._run(plan, lambda job: run_stages(rows, job, self._hops, self.partitions)).with_past(past)
        self._commit(plan, before, told, began)

    def _check_open(self, rows: DataFrame, before: Manifest) -> None:
        """Refuse tuples that come when queries have been told that none will."""
        ended = [name for name, time in before.closed.items() if time >= ENDED]
        if ended and not rows.filter(F.col("stream") != TICK).isEmpty():
            raise StateError(
                f"there is more input, but query {ended[0]} was told that it had ended, and has closed its rows",
                hint="use a new checkpoint directory; run_available(end=False) leaves rows open for what comes",
            )

    def _plan(self, number: int, before: Manifest) -> Plan:
        """What a batch will do; queries that were asked for, or stopped, since the last one are in it."""
        changes, facts = self.log.take(), facts_of(before, GRAPH)
        relay = None
        if changes:
            self.standing, relay = changed(
                self.standing, changes.known(self.sinks), self.decide, facts, self.samples
            )
        elif self._sees_heavy(number) and (found := relaid(self.standing, self.decide, facts, self.samples)):
            self.standing, relay = found
            _LOG.info("heavy keys have come or gone: what is stored is laid out anew before batch %d", number)
        if relay is not None or not self._blueprint:
            self._blueprint = self.checkpoint.write_blueprint(self.standing.to_blueprint())
        program = self.standing.program
        turns = {}
        if program is not None:
            turns[GRAPH] = self._turn(program, number, before).to_dict()
        graphs = dict.fromkeys(turns, self._blueprint)
        plan = Plan(number, self._now(before), self._blueprint, graphs, turns)
        if relay is not None:
            relays = {GRAPH: asdict(relay)} if relay.is_needed else {}
            plan = replace(plan, relays=relays, changed=(GRAPH,))
        self.checkpoint.write_plan(plan)
        return plan

    def _sees_heavy(self, number: int) -> bool:
        """Whether keys have become heavy, or are no more, since the queries were planned."""
        program, last = self.standing.program, self.history.last
        return program is not None and last is not None and self.asks(program.graph, last.heavy, number)

    def _now(self, before: Manifest) -> int:
        """The time of a batch: never before that of an earlier one, by which tuples without event time were timed."""
        untimed = [name for name, stream in self.streams.items() if stream.event_time is None]
        known = [before.marks[name] for name in untimed if name in before.marks]
        return max([time.time_ns() // 1000, *known])

    def _turn(self, program: Program, number: int, before: Manifest) -> Turn:
        """The batch's place: the driver order, from what the batches so far did, and up to where rows are closed."""
        results = sum(before.results.values())
        seen = expected(number, program.graph, self.history.last, before.arrived, results)
        times = clocks(program.graph, Watermarks(before.marks), before.closed, ended=self.ending)
        return Turn(number, driver_order(self.driver, seen), self.partitions, clocks=times)

    @property
    def _hops(self) -> int:
        return self.standing.program.graph.hops if self.standing.program else 0

    def _lay_out(self, plan: Plan, before: Manifest) -> Told:
        """The job at a boundary, if there is anything to do; then what the batch begins with is fixed."""
        relay = Relay.from_dict(plan.relays[GRAPH]) if GRAPH in plan.relays else Relay()
        told = Told()
        if relay.is_needed:
            told = self._run(
                plan, lambda job: run_boundary(self.spark, job, self._hops, self.partitions), boundary=True
            )
        old = Standing.of_batch(self.checkpoint, plan.number - 1).program
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
            if told.broken and told.broken.keys() >= self.standing.asked.keys():  # no other goes on
                raise next(iter(told.broken.values()))
            return told
        raise RuntimeError("there is no last attempt")

    def _job(self, number: int, boundary: bool) -> Job:
        running = {name: self.sinks[name] for name in self.standing.asked}
        files = is_on_one_machine(self.spark)
        return Job(
            str(self.checkpoint.root),
            self._identity,
            number,
            self.sources,
            self.streams,
            {name: sink for name, sink in running.items() if self._writes(name)},
            Exchange(str(self.checkpoint.exchange(number))) if files else Exchange(),
            frozenset(name for name, sink in running.items() if hasattr(sink, "commit_count")),
            boundary,
            self._attempt,
            self.key_limit,
            {name: one.data for name, one in dict(self.functions).items()},
            self.portion_bytes,
            self.result_limit,
        )

    def _writes(self, name: str) -> bool:
        """Whether tasks write the results of a query; what is ordered is merged by the driver."""
        return self.standing.asked[name].ordering is None and hasattr(self.sinks[name], "write_part")

    def _ordered(self) -> list[str]:
        """The queries whose results leave in an order; where they are only counted, they have none."""
        asked = self.standing.asked.items()
        return [n for n, one in asked if one.ordering and not hasattr(self.sinks[n], "commit_count")]

    def _commit(self, plan: Plan, before: Manifest, told: Told, began: float) -> None:
        """Results first, then the manifest: a crash in between repeats the batch, and the sinks expect that."""
        if self.set_aside is not None:
            bad = before.records.get("bad", 0) + len(told.bad)
            self.set_aside(plan.number, b"\n".join(told.bad), bad, before.records.get("seen", 0) + told.seen)
        program, folder = self.standing.program, self.checkpoint.buckets
        programs = {} if program is None else {GRAPH: program}
        ordered = gather_all(plan, before, told, programs, self._ordered(), folder)
        for name in self.standing.asked:
            self._answer(name, plan.number, told, ordered.get(name))
        figures = {
            "started": plan.now / 1e6,
            "elapsed": time.perf_counter() - began,
            "backlog": waiting_files(self.query, self.sources),
            "files": len(told.reads),
            **figures_of(ordered),
        }
        manifest = hold(next_manifest(plan, before, told, programs, figures), ordered, told, folder)
        self.checkpoint.commit(manifest)
        if program is not None:
            metrics = BatchMetrics.from_dict(manifest.metrics[GRAPH])
            self.history.add(program.graph, metrics)
            self._log(metrics)
            self.samples = samples_of(program, told) or self.samples
            self._police(program, manifest, told)
            self._warn(metrics)
            self.pulse.after(program, manifest, GRAPH, self.log, plan.now)

    def end(self) -> None:
        """Take what has come for all there is: close every row, with the next batch."""
        self.ending = True
        self.pulse.beat()

    def _log(self, metrics: BatchMetrics) -> None:
        """A line per query, under its author's names."""
        if _LOG.isEnabledFor(logging.INFO):
            for name, asked in sorted(self.standing.asked.items()):
                log_batch(name, own_metrics(metrics, name, self.history.newest_part(name, asked.names)))

    def _answer(self, name: str, number: int, told: Told, ordered: Gathered | None) -> None:
        """A batch's results to their sink; a sink that refuses them stops its query, not the others."""
        try:
            deliver(self.sinks[name], name, number, told, ordered)
        except WeftError as error:
            if len(self.standing.asked) == 1:
                raise
            told.failed[name] = f"{type(error).__name__}: {error.message}"

    def _police(self, program: Program, manifest: Manifest, told: Told) -> None:
        """Stop queries that failed, or whose state is larger than it may be."""
        for name, why in told.failed.items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self.log.stop(name, f"failed: {why}")
        for name, why in too_large(program, manifest, GRAPH, self.state_limit).items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self.log.stop(name, f"stopped: {why}")

    def _warn(self, metrics: BatchMetrics) -> None:
        """Say which keys have too many results."""
        for name, keys in metrics.keys.items():
            for one in keys.too_many:
                counts = " × ".join(f"{count:,} of {alias}" for alias, count in one.items() if alias != "key")
                _LOG.warning(
                    "query %s: key %s would have more than %s results (%s); its new tuples are set aside",
                    *(name, one["key"], f"{self.key_limit:,}", counts),
                )

    def add(self, name: str, asked: Asked, sink: Any) -> None:
        """Run one more query from the next batch on; a sink that cannot take its results is refused at once."""
        if name in self.standing.stopped:
            raise QueryError(f"a query {name!r} ran before, and was stopped", hint="choose another name")
        self._open(sink, asked.query, self.checkpoint.last())
        self.sinks[name] = sink
        self.log.begin(name, asked, sink)
        self.pulse.beat()

    def stop(self, name: str) -> None:
        """Run a query no longer, from the next batch on, whichever session runs that."""
        if name in self.sinks:
            self.checkpoint.write_stop(name, "stopped")
            self.log.stop(name, "stopped")
            self.pulse.beat()

    def state_of(self, name: str) -> float:
        """The bytes of a query's stores, after the last batch."""
        manifest, program = self.checkpoint.manifest(self.checkpoint.last()), self.standing.program
        return state_of(program, manifest, GRAPH, name) if program and manifest else 0.0
