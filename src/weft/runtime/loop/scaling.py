"""How many tasks there are, and which partitions each of them has: between two batches, and in the plan of the next.

Guarantees: what is asked for by hand and what a policy decides go the same way: the plan of a batch says how many tasks
are wanted from then on and why, before the executor is told; every change is in ``changes``. The loop asks the policy,
and follows it; it does not decide itself. What a batch gives does not depend on any of it, so that a batch that is run
again, by this session or another one, may have other tasks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from weft.logical.codec import decode
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.loop.executor import Executor
from weft.runtime.model.assignment import Assignment, balanced_owners
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.plan_changes import PlanChange

__all__ = ["FixedScale", "Scaler", "Scaling", "TaskLoad", "TaskScaling"]

_LOG = logging.getLogger("weft")

ASKED = "asked for"  # the cause of a change by hand
RECENT = 0.3  # the part that the last batch has in the load of partitions that is remembered
KEPT = 200  # so many changes are remembered
LOOKS = 1.0  # seconds between two looks how much room there is


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """What is known between two batches: ``last`` is the last batch.

    There are so many ``tasks``, so many are ``wanted``, there is ``room`` for so many, and so many can work at once, by
    as many ``hands``. ``load`` is what partitions had to do lately, in seconds a batch, and ``owners`` are their tasks.
    ``now`` is in seconds of a steady clock, and results are wanted within ``target`` seconds (None: there is no
    target). Tasks may be ``spread`` over machines.
    """

    now: float
    tasks: int
    wanted: int
    room: int
    hands: int
    last: BatchMetrics | None = None
    load: Mapping[int, float] | None = None
    owners: tuple[int, ...] = ()
    target: float | None = None
    spread: bool = False

    @property
    def way_up(self) -> str:
        """What more tasks are called: on several machines they ask for executors."""
        return "scaled out" if self.spread else "scaled up"

    @property
    def way_down(self) -> str:
        """What fewer tasks are called: on several machines they let executors go."""
        return "scaled in" if self.spread else "scaled down"

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self.owners)


@dataclass(frozen=True, slots=True)
class Scaling:
    """A change: ``way`` is how, ``tasks`` how many there are then, and ``cause`` and ``reason`` say why.

    With ``owners``, partitions get these tasks; without, they are shared out by their load if there are other tasks. If
    ``partitions`` is given, there are to be so many from the batch after that on.
    """

    way: str
    tasks: int
    cause: str
    reason: str
    owners: tuple[int, ...] = ()
    partitions: int = 0


class Scaler(Protocol):
    """Decides how many tasks there are."""

    def next_scaling(self, seen: TaskLoad) -> Scaling | None:
        """What changes with the next batch; None if nothing does."""

    @property
    def may_grow(self) -> bool:
        """Whether there may be more tasks, as far as is known, and they would help."""


class FixedScale:
    """Nothing changes but by hand."""

    may_grow = False

    def next_scaling(self, seen: TaskLoad) -> Scaling | None:  # noqa: ARG002
        """No change."""
        return None


class TaskScaling:
    """Keeps the tasks of an executor and the assignment of partitions to them."""

    def __init__(self, executor: Executor, scaler: Scaler) -> None:
        self.changes: tuple[PlanChange, ...] = ()
        self._executor, self._scaler = executor, scaler
        self._wanted = 0  # tasks; 0 before any change
        self._load: dict[int, float] = {}
        self._assignment: Assignment | None = None
        self._asked: int | None = None
        self.partitions: int | None = None  # that were asked for; None before any change
        self._asking = threading.Lock()
        self._room, self._hands, self._looked = 0, 0, -LOOKS

    @property
    def wanted(self) -> int:
        """How many tasks there are to be; there may be fewer while there is no room for more."""
        return self._wanted or self._executor.tasks

    @property
    def may_grow(self) -> bool:
        """Whether there may be more tasks by themselves, so that nothing need be shed yet."""
        return self._scaler.may_grow

    def ask(self, tasks: int) -> None:
        """Have so many tasks from the next batch on; of several requests before a batch, the last one counts."""
        with self._asking:
            self._asked = tasks

    def ask_partitions(self, partitions: int) -> None:
        """Have so many partitions from the next batch on by whose plan nothing else changes."""
        self.partitions = partitions

    def repartitioned(self, plan: BatchPlan, before: Manifest, asked_for: int) -> BatchPlan:
        """The plan of the next batch, with the change of partitions that it begins with, if there is one."""
        if plan.batch_order is None or not before.partitions:
            return plan
        count = decode(BatchOrder, plan.batch_order).partitions
        if count == before.ranges:
            return plan
        reason = f"{count} partitions were asked for"
        if self.partitions is None:
            reason = f"the session was started with {asked_for} partitions"
        if not before.ranges:
            reason = "an early version shared keys out in another way"
        what = f"{before.ranges or len(before.partitions)} → {count} partitions"
        change = PlanChange(plan.number, "repartitioned", ASKED, reason, what)
        self.changes = (*self.changes[1 - KEPT :], change)
        _LOG.info("the partitions change: %s", change)
        return replace(plan, scaling=f"repartitioned: {reason}")

    def planned(
        self, plan: BatchPlan, last: BatchMetrics | None, partitions: int, target: float | None = None
    ) -> BatchPlan:
        """The plan of the next batch, with the change that it begins with, if there is one."""
        scaling = self._by_hand() or self._scaler.next_scaling(self._seen(last, partitions, target))
        if scaling is None:
            return plan
        if scaling.partitions:
            self.partitions = scaling.partitions
        before = self.wanted
        if scaling.tasks != before:
            self._wanted = self._executor.scale(scaling.tasks)
        if scaling.owners:
            self._assignment = Assignment(scaling.tasks, scaling.owners)
        reason = scaling.reason
        if self.wanted < scaling.tasks:
            reason = f"{reason}; there is room for {self.wanted}"
        what = f"{before} → {self.wanted} tasks" if self.wanted != before else f"{before} tasks"
        change = PlanChange(plan.number, scaling.way, scaling.cause, reason, what, tasks=self.wanted)
        self.changes = (*self.changes[1 - KEPT :], change)
        _LOG.info("the tasks change: %s", change)
        return replace(plan, tasks=self.wanted, scaling=f"{scaling.way}: {reason}")

    def _by_hand(self) -> Scaling | None:
        with self._asking:
            tasks, self._asked = self._asked, None
        if tasks is None or tasks == self.wanted:
            return None
        way = "scaled up" if tasks > self.wanted else "scaled down"
        return Scaling(way, tasks, ASKED, f"{tasks} tasks were asked for")

    def _seen(self, last: BatchMetrics | None, partitions: int, target: float | None) -> TaskLoad:
        now, tasks = time.monotonic(), self._executor.tasks
        if isinstance(self._scaler, FixedScale):
            return TaskLoad(now, tasks, self.wanted, tasks, tasks)
        if now >= self._looked + LOOKS:
            self._looked, self._room, self._hands = now, self._executor.room, self._executor.hands
        owners = self.owners(partitions, tasks)
        known = (last, self._load, owners, target, self._executor.spread)
        return TaskLoad(now, tasks, self.wanted, self._room, self._hands, *known)

    def owners(self, partitions: int, tasks: int) -> tuple[int, ...]:
        """The task of each partition, where there are so many; as in the last batch, if that is possible."""
        known = self._assignment
        if known is None or known.tasks != tasks or len(known.owners) != partitions:
            self._assignment = known = Assignment(tasks, balanced_owners(partitions, tasks, self._load))
        return known.owners

    def measured(self, metrics: BatchMetrics) -> None:
        """Learn what the partitions had to do in a batch."""
        if metrics.busy.keys() != self._load.keys():
            self._load = dict(metrics.busy)
            return
        self._load = {
            partition: (1 - RECENT) * spent + RECENT * metrics.busy[partition]
            for partition, spent in self._load.items()
        }
