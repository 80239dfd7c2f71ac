"""What the next batch will do: which input, by which plan, for which queries.

Guarantees: a plan that is in the log is followed, even if an earlier session wrote it; something is decided only if
there is none. A query that is asked for is in the log before it can begin. A batch is planned if there is input, if
queries begin or stop, if rows can be closed, or if the input has ended; the end of the input takes effect in a batch of
its own, after all input is processed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from weft.errors import StateError
from weft.logical.codec import encode
from weft.logical.nested.nested import read_streams
from weft.logical.outer.outer import core_and_closing
from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.adapter import Situation
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.driver_order import driver_order, facts_of_batch
from weft.runtime.loop.wake_ups import WakeUps
from weft.runtime.model.batch_order import ENDED, BatchOrder
from weft.runtime.model.columns import micros
from weft.runtime.model.watermarks import Watermarks, clocks
from weft.runtime.observe.progress import History
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries, Samples, plan_changes
from weft.runtime.queries.changelog import Changelog, Changes
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.request import QueryRequest, targets_of
from weft.runtime.queries.resume import Resumed
from weft.runtime.queries.visibility import StateFacts
from weft.storage.storage import Memory

__all__ = ["BatchPlanner"]


class BatchPlanner:
    """Plans one batch after the other."""

    def __init__(self, config: RunConfig, log: Checkpoint, history: History) -> None:
        self.config, self.log, self.history = config, log, history
        self.changelog = Changelog()
        self.active_queries, self.blueprint = (
            ActiveQueries(),
            "",
        )  # the queries that run, and their blueprint's name
        self.samples: Samples | None = None
        self.ending = False  # whether the input ends with what has come
        self.is_whole: Callable[[], bool] = lambda: (
            True
        )  # whether all streams can be read; else no input has ended
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1000  # microseconds since 1970
        self.planning = threading.Lock()  # held while a batch is planned, until its plan is in the log
        self.planned = -1  # the last batch whose plan is there
        self.partitions = config.partitions  # that are wanted
        self._known: dict[str, ActiveQueries] = {}  # the last ones, by the blueprint's name
        self._wake_ups = WakeUps()

    def resume(self, found: Resumed, before: Manifest) -> None:
        """Go on with the queries of a log whose last committed batch left ``before``."""
        self.active_queries, self.blueprint = found.active_queries, before.blueprint
        self.planned = found.planned
        for name, why in found.stop.items():
            self.changelog.stop(name, why)
        for name, (request, _) in found.begin.items():  # after the stops: some take the place of others
            self.changelog.begin(name, request)

    def begin(self, name: str, request: QueryRequest) -> None:
        """Run a query from the next batch on, which a later session plans if this one ends before."""
        with self.planning:
            self.log.requests.write_query(name, encode(request), self.planned)
            self.changelog.begin(name, request)
        self.log.requests.forget_stop(name)  # not before, else one of that name that is to stop might go on

    def settle(self, plan: BatchPlan) -> None:
        """Note that a plan is in the log, with all changes that were taken for it."""
        self.planned = plan.number
        self.changelog.settle()

    def requested(self) -> dict[str, QueryRequest]:
        """The queries of the next batch: those that run or are about to begin, without those that stop."""
        waiting = {name: self.changelog.request(name) for name in self.changelog.waiting()}
        stopping = self.changelog.stopping()
        going_on = {n: one for n, one in self.active_queries.requests.items() if n not in stopping}
        return going_on | {name: request for name, request in waiting.items() if request is not None}

    def targets(self) -> dict[str, float]:
        """By query of the next batch, within how many seconds its results are wanted, if that is said anywhere."""
        return targets_of(self.requested(), self.config.latency)

    def stopped(self) -> dict[str, str]:
        """The queries that have stopped, and why; of a name, the last one counts, which may be about to begin."""
        gone = self.active_queries.stopped
        return {name: why for name, why in gone.items() if self.changelog.request(name) is None}

    def queries_of(self, blueprint: str) -> ActiveQueries:
        """The queries of a blueprint; the last blueprints need not be read from the log."""
        return self._known.get(blueprint) or ActiveQueries.read(self.log, blueprint)

    def written_plan(self, before: Manifest) -> BatchPlan | None:
        """The plan in the log for the next batch, if there is one; its queries become the active ones."""
        plan = self.log.plan(before.number + 1)
        if plan is not None and plan.blueprint != self.blueprint:
            self.active_queries, self.blueprint = self.queries_of(plan.blueprint), plan.blueprint
        return plan

    def is_due(self, before: Manifest) -> bool:
        """Whether a batch has something to do though no stream brings anything."""
        if self.changelog.stopping():
            return True
        if self.changelog.waiting() and self.active_queries.program is not None:
            return (
                True  # if no query runs, new ones begin with the next input, since nothing is stored for them
            )
        if self.ending and self.is_whole() and not self._has_ended(before):
            return True
        return self._wake_ups.now() or self._is_behind(before)

    def _is_behind(self, before: Manifest) -> bool:
        """Whether a batch would advance the watermark of a derived stream for which rows wait."""
        program = self.active_queries.program
        if program is None or not clocks(program.graph, Watermarks(before.marks), before.closed):
            return False
        behind = [
            name
            for name, pairs in before.proven.items()
            if pairs and pairs[-1][1] > before.marks.get(name, pairs[-1][1] - 1)
        ]
        return any(self._is_time_to_advance(name, before) for name in behind)

    def _is_time_to_advance(self, name: str, before: Manifest) -> bool:
        """Whether a derived stream's time is that of events, or a second of wall-clock time has passed."""
        stream = self.config.streams[name]
        read = (one for query in stream.definition for one in read_streams(query))
        clocked = [before.marks.get(one.name, 0) for one in read if one.event_time is None]
        return not clocked or self.clock() >= max(clocked) + 1_000_000

    def _has_ended(self, before: Manifest) -> bool:
        program = self.active_queries.program
        names = () if program is None else clocks(program.graph, Watermarks(before.marks), before.closed)
        return all(before.closed.get(name, 0) >= ENDED for name in names)

    def schedule(self, before: Manifest, now: int) -> None:
        """Work out when the next batch is due if no stream brings anything; ``now`` is the time of the last batch."""
        self._wake_ups.schedule(self.active_queries.program, before, now)

    def new(self, before: Manifest, inputs: Mapping[str, tuple[Part, ...]]) -> BatchPlan:
        """Decide on the plan of the next batch over some input, with all changes of queries that wait.

        Partitions become others in a batch by whose plan nothing else changes; what an early version left is shared out
        anew before anything changes.
        """
        self._check_open(before, inputs)
        number = before.number + 1
        migration, reason = None, ""
        is_early = bool(before.partitions) and not before.ranges
        changes = Changes({}, {}) if is_early else self.changelog.take()
        found = None if is_early else self.next_queries(changes, before)
        stays = found is not None and bool(before.partitions)
        partitions = before.ranges if stays else self.partitions
        if found is not None:
            self.active_queries, migration, reason = found
        if migration is not None or not self.blueprint:
            self.blueprint = self.log.write_blueprint(self.active_queries.to_blueprint())
            self._known = {**dict(list(self._known.items())[-1:]), self.blueprint: self.active_queries}
            if isinstance(self.log.storage, Memory) and self.active_queries.program is not None:
                programs = self.log.storage.objects.setdefault("programs", {})
                programs[self.blueprint] = self.active_queries.program  # tasks are in this process
        program, batch_order = self.active_queries.program, None
        # Else input that fails could not be taken back.
        ended = self.ending and self.is_whole() and not any(inputs.values())
        if program is not None:
            batch_order = encode(self._order(program, before, inputs, partitions, ended=ended))
        now = self._now(before)
        return BatchPlan(
            number,
            now,
            self.blueprint,
            batch_order,
            encode(migration) if migration is not None and migration.is_needed else None,
            changed=migration is not None,
            inputs=inputs,
            begun=tuple(sorted(name for name in changes.begin if name in self.active_queries.requests)),
            reason=reason,
            ended=ended,
            latest=self._latest(inputs, now),
        )

    def _latest(self, inputs: Mapping[str, tuple[Part, ...]], now: int) -> dict[str, int]:
        """By stream, the time after which a record of a batch is too far ahead of the clock, where that is limited.

        It is in the plan of the batch, so a repetition sets the same records aside, however late it is.
        """
        streams = ((name, self.config.streams[name]) for name, parts in sorted(inputs.items()) if parts)
        return {
            name: now + micros(stream.ahead)
            for name, stream in streams
            if stream.ahead is not None and stream.event_time and not (stream.definition or stream.table)
        }

    def take_back(self, plan: BatchPlan, before: Manifest) -> None:
        """Take the input out of the plan of a batch that failed by an error such as a file that cannot be read.

        None of its results has reached a sink, so the next start may take the input as it is then: the file may have
        been repaired. The queries that begin or stop with the batch, and the tables that it takes up, stay in the plan.
        """
        if before.number >= plan.number:
            before = self.log.manifest(plan.number - 1) or Manifest()
        self.log.write_plan(plan.without_streams(before.cursors))

    def next_queries(
        self, changes: Changes, before: Manifest
    ) -> tuple[ActiveQueries, StateMigration, str] | None:
        """The queries and their plan after changes, or because the data has changed, and the migration of state.

        None if the queries and their plan stay as they are; a text says why if the data is the reason.
        """
        facts = StateFacts.after(before)
        known = self.config.statistics
        situation = Situation(self.active_queries, before, facts, self.history, known, self.samples)
        if changes:
            requests = {**self.active_queries.requests, **changes.begin}.values()
            statistics = known.for_queries([core_and_closing(request.query)[0] for request in requests])
            found = plan_changes(
                self.active_queries, changes, self.config.decide, statistics, facts, self.samples
            )
            self.config.adapter.queries_changed(situation)
            return *found, ""
        adopted = self.config.adapter.next_plan(situation)
        return None if adopted is None else (adopted.active_queries, adopted.migration, adopted.reason)

    def _check_open(self, before: Manifest, inputs: Mapping[str, tuple[Part, ...]]) -> None:
        """Refuse input if a query has closed all of its rows because its input had ended."""
        ended = [name for name, time in before.closed.items() if time >= ENDED]
        streams = self.config.streams
        if ended and any(parts for name, parts in inputs.items() if not streams[name].definition):
            raise StateError(
                f"there is more input, but query {ended[0]} was told that it had ended, and has closed its rows",
                hint="use a new checkpoint directory; run_available(end=False) leaves rows open for what comes",
            )

    def _now(self, before: Manifest) -> int:
        """The time of a batch, which tuples without event time get; never before that of an earlier batch."""
        streams = [stream for stream in self.config.streams.values() if not stream.table]
        untimed = [stream.name for stream in streams if stream.event_time is None]
        known = [before.marks[name] for name in untimed if name in before.marks]
        return max([self.clock(), *known])

    def _order(
        self,
        program: ExecutableGraph,
        before: Manifest,
        inputs: Mapping[str, tuple[Part, ...]],
        partitions: int,
        *,
        ended: bool,
    ) -> BatchOrder:
        """The batch's place in the total order: the driver order that the policy chooses, and the clocks of queries."""
        seen = facts_of_batch(program.graph, self.history, before, inputs)
        times = clocks(program.graph, Watermarks(before.marks), before.closed, ended=ended)
        order = driver_order(self.config.driver, seen)
        tables = [alias for alias in order if program.graph.input(alias).stream.table]
        first = (
            *tables,
            *(alias for alias in order if alias not in tables),
        )  # streams see what tables are now
        return BatchOrder(seen.batch, first, partitions, clocks=times)
