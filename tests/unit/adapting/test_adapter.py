"""Who decides between two batches: what was found for other queries, or comes back too often, changes no plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from tests.unit.adapting.snapshots import EVEN, OPTIONS, SWAPPED, planned, snapshot
from tests.unit.adapting.test_work import batch
from weft.adapting import adapter
from weft.adapting.adapter import EPOCH, HEAVY, QUERIES, AdaptivePlan, SettledPlan
from weft.adapting.proposal import Proposal, Snapshot, propose
from weft.optimizer.adaptation import Adaptation, is_alike
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import WorkloadPlan
from weft.runtime.log.values import Manifest
from weft.runtime.loop.adapter import Adopted, Situation
from weft.runtime.observe.progress import History
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.visibility import StateFacts
from weft.stats.statistics import Statistics

SECOND = 1_000_000
OLD, NEW = planned(EVEN), planned(SWAPPED)
FOUND = replace(propose(snapshot(SWAPPED)), plan=NEW)


class Finder:
    """Finds what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Snapshot] = []
        self.found: Proposal | None = None

    @property
    def is_busy(self) -> bool:
        """Never."""
        return False

    def ask(self, snapshot: Snapshot) -> None:
        """Remember that it was asked."""
        self.asked.append(snapshot)

    def take(self) -> Proposal | None:
        """What it was told to find, once."""
        found, self.found = self.found, None
        return found

    def close(self) -> None:
        """Nothing to do."""


class World:
    """Queries that run by the plan that their adapter decides on, batch by batch, without running anything."""

    def __init__(self, *, known: Statistics = SWAPPED, **settings: Any) -> None:
        self.finder, self.known = Finder(), known
        given: dict[str, Any] = {"epoch_batches": 3, "epoch_seconds": 0.0, "migrate": "eager"} | settings
        self.adapter = AdaptivePlan(self.finder, OPTIONS, "auto", Adaptation(**given))
        self.active = ActiveQueries({}, OLD, ExecutableGraph(lower_workload(OLD, tracked=True)))
        self.history, self.number = History(), 0

    @property
    def situation(self) -> Situation:
        """What is known before the next batch: time goes on by a second a batch."""
        newest = dict.fromkeys("rstu", self.number * SECOND)
        facts = StateFacts(
            self.number, marks=newest, newest=newest, arrived=dict.fromkeys("rstu", self.number)
        )
        statistics = RecentStatistics(given=self.known)
        return Situation(self.active, Manifest(), facts, self.history, statistics)

    def step(self, seconds: float = 0.5) -> Adopted | None:
        """Decide on a batch, and let it take so long."""
        adopted = self.adapter.next_plan(self.situation)
        self.active = adopted.active_queries if adopted is not None else self.active
        assert self.active.program is not None
        marks = dict.fromkeys("rstu", self.number * SECOND)
        self.history.add(self.active.program.graph, batch(self.number, seconds, 10, marks))
        self.number += 1
        return adopted

    def offered(self, plan: WorkloadPlan = NEW, **changes: Any) -> Adopted | None:
        """Decide on a batch when another plan has been found for the queries that run."""
        assert self.active.plan is not None
        running = self.active.plan.without_filling()
        self.finder.found = replace(FOUND, running=running, plan=plan, cause=EPOCH, **changes)
        return self.step()


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans may be looked for at the end of every epoch, however long that takes."""
    monkeypatch.setattr(adapter, "SHARE", float("inf"))
    monkeypatch.setattr(adapter, "HURRY", float("inf"))


class TestLooking:
    """When a plan is asked for."""

    def test_at_the_end_of_epochs(self) -> None:
        """If what is known differs from what was known then, and not before the first batch."""
        world = World()
        for _ in range(4):
            world.step()
        assert [one.statistics for one in world.finder.asked] == [SWAPPED]
        for _ in range(6):
            world.step()
        assert len(world.finder.asked) == 1
        world.known = EVEN
        for _ in range(3):
            world.step()
        assert [one.statistics for one in world.finder.asked] == [SWAPPED, EVEN]
        assert world.finder.asked[-1].cause == EPOCH

    def test_soon_after_queries_have_changed(self) -> None:
        """They began by a plan that was found quickly."""
        world = World()
        world.step()
        world.adapter.queries_changed(world.situation)
        world.step()
        assert [one.cause for one in world.finder.asked] == [QUERIES]

    def test_a_first_batch_that_takes_long_does_not_bring_it_nearer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Workers that start are no reason to search among the batches right after."""
        now = [100.0]
        monkeypatch.setattr("weft.adapting.adapter.time.monotonic", lambda: now[0])
        world = World(epoch_seconds=2.0)
        now[0] += 60.0
        for _ in range(10):
            world.step()
            now[0] += 0.9
        assert world.finder.asked == []
        for _ in range(10):
            world.step()
            now[0] += 0.9
        assert len(world.finder.asked) == 1

    def test_only_when_queries_have_run_for_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A start has other work for the cores; queries that come and go every moment do not put it off for ever."""
        now = 100.0
        monkeypatch.setattr("weft.adapting.adapter.time.monotonic", lambda: now)
        world = World(epoch_seconds=2.0)
        world.step()
        for _ in range(9):
            world.adapter.queries_changed(world.situation)
            world.step()
            assert not world.finder.asked
            now += 1.0
        now += 1.0
        world.step()
        assert [one.cause for one in world.finder.asked] == [QUERIES]

    def test_not_all_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A search that took a second is followed by one twenty seconds later, or sooner if much has changed.

        If much changes all the time, and no search finds a better plan, each waits for twice as long.
        """
        monkeypatch.setattr(adapter, "SHARE", 0.05)
        monkeypatch.setattr(adapter, "HURRY", 0.25)
        now = [100.0]
        monkeypatch.setattr("time.monotonic", lambda: now[0])
        world = World()
        for _ in range(4):
            world.step()
        world.offered(OLD, seconds=1.0)
        for known, waits in ((replace(SWAPPED, streams=_faster(1.5)), 20.0), (EVEN, 16.0)):
            asked = len(world.finder.asked)
            world.known = known
            now[0] += waits - 0.5
            for _ in range(4):
                world.step()
            assert len(world.finder.asked) == asked
            now[0] += 0.6
            for _ in range(4):
                world.step()
            assert len(world.finder.asked) == asked + 1
            world.offered(OLD, seconds=1.0)


def _faster(factor: float) -> dict[str, Any]:
    return {name: replace(one, rate=factor * one.rate) for name, one in SWAPPED.streams.items()}


class TestTaking:
    """What becomes of a plan that is found."""

    def test_it_is_taken_up_and_told(self) -> None:
        """With the batch, the reason, and what changes."""
        world = World()
        world.step()
        taken = world.offered()
        assert taken is not None
        assert taken.active_queries.plan is NEW
        (change,) = world.adapter.changes
        assert (change.batch, change.way, change.cause) == (1, "eager", EPOCH)
        assert "new stores" in change.what
        assert taken.reason == str(change)

    def test_a_plan_for_other_queries_is_dropped(self) -> None:
        """They have changed while it was looked for."""
        world = World()
        world.step()
        world.finder.found = replace(FOUND, running=NEW)
        assert world.step() is None

    def test_a_plan_that_was_found_before_a_change_of_queries_is_dropped(self) -> None:
        """Even if the queries look the same."""
        world = World()
        world.step()
        world.finder.found = FOUND
        world.adapter.queries_changed(world.situation)
        assert world.step() is None

    def test_the_plan_that_runs_is_no_change(self) -> None:
        """Nor one that is hardly better."""
        world = World()
        world.step()
        assert world.offered(OLD) is None
        assert world.offered(cost_then=FOUND.cost_now * 0.95, same_stores=None) is None
        assert world.adapter.changes == ()

    def test_plans_that_flip_have_to_wait(self) -> None:
        """Twice as long whenever one comes back."""
        world, tries = World(), []
        world.step()
        for plan in (NEW, OLD, NEW, OLD):
            count = 1
            while world.offered(plan) is None:
                count += 1
            tries.append(count)
        assert tries == [1, 1, 2, 4]

    def test_heavy_keys_are_spread_at_once_or_not_at_all(self) -> None:
        """A proposal for their sake that spreads nothing anew is none."""
        world = World()
        world.step()
        assert world.active.plan is not None
        world.finder.found = replace(FOUND, running=world.active.plan, cause=HEAVY)
        assert world.step() is None


class TestSideBySide:
    """Transitions."""

    def begun(self) -> World:
        """Stores are being filled."""
        world = World(migrate="side by side")
        for _ in range(3):
            world.step()
        assert world.offered() is not None
        assert world.active.transition is not None
        return world

    def test_the_new_plan_takes_over_when_windows_have_passed(self) -> None:
        """Nothing else begins before, and nothing is migrated then."""
        world = self.begun()
        steps = 1
        while (taken := world.offered(OLD)) is None:
            steps += 1
        assert steps == 6  # more than the five seconds of the windows
        assert not taken.migration.is_needed
        assert taken.active_queries.transition is None
        assert taken.active_queries.plan is not None
        assert is_alike(taken.active_queries.plan, NEW)
        assert [change.way for change in world.adapter.changes] == ["side by side", "filled"]

    def test_a_change_of_queries_gives_it_up(self) -> None:
        """Which the history says."""
        world = self.begun()
        world.adapter.queries_changed(world.situation)
        assert [change.way for change in world.adapter.changes] == ["side by side", "given up"]

    def test_it_is_ended_also_where_plans_do_not_follow(self) -> None:
        """The stores would be filled for ever."""
        world = self.begun()
        settled = SettledPlan()
        assert settled.next_plan(world.situation) is None
        world.number += 6
        taken = settled.next_plan(world.situation)
        assert taken is not None
        assert taken.active_queries.transition is None
        assert [change.way for change in settled.changes] == ["filled"]
        assert settled.next_plan(replace(world.situation, active_queries=taken.active_queries)) is None


class TestObserving:
    """What a change has brought."""

    def test_it_is_filled_in_an_epoch_later(self) -> None:
        """Of the epoch before and that after, without the batch that waited for the change."""
        world = World()
        for seconds in (9.0, 0.4, 0.4, 0.4):
            world.step(seconds)
        assert world.offered() is not None
        for _ in range(3):
            assert world.adapter.changes[0].observed is None
            world.step(0.1)
        world.step(0.1)
        assert world.adapter.changes[0].observed == pytest.approx(0.75)

    def test_it_is_that_of_the_last_change(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also if older ones are forgotten meanwhile."""
        monkeypatch.setattr(adapter, "KEPT", 1)
        world = World()
        world.step()
        world.offered()
        for _ in range(5):
            world.step()
        world.offered(OLD)
        for _ in range(5):
            world.step()
        while world.offered(NEW) is None:
            pass
        for _ in range(5):
            world.step()
        assert len(world.adapter.changes) == 2
        assert all(change.observed is not None for change in world.adapter.changes)

    def test_a_change_is_explained_by_what_it_was_made_from(self) -> None:
        """Figures of the past would make the new plan look worse than the old one."""
        world = World()
        for _ in range(4):
            world.step()
        assert world.adapter.expected is None
        world.offered()
        assert world.adapter.expected is SWAPPED
        world.adapter.queries_changed(world.situation)
        assert world.adapter.expected is None

    def test_how_fast_stores_are_laid_out_is_learnt(self) -> None:
        """A slow disk makes later changes wait, or happen side by side."""
        world = World()
        world.step()
        before = world.adapter._speed
        world.adapter.migrated(10.0)  # of a migration for other reasons
        assert world.adapter._speed == before
        world.adapter._bytes = 1_000_000
        world.adapter.migrated(1.0)
        assert world.adapter._speed < before


class TestLastingGains:
    """A plan that does not pay by the time the windows have passed, in data that stays as it is."""

    # Filling is dearer than what is saved meanwhile.
    CHANGES: ClassVar[dict[str, Any]] = {
        "cost_now": 1.0,
        "cost_then": 0.8,
        "beside": 1.5,
        "same_stores": None,
    }

    def test_a_gain_that_lasts_pays_in_the_end(self) -> None:
        """As long as it has lasted, it is expected to last again: data that drifts is followed, if late."""
        world = World(migrate="side by side")
        for _ in range(4):
            world.step()
        assert world.offered(**self.CHANGES) is None
        taken = [world.offered(**self.CHANGES) is not None for _ in range(60)]
        assert any(taken)
        assert taken.index(True) > 5
        assert any("for which the gain has lasted" in change.reason for change in world.adapter.changes)

    def test_a_gain_that_comes_and_goes_does_not(self) -> None:
        """Where data flips, no change would ever have paid."""
        world = World(migrate="side by side")
        for _ in range(4):
            world.step()
        for number in range(60):
            world.finder.found = None
            found = world.offered(**self.CHANGES) if number % 4 else world.offered(plan=OLD)
            assert found is None

    def test_plans_are_looked_for_as_long_as_a_better_one_waits(self) -> None:
        """Though nothing changes any more: only time decides whether it pays."""
        world = World(migrate="side by side")
        for _ in range(4):
            world.step()
        world.offered(**self.CHANGES)
        before = len(world.finder.asked)
        for _ in range(10):
            world.step()
        assert len(world.finder.asked) > before
