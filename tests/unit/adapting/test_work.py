"""What is measured between two plans: figures that are wrong make plans change for nothing, or not at all."""

from __future__ import annotations

import math

import pytest

from tests.unit.adapting.snapshots import EVEN, SWAPPED
from tests.unit.plan.workloads import PAIR, shared
from weft.adapting.adapter import RECENT, drift, work_per_row, work_rate
from weft.plan.physical.lower import lower_workload
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.plan_changes import PlanChange, history_text
from weft.runtime.observe.progress import History
from weft.stats.input_figures import InputFigures
from weft.stats.statistics import Statistics, StreamStatistics

SECOND = 1_000_000
GRAPH = lower_workload(shared(q=PAIR))


def history(*batches: BatchMetrics) -> History:
    """A history of batches by one graph."""
    found = History()
    for one in batches:
        found.add(GRAPH, one)
    return found


def batch(
    number: int, elapsed: float, rows: int = 0, marks: dict[str, int] | None = None, started: float = 0.0
) -> BatchMetrics:
    """A batch that took so long for so many rows of each of two inputs."""
    inputs = {alias: InputFigures(rows, 0) for alias in ("v", "w")}
    return BatchMetrics(
        number, (), inputs, {}, {}, 0, watermarks=marks or {}, started=started, elapsed=elapsed
    )


class TestWorkRate:
    """Seconds of work per second of stream."""

    def test_without_batches_there_is_no_work(self) -> None:
        """A plan may be asked for before the first one."""
        assert work_rate(history()) == 0.0

    def test_the_time_of_a_stream_is_that_of_its_tuples(self) -> None:
        """However fast it is replayed: ten batches of a second each, 0.2 seconds of work."""
        found = history(*(batch(n, 0.2, marks={"v": n * SECOND, "w": 0}) for n in range(10)))
        assert work_rate(found) == pytest.approx(0.2)

    def test_where_tuples_have_no_time_the_clock_counts(self) -> None:
        """Nothing else is known."""
        found = history(*(batch(n, 0.2, started=100.0 + n) for n in range(10)))
        assert work_rate(found) == pytest.approx(2.0 / 9.2)
        still = history(*(batch(n, 0.2, marks={"v": 5}, started=100.0 + n) for n in range(10)))
        assert work_rate(still) == pytest.approx(2.0 / 9.2)

    def test_what_took_no_time_is_no_work(self) -> None:
        """Rather than an error."""
        assert work_rate(history(batch(0, 0.0))) == 0.0

    def test_only_the_last_batches_count(self) -> None:
        """What was slow an hour ago is no reason any more."""
        slow = [batch(n, 9.0, marks={"v": n * SECOND}) for n in range(20)]
        fast = [batch(n, 0.1, marks={"v": n * SECOND}) for n in range(20, 20 + RECENT)]
        assert work_rate(history(*slow, *fast)) == pytest.approx(0.1)


class TestWorkPerRow:
    """What a change has brought is the difference of two of these."""

    def test_it_is_of_all_inputs(self) -> None:
        """Two inputs with ten rows each in 0.2 seconds."""
        assert work_per_row(history(batch(0, 0.2, 10), batch(1, 0.2, 10))) == pytest.approx(0.01)

    def test_batches_before_a_change_are_left_out(self) -> None:
        """They say nothing of it."""
        found = history(batch(0, 9.0, 10), batch(1, 0.2, 10))
        assert work_per_row(found, since=1) == pytest.approx(0.01)

    def test_without_rows_it_is_unknown(self) -> None:
        """Not zero, which would be a gain of all."""
        assert math.isnan(work_per_row(history()))
        assert math.isnan(work_per_row(history(batch(0, 0.2, 0))))
        assert math.isnan(work_per_row(history(batch(0, 0.2, 10)), since=1))


def known(rate: float = 100.0, **selectivities: float) -> Statistics:
    """What is known of one stream, and of predicates."""
    return Statistics({"a": StreamStatistics(rate=rate)}, selectivities)


class TestDrift:
    """By how much what is known has changed."""

    @pytest.mark.parametrize(
        ("before", "now", "expected"),
        [
            (known(), known(), 0.0),
            (known(100), known(150), 0.5),
            (known(150), known(100), 0.5),
            (known(100), known(0), math.inf),
            (known(0), known(0), 0.0),
            (known(p=0.1), known(p=0.3), 2.0),
            (known(p=0.3), known(p=0.1), 2.0),
            (known(100, p=0.1), known(150, p=0.3), 2.0),
            (known(), known(p=0.1), math.inf),
            (known(p=0.1), known(), 0.0),  # what is no longer asked for
            (Statistics(costs={"f": 1.0}), Statistics(costs={"f": 4.0}), 3.0),
        ],
    )
    def test_the_largest_change_counts(self, before: Statistics, now: Statistics, expected: float) -> None:
        """In either direction, and whatever it is a change of."""
        assert drift(before, now) == pytest.approx(expected)

    def test_distinct_counts_are_statistics_too(self) -> None:
        """Joins that were never probed are estimated from them."""
        before, now = (Statistics({"a": StreamStatistics(distinct={"k": n})}) for n in (100.0, 300.0))
        assert drift(before, now) == pytest.approx(2.0)

    def test_streams_that_only_one_side_knows_have_the_usual_rate(self) -> None:
        """That is what plans were made from."""
        assert drift(Statistics(), known(1_000.0)) == 0.0
        assert drift(Statistics(), known(4_000.0)) == pytest.approx(3.0)

    def test_selectivities_that_swap_are_much(self) -> None:
        """As in the chain of the benchmark."""
        assert drift(EVEN, EVEN) == 0.0
        assert drift(EVEN, SWAPPED) > 10


class TestHistory:
    """What users read of the changes."""

    CHANGE = PlanChange(
        7, "eager", "the data has changed", "40% less work expected", "new stores s", 0.4, 0.1, 5
    )

    def test_a_change_is_a_line(self) -> None:
        """When, how, why, what; and later what it brought."""
        line = "batch 7: eager · the data has changed · 40% less work expected · new stores s"
        assert str(self.CHANGE) == line
        seen = PlanChange(*(7, "eager", "the data has changed", "40% less work expected"), observed=-0.125)
        assert str(seen) == "batch 7: eager · the data has changed · 40% less work expected; observed: -12%"

    def test_no_change_is_no_text(self) -> None:
        """There is nothing to say."""
        assert history_text(()) == ""

    def test_the_last_ones_are_shown(self) -> None:
        """And that there were more."""
        changes = tuple(PlanChange(n, "at once", "c", "r") for n in range(7))
        assert (
            history_text(changes[:2])
            == "Plan changes\n  batch 0: at once · c · r\n  batch 1: at once · c · r\n"
        )
        lines = history_text(changes, most=5).splitlines()
        assert lines[0] == "Plan changes (the last 5 of 7)"
        assert [line.split(":")[0] for line in lines[1:]] == [f"  batch {n}" for n in range(2, 7)]
