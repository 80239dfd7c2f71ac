"""Batches that no input asks for: too few keep rows in although their wait is over, with too many Spark never rests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.plan.workloads import PAIR as INNER
from tests.unit.plan.workloads import query
from tests.unit.runtime.joins import SECOND, graph
from weft.bucket.bounds import Bounds
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.loop import wake_ups
from weft.runtime.loop.batch_planner import BatchPlanner
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.wake_ups import closable, until_next
from weft.runtime.model.batch_order import ENDED, NEVER, UNKNOWN, Clock
from weft.runtime.model.watermarks import Watermarks, clocks
from weft.runtime.observe.progress import History
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.request import QueryRequest
from weft.runtime.state.partition_manifest import StoreTotals

LEFT = "SELECT v.x, w.uid FROM v [RANGE 5 SECONDS] LEFT JOIN w ON v.vid = w.vid"
ARRIVED = "SELECT a.x FROM u [RANGE 5 SECONDS] AS a LEFT JOIN u AS b ON a.vid = b.x"


def manifest(
    program: ExecutableGraph,
    *seconds: float,
    marks: dict[str, float],
    active: dict[str, float] | None = None,
    closed: float = 0,
) -> Manifest:
    """What a batch left: tuples of the preserved input of these times, and how far streams and query are."""
    store = next(iter(program.sweeps[0].waits))[1]
    home = program.sweeps[0].homes[store].identity
    bounds = [Bounds(1, 10, int(second * SECOND), int(second * SECOND)) for second in seconds]
    return Manifest(
        stores={home: StoreTotals.of_bounds(bounds)},
        marks={name: int(mark * SECOND) for name, mark in marks.items()},
        active={name: int(moment * SECOND) for name, moment in (active or {}).items()},
        closed={program.sweeps[0].member.name: int(closed * SECOND)},
    )


@pytest.mark.parametrize(
    ("seconds", "marks", "closed", "expected"),
    [
        ((1, 3), {"v": 9, "w": 9}, 0, True),
        ((1, 3), {"v": 9, "w": 6.5}, 0, True),  # second 1 is over, second 3 is not
        ((1, 3), {"v": 9, "w": 6}, 0, False),  # at its very end a partner may come
        ((1, 3), {"v": 9}, 0, False),  # w has not shown its time
        ((1, 3), {"v": 9, "w": 9}, 9, False),  # closed already
        ((1, 3), {"v": 9, "w": 9}, 8, True),  # not that of second 3, which leaves behind 8
        ((1, 3), {"v": 9, "w": 8.5}, 8, True),
        ((), {"v": 9, "w": 9}, 0, False),  # nothing is stored
    ],
)
def test_rows_whose_wait_is_over(
    seconds: tuple[float, ...], marks: dict[str, float], closed: float, expected: bool
) -> None:
    """A batch too few keeps them in until the next input; a batch too many comes again and again, for ever."""
    program = ExecutableGraph(graph(LEFT))
    assert closable(program, manifest(program, *seconds, marks=marks, closed=closed)) is expected


def test_after_the_end_nothing_is_left_to_close() -> None:
    """Batches would follow each other without end, since streams stay where they were."""
    program = ExecutableGraph(graph(LEFT))
    done = manifest(program, 1, 3, marks={"v": 9, "w": 9}, closed=ENDED / SECOND)
    assert not closable(program, done)
    assert until_next(program, done, 0) is None


@pytest.mark.parametrize(
    ("sql", "idle_after", "active", "expected"),
    [  # at second 6
        (ARRIVED, None, {"u": 1}, 1),  # time comes by itself
        (LEFT, None, {"v": 1, "w": 1}, None),  # only a w can bring it
        (
            LEFT,
            "10 seconds",
            {"v": 5, "w": 1},
            6,
        ),  # w has been silent for 5 s: in 5 s it is idle, and 1 s later looked at
        (LEFT, "2 seconds", {"v": 2, "w": 1}, None),  # it is idle, and so is v: nothing moves
        (LEFT, "3 seconds", {"v": 5}, 3),  # also if it never brought anything
    ],
)
def test_rows_that_wait_for_the_clock(
    sql: str, idle_after: str | None, active: dict[str, float], expected: float | None
) -> None:
    """Without input nobody would look at the clock; with input to wait for, to look at it is in vain."""
    program = ExecutableGraph(graph(sql, idle_after=idle_after) if idle_after else graph(sql))
    left = manifest(program, 1, 3, marks={}, active=active)
    assert until_next(program, left, 6 * SECOND) == expected
    assert until_next(program, manifest(program, marks={}, active=active), 6 * SECOND) is None


def test_an_inner_join_asks_for_no_batch() -> None:
    """It has nothing to do without input."""
    program = ExecutableGraph(graph(INNER))
    assert not closable(program, Manifest(marks={"v": 9, "w": 9}))
    assert until_next(program, Manifest(), 0) is None


class TestDue:
    """When a batch begins though no stream brings anything."""

    def batch_planner(self, sql: str) -> BatchPlanner:
        config = RunConfig({}, {}, unused, unused, unused, partitions=1)
        made = BatchPlanner(config, Checkpoint.in_memory(), History())
        made.active_queries = ActiveQueries(program=ExecutableGraph(graph(sql)))
        return made

    def left(self, batch_planner: BatchPlanner, **marks: float) -> Manifest:
        program = batch_planner.active_queries.program
        assert program is not None
        return manifest(program, 1, 3, marks=marks)

    def test_at_once_where_there_is_something_to_do(self) -> None:
        """Rows to close, queries to begin or to stop, the end of the input."""
        batch_planner = self.batch_planner(LEFT)
        for mark, expected in ((1, False), (9, True)):
            left = self.left(batch_planner, v=9, w=mark)
            batch_planner.schedule(left, 0)
            assert batch_planner.is_due(left) is expected
        quiet = self.left(batch_planner, v=9, w=1)
        batch_planner.schedule(quiet, 0)
        batch_planner.changelog.begin("new", QueryRequest(query(INNER)))
        assert batch_planner.is_due(quiet)
        batch_planner.changelog.take()
        batch_planner.changelog.stop("old", "stopped")
        assert batch_planner.is_due(quiet)
        batch_planner.changelog.take()
        assert not batch_planner.is_due(quiet)
        batch_planner.ending = True
        assert batch_planner.is_due(quiet)

    def test_after_a_pause_where_only_the_clock_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """And not before: batches would follow each other without end."""
        now = 100.0
        monkeypatch.setattr(wake_ups, "time", SimpleNamespace(monotonic=lambda: now))
        batch_planner = self.batch_planner(ARRIVED)
        waiting = self.left(batch_planner, u=1)
        batch_planner.schedule(waiting, 0)
        assert not batch_planner.is_due(waiting)
        now += wake_ups.PAUSE
        assert batch_planner.is_due(waiting)


def unused(*_: Any) -> Any:
    """What a test does not need."""
    raise AssertionError("it is used")


class TestClocks:
    """Up to which time rows are closed: ahead of a stream they are closed too early, behind all of them too late."""

    def clock(
        self, marks: dict[str, int], closed: dict[str, int] | None = None, ended: bool = False
    ) -> Clock:
        found = clocks(graph(LEFT), Watermarks(marks), closed or {}, ended=ended)
        assert list(found) == ["query_1"]
        return found["query_1"]

    def test_the_slowest_stream_counts(self) -> None:
        """Its tuples may still be partners; streams of other queries do not matter."""
        assert self.clock({"v": 9, "w": 4, "c": 1}) == Clock(NEVER, 4)

    def test_a_stream_that_has_not_shown_its_time(self) -> None:
        """May bring anything; yet it is not the batch before the first one, or semi joins would give rows twice."""
        assert self.clock({"v": 9}) == Clock(NEVER, UNKNOWN)
        assert self.clock({"v": 9}, {"query_1": UNKNOWN}) == Clock(UNKNOWN, UNKNOWN)
        assert NEVER < UNKNOWN < 0 < ENDED

    def test_it_never_falls(self) -> None:
        """Else rows that have left would leave again."""
        assert self.clock({"v": 9, "w": 4}, {"query_1": 7}) == Clock(7, 7)

    def test_the_end_is_the_end(self) -> None:
        """All that waits leaves, once."""
        assert self.clock({"v": 9}, {"query_1": 7}, ended=True) == Clock(7, ENDED)
        assert self.clock({"v": 9}, {"query_1": ENDED}, ended=True) == Clock(ENDED, ENDED)
        assert self.clock({"v": 9, "w": 12}, {"query_1": ENDED}) == Clock(ENDED, ENDED)

    def test_inner_joins_have_none(self) -> None:
        """They close nothing."""
        assert clocks(graph(INNER), Watermarks({"v": 9, "w": 4}), {}) == {}
