"""What is known while batches run: it follows the data, under whatever plan, and knows correlated predicates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest

import weft
from tests.local_runner import LocalRunner
from tests.random_cases import random_case
from tests.shares import quick
from weft.logical.query.window import Range
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.lower import lower
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.session.session import Session
from weft.stats.estimate import Estimator
from weft.stats.known import HalfLife, Known
from weft.stats.statistics import Statistics
from weft.testing.run import LocalRun

SCHEMA = "a long, b long, ts timestamp"
CHAIN = """SELECT r.a FROM r [RANGE 4 SECONDS], s [RANGE 4 SECONDS], t [RANGE 4 SECONDS]
           WHERE r.a = s.a AND s.b = t.b"""
START = datetime(2030, 1, 1, tzinfo=timezone.utc)

Values = Callable[[np.random.Generator, str, int], tuple[np.ndarray, np.ndarray]]


class Streams:
    """A session over r, s and t that runs in this process, one batch a second."""

    def __init__(self, rng: np.random.Generator, half_life: HalfLife | None = None, rows: int = 100) -> None:
        self.session = Session(options=Options(partitions=2))
        for name in ("r", "s", "t"):
            self.session.stream(name, SCHEMA, event_time="ts")
        self.session._measured = self.session._graphs.measured = RecentStatistics(half_life)
        self.rng, self.rows, self.second = rng, rows, 0
        self.run: LocalRun | None = None

    def query(self, sql: str, name: str) -> None:
        """Run one more query."""
        self.session.query(sql, name=name, sink=weft.to_memory())

    def batches(self, count: int, values: Values) -> None:
        """Some batches more."""
        if self.run is None:
            self.run = LocalRun(self.session, now=START)
        for _ in range(count):
            self.run.batch({name: self._table(name, values) for name in ("r", "s", "t")}, now=self._now())
            self.second += 1

    def _now(self) -> datetime:
        return START + timedelta(seconds=self.second)

    def _table(self, name: str, values: Values) -> pa.Table:
        first, second = values(self.rng, name, self.rows)
        begin = round(self._now().timestamp() * 1e6)
        times = np.sort(self.rng.integers(begin, begin + 1_000_000, self.rows))
        return pa.table({"a": first, "b": second, "ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})

    def graphs(self) -> int:
        """By how many graphs batches ran so far."""
        assert self.run is not None
        return len({number for number, _ in self.run._loop.history.batches})


def independent(a: int, b: int) -> Values:
    """Keys with so many values, uniform."""
    return lambda rng, _, rows: (rng.integers(0, a, rows), rng.integers(0, b, rows))


def equal(a: int) -> Values:
    """Keys of which the second equals the first."""

    def values(rng: np.random.Generator, _: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
        found = rng.integers(0, a, rows)
        return found, found

    return values


@pytest.mark.parametrize("seed", quick(range(3)))
def test_figures_follow_the_data_under_another_plan(seed: int) -> None:
    """A change of the plan loses nothing, and after a few half-lives nothing is left of what was true before."""
    streams = Streams(np.random.default_rng(seed), HalfLife(4, 1000))
    streams.query(CHAIN, "chain")
    streams.batches(12, independent(10, 60))
    before = streams.session.measured()
    assert before.selectivities["r.a = s.a"] == pytest.approx(1 / 10, rel=0.25)
    assert before.selectivities["s.b = t.b"] == pytest.approx(1 / 60, rel=0.25)
    assert before.stream("r").rate == pytest.approx(100, rel=0.05)
    streams.query("SELECT r.a FROM r [RANGE 4 SECONDS], t [RANGE 4 SECONDS] WHERE r.a = t.a", "other")
    streams.batches(1, independent(60, 10))
    assert streams.graphs() == 2
    soon = streams.session.measured().selectivities
    assert soon["r.a = s.a"] == pytest.approx(before.selectivities["r.a = s.a"], rel=0.3)
    streams.batches(20, independent(60, 10))  # whose windows pass within 4 of these
    after = streams.session.measured().selectivities
    assert after["r.a = s.a"] == pytest.approx(1 / 60, rel=0.4)
    assert after["s.b = t.b"] == pytest.approx(1 / 10, rel=0.25)
    assert after["r.a = t.a"] == pytest.approx(1 / 60, rel=0.25)


def test_a_rate_that_changes_is_followed() -> None:
    """By half after one half-life."""
    streams = Streams(np.random.default_rng(1), HalfLife(4, 1000), rows=50)
    streams.query(CHAIN, "chain")
    streams.batches(30, independent(10, 10))
    assert streams.session.measured().stream("r").rate == pytest.approx(50, rel=0.05)
    streams.rows = 100
    streams.batches(4, independent(10, 10))
    assert streams.session.measured().stream("r").rate == pytest.approx(75, rel=0.05)
    streams.batches(16, independent(10, 10))
    assert streams.session.measured().stream("r").rate == pytest.approx(100, rel=0.06)


def test_it_does_not_matter_how_often_one_asks() -> None:
    """Batches are folded in one by one, or many at once."""
    found = []
    for every in (1, 3, 24):
        streams = Streams(np.random.default_rng(3), HalfLife(8, 1000))
        streams.query(CHAIN, "chain")
        for _ in range(24 // every):
            streams.batches(every, independent(20, 30))
            streams.session.measured()
        found.append(streams.session.measured())
    for one in found[1:]:
        assert one.stream("s").rate == pytest.approx(found[0].stream("s").rate)
        for name, value in one.selectivities.items():
            assert value == pytest.approx(found[0].selectivities[name], rel=0.1)


def test_old_evidence_fades() -> None:
    """What nothing observes any more is forgotten in the end; then samples count, and without them what was given."""
    streams = Streams(np.random.default_rng(4), HalfLife(2, 1000))
    streams.session.selectivity("r.a = t.a", 0.77)
    streams.query(CHAIN, "chain")
    streams.query("SELECT r.a FROM r [RANGE 4 SECONDS], t [RANGE 4 SECONDS] WHERE r.a = t.a", "other")
    streams.batches(8, independent(10, 10))
    assert streams.session.measured().selectivities["r.a = t.a"] == pytest.approx(0.1, rel=0.25)
    first = streams.session._measured.known.first["r.a = t.a",]
    assert streams.run is not None
    streams.run.stop_query("other")
    streams.batches(8, independent(10, 10))
    assert streams.session.measured().selectivities["r.a = t.a"] == pytest.approx(0.1, rel=0.25)
    faded = streams.session._measured.known.first["r.a = t.a",]
    assert faded.compared == pytest.approx(first.compared / 2**4, rel=0.8)
    assert faded.batch < streams.session._measured.known.batch
    streams.batches(40, independent(10, 10))
    assert streams.session.measured().selectivities["r.a = t.a"] == pytest.approx(0.1, rel=0.25)
    recent = streams.session._measured
    assert ("r.a = t.a",) not in recent.known.first
    alone = recent.statistics(streams.session.statistics, streams.run._loop.history)
    assert alone.selectivities["r.a = t.a"] == 0.77


def test_a_new_run_goes_on_with_what_is_known() -> None:
    """Also after a way through JSON; a batch that is in both histories counts once."""
    streams = Streams(np.random.default_rng(5))
    streams.query(CHAIN, "chain")
    streams.batches(6, independent(10, 10))
    streams.session.measured()
    assert streams.run is not None
    recent, history = streams.session._measured, streams.run._loop.history
    before, known = recent.statistics(Statistics(), history), recent.known
    again = RecentStatistics(HalfLife(), Known.from_json(known.to_json()))
    assert again.known == known
    assert again.statistics(Statistics(), history) == before
    assert again.known == known
    again.restore("nonsense")
    assert again.known == known
    again.restore(None)
    assert again.known == Known()


def predicted(session: Session, sql: str, statistics: Statistics, names: tuple[str, ...]) -> float:
    """The selectivity that is expected of the inputs of a query."""
    estimator = Estimator(session.parse(sql), statistics)
    return estimator.selectivity(estimator.mask(names))


def test_predicates_between_two_inputs_that_go_together() -> None:
    """Two equalities of which one implies the other, each known alone from other queries."""
    both = "SELECT r.a FROM r [RANGE 4 SECONDS], s [RANGE 4 SECONDS] WHERE r.a = s.a AND r.b = s.b"
    streams = Streams(np.random.default_rng(6))
    streams.query(both, "both")
    streams.query("SELECT r.a FROM r [RANGE 4 SECONDS], s [RANGE 4 SECONDS] WHERE r.a = s.a", "first")
    streams.query("SELECT r.a FROM r [RANGE 4 SECONDS], s [RANGE 4 SECONDS] WHERE r.b = s.b", "second")
    streams.batches(16, equal(20))
    found = streams.session.measured()
    assert found.selectivities["r.a = s.a"] == pytest.approx(1 / 20, rel=0.2)
    assert found.selectivities["r.b = s.b"] == pytest.approx(1 / 20, rel=0.2)
    assert found.joint == {("r.a = s.a", "r.b = s.b"): pytest.approx(20, rel=0.2)}
    assert predicted(streams.session, both, found, ("r", "s")) == pytest.approx(1 / 20, rel=0.2)


def skewed_middle(rng: np.random.Generator, name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """In s, a and b are equal, and the same values are frequent in r.a and in t.b."""
    frequent = np.where(rng.random(rows) < 0.5, 0, rng.integers(0, 40, rows))
    uniform = rng.integers(0, 40, rows)
    return (uniform, uniform) if name == "s" else (frequent, frequent)


FREQUENT = 0.5 + 0.5 / 40
ALL_EQUAL = (FREQUENT**2 + 39 * (0.5 / 40) ** 2) / 40  # of r, s and t


def test_predicates_among_three_inputs_that_go_together() -> None:
    """The results of the whole join are predicted, which the product of its selectivities does not."""
    streams = Streams(np.random.default_rng(7), HalfLife(8, 1000))
    streams.session.query(CHAIN, name="chain", sink=weft.to_memory(), strategy="flat")
    streams.batches(24, skewed_middle)
    found = streams.session.measured()
    assert found.selectivities["r.a = s.a"] == pytest.approx(1 / 40, rel=0.25)
    assert found.selectivities["s.b = t.b"] == pytest.approx(1 / 40, rel=0.25)
    assert found.joint == {("r.a = s.a", "s.b = t.b"): pytest.approx(ALL_EQUAL * 40**2, rel=0.2)}
    assert predicted(streams.session, CHAIN, found, ("r", "s", "t")) == pytest.approx(ALL_EQUAL, rel=0.25)
    streams.batches(60, independent(40, 40))
    assert streams.session.measured().joint == {}


def test_what_is_only_checked_later_is_predicted_too() -> None:
    """If a predicate is only ever checked for an intermediate result, one figure says all there is to say."""
    streams = Streams(np.random.default_rng(7))
    streams.session.query(CHAIN, name="chain", sink=weft.to_memory(), strategy="left_deep")
    streams.batches(24, skewed_middle)
    found = streams.session.measured()
    assert predicted(streams.session, CHAIN, found, ("r", "s", "t")) == pytest.approx(ALL_EQUAL, rel=0.25)


@pytest.mark.parametrize("seed", quick(range(4)))
def test_independent_predicates_are_not_called_correlated(seed: int) -> None:
    """Whatever the strategy; a factor where there is none would only be noise in the estimates."""
    streams = Streams(np.random.default_rng(seed))
    sql = f"{CHAIN} AND r.b < 5 AND r.a < 8"
    streams.session.query(sql, name="chain", sink=weft.to_memory(), strategy=("flat", "left_deep")[seed % 2])
    streams.query(
        "SELECT r.a FROM r [RANGE 4 SECONDS], t [RANGE 4 SECONDS] WHERE r.a = t.a AND r.b < t.b", "n"
    )
    streams.batches(24, independent(12, 15))
    assert streams.session.measured().joint == {}


@pytest.mark.parametrize("seed", quick(range(12), 4))
def test_random_joins_are_predicted_as_they_were_observed(seed: int) -> None:
    """Any join graph, predicates of all kinds, intermediate results or none: the results per second come out right."""
    case = random_case(seed, least=2, most=3)
    window = Range(timedelta(seconds=3))
    query = replace(case.query, inputs=tuple(replace(one, window=window) for one in case.query.inputs))
    options = Options(partitions=2, strategy=("flat", "left_deep", "auto")[seed % 3])
    runner = LocalRunner(lower(optimise(query, case.statistics, options)))
    recent, rng, results = RecentStatistics(HalfLife(8, 1000)), np.random.default_rng(seed), 0
    for second in range(32):
        begin, data = second * 1_000_000, {}
        for stream in sorted({one.stream.name for one in query.inputs}):
            times = np.sort(rng.integers(begin, begin + 1_000_000, 30))
            columns = {f"c{place}": rng.integers(0, 6, 30) for place in range(4)}
            data[stream] = pa.table({**columns, "ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})
        found = runner.process_all(data, now=begin)
        results += sum(table.num_rows for table in found.values()) if second >= 16 else 0
        if second % 5 == 4:
            recent.statistics(case.statistics, runner.loop.history)
    statistics = recent.statistics(case.statistics, runner.loop.history)
    assert all(0 < value <= 1 for value in statistics.selectivities.values())
    assert Known.from_json(recent.known.to_json()) == recent.known
    estimator = Estimator(query, statistics)
    expected = estimator.rate(estimator.mask(query.aliases))
    if results > 160:
        assert results / 16 == pytest.approx(expected, rel=0.4), query


@pytest.mark.ci
def test_folding_costs_little() -> None:
    """A small batch takes 19 ms; what is added for each must not be seen next to it."""
    streams = Streams(np.random.default_rng(8), rows=10)
    streams.query(CHAIN, "chain")
    streams.query(CHAIN.replace("r.a = s.a", "r.b = s.a"), "other")
    streams.batches(2, independent(10, 10))
    streams.session.measured()
    streams.batches(100, independent(10, 10))
    began = time.perf_counter()
    streams.session.measured()
    assert (time.perf_counter() - began) / 100 < 0.002  # some 0.1 ms where nobody else computes


def test_half_lives_count_in_seconds_too() -> None:
    """What passes first counts."""
    assert HalfLife(16, 60).passed(1, 30) == 0.5
    assert HalfLife(16, 60).passed(8, 3) == 0.5
    assert HalfLife(math.inf, math.inf).passed(8, 3) == 0
    with pytest.raises(weft.WeftError, match="more than 0"):
        HalfLife(0, 60)
