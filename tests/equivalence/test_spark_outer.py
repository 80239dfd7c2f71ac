"""On Spark, too, outer, semi and anti joins answer like the definition: rows without a partner leave in their time.

A session takes many random joins at once, each over streams of its own, with inner joins among them. It is stopped in
the middle, when some rows have left and others wait; another one reads the rest, which it is told is all there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.equivalence.files import random_layouts
from tests.equivalence.oracle import Oracle, rows_of
from tests.equivalence.outer import random_outer
from tests.equivalence.stage import Case, Stage, rows_in
from tests.equivalence.streams import Join, random_join
from tests.equivalence.workloads import RANGES, Change, Wish, Workload
from tests.shares import numbers, share_of
from weft.errors import QueryError
from weft.logical.outer.outer import joins
from weft.logical.outer.waiting import check_closing
from weft.optimizer.joint.methods import METHODS

CASES, INNER, WAITING = 20, 5, 6  # in a session
STEPS = 4
RESTART = 2  # before this step


class OuterStage(Stage):
    """A session over bounded input, that is stopped and started again or, if queries wait for the end, is not."""

    def run_bounded(self, *, restart: bool) -> None:
        """All steps; the last ones at once, as all there is."""
        for case in self.cases:
            self._change(case.workload.changes[0], case)
        if restart:
            self.session.start()
            for step in range(RESTART):
                self._deliver(step)
                self.session.process_all_available()
        for step in range(RESTART if restart else 0, STEPS):
            self._deliver(step)
        if restart:
            self._restart()
        else:
            self._begin()
        self.report.take(self.session)

    def _begin(self) -> None:
        self.session.run_available()

    def _ask(self, name: str, wish: Wish) -> None:
        self.session.query(wish.text, name=name, sink=self.report.sinks[name], cross=True)

    def wrong(self) -> Iterator[str]:
        """What is wrong with results."""
        for case in self.cases:
            ((name, wish),) = case.wishes.items()
            oracle = Oracle.of(self.report.streams(case.workload.streams), self.report.arrivals)
            expected = rows_of(oracle.found.select([output.name for output in wish.query.projection]))
            found = rows_in(self.report.sinks[name])
            lost, more = expected - found, found - expected
            if lost or more:
                yield f"{name}: lost {lost.most_common(3)}, not to be had {more.most_common(3)}: {wish.text}"

    def closed(self, case: Case, *, late: bool) -> int:
        """How many rows of a case were closed while there was input, or when there was none any more."""
        known = self.report.metrics
        last = max(n for n, metrics in known.items() if any(one.rows for one in metrics.inputs.values()))
        some = [metrics for n, metrics in known.items() if (n > last) is late]
        return sum(metrics.closed.get(name, 0) for metrics in some for name in case.wishes)


def draw(number: int, *, waits: bool) -> Case:
    """A random join that has results and rows without a partner that leave in time or, if it waits, at the end.

    Its streams all have event times: what waits for the clock is looked at every second, which takes long for many.
    """
    for attempt in count():
        seed = 4_000_000 + 1_000 * number + attempt
        outer = random_outer(seed, prefix=f"o{number}_", batches=(STEPS,), late=("drop",), mixed=False)
        timed = all(stream.event_time for stream in outer.join.catalog.streams)
        if timed and outer.join.query.outer is not None and _waits(outer.join) is waits:
            case = _case(f"o{number}", outer.text, outer.join, seed)
            if Oracle.of(case.workload.streams).found.num_rows:
                return case
    raise AssertionError


def draw_inner(number: int) -> Case:
    """A random inner join that has results."""
    for attempt in count():
        seed = 5_000_000 + 1_000 * number + attempt
        join = random_join(seed, prefix=f"i{number}_", windows=RANGES, batches=(STEPS,), mixed=False)
        case = _case(f"i{number}", str(join.query), join, seed)
        if all(s.late == "drop" for s in join.catalog.streams) and Oracle.of(join).found.num_rows:
            return case
    raise AssertionError


def _waits(join: Join) -> bool:
    """Whether some rows without a partner can only leave at the end."""
    try:
        check_closing(join.query, "q")
    except QueryError:
        return True
    return False


def _case(name: str, text: str, join: Join, seed: int) -> Case:
    streams, layouts = random_layouts(join, seed)
    singly = {stream: type(layout)(layout.format, 1) for stream, layout in layouts.items()}
    wish = Wish(text, join.query)
    return Case(Workload(streams, (Change({name: wish}),)), singly, {name: wish})


def check(spark: Any, root: Path, method: str, cases: list[Case], *, restart: bool) -> OuterStage:
    """Cases in one session."""
    stage = OuterStage(spark, root, method, cases, len(cases))
    try:
        stage.run_bounded(restart=restart)
    finally:
        stage.session.stop()
    assert not list(stage.wrong())
    return stage


@pytest.mark.ci
@pytest.mark.parametrize("block", range(share_of(1)))
def test_rows_leave_in_time_across_a_restart(spark: Any, tmp_path: Path, block: int) -> None:
    """A row that left twice, or never, because the session was stopped while it waited."""
    cases = [draw(number, waits=False) for number in numbers(CASES, block)]
    cases += [draw_inner(number) for number in numbers(INNER, block)]
    stage = check(spark, tmp_path, METHODS[block % len(METHODS)], cases, restart=True)
    kinds = {
        join.kind
        for c in cases
        for w in c.wishes.values()
        if w.query.outer
        for _, join in joins(w.query.outer)
    }
    assert kinds >= {"left", "full", "semi", "anti"}
    for late in (False, True):
        assert sum(stage.closed(case, late=late) > 0 for case in cases) > CASES // 5


@pytest.mark.parametrize("block", range(share_of(1)))
def test_rows_that_wait_for_ever_leave_at_the_end(spark: Any, tmp_path: Path, block: int) -> None:
    """Rows without a window would be lost, since nothing but the end of the input says that they have no partner."""
    cases = [draw(10_000 + number, waits=True) for number in numbers(WAITING, block)]
    stage = check(spark, tmp_path, METHODS[-1 - block % len(METHODS)], cases, restart=False)
    assert sum(stage.closed(case, late=True) > 0 for case in cases) > len(cases) // 3
