"""Estimates: what is given is used, what is not has a documented default, and nonsense is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.random_cases import random_case
from tests.shares import examples
from tests.unit.optimizer.queries import join, rates
from tests.unit.stats.queries import query
from weft.errors import StatisticsError
from weft.stats.estimate import Estimator, bits
from weft.stats.statistics import DEFAULTS, Statistics, StreamStatistics, predicate_name


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("v.x = 3", DEFAULTS.equal),
        ("v.x <> 3", 1 - DEFAULTS.equal),
        ("v.x < 3", DEFAULTS.compare),
        ("v.x BETWEEN 3 AND 5", DEFAULTS.compare**2),
        ("v.x IN (1, 2, 3)", 3 * DEFAULTS.equal),
        ("v.s LIKE 'a%'", DEFAULTS.like),
        ("v.s IS NULL", DEFAULTS.null),
        ("v.s IS NOT NULL", 1 - DEFAULTS.null),
        ("(v.x = 3 OR v.s LIKE 'a%')", 1 - (1 - DEFAULTS.equal) * (1 - DEFAULTS.like)),
        ("v.k = 7", 1 / 500),
    ],
)
def test_filters_have_documented_selectivities(condition: str, expected: float) -> None:
    """A query can be planned before its first tuple arrives."""
    statistics = Statistics({"v": StreamStatistics(rate=100, distinct={"k": 500})})
    estimator = Estimator(query(f"SELECT v.k FROM v WHERE {condition}"), statistics)
    assert estimator.rates[0] == pytest.approx(100 * expected)


def test_given_selectivities_win() -> None:
    """Whatever the aliases, and whichever way round the predicate is written."""
    found = query("SELECT a.k FROM v [RANGE 1 SECOND] a, w [RANGE 1 SECOND] b WHERE b.k = a.k AND a.x = 3")
    given_ = {"v.k = w.k": 0.5, predicate_name(found, found.filters[0]): 0.25}
    statistics = Statistics({"v": StreamStatistics(rate=100), "w": StreamStatistics(rate=10)}, given_)
    estimator = Estimator(found, statistics)
    assert estimator.rates == [25, 10]
    assert estimator.selectivity(0b11) == 0.5


def test_transitive_keys_count_each_distinct_value_once() -> None:
    """a = b = c on 10, 100 and 1000 values: one in 100 · 1000 combinations, not one in 100 · 1000 · 1000."""
    found = query("SELECT v.k FROM v, w, c WHERE v.k = w.k AND w.k = c.k")
    counts = {"v": 10.0, "w": 100.0, "c": 1000.0}
    statistics = Statistics({n: StreamStatistics(distinct={"k": d}) for n, d in counts.items()})
    assert Estimator(found, statistics).selectivity(0b111) == pytest.approx(1 / (100 * 1000))


def test_an_event_time_band_narrows_the_window_and_is_not_counted_again() -> None:
    """As a selectivity too, it would make intermediate results look far too small."""
    band = "v.ts BETWEEN w.ts - INTERVAL '5' SECOND AND w.ts + INTERVAL '2' SECOND"
    text = f"SELECT v.k FROM v, w WHERE v.k = w.k AND {band}"
    statistics = Statistics(
        {"v": StreamStatistics(rate=100), "w": StreamStatistics(rate=10)}, {"v.k = w.k": 1.0}
    )
    estimator = Estimator(query(text), statistics)
    v, w = (query(text).aliases.index(name) for name in ("v", "w"))
    assert estimator.tuples(v, 0b11) == pytest.approx(100 * 10 * 2)  # w lies at most 2 s before v
    assert estimator.tuples(w, 0b11) == pytest.approx(10 * 100 * 5)


def test_count_windows_hold_their_count() -> None:
    """However fast the stream is."""
    found = query("SELECT v.k FROM v [ROWS 50], w [RANGE 10 SECONDS] WHERE v.k = w.k")
    estimator = Estimator(
        found, Statistics({"v": StreamStatistics(rate=1e6), "w": StreamStatistics(rate=10)})
    )
    assert estimator.size(1 << found.aliases.index("v")) == 50


def test_full_history_counts_only_partners_that_came_first() -> None:
    """Over one second of 100 tuples each: half of all pairs end with an R, a third of all triples."""
    found = join("R.a = S.a", "S.b = T.b")
    selectivity = {"R.a = S.a": 1.0, "S.b = T.b": 1.0}
    statistics = Statistics(rates(R=100, S=100, T=100).streams, selectivity, timedelta(seconds=1))
    estimator = Estimator(found, statistics)
    assert estimator.tuples(0, 0b011) == pytest.approx(100**2 / 2)
    assert estimator.tuples(0, 0b111) == pytest.approx(100**3 / 3)
    assert estimator.rate(0b111) == pytest.approx(100**3)


@given(st.integers(0, 5000))
@examples(20)
def test_estimates_are_sane(seed: int) -> None:
    """Never negative, never NaN; a set's rate is the sum over its last tuples."""
    case = random_case(seed)
    estimator = Estimator(case.query, case.statistics)
    for mask in range(1, 1 << len(case.query.inputs)):
        shares = [estimator.tuples(i, mask) for i in bits(mask)]
        assert all(share >= 0 for share in shares)
        assert estimator.rate(mask) == pytest.approx(sum(shares))
        assert estimator.size(mask) >= 0
        assert 0 <= estimator.selectivity(mask) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: StreamStatistics(rate=-1),
        lambda: StreamStatistics(rate=float("nan")),
        lambda: StreamStatistics(distinct={"k": 0}),
        lambda: Statistics(selectivities={"v.k = w.k": 1.5}),
        lambda: Statistics(horizon=timedelta(0)),
    ],
)
def test_nonsense_is_refused(wrong: object) -> None:
    """Better than a plan built on it."""
    with pytest.raises(StatisticsError):
        wrong()  # type: ignore[operator]


THREE = "SELECT v.k FROM v [RANGE 1 HOUR], w [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE v.k = w.k AND w.x = c.x"
SAME_RATE = {name: StreamStatistics(rate=100) for name in ("v", "w", "c")}
ALL_MATCH = {"v.k = w.k": 1.0, "c.x = w.x": 1.0}


def test_a_band_between_two_that_came_before_counts_too() -> None:
    """Of an hour of w and an hour of c, a v meets only the pairs that are within 2 s of each other."""
    band = "w.ts BETWEEN c.ts - INTERVAL '1' SECOND AND c.ts + INTERVAL '1' SECOND"
    estimator = Estimator(query(f"{THREE} AND {band}"), Statistics(SAME_RATE, ALL_MATCH))
    v = estimator.query.aliases.index("v")
    pairs = (100 * 3600) * (100 * 2)
    assert estimator.tuples(v, 0b111) == pytest.approx(100 * pairs, rel=0.01)


def test_equal_event_times_count_by_their_selectivity() -> None:
    """As a window of no width they would make everything behind them look free."""
    found = query("SELECT v.k FROM v [RANGE 10 SECONDS], w [RANGE 10 SECONDS] WHERE v.ts = w.ts")
    estimator = Estimator(found, Statistics(SAME_RATE, {"v.ts = w.ts": 0.001}))
    assert estimator.tuples(0, 0b11) == pytest.approx(100 * 1000 * 0.001)


def test_a_band_that_lies_back_counts_its_width() -> None:
    """Between 10 and 20 seconds before is ten seconds of tuples."""
    band = "w.ts BETWEEN v.ts - INTERVAL '20' SECOND AND v.ts - INTERVAL '10' SECOND"
    estimator = Estimator(
        query(f"SELECT v.k FROM v, w WHERE v.k = w.k AND {band}"), Statistics(SAME_RATE, ALL_MATCH)
    )
    v, w = (estimator.query.aliases.index(name) for name in ("v", "w"))
    assert estimator.tuples(v, 0b11) == pytest.approx(100 * 100 * 10)
    assert estimator.tuples(w, 0b11) == 0  # what lies back is never the last to come


def test_measured_figures_replace_given_ones() -> None:
    """What the runtime observed is what the next plan is made by."""
    before = Statistics(SAME_RATE, ALL_MATCH, origin="given")
    after = before.measured(10.0, {"v": 5000}, {"v.k = w.k": (1000.0, 10.0), "nothing": (0.0, 0.0)})
    assert after.stream("v").rate == 500
    assert after.stream("w").rate == 100
    assert after.selectivities == {"v.k = w.k": 0.01, "c.x = w.x": 1.0}
    assert after.origin == "measured"
    with pytest.raises(StatisticsError):
        before.measured(0.0, {}, {})
