"""The loop: one batch after the other, each by the same steps (design, D2).

    look what the streams offer → decide → write the plan of the batch, with the exact input it takes → execute →
    commit the results → commit the manifest

Guarantees: a batch that was planned is run as it was planned, in every attempt and by every later session. A batch
whose tasks are lost is run again from the manifest before it. The parts that it reads are released only when it is
committed. While a batch is being committed, the next one may run; batches are committed in their order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.errors import SourceError, WeftError
from weft.logical.codec import decode
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.ports.sink import Sink
from weft.ports.source import CursorContext, Source
from weft.ports.table import RegisteredTable
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest, Suspension
from weft.runtime.loop.batch.committer import Committer
from weft.runtime.loop.batch.executed_batch import ExecutedBatch, StreamProgress
from weft.runtime.loop.batch.finished_batch import (
    FinishedBatch,
    finish_batch,
    hand_over_bad_records,
    samples_of,
)
from weft.runtime.loop.batch.migrated_manifest import migrated_manifest, without_tables
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.loop.batch.task_runner import BatchRun, TaskRunner
from weft.runtime.loop.batch_planner import BatchPlanner
from weft.runtime.loop.batch_warnings import BatchWatch, UnfinishedFiles, save_statistics
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.executor import Executor
from weft.runtime.loop.intake.blocked_streams import goes_on_without
from weft.runtime.loop.intake.cursors import Intake
from weft.runtime.loop.intake.derived_streams import DerivedStreams
from weft.runtime.loop.intake.stream_changes import StreamChanges, describe_streams
from weft.runtime.loop.intake.tables import Tables
from weft.runtime.loop.intake.wait_points import WaitPoint, WaitPoints
from weft.runtime.loop.intake.watermark_resets import WatermarkResets, apply_resets
from weft.runtime.loop.scaling import TaskScaling
from weft.runtime.loop.wake_ups import ProcessingTimeTrigger
from weft.runtime.observe.log_lines import log_batch
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.runtime.observe.progress import History, StateBytes, own_metrics, state_of
from weft.runtime.output.delivery import BatchOutput, Delivery
from weft.runtime.output.query_sinks import QueryOutput, QuerySinks
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.resume import resume_from_log
from weft.runtime.task.tuple_ages import ages_of_inputs, oldest_age
from weft.runtime.wire.functions import check_registered

__all__ = ["Loop"]

_LOG = logging.getLogger("weft")

# Seconds between two looks: if there was a batch in the last `LATELY` seconds, and else; and while batches wait for
# their time, at most.
WATCHFUL, DROWSY, LATELY, ASLEEP = 0.005, 0.02, 5.0, 0.5


class Loop:
    """Runs queries over streams, batch by batch, with an executor.

    If batches are ``overlapping``, the next one runs while one is committed. ``before`` is the manifest of the last
    batch, which is committed or about to be; ``past`` is what the job at the last batch's boundary reported;
    ``last_batch`` is the last one whose tasks are done. Setting ``wake`` ends a pause between two looks.
    """

    def __init__(
        self, config: RunConfig, log: Checkpoint, executor: Executor, *, overlapping: bool = True
    ) -> None:
        self.config, self.log, self.executor = config, log, executor
        self.history = History()
        self.batch_planner = BatchPlanner(config, log, self.history)
        self.delivery = Delivery(log.storage, self.now)
        changelog = self.batch_planner.changelog
        self.committer = Committer(log, self.delivery, changelog, self._compute_again, overlapping)
        self.scaling = TaskScaling(executor, config.scaler)
        self.tasks = TaskRunner(config, log, executor, self.delivery.sinks, self.scaling)
        self.intake = Intake(self._place, config.batch_bytes, may_block=self._may_block)
        self.batch_planner.is_whole = lambda: not self.intake.blocked
        self.derived = DerivedStreams(config, log, self.batch_planner, self.intake, self._open)
        self.wait_points = WaitPoints(self.intake)
        self.wake = threading.Event()
        self.tables = Tables(log, lambda: self.batch_planner.clock(), self.wake.set)
        self.before, self.past = Manifest(), TaskReports()
        self.known: Mapping[str, QueryRequest] = {}  # the queries that it began with
        self.last_batch: FinishedBatch | None = None
        self._unfinished = UnfinishedFiles()
        self.watch = BatchWatch(config, changelog, self.history)
        self._streams = StreamChanges(config, log, self.intake, self.committer)
        state = lambda: (self.active_queries, self.before)  # noqa: E731
        self.resets = WatermarkResets(log, config.streams, state, self.wake.set)

    @property
    def sinks(self) -> QuerySinks:
        """The sinks of all queries."""
        return self.delivery.sinks

    @property
    def active_queries(self) -> ActiveQueries:
        """The queries that run."""
        return self.batch_planner.active_queries

    @property
    def stopping(self) -> bool:
        """Whether the loop is to end after the batch under way."""
        return self.tasks.stopping

    @stopping.setter
    def stopping(self, value: bool) -> None:
        self.tasks.stopping = value

    def start(self, queries: Mapping[str, tuple[QueryRequest, Sink]]) -> None:
        """Open the log, and go on after its last committed batch, with the queries in it and those given."""
        described = describe_streams(self.config.streams)
        self.tasks.identity = self.log.open(described, partitions=self.config.partitions)
        self.log.clean()
        self.before = self.log.manifest(self.log.last()) or Manifest()
        self.config.statistics.follow(self.history, self.log.statistics())
        self.log.settle_plans(self.before.number)
        self.committer.last = self.before.number
        planned = self.log.last_plan(self.before.number)
        self.resets.resume(planned or self.log.plan(self.before.number))
        self._resume(queries, planned)
        self.log.claim()
        state = self.before.cursors if planned is None else planned.cursors
        self.intake.times.newest = self.before.newest
        for name, source in self.config.sources.items():
            self.intake.open(name, source, state.get(name, {}))
        self.tables.open_all(self.config.tables, state)
        begun = [request for request, _ in queries.values()]
        self.tables.load_for([*begun, *self.active_queries.requests.values(), *self.known.values()])
        self.batch_planner.schedule(self.before, self.batch_planner.clock())

    def _resume(self, queries: Mapping[str, tuple[QueryRequest, Sink]], planned: BatchPlan | None) -> None:
        """Let the queries that ran before go on as they were, and have new ones begin with the next new batch."""
        found = resume_from_log(self.log, queries, self.config.restore, self.before, self.config.streams)
        every = {**found.requests, **found.known}
        check_registered({name: one.query for name, one in every.items()}, self.config.functions)
        program = found.active_queries.program
        self.history.totals = self.history.began = self.before.totals
        if self.before.metrics and program is not None:
            self.history.add(program.graph, BatchMetrics.from_dict(self.before.metrics))
            self.history.resumed = self.before.number
        self.known = found.known
        self.batch_planner.resume(found, self.before)
        # where a manifest was lost, sinks already have batches that will be repeated, unchanged
        last = self.before.number if planned is None else planned.number - 1
        self.delivery.resume(self.before)
        for name in found.begin:
            self.delivery.forget(name)
        for name, sink in found.sinks.items():
            request = found.begin[name][0] if name in found.begin else found.requests[name]
            if name in self.delivery.suspended:
                self.delivery.open_later(name, sink, request.query, self.tasks.identity, last)
            else:
                self._open(name, sink, request.query, last)
        self.derived.resume(found, last)

    def _open(self, name: str, sink: Sink, query: Query, last: int) -> None:
        self.delivery.open_sink(name, sink, query, self.tasks.identity, last)

    def _place(self, stream: str, state: Mapping[str, Any]) -> CursorContext:
        folder = Path() if self.log.root is None else self.log.root / "streams" / stream
        config, event_time = self.config, self.config.streams[stream].event_time
        given = (config.spark, config.batch_bytes, event_time, lambda: self.committer.last)
        return CursorContext(stream, state, self.log, folder, *given, part_bytes=config.part_bytes)

    def run_next(self, *, also_empty: bool = False) -> bool:
        """Run the next batch, if there is something to do or it may be empty; return whether one was run."""
        began = time.perf_counter()
        plan = self.batch_planner.written_plan(self.before)
        is_new = plan is None
        if plan is None:
            plan = self._plan_next(also_empty)
        if plan is None:
            return False
        self.intake.count_taken(plan)
        try:
            batch, executed = self._execute_readable(plan) if is_new else self.execute(plan)
            self.last_batch = finished = self.finish(batch, executed, began)
        except WeftError:
            if is_new:
                self.batch_planner.take_back(plan, self.before)
            raise
        self.committer.begin(finished, self._committed)
        self.intake.measured(plan, self.before.newest, time.perf_counter() - began)
        return True

    def _plan_next(self, also_empty: bool) -> BatchPlan | None:
        """Look, decide and write the plan of the next batch; None if there is nothing to do and it may not be empty."""
        self._streams.apply(self.before)
        self.derived.stop_with_others()
        if self.derived.names():
            self.committer.wait()  # so that what the last batch gave is offered
        self.wait_points.look()
        self._unfinished.report(self.intake.unfinished())
        shed = () if self.scaling.may_grow else self.config.sheds
        chosen = self.intake.chosen(self.batch_planner.requested(), self.config.latency, self.now(), shed)
        newer = self.tables.has_newer(self.active_queries.program) or self.resets.are_waiting
        due = newer or self.delivery.has_resumed or self.batch_planner.is_due(self.before)
        if not (chosen or also_empty or due):
            return None
        self.config.statistics.table_rows = self.tables.rows()
        self.batch_planner.partitions = self.scaling.partitions or self.config.partitions
        with self.batch_planner.planning:
            resets = self.resets.planned(self.before, self.active_queries)
            plan = replace(self.batch_planner.new(apply_resets(self.before, resets), chosen), resets=resets)
            self.intake.take(plan)
            ages, oldest = ages_of_inputs(chosen, plan.now), oldest_age(chosen, plan.now)
            blocked = tuple(sorted({*self.intake.blocked.names(), *self.intake.left_out(chosen)}))
            plan = replace(plan, cursors=self.intake.states(), ages=ages, oldest_age=oldest, blocked=blocked)
            plan = self.tables.planned(replace(plan, shed=self.intake.kept), self.batch_planner, self.before)
            target = min(self.batch_planner.targets().values(), default=None)
            plan = self.scaling.repartitioned(plan, self.before, self.config.partitions)
            plan = self.scaling.planned(plan, self.history.last, plan.partitions or 1, target)
            self.log.write_plan(plan)
            self.batch_planner.settle(plan)
        return plan

    def _execute_readable(self, plan: BatchPlan) -> tuple[BatchRun, ExecutedBatch]:
        """Run a new batch; a stream that turns out to be unreadable is left out, if others go on without it."""
        while True:
            try:
                executed = self.execute(plan)
            except SourceError as error:
                name = error.stream or ""
                if name not in plan.inputs or not self._may_block(name):
                    raise
                self.committer.wait()
                state, parts = self.before.cursors.get(name, {}), len(plan.inputs[name])
                plan = plan.without(name, state)
                self.log.write_plan(plan)
                self.intake.give_back(name, self.config.sources[name], state, parts)
                self.intake.blocked.block(name, error, plan.number)
            else:
                self.intake.blocked.unblock(name for name, parts in plan.inputs.items() if parts)
                return executed

    def _may_block(self, stream: str) -> bool:
        config, queries = self.config, self.active_queries.of_users.values()
        return goes_on_without(config.streams.get(stream), queries, idle=config.idle)

    def execute(self, plan: BatchPlan) -> tuple[BatchRun, ExecutedBatch]:
        """Run the tasks of a batch, and return what it was run with and what they reported."""
        self.past, queries = TaskReports(), self.active_queries
        self.before = self.resets.begin(self.before, plan)
        outputs = self.sinks.outputs(queries.requests, self.delivery.suspended)
        before = self._migrate(plan, outputs) if plan.changed else self.before
        batch = BatchRun(plan, without_tables(before, queries.program, plan.tables), queries, outputs)
        reports = self.tasks.run(batch).after(self.past)
        return batch, ExecutedBatch(plan, batch.before, reports, queries.program)

    def _compute_again(self, batch: FinishedBatch, names: Iterable[str]) -> BatchOutput:
        """The results of some queries in a batch that ran and is not committed yet, this time for the driver.

        Nothing else of it counts: the batch leaves what it left, and files that this writes are named nowhere.
        """
        plan, past = batch.executed.plan, TaskReports()
        outputs = {name: self.sinks.output(name).by_driver() for name in names}
        queries = self.batch_planner.queries_of(plan.blueprint)
        again = BatchRun(plan, batch.executed.before, queries, outputs)
        if plan.migration is not None:
            earlier = apply_resets(self.log.manifest(plan.number - 1) or Manifest(), plan.resets)
            past = self.tasks.run(replace(again, before=earlier), boundary=True)
        executed = replace(batch.executed, reports=self.tasks.run(again).after(past))
        executed, ordered = self.tasks.order_results(again, executed, StreamProgress.after(executed))
        self.log.list_files(plan.number)
        return BatchOutput(plan.number, executed.reports.answers, ordered, outputs)

    def _migrate(self, plan: BatchPlan, outputs: Mapping[str, QueryOutput]) -> Manifest:
        """Run the job at a boundary, if there is one, and write the manifest that the batch begins with."""
        migration = StateMigration()
        if plan.migration is not None:
            migration, began = decode(StateMigration, plan.migration), time.perf_counter()
            batch = BatchRun(plan, self.before, self.active_queries, outputs)
            self.past = self.tasks.run(batch, boundary=True)
            self.config.adapter.migrated(time.perf_counter() - began)
        old = self.batch_planner.queries_of(self.before.blueprint).program
        states = (old, self.active_queries.program, migration, self.past.left)
        manifest = migrated_manifest(self.before, *states, plan.partitions)
        self.log.write_migrated(plan.number, manifest)
        return manifest

    def finish(self, batch: BatchRun, executed: ExecutedBatch, began: float) -> FinishedBatch:
        """Work out what a batch leaves, so that the next one can begin with it before this one is committed."""
        planner, program, reports = self.batch_planner, executed.program, executed.reports
        hand_over_bad_records(executed, self.config.set_aside)
        progress = StreamProgress.after(executed)
        executed, ordered = self.tasks.order_results(batch, executed, progress)
        finished = finish_batch(executed, progress, ordered, self.backlog(), began)
        self.log.follow_ranges(self.before, finished.manifest)
        self.before = manifest = finished.manifest
        if program is not None and finished.metrics is not None:
            self.history.add(program.graph, finished.metrics)
            self.scaling.measured(finished.metrics)
            self.history.samples.add(executed.number, reports.read.values)
            planner.samples = samples_of(program, reports) or planner.samples
            self.watch.look(executed, manifest, finished.metrics, planner.targets())
        planner.schedule(manifest, executed.plan.now)
        return replace(finished, outputs=batch.outputs)

    def _committed(self, batch: FinishedBatch) -> None:
        """Release the parts that a committed batch read, and log its metrics."""
        self.intake.release(batch.executed.plan)
        metrics, program = batch.metrics, batch.executed.program
        self.history.count(batch.manifest.totals)
        self.history.commit(batch.number, batch.began, time.perf_counter(), metrics)
        save_statistics(self.config.statistics, self.log)
        if _LOG.isEnabledFor(logging.INFO) and metrics is not None and program is not None:
            requests = self.active_queries.requests  # since the batch ran, others may have begun or stopped
            for name in sorted(metrics.answers):
                names = requests[name].names if name in requests else ()
                log_batch(name, own_metrics(metrics, name, self.history.part_in(program.graph, name, names)))

    # Batch after batch, until it is stopped

    def run(self) -> None:
        """Run batches until `stopping` is set; an error ends the loop and is raised."""
        lately, trigger = time.monotonic(), ProcessingTimeTrigger(self.config.every)
        while not self.stopping:
            if self.delivery.suspended.due():
                self.committer.wait()
                self.give_kept()
            left = 0.0 if self.wait_points else trigger.seconds_left(self.now())
            if not left:
                trigger.begin(self.now())
                if self.run_next():
                    lately = time.monotonic()
                    self._release_wait_points()
                    continue
            self.committer.wait()
            self._release_wait_points()
            pause = WATCHFUL if time.monotonic() - lately < LATELY else DROWSY
            self.wake.wait(min(left, ASLEEP) if left else pause)
            self.wake.clear()
        self.committer.wait()
        save_statistics(self.config.statistics, self.log, at_once=True)

    def give_kept(self, *, at_once: bool = False) -> None:
        """Give what is kept for suspended queries to the sinks that are to be tried, or to all of them at once."""
        if self.delivery.suspended and not self.stopping:
            self.delivery.give_kept(at_once=at_once)

    def _release_wait_points(self) -> None:
        before, last = self.before, self.committer.last
        has_more = lambda: self.delivery.has_resumed or self.derived.has_more(before)  # noqa: E731
        self.wait_points.release(before.number, last, has_more, self._try_again)

    def _try_again(self) -> bool:
        """Try all sinks and streams that have failed, before somebody is told that they do; whether there are any."""
        if self.delivery.suspended:
            self.committer.wait()
            self.give_kept(at_once=True)
        self.intake.blocked.try_now()
        return bool(self.intake.blocked)

    def wait_point(self) -> WaitPoint:
        """A new wait point, which is reached when all input that is there now has been processed."""
        point = self.wait_points.add()
        self.wake.set()
        return point

    def close(self) -> None:
        """End all tasks, and close the sources and the log."""
        for part in (self.tables, self.committer, self.executor, self.intake, self.log, self.config.adapter):
            try:
                part.close()
            except Exception as error:
                _LOG.warning("while closing: %s", error)

    # What may be asked for while it runs

    def add(self, name: str, request: QueryRequest, sink: Sink) -> None:
        """Run one more query from the next batch on; a sink or a table that cannot be used is refused at once."""
        self.tables.load_for([request])
        self.delivery.forget(name)
        self._open(name, sink, request.query, self.before.number)
        for stream, source in self.derived.begin(request.query, self.before.number):
            self.add_stream(stream, source)
        self.batch_planner.begin(name, request)
        self.wake.set()

    def stop_query(self, name: str) -> None:
        """Stop a query with the next batch, even if that is run by a later session."""
        request = self.batch_planner.changelog.request(name) or self.active_queries.requests.get(name)
        if request is not None:
            self.log.requests.write_stop(name, "stopped", request.fingerprint)
            self.batch_planner.changelog.stop(name, "stopped")
            self.wake.set()

    def add_stream(self, stream: Stream, source: Source) -> None:
        """Follow one more stream, from the next batch on."""
        self._streams.add(stream, source)
        self.wake.set()

    def add_table(self, stream: Stream, given: RegisteredTable) -> None:
        """Follow one more table; it is read when a query begins to use it."""
        self._streams.add_table(stream)
        self.tables.open_all({stream.name: given}, {})

    def remove_stream(self, name: str) -> None:
        """Follow a stream or a table no longer, from the next batch on; no query may read it."""
        self.tables.known.pop(name, None)
        self._streams.remove(name)
        self.wake.set()

    def end_input(self) -> None:
        """Declare that no more input comes: once all that has come is processed, every row is closed."""
        self.batch_planner.ending = True
        self.wake.set()

    def now(self) -> int:
        """The time, in microseconds since 1970."""
        return self.batch_planner.clock()

    def backlog(self) -> dict[str, Backlog]:
        """What of every stream waits now, as of the last look."""
        last = self.history.last
        return self.intake.backlog(last.rows_per_byte if last else {}, self.now())

    def suspended(self) -> dict[str, Suspension]:
        """The queries that are suspended: their sinks cannot take results, or their streams cannot be read."""
        blocked = self.intake.blocked.suspended(self.active_queries.of_users)
        return {**blocked, **self.delivery.suspended.values()}

    def all_suspended(self) -> bool:
        """Whether queries run, and every one of them is suspended."""
        suspended = self.suspended()
        return bool(suspended) and suspended.keys() >= self.active_queries.of_users.keys()

    def state_of(self, name: str) -> StateBytes:
        """The bytes of a query's stores and held results after the last batch."""
        return state_of(self.active_queries.program, self.before, name)
