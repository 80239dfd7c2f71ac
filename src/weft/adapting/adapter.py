"""The plan follows the data: at the end of an epoch a better plan is looked for, and taken if it pays (design, D12).

Guarantees: what is decided depends on what batches measured and on the plans that were found; a plan in preparation is
lost with the process, and nobody misses it. Every change, and why it was made, is in ``changes``. A change is decided
between two batches and takes effect with the next one; while stores are filled side by side no other change begins.
A session whose plans do not follow the data only ends what one before it has begun (`SettledPlan`): else stores would
be filled side by side for as long as its queries run.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from weft.adapting.adoption import (
    adopted,
    end_transition,
    going_on,
    horizon_of,
    scattered_values,
    side_by_side,
    what_changes,
)
from weft.adapting.background import PlanFinder
from weft.adapting.proposal import Proposal, Snapshot, over_same_stores
from weft.optimizer.adaptation import (
    AT_ONCE,
    SIDE_BY_SIDE,
    Adaptation,
    HeavyValueWatch,
    Hysteresis,
    LastingGain,
    Prospect,
    Verdict,
    is_alike,
    judge,
)
from weft.optimizer.single.strategies import BUILT_IN
from weft.optimizer.space import Options
from weft.plan.workload import WorkloadPlan
from weft.runtime.loop.adapter import Adopted, Situation, StaticPlan
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.plan_changes import PlanChange
from weft.runtime.observe.progress import History
from weft.runtime.queries.active import Decision
from weft.runtime.queries.transition import Transition, can_be_filled
from weft.stats.statistics import DEFAULTS, Statistics

__all__ = [
    "AdaptivePlan",
    "SettledPlan",
    "drift",
    "work_per_row",
    "work_rate",
]


_LOG = logging.getLogger("weft")

DRIFT = 0.2  # rates and selectivities that differ by less than this part are no reason to plan again
MUCH = 1.0  # if they differ by more than this part, there is a reason to hurry
SHARE, HURRY = 0.02, 0.25  # the part of the time that the search for plans may take, usually and in a hurry
SPEED = 100e6  # bytes that are laid out anew in a second, until that is measured
SETUP = 0.02  # seconds that a migration takes, however little is stored
KEPT = 200  # so many changes are remembered
SETTLING = 5  # for so many times the seconds of an epoch, queries that have just begun run by the plan they began with

# Why a plan is looked for.
EPOCH, QUERIES, HEAVY = (
    "the data has changed",
    "queries have begun or stopped",
    "heavy keys have come or gone",
)


@dataclass
class _Pending:
    """A change whose effect is still to be observed, and the work per row before it."""

    change: PlanChange
    before: float


class AdaptivePlan:
    """Decides when and how the queries of a session go on by another plan (`weft.runtime.loop.adapter.Adapter`)."""

    def __init__(
        self,
        finder: PlanFinder,
        options: Options,
        method: str,
        adaptation: Adaptation,
        *,
        always: bool = False,
    ) -> None:
        self.changes: tuple[PlanChange, ...] = ()
        self.expected: Statistics | None = None
        self._expected_then: Statistics | None = None  # of the plan whose stores are being filled
        self._finder = finder
        self._options = replace(
            options, planning_seconds=options.planning_seconds or adaptation.planning_seconds
        )
        self._method, self._adaptation, self._always = method, adaptation, always
        self.heavy = HeavyValueWatch()
        self._hysteresis = Hysteresis()
        self._lasting = LastingGain()
        self._epoch = (0, time.monotonic())  # the first batch of the epoch, and when it began
        # When queries that began or stopped had run their first batch; None: they have run none.
        self._changed: float | None = None
        self._planned_for: Statistics | None = None
        self._horizon = DEFAULTS.horizon  # how long unbounded windows are expected to grow
        self._searched, self._search_seconds = -math.inf, 0.0  # when the last search ended, and what it took
        self._fruitless = 0  # how many searches on end have not changed the plan
        self._cause = ""
        self._speed = SPEED
        self._bytes = 0
        self._pending: _Pending | None = None

    def close(self) -> None:
        """End the search for a better plan."""
        self._finder.close()

    # What the loop tells

    def migrated(self, seconds: float) -> None:
        """Learn how fast stores are laid out anew."""
        if self._bytes:
            self._speed = 0.5 * self._speed + 0.5 * self._bytes / max(seconds - SETUP, 1e-3)
            self._bytes = 0

    def queries_changed(self, situation: Situation) -> None:
        """Look for the best plan of all queries, now that new ones have begun by the quick one."""
        if situation.active_queries.transition is not None:
            what = "stores that were being filled are dropped"
            self._note(PlanChange(situation.facts.number, "given up", QUERIES, what))
        if (
            self._cause != QUERIES
        ):  # while queries come and go every moment, a plan is looked for all the same
            self._changed = None
        self._cause, self._pending, self.expected = QUERIES, None, None
        self._lasting.ends()
        self._finder.take()  # a plan for the queries that ran before is of no use

    def next_plan(self, situation: Situation) -> Adopted | None:
        """The plan by which queries go on with the next batch; None if that is the one they have."""
        active = situation.active_queries
        if active.program is None or active.plan is None:
            return None
        self._observe(situation)
        if active.transition is not None:
            return self._end_transition(situation, active.transition)
        adopted_plan = self._proposed(situation)
        if adopted_plan is None:
            self._look(situation)
            adopted_plan = self._proposed(situation)  # where it is found in this thread
        return adopted_plan

    # Looking for a better plan

    def _look(self, situation: Situation) -> None:
        """Ask for a plan if an epoch has ended, or if there is a reason not to wait for that."""
        number, last = situation.facts.number, situation.history.last
        program, plan = situation.active_queries.program, situation.active_queries.plan
        if program is None or plan is None or last is None or self._finder.is_busy:
            return
        if self._changed is None:
            self._changed = time.monotonic()
        cause = self._cause
        if self.heavy.should_replan(program.graph, last.heavy, number):
            cause = HEAVY
        elif not self._has_settled(time.monotonic() - self._changed):
            return
        if not cause and not self._epoch_is_over(number):
            return
        if self._epoch_is_over(number):
            self._epoch = (number, time.monotonic())
        statistics = self._known(situation)
        if not cause and not self._always and not self._is_worth_a_search(statistics):
            return
        self._planned_for, self._horizon, self._cause = statistics, statistics.horizon, ""
        requests = situation.active_queries.requests
        if {self._options.strategy, *(one.strategy for one in requests.values())} - {None, *BUILT_IN}:
            return  # a strategy of the user's own is not known where plans are looked for
        given = (plan, requests, statistics, self._options, self._method, situation.samples)
        self._finder.ask(Snapshot(*given, cause or EPOCH))

    def _known(self, situation: Situation) -> Statistics:
        plan = situation.active_queries.plan
        return situation.statistics.for_queries(
            [] if plan is None else [answer.query for answer in plan.answers]
        )

    def _is_worth_a_search(self, statistics: Statistics) -> bool:
        """Whether the statistics differ enough from those of the last search, for what that took."""
        changed = math.inf if self._planned_for is None else drift(self._planned_for, statistics)
        if changed < DRIFT and not self._hysteresis.better and self._lasting.since is None:
            self._hysteresis.stays()
            return False
        # Where data flips, no search finds a plan that stays better.
        hurry = max(SHARE, HURRY / 2**self._fruitless)
        share = hurry if changed > MUCH or self._hysteresis.better else SHARE
        return time.monotonic() >= self._searched + self._search_seconds / share

    def _has_settled(self, seconds: float) -> bool:
        """Whether queries have run for long enough since they last changed to be worth a search.

        The process that searches takes most of a second of a core to start, from tasks that have most to do just then;
        and what the first batches measured says little. The ``seconds`` are those since the first batch, which may take
        long by itself: Spark's workers start and kernels are loaded.
        """
        return self._always or seconds >= SETTLING * self._adaptation.epoch_seconds

    def _epoch_is_over(self, number: int) -> bool:
        first, began = self._epoch
        adaptation = self._adaptation
        enough = number - first >= adaptation.epoch_batches
        return enough and time.monotonic() - began >= adaptation.epoch_seconds

    # Judging it

    def _proposed(self, situation: Situation) -> Adopted | None:
        proposal, running = self._finder.take(), situation.active_queries.plan
        if proposal is None or running is None:
            return None
        self._searched, self._search_seconds = time.monotonic(), proposal.seconds
        self._fruitless += 1
        if not is_alike(running, proposal.running):
            return None  # queries have changed since
        if is_alike(proposal.plan, running):
            self._hysteresis.stays()
            self._lasting.ends()
            return None
        if proposal.cause == HEAVY:
            if scattered_values(proposal.plan) == scattered_values(running):
                return None
            return self._change(situation, proposal, Verdict(None, "values are spread anew"), forced=True)
        return self._change(situation, proposal, None, forced=self._always)

    def _change(
        self, situation: Situation, proposal: Proposal, verdict: Verdict | None, *, forced: bool
    ) -> Adopted | None:
        decision = adopted(situation, proposal.plan, proposal.ranks)
        sources = {read.store for read in decision.migration.reads}
        size = sum(situation.before.bytes_of(store) for store in sources)
        needed = decision.migration.is_needed
        horizon, now = self._adaptation.horizon, _stream_seconds(situation.history)
        windows = horizon.total_seconds() if horizon else horizon_of(proposal.plan, self._horizon)
        counted = windows if horizon else self._lasting.horizon(now, windows)
        prospect = Prospect(
            proposal.gain,
            work_rate(situation.history),
            counted,
            size / self._speed + SETUP if needed else None,
            proposal.extra if needed else None,
            windows=windows,
            lasted=counted > windows,
        )
        judged = judge(prospect, self._adaptation, always=forced)
        if judged.way is None and proposal.same_stores is not None:
            self._lasting.goes_on(now)
            return self._change(situation, over_same_stores(proposal), verdict, forced=forced)
        if judged.way is None:
            self._hysteresis.stays()
            if prospect.gain >= self._adaptation.threshold:
                self._lasting.goes_on(now)
            _LOG.debug("the plan stays: %s", judged.reason)
            return None
        if not forced and not self._hysteresis.allows():
            return None
        reason = judged.reason if verdict is None else verdict.reason
        return self._adopt(situation, proposal, decision, Verdict(judged.way, reason), prospect, size)

    def _adopt(
        self,
        situation: Situation,
        proposal: Proposal,
        decision: Decision,
        verdict: Verdict,
        prospect: Prospect,
        size: int,
    ) -> Adopted:
        active, number = situation.active_queries, situation.facts.number
        what = what_changes(proposal.running, proposal.plan)
        pause = prospect.pause or 0.0
        change = PlanChange(
            number, verdict.way or AT_ONCE, proposal.cause, verdict.reason, what, prospect.gain, pause, size
        )
        transition = None
        if verdict.way == SIDE_BY_SIDE:
            self._expected_then = self._planned_for
            decision = side_by_side(situation, decision, _meanwhile(proposal))
            transition = Transition.beginning(proposal.plan, situation.facts)
            change = replace(change, seconds=0.0, bytes=0)
        else:
            self.expected = self._planned_for
            self._pending = _Pending(change, self._work_before(situation))
            self._bytes = size if prospect.pause is not None else 0
        self._fruitless = 0
        if verdict.way != AT_ONCE:
            self._lasting.ends()
        if active.plan is not None:
            self._hysteresis.changed(active.plan.without_filling(), proposal.plan)
        self._note(change)
        return going_on(situation, decision, str(change), transition)

    def _end_transition(self, situation: Situation, transition: Transition) -> Adopted | None:
        ended = end_transition(situation, transition)
        if ended is None:
            return None
        adopted_plan, change = ended
        self.expected = self._expected_then
        self._pending = _Pending(change, self._work_before(situation))
        self._note(change)
        return adopted_plan

    # What became of it

    def _work_before(self, situation: Situation) -> float:
        """The work per row in the epoch before a change."""
        first = situation.facts.number - self._adaptation.epoch_batches
        return work_per_row(situation.history, since=first)

    def _observe(self, situation: Situation) -> None:
        """Fill in what the last change has brought, once an epoch has passed since its first batch."""
        pending, number = self._pending, situation.facts.number
        if pending is None or number <= pending.change.batch + self._adaptation.epoch_batches:
            return
        after = work_per_row(situation.history, since=pending.change.batch + 1)
        if math.isnan(after):
            return
        self._pending = None
        if math.isnan(pending.before) or pending.before <= 0:
            return
        seen = replace(pending.change, observed=1 - after / pending.before)
        self.changes = tuple(seen if one is pending.change else one for one in self.changes)
        _LOG.info(
            "after the change of plan before batch %d: %+.0f%% work saved per row",
            seen.batch,
            100 * (1 - after / pending.before),
        )

    def _note(self, change: PlanChange) -> None:
        self.changes = (*self.changes[-KEPT:], change)
        _LOG.info("the plan changes: %s", change)


def _meanwhile(proposal: Proposal) -> WorkloadPlan:
    """The plan by which queries are answered while new stores are filled: over the same stores, the best there is."""
    better = proposal.same_stores[0] if proposal.same_stores is not None else None
    return better if better is not None and can_be_filled(better, proposal.plan) else proposal.running


class SettledPlan(StaticPlan):
    """An adapter by which plans change only to end a transition that is under way."""

    def next_plan(self, situation: Situation) -> Adopted | None:
        """The plan whose stores have been filled, as soon as they are."""
        transition = situation.active_queries.transition
        ended = None if transition is None else end_transition(situation, transition)
        if ended is None:
            return None
        adopted, change = ended
        self.changes = (*self.changes, change)
        return adopted


RECENT = 32  # the work is that of so many batches


def _stream_seconds(history: History) -> float:
    """How far the streams are, in seconds: by the watermarks after the last batch, else by when that began."""
    last = history.last
    if last is None:
        return 0.0
    return max(last.watermarks.values()) / 1e6 if last.watermarks else last.started


def work_rate(history: History) -> float:
    """The seconds of work per second of stream in the last batches; the time of a stream is that of its tuples."""
    recent = [metrics for _, metrics in history.batches[-RECENT:]]
    if not recent:
        return 0.0
    spent = sum(batch.elapsed for batch in recent)
    advanced = [_advance(recent, stream) for stream in recent[-1].watermarks]
    seconds = max([*advanced, 0.0]) / 1e6 * len(recent) / max(1, len(recent) - 1)
    wall = recent[-1].started + recent[-1].elapsed - recent[0].started
    return spent / seconds if seconds > 0 else spent / wall if wall > 0 else 0.0


def _advance(batches: list[BatchMetrics], stream: str) -> int:
    marks = [batch.watermarks[stream] for batch in batches if stream in batch.watermarks]
    return marks[-1] - marks[0] if marks else 0


def work_per_row(history: History, since: int = 0) -> float:
    """The seconds of work per row of input in the last batches, from batch ``since`` on; NaN if there were no rows."""
    recent = [metrics for _, metrics in history.batches[-RECENT:] if metrics.number >= since]
    rows = sum(one.rows for batch in recent for one in batch.inputs.values())
    return sum(batch.elapsed for batch in recent) / rows if rows else math.nan


def drift(before: Statistics, now: Statistics) -> float:
    """By how large a part rates, selectivities or distinct counts have changed at most; 1 is twice or half."""
    return max(_ratios(before, now), default=0.0)


def _ratios(before: Statistics, now: Statistics) -> Iterator[float]:
    for name in {*before.streams, *now.streams}:
        yield _change(before.stream(name).rate, now.stream(name).rate)
        yield from _changes(before.stream(name).distinct, now.stream(name).distinct)
    yield from _changes(before.selectivities, now.selectivities)
    yield from _changes(before.costs, now.costs)


def _changes(before: Mapping[str, float], now: Mapping[str, float]) -> Iterator[float]:
    for name, value in now.items():
        yield _change(before[name], value) if name in before else math.inf


def _change(before: float, now: float) -> float:
    if before == now:
        return 0.0
    return math.inf if min(before, now) <= 0 else max(before, now) / min(before, now) - 1
