"""What the next batch will do: which input, by which plan, for which queries.

Guarantees: a plan that was written is followed, whoever wrote it; only where there is none is anything decided. A batch
is planned where there is input, where queries begin or stop, where rows can be closed, or where the input has ended;
that takes effect in a batch of its own, when all input is processed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

from weft.errors import StateError
from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.driver import driver_order, expected
from weft.runtime.loop.migrated_manifest import facts_of
from weft.runtime.loop.wake_ups import WakeUps
from weft.runtime.model.batch_order import ENDED, BatchOrder
from weft.runtime.model.watermarks import Watermarks, clocks
from weft.runtime.observe.progress import History
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries, Samples, plan_again, plan_changes
from weft.runtime.queries.changelog import Changelog, Changes
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.visibility import StateFacts
from weft.storage.storage import Memory

__all__ = ["Decider"]

_LOG = logging.getLogger("weft")


class Decider:
    """Plans one batch after the other."""

    def __init__(self, config: RunConfig, log: Checkpoint, history: History) -> None:
        self.config, self.log, self.history = config, log, history
        self.changelog = Changelog()
        self.active_queries, self.blueprint = ActiveQueries(), ""  # what runs, and its name in the log
        self.samples: Samples | None = None
        self.ending = False  # whether all input has come
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1000  # microseconds since 1970
        self._known: dict[str, ActiveQueries] = {}  # by blueprint, the last ones
        self._wake_ups = WakeUps()

    def queries_of(self, blueprint: str) -> ActiveQueries:
        """What a blueprint says; the last ones are known without reading them."""
        return self._known.get(blueprint) or ActiveQueries.read(self.log, blueprint)

    def written_plan(self, before: Manifest) -> BatchPlan | None:
        """The plan that was written for the next batch, if one was."""
        plan = self.log.plan(before.number + 1)
        if plan is not None and plan.blueprint != self.blueprint:
            self.active_queries, self.blueprint = self.queries_of(plan.blueprint), plan.blueprint
        return plan

    def is_due(self, before: Manifest) -> bool:
        """Whether there is something to do though no stream brings anything."""
        if self.changelog.stopping():
            return True
        if self.changelog.waiting() and self.active_queries.program is not None:
            return True  # where nothing runs, nothing is stored that a query could begin with
        if self.ending and not self._has_ended(before):
            return True
        return self._wake_ups.now()

    def _has_ended(self, before: Manifest) -> bool:
        program = self.active_queries.program
        names = () if program is None else clocks(program.graph, Watermarks(before.marks), before.closed)
        return all(before.closed.get(name, 0) >= ENDED for name in names)

    def schedule(self, before: Manifest, now: int) -> None:
        """Work out when the next batch is due, if nothing comes; called after a batch, whose time is given."""
        self._wake_ups.schedule(self.active_queries.program, before, now)

    def new(self, before: Manifest, inputs: Mapping[str, tuple[Part, ...]]) -> BatchPlan:
        """The plan of the next batch, over some input; queries that were asked for, or stopped, are in it."""
        self._check_open(before, inputs)
        number = before.number + 1
        changes, migration = self.changelog.take(), None
        found = self.next_queries(changes, facts_of(before))
        if found is not None:
            self.active_queries, migration = found
        if migration is not None or not self.blueprint:
            self.blueprint = self.log.write_blueprint(self.active_queries.to_blueprint())
            self._known = {**dict(list(self._known.items())[-1:]), self.blueprint: self.active_queries}
            if isinstance(self.log.storage, Memory) and self.active_queries.program is not None:
                programs = self.log.storage.objects.setdefault("programs", {})
                programs[self.blueprint] = self.active_queries.program  # tasks are in this process
        program, batch_order = self.active_queries.program, None
        if program is not None:
            ended = self.ending and not any(inputs.values())  # input that fails can still be taken back
            batch_order = self._order(program, number, before, ended=ended).to_dict()
        return BatchPlan(
            number,
            self._now(before),
            self.blueprint,
            batch_order,
            asdict(migration) if migration is not None and migration.is_needed else None,
            changed=migration is not None,
            inputs=inputs,
            begun=tuple(sorted(name for name in changes.begin if name in self.active_queries.requests)),
        )

    def next_queries(
        self, changes: Changes, facts: StateFacts
    ) -> tuple[ActiveQueries, StateMigration] | None:
        """Other queries, or the same ones by another plan, and what becomes of the state; None: all stays as it is."""
        if changes:
            return plan_changes(self.active_queries, changes, self.config.decide, facts, self.samples)
        if not self._sees_heavy(facts.number):
            return None
        found = plan_again(self.active_queries, self.config.decide, facts, self.samples)
        if found is not None:
            _LOG.info(
                "heavy keys have come or gone: what is stored is laid out anew before batch %d", facts.number
            )
        return found

    def _check_open(self, before: Manifest, inputs: Mapping[str, tuple[Part, ...]]) -> None:
        """Refuse tuples that come when queries have been told that none will."""
        ended = [name for name, time in before.closed.items() if time >= ENDED]
        if ended and any(inputs.values()):
            raise StateError(
                f"there is more input, but query {ended[0]} was told that it had ended, and has closed its rows",
                hint="use a new checkpoint directory; run_available(end=False) leaves rows open for what comes",
            )

    def _sees_heavy(self, number: int) -> bool:
        """Whether keys have become heavy, or are no more, since the queries were planned."""
        program, last = self.active_queries.program, self.history.last
        return (
            program is not None
            and last is not None
            and self.config.should_replan(program.graph, last.heavy, number)
        )

    def _now(self, before: Manifest) -> int:
        """The time of a batch: never before that of an earlier one, by which tuples without event time were timed."""
        untimed = [name for name, stream in self.config.streams.items() if stream.event_time is None]
        known = [before.marks[name] for name in untimed if name in before.marks]
        return max([self.clock(), *known])

    def _order(self, program: ExecutableGraph, number: int, before: Manifest, *, ended: bool) -> BatchOrder:
        """The batch's place: the driver order, from what the batches so far did, and up to where rows are closed."""
        results = sum(before.results.values())
        seen = expected(number, program.graph, self.history.last, before.arrived, results)
        times = clocks(program.graph, Watermarks(before.marks), before.closed, ended=ended)
        return BatchOrder(
            number, driver_order(self.config.driver, seen), self.config.partitions, clocks=times
        )
