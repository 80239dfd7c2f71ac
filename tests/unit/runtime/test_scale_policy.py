"""Tasks that follow the load: too late is useless, too early is restless, and nothing may swing to and fro."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.shares import seeds
from weft.errors import ConfigError
from weft.runtime.loop.batch_warnings import SLOW_BATCHES as BATCHES
from weft.runtime.loop.batch_warnings import SLOW_FOR as PATIENCE
from weft.runtime.loop.batch_warnings import SlowQueries
from weft.runtime.loop.scale_policy import LoadScale
from weft.runtime.loop.scaling import Scaling, TaskLoad
from weft.runtime.model.assignment import balanced_owners
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.runtime.observe.progress import History
from weft.stats.histogram import Histogram, Latency, class_of


@dataclass
class Machine:
    """A session in make-believe: work comes, tasks do a second of it a second each, and batches take 0.2 s or more."""

    scale: LoadScale
    rate: Callable[[float], float]  # seconds of work that come in a second, by the time
    partitions: int = 8
    room: int = 8
    hands: int = 0  # 0: as many as there is room for
    spread: bool = True
    target: float | None = 1.0
    shares: dict[int, float] = field(default_factory=dict)  # of the work, by partition
    slow_driver: float = 0.0  # seconds that a batch takes besides
    now: float = 0.0
    tasks: int = 2
    waiting: float = 0.0  # seconds of work
    changes: list[tuple[float, Scaling]] = field(default_factory=list)
    behind: list[tuple[float, float]] = field(default_factory=list)

    def run(self, until: float) -> None:
        """Run batches up to a time."""
        owners, number = balanced_owners(self.partitions, self.tasks, {}), 0
        shares = self.shares or dict.fromkeys(range(self.partitions), 1 / self.partitions)
        while self.now < until:
            work = min(self.waiting, 0.4 * self.tasks)
            load = {partition: share * work for partition, share in shares.items()}
            each = [sum(load[p] for p, owner in enumerate(owners) if owner == t) for t in range(self.tasks)]
            elapsed = max(0.2, max(each) + self.slow_driver)
            self.waiting += self.rate(self.now) * elapsed - work
            self.now += elapsed
            late = self.waiting / self.tasks
            self.behind.append((self.now, late))
            last = BatchMetrics(
                number, (), {}, {}, {}, 0, elapsed=elapsed, backlog={"s": Backlog(seconds=late)}, busy=load
            )
            tasks = self.now, self.tasks, self.tasks, self.room, self.hands or self.room
            seen = TaskLoad(*tasks, last, load, owners, self.target, self.spread)
            if (scaling := self.scale.next_scaling(seen)) is not None:
                self.changes.append((self.now, scaling))
                if scaling.tasks != self.tasks or not scaling.owners:
                    owners = balanced_owners(self.partitions, scaling.tasks, load)
                self.tasks, owners = scaling.tasks, scaling.owners or owners
            number += 1


def test_tasks_follow_load_that_doubles_and_falls() -> None:
    """And are no more than needed: what was late is in time again, and hands that have nothing to do are let go."""
    machine = Machine(LoadScale(), lambda now: 1.5 if now < 60 else 3.5 if now < 200 else 0.3)
    machine.run(60)
    assert machine.changes == []
    machine.run(200)
    assert 4 <= machine.tasks <= 8
    assert all(late <= 1.0 for at, late in machine.behind if at > 120)
    machine.run(500)
    assert machine.tasks <= 2
    ways = [scaling.way for _, scaling in machine.changes]
    assert ways == sorted(ways, key=lambda way: way != "scaled up")  # first up, then down, and never again
    assert all("s" in scaling.reason and scaling.cause for _, scaling in machine.changes)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_sine_does_not_make_tasks_swing(seed: int) -> None:
    """Every change costs something: there are few, far enough from each other."""
    period = 20 + 10 * (seed % 5)
    machine = Machine(LoadScale(), lambda now: 2.2 + 1.8 * math.sin(2 * math.pi * now / period))
    machine.run(600)
    moments = [at for at, _ in machine.changes]
    assert len(moments) <= 10
    assert all(second - first >= 5 for first, second in pairwise(moments))
    assert sum(late <= 1.0 for _, late in machine.behind) >= 0.95 * len(machine.behind)


def test_a_hot_partition_moves_before_there_are_more_tasks() -> None:
    """One task with two hot partitions is what all others wait for."""
    shares = {0: 0.4, 2: 0.4, 1: 0.05, 3: 0.05, 4: 0.025, 5: 0.025, 6: 0.025, 7: 0.025}
    machine = Machine(LoadScale(), lambda _: 1.5, shares=shares)
    machine.run(30)
    assert machine.changes[0][1].way == "moved partitions"
    assert "busiest task had 85% of the work, and gets 50%" in machine.changes[0][1].reason
    assert machine.tasks == 2
    assert machine.behind[-1][1] <= 1.0


def test_more_tasks_do_not_mend_a_slow_driver() -> None:
    """Nor does a machine that is full get more of them."""
    machine = Machine(LoadScale(), lambda _: 1.5, slow_driver=2.0)
    machine.run(60)
    assert machine.changes == []
    machine = Machine(LoadScale(), lambda _: 9.0, room=2)
    machine.run(60)
    assert machine.changes == []


def test_tasks_stay_within_what_the_user_says() -> None:
    """At once where they are not."""
    machine = Machine(LoadScale(3, 4), lambda now: 9.0 if now < 60 else 0.1)
    machine.run(1)
    assert machine.tasks == 3
    machine.run(60)
    assert machine.tasks == 4
    machine.run(300)
    assert machine.tasks == 3


def test_without_a_target_there_are_never_fewer_tasks() -> None:
    """Nobody said what may take longer."""
    machine = Machine(LoadScale(), lambda now: 4.0 if now < 60 else 0.1, target=None)
    machine.run(400)
    assert machine.tasks >= 4


@pytest.mark.parametrize(("hands", "room"), [(1, 1024), (2, 15)])
def test_there_are_no_more_tasks_than_hands(hands: int, room: int) -> None:
    """Tasks that run one after the other, or that share cores, do nothing sooner by being more; nor by moving."""
    shares = {0: 0.9} | dict.fromkeys(range(1, 8), 0.1 / 7)
    for given in ({}, shares) if hands == 1 else ({},):
        machine = Machine(LoadScale(), lambda _: 9.0, room=room, hands=hands, shares=given)
        machine.run(60)
        assert machine.changes == []
        assert not machine.scale.may_grow


def test_on_one_machine_there_are_never_fewer_tasks() -> None:
    """They would give nothing back, and a batch would wait for those that take their place."""
    machine = Machine(LoadScale(), lambda _: 0.1, tasks=8, spread=False)
    machine.run(400)
    assert machine.changes == []


def test_a_number_of_tasks_that_the_user_says_is_not_exceeded() -> None:
    """Unless another number is allowed; and fewer than that number may become as many again."""
    machine = Machine(LoadScale(usual=2), lambda _: 9.0)
    machine.run(60)
    assert machine.changes == []
    machine = Machine(LoadScale(usual=2), lambda _: 9.0, tasks=1)
    machine.run(60)
    assert machine.tasks == 2
    machine = Machine(LoadScale(most=4, usual=2), lambda _: 9.0)
    machine.run(60)
    assert machine.tasks == 4


def test_changes_by_others_are_given_time() -> None:
    """Who has fewer tasks by hand would see that undone with the next batch."""
    machine = Machine(LoadScale(), lambda _: 3.5, tasks=4)
    machine.run(60)
    before, machine.tasks = len(machine.changes), 1
    machine.run(64)
    assert len(machine.changes) == before
    machine.run(120)
    assert machine.changes[before][0] >= 65
    assert machine.tasks >= 4


def test_bounds_that_contradict_each_other_are_refused() -> None:
    """Before anything starts; the hint is one that works."""
    with pytest.raises(ConfigError, match="at least 3 and at most 2 tasks"):
        weft.Session(min_tasks=3, max_tasks=2)
    for wrong in ({"min_tasks": 0}, {"max_tasks": 0}, {"scale": "sometimes"}):
        with pytest.raises(ConfigError):
            weft.Session(**wrong)
    weft.Session(min_tasks=2, max_tasks=3, scale="off").stop()


def test_a_session_begins_within_its_bounds_and_says_so(tmp_path: Path) -> None:
    """In the history of plans, and in what explains it."""
    (tmp_path / "in").mkdir()
    session = weft.Session(checkpoint=tmp_path / "ck", execution="local", min_tasks=3)
    session.stream("a", weft.files("parquet", tmp_path / "in", schema="k long"))
    session.query("SELECT a.k FROM a", sink=weft.to_memory())
    session.start()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "in" / "a.parquet")
    session.process_all_available()
    session.stop()
    assert [one.what for one in session.plan_history] == ["2 → 3 tasks"]
    assert "3 to any number of tasks" in session.explain()


def _batch(number: int, seconds: float, query: str = "q") -> BatchMetrics:
    took = Latency(Histogram.from_classes({class_of(round(seconds * 1e6)): 10}), Histogram())
    return BatchMetrics(number, (), {}, {}, {}, 10, {query: 10}, latencies={query: took})


def _watch(watch: SlowQueries, history: History, seconds: float, count: int, now: float) -> dict[str, str]:
    stopped: dict[str, str] = {}
    for _ in range(count):
        number = 1 + (history.batches[-1][1].number if history.batches else -1)
        history.batches.append((0, _batch(number, seconds)))
        history.committed[number] = 0.0, 0.0
        now += PATIENCE / BATCHES
        stopped |= watch.look({"q": 0.5}, now)
    return stopped


def test_a_query_that_is_too_slow_is_told_of_until_it_is_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """Once in the log, and in progress for as long as it is; a batch that is late now and then says nothing."""
    history = History()
    watch = SlowQueries(history, stops=False)
    for at in range(10):
        assert not _watch(watch, history, 2.0, BATCHES - 1, 100.0 * at)
        assert not _watch(watch, history, 0.1, 1, 100.0 * at + 90)
    assert not watch.reasons
    assert not _watch(watch, history, 2.0, 3 * BATCHES, 2_000.0)
    assert "0.5 s are wanted" in watch.reasons["q"]
    assert len([one for one in caplog.records if "too slow" in one.message]) == 1
    _watch(watch, history, 0.1, 1, 3_000.0)
    assert not watch.reasons


def test_a_query_that_is_too_slow_is_stopped_if_the_user_says_so() -> None:
    """And then the others are watched anew."""
    history = History()
    stopped = _watch(SlowQueries(history, stops=True), history, 2.0, BATCHES + 2, 0.0)
    assert list(stopped) == ["q"]
    assert "0.5 s are wanted" in stopped["q"]
