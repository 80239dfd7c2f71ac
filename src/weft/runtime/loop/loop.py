"""The loop: one batch after the other, each by the same sentence (design, D2).

    look what the streams offer → decide → write the plan of the batch, with the exact input it takes → execute →
    commit the results → commit the manifest

Guarantees: a batch that was planned is run as it was planned, however often that is tried and whoever does it. A batch
whose tasks are lost is run again from the manifest before it. What it reads is released only when it is committed.
While a batch is being committed the next one runs; it is committed after it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weft.errors import CatalogError, WeftError
from weft.kernels.expr.arrow import result_schema
from weft.logical.query import Query
from weft.logical.schema import Stream
from weft.ports.sink import Sink
from weft.ports.source import Place, Source
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import GRAPH, BatchPlan, Manifest
from weft.runtime.loop.committing import Committer, Ended
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.deciding import Decider
from weft.runtime.loop.deliver import figures_of, gather_all, hold
from weft.runtime.loop.ending import next_manifest, relaid_manifest, samples_of
from weft.runtime.loop.executor import Executor, spread
from weft.runtime.loop.intake import Intake
from weft.runtime.loop.query_sinks import QuerySinks
from weft.runtime.loop.task_reports import TaskReports
from weft.runtime.observe.log_lines import log_batch
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History, own_metrics, state_of, too_large
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.resume import resumed
from weft.runtime.task.functions import check_registered
from weft.runtime.task.job import Job, Setup
from weft.runtime.task.messages import Exchange
from weft.storage.storage import Memory

__all__ = ["Loop", "Mark"]

_LOG = logging.getLogger("weft")

ATTEMPTS = 4  # at a batch
PATIENCE = 0.5  # seconds before the third attempt, twice that before the fourth
WATCHFUL, DROWSY = 0.005, 0.02  # seconds between two looks: while there was something lately, and later
LATELY = 5.0  # seconds


@dataclass(eq=False)
class Mark:
    """A moment: ``target`` is how many parts of every stream had come by then, as soon as the loop has looked.

    ``unfinished`` is what could not be read by then; once it can be, it counts too. ``last`` is the batch by which
    nothing more was to be done, and which has to be committed.
    """

    reached: threading.Event = field(default_factory=threading.Event)
    target: dict[str, int] | None = None
    unfinished: frozenset[tuple[str, str]] = frozenset()
    last: int | None = None


@dataclass
class Loop:
    """Runs queries over streams, batch by batch, with an executor."""

    config: RunConfig
    log: Checkpoint
    executor: Executor
    overlapping: bool = True
    history: History = field(default_factory=History)
    sinks: QuerySinks = field(default_factory=QuerySinks)
    before: Manifest = field(default_factory=Manifest)  # what the last batch left, committed or about to be
    past: TaskReports = field(default_factory=TaskReports)  # what the last boundary answered
    identity: str = ""

    def __post_init__(self) -> None:
        self.decider = Decider(self.config, self.log, self.history)
        self.committer = Committer(self.log, self.decider.changelog, self.overlapping)
        self.intake = Intake(self._place, self.config.batch_bytes)
        self.wake = threading.Event()
        self.stopping = False
        self.ended: Ended | None = None  # the last batch whose tasks are done
        self.marks: list[Mark] = []
        self._unfinished: dict[str, tuple[str, ...]] = {}  # files that are waited for, by stream
        self._setup: Setup | None = None
        self._opening: dict[str, Source] = {}  # streams that came while the loop runs
        self._lock = threading.Lock()

    @property
    def active_queries(self) -> ActiveQueries:
        """The queries that run."""
        return self.decider.active_queries

    # Beginning

    def start(self, queries: Mapping[str, tuple[QueryRequest, Sink]]) -> None:
        """Take the log, and go on where it ends."""
        described = {name: _described(stream) for name, stream in sorted(self.config.streams.items())}
        self.identity = self.log.open(described, partitions=self.config.partitions)
        self.log.clean()
        self.before = self.log.manifest(self.log.last()) or Manifest()
        self.log.forget_plans_beyond(self.before.number)
        self.committer.last = self.before.number
        planned = self._last_planned()
        self._resume(queries, planned)
        self.log.claim()
        state = self.before.cursors if planned is None else planned.cursors
        for name, source in self.config.sources.items():
            self.intake.open(name, source, state.get(name, {}))
        self.decider.schedule(self.before, self.decider.clock())

    def _last_planned(self) -> BatchPlan | None:
        """The last batch that was planned and not committed, up to which the streams have been taken."""
        planned, number = None, self.before.number + 1
        while (plan := self.log.plan(number)) is not None:
            planned, number = plan, number + 1
        return planned

    def _resume(self, queries: Mapping[str, tuple[QueryRequest, Sink]], planned: BatchPlan | None) -> None:
        """The queries that ran before go on as they were; those that are new begin with the next batch."""
        found = resumed(self.log, queries, self.config.restore, self.before)
        check_registered({name: one.query for name, one in found.requests.items()}, self.config.functions)
        self.decider.active_queries, self.decider.blueprint = found.active_queries, self.before.blueprint
        for name, sink in found.sinks.items():
            self.sinks.add(name, sink)
        program = found.active_queries.program
        if GRAPH in self.before.metrics and program is not None:
            self.history.add(program.graph, BatchMetrics.from_dict(self.before.metrics[GRAPH]))
        for name, (request, _) in found.begin.items():
            self.decider.changelog.begin(name, request)
        for name, why in found.stop.items():
            self.decider.changelog.stop(name, why)
        # where a manifest was lost, sinks have more than one batch that will come again, as it was
        last = self.before.number if planned is None else planned.number - 1
        for name, sink in self.sinks.items():
            asked_for = found.requests[name] if name in found.requests else queries[name][0]
            self._open(sink, asked_for.query, last)

    def _open(self, sink: Sink, query: Query, last: int) -> None:
        sink.open(result_schema(query), self.identity)
        sink.recover(last)

    def _place(self, stream: str, state: Mapping[str, Any]) -> Place:
        folder = Path() if self.log.root is None else self.log.root / "streams" / stream
        return Place(stream, state, self.log, folder, self.config.spark, self.config.batch_bytes)

    # The sentence

    def run_next(self, *, also_empty: bool = False) -> bool:
        """Run the next batch, if there is one to run or it may be empty; whether there was."""
        began = time.perf_counter()
        plan = self.decider.known(self.before)
        is_new = plan is None
        if plan is None:
            self._open_streams()
            self.intake.look()
            self._tell_unfinished()
            chosen = self.intake.chosen()
            self._aim()
            if not (chosen or also_empty or self.decider.is_due(self.before)):
                return False
            plan = self.decider.new(self.before, chosen)
            self.intake.take(plan)
            plan = replace(plan, cursors=self.intake.states())
            self.log.write_plan(plan)
        self.intake.count_taken(plan)
        try:
            told, before = self.execute(plan)
            self.ended = ended = self.end(plan, before, told, began)
        except WeftError:
            if is_new:
                self._take_back(plan)
            raise
        self.committer.begin(ended, self._committed)
        return True

    def _tell_unfinished(self) -> None:
        """Say of files that are not complete, once, that they are waited for."""
        found = self.intake.unfinished()
        if found != self._unfinished:
            for name, files in found.items():
                for file in set(files) - set(self._unfinished.get(name, ())):
                    _LOG.info("stream %s waits for %s", name, file)
            self._unfinished = found

    def _take_back(self, plan: BatchPlan) -> None:
        """Leave the input out of a plan whose tasks failed by an error of the user's, such as a file that is wrong.

        None of its results has reached a sink, so nothing is lost if whoever starts next takes the input as it is by
        then: the file may be mended, or be back. What queries were to begin or stop stays planned.
        """
        self.log.write_plan(replace(plan, inputs={}, cursors=self._before(plan).cursors))

    def _before(self, plan: BatchPlan) -> Manifest:
        """What the batch before left."""
        return (
            self.before
            if self.before.number < plan.number
            else self.log.manifest(plan.number - 1) or Manifest()
        )

    def execute(self, plan: BatchPlan) -> tuple[TaskReports, Manifest]:
        """Run the tasks of a batch; what they told, and what the batch began with."""
        before, self.past = self.before, TaskReports()
        if plan.changed:
            before = self._lay_out(plan)
        told = self._run(plan, before, boundary=False)
        return told.with_past(self.past), before

    def _lay_out(self, plan: BatchPlan) -> Manifest:
        """The job at a boundary, if there is anything to do; then what the batch begins with is fixed."""
        migration = (
            StateMigration.from_dict(plan.migrations[GRAPH]) if GRAPH in plan.migrations else StateMigration()
        )
        if migration.is_needed:
            self.past = self._run(plan, self.before, boundary=True)
        old = self.decider.queries_of(self.before.blueprint).program
        manifest = relaid_manifest(self.before, GRAPH, old, self.active_queries.program, migration, self.past)
        self.log.write_relaid(plan.number, manifest)
        return manifest

    def _run(self, plan: BatchPlan, before: Manifest, *, boundary: bool) -> TaskReports:
        """The tasks of a batch, again if they are lost: a killed worker or a lost executor need not end the queries.

        What failed attempts wrote is nobody's.
        """
        for attempt in range(1, ATTEMPTS + 1):
            if boundary or not plan.migrations:
                for name in self.active_queries.requests:
                    self.sinks[name].begin(plan.number)
            job = self._job(plan, before, boundary)
            parts = () if boundary else tuple(plan.parts)
            hops = self.active_queries.program.graph.hops if self.active_queries.program else 0
            try:
                self._prepare()
                messages = self.executor.run(job, spread(parts, self.executor.readers), hops)
            except WeftError:
                raise
            except Exception as error:
                if self.stopping or attempt == ATTEMPTS:
                    raise
                why = str(error).strip().split("\n")[0]
                _LOG.warning("batch %d failed (attempt %d) and is run again: %s", plan.number, attempt, why)
                self._setup = None
                time.sleep(PATIENCE * (attempt - 1))
                continue
            told = TaskReports.of(messages)
            if told.errors:
                raise told.errors[0]
            if told.broken and told.broken.keys() >= self.active_queries.requests.keys():  # no other goes on
                raise next(iter(told.broken.values()))
            return told
        raise RuntimeError("there is no last attempt")

    def _prepare(self) -> None:
        """Have the executor ready, with all streams, functions and sinks that tasks need by now."""
        functions = {name: one.data for name, one in dict(self.config.functions).items()}
        own = {name: sink for name, sink in self.sinks.writable() if self.config.describe(sink) is None}
        sources, streams = dict(self.config.sources), dict(self.config.streams)
        setup = Setup(self.log.storage, self.identity, sources, streams, self.config.restore, own, functions)
        if self._setup is None or _differs(setup, self._setup):
            self.executor.start(setup)
            self._setup = setup

    def _job(self, plan: BatchPlan, before: Manifest, boundary: bool) -> Job:
        self._prepare()
        assert self._setup is not None
        running = {name: self.sinks.output(name) for name in self.active_queries.requests}
        writing = {
            name: output.parts
            for name, output in running.items()
            if output.parts is not None and self.active_queries.requests[name].ordering is None
        }  # what is ordered is merged by the driver
        exchange = Exchange(direct=True)
        if not isinstance(self.log.storage, Memory):
            exchange = self.executor_exchange(plan.number)
        return Job(
            self._setup,
            plan,
            before,
            writing,
            frozenset(name for name, output in running.items() if output.counting is not None),
            exchange,
            boundary,
            self.config.key_limit,
            self.config.portion_bytes,
            self.config.result_limit,
        )

    def executor_exchange(self, number: int) -> Exchange:
        """How batches get from task to task on disk: as files, where all tasks see them."""
        return Exchange(str(self.log.exchange(number)))

    def _ordered(self) -> list[str]:
        """The queries whose results leave in an order; where they are only counted, they have none."""
        requests = self.active_queries.requests.items()
        return [n for n, one in requests if one.ordering and self.sinks.output(n).counting is None]

    def end(self, plan: BatchPlan, before: Manifest, told: TaskReports, began: float) -> Ended:
        """What a batch leaves, from what its tasks told; the next one can begin with it."""
        self._set_aside(plan, before, told)
        program, storage = self.active_queries.program, self.log.storage
        programs = {} if program is None else {GRAPH: program}
        ordered = gather_all(plan, before, told, programs, self._ordered(), storage)
        figures = {
            "started": plan.now / 1e6,
            "elapsed": time.perf_counter() - began,
            "backlog": {
                name: max(0, parts - len(plan.inputs.get(name, ())))
                for name, parts in self.intake.backlog().items()
            },
            "files": sum(len(parts) for parts in plan.inputs.values()),
            **figures_of(ordered),
        }
        manifest = hold(next_manifest(plan, before, told, programs, figures), ordered, told, storage)
        self.before = manifest
        if program is not None:
            metrics = BatchMetrics.from_dict(manifest.metrics[GRAPH])
            self.history.add(program.graph, metrics)
            self.decider.samples = samples_of(program, told) or self.decider.samples
            self._stop_failed_queries(program, manifest, told)
            self._warn_of_large_keys(metrics)
        self.decider.schedule(manifest, plan.now)
        return Ended(
            plan,
            told,
            manifest,
            ordered,
            {n: self.sinks.output(n) for n in self.active_queries.requests},
            began,
        )

    def _set_aside(self, plan: BatchPlan, before: Manifest, told: TaskReports) -> None:
        if self.config.set_aside is not None:
            bad = before.records.get("bad", 0) + len(told.bad)
            seen = before.records.get("seen", 0) + told.seen
            self.config.set_aside(plan.number, b"\n".join(told.bad), bad, seen)

    def _committed(self, ended: Ended) -> None:
        """A batch is in the log: what it read may go, and whoever waits for it is told."""
        self.intake.release(ended.plan)
        self.history.commit(ended.plan.number, ended.began, time.perf_counter())
        if _LOG.isEnabledFor(logging.INFO) and GRAPH in ended.manifest.metrics:
            metrics = BatchMetrics.from_dict(ended.manifest.metrics[GRAPH])
            for name, requests in sorted(self.active_queries.requests.items()):
                log_batch(name, own_metrics(metrics, name, self.history.newest_part(name, requests.names)))

    def _stop_failed_queries(self, program: ExecutableGraph, manifest: Manifest, told: TaskReports) -> None:
        """Stop queries that failed, or whose state is larger than it may be."""
        for name, why in told.failed.items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self.decider.changelog.stop(name, f"failed: {why}")
        for name, why in too_large(program, manifest, GRAPH, self.config.state_limit).items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self.decider.changelog.stop(name, f"stopped: {why}")

    def _warn_of_large_keys(self, metrics: BatchMetrics) -> None:
        """Say which keys have too many results."""
        for name, keys in metrics.keys.items():
            for one in keys.too_many:
                counts = " × ".join(f"{count:,} of {alias}" for alias, count in one.items() if alias != "key")
                _LOG.warning(
                    "query %s: key %s would have more than %s results (%s); its new tuples are set aside",
                    *(name, one["key"], f"{self.config.key_limit:,}", counts),
                )

    # Going on until it is stopped

    def run(self) -> None:
        """Run batches until `stopping`; an error ends it and is raised."""
        lately = time.monotonic()
        while not self.stopping:
            if self.run_next():
                lately = time.monotonic()
                self._tell_marks()
                continue
            self.committer.wait()
            self._tell_marks()
            pause = WATCHFUL if time.monotonic() - lately < LATELY else DROWSY
            self.wake.wait(pause)
            self.wake.clear()
        self.committer.wait()

    def mark(self) -> Mark:
        """Something that is told when all that is there now has been processed."""
        mark = Mark()
        self.marks.append(mark)
        self.wake.set()
        return mark

    def _aim(self) -> None:
        """Marks that are new are reached when what is there now is committed, and what becomes complete of it."""
        unfinished = frozenset(
            (name, one.name) for name, offer in self.intake.offers.items() for one in offer.unfinished
        )
        for mark in list(self.marks):
            if mark.target is None:
                mark.target, mark.unfinished = self.intake.waiting(), unfinished
            elif mark.unfinished - unfinished:
                mark.target, mark.unfinished = self.intake.waiting(), mark.unfinished & unfinished

    def _tell_marks(self) -> None:
        """Tell the marks that are reached."""
        for mark in list(self.marks):
            if mark.target is None or not self.intake.has_released(mark.target):
                continue
            if mark.last is None and not (mark.unfinished or self.decider.is_due(self.before)):
                mark.last = self.before.number
            if mark.last is not None and self.committer.last >= mark.last:
                self.marks.remove(mark)
                mark.reached.set()

    def close(self) -> None:
        """End all tasks, and let go of sources and log."""
        for part in (self.committer, self.executor, self.intake, self.log):
            try:
                part.close()
            except Exception as error:
                _LOG.warning("while closing: %s", error)

    # What may be asked for while it runs

    def add(self, name: str, request: QueryRequest, sink: Sink) -> None:
        """Run one more query from the next batch on; a sink that cannot take its results is refused at once."""
        self._open(sink, request.query, self.before.number)
        self.log.forget_stop(name)
        self.committer.broken.pop(name, None)
        self.sinks.add(name, sink)
        self.decider.changelog.begin(name, request)
        self.wake.set()

    def stop_query(self, name: str) -> None:
        """Run a query no longer, from the next batch on, whichever session runs that."""
        request = self.decider.changelog.request(name) or self.active_queries.requests.get(name)
        if request is not None:
            self.log.write_stop(name, "stopped", request.fingerprint)
            self.decider.changelog.stop(name, "stopped")
            self.wake.set()

    def add_stream(self, stream: Stream, source: Source) -> None:
        """Follow one more stream, from the next batch on."""
        if stream.name in self.config.streams:
            raise CatalogError(f"stream {stream.name} runs already", hint="choose another name")
        with self._lock:
            self.config.streams[stream.name] = stream
            self._opening[stream.name] = source
        self.wake.set()

    def _open_streams(self) -> None:
        with self._lock:
            opening, self._opening = self._opening, {}
        if opening:
            self.log.extend({name: _described(self.config.streams[name]) for name in opening})
            for name, source in opening.items():
                self.intake.open(name, source, self.before.cursors.get(name, {}))
                self.config.sources[name] = source

    def end_input(self) -> None:
        """Take what has come for all there is: close every row, with the next batch."""
        self.decider.ending = True
        self.wake.set()

    def state_of(self, name: str) -> float:
        """The bytes of a query's stores, after the last batch."""
        program = self.active_queries.program
        return state_of(program, self.before, GRAPH, name) if program else 0.0


def _described(stream: Stream) -> list[Any]:
    return [str(stream.schema), stream.event_time]


def _differs(one: Setup, other: Setup) -> bool:
    """Whether tasks that were set up with the one lack something of the other."""
    return (
        one.sources.keys() != other.sources.keys()
        or one.functions != other.functions
        or one.sinks.keys() != other.sinks.keys()
        or any(one.sinks[name] is not other.sinks[name] for name in one.sinks)
    )
