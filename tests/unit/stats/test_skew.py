"""Heavy values: what is known of them is used, what cannot be is refused."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.unit.stats.queries import query
from weft.errors import StatisticsError
from weft.stats.estimate import Estimator
from weft.stats.skew import Distribution, agreement, joined_distribution
from weft.stats.statistics import Statistics, StreamStatistics


def test_a_key_that_is_heavy_on_both_sides_is_most_of_the_join() -> None:
    """A fifth of either side is 77 % of the pairs if the others are many: the reason for all of this."""
    sides = [Distribution({42: 0.2}, 10_000)] * 2
    assert agreement(sides) == pytest.approx(0.04 + 0.64 / 10_000)
    assert joined_distribution(sides).heavy[42] == pytest.approx(0.04 / (0.04 + 0.64 / 10_000))


def test_a_key_that_is_heavy_on_one_side_only_is_as_frequent_as_that_side_says() -> None:
    """The other side has it as often as any light value."""
    found = joined_distribution([Distribution({42: 0.5}, 100), Distribution({}, 100)])
    assert found.heavy[42] == pytest.approx(0.5, rel=0.02)


def test_agreement_is_that_of_tuples() -> None:
    """Counted over pairs of two streams with few values."""
    rng = random.Random(3)
    draw = [rng.choices(range(6), (40, 12, 12, 12, 12, 12), k=400) for _ in range(2)]
    counts = [Counter(values) for values in draw]
    pairs = sum(counts[0][v] * counts[1][v] for v in range(6)) / 400**2
    known = [Distribution({v: n / 400 for v, n in one.items()}, 1) for one in counts]
    assert agreement(known) == pytest.approx(pairs)
    assert joined_distribution(known).heavy[0] == pytest.approx(counts[0][0] * counts[1][0] / 400**2 / pairs)


def test_estimates_know_heavy_values() -> None:
    """Two streams with a heavy user in common have far more results than distinct counts say; so has a filter on it."""
    heavy = StreamStatistics(rate=100, distinct={"k": 1001}, heavy={"k": {7: 0.5}})
    statistics = Statistics({"v": heavy, "w": heavy})
    pair = query("SELECT a.k FROM v [RANGE 1 SECOND] a, w [RANGE 1 SECOND] b WHERE a.k = b.k")
    assert Estimator(pair, statistics).selectivity(0b11) == pytest.approx(0.25 + 0.25 / 1000)
    for constant, rate in ((7, 50), (8, 0.05)):
        one = query(f"SELECT v.k FROM v WHERE v.k = {constant}")
        assert Estimator(one, statistics).rates[0] == pytest.approx(rate)


@pytest.mark.parametrize(
    "shares", [{None: 0.5}, {True: 0.5}, {1.5: 0.5}, {1: 0.0}, {1: 1.1}, {1: 0.6, 2: 0.6}, {1: float("nan")}]
)
def test_nonsense_is_refused(shares: dict[Any, float]) -> None:
    """With the column's name."""
    with pytest.raises(StatisticsError, match="k"):
        StreamStatistics(heavy={"k": shares})


def test_what_was_measured_of_a_column_replaces_what_was_given_of_it() -> None:
    """A value that is heavy no longer is forgotten; other columns stay."""
    given = Statistics({"v": StreamStatistics(heavy={"k": {1: 0.5}, "x": {2: 0.5}})})
    found = given.with_heavy({"v": {"k": {3: 0.25}}, "w": {"k": {}}})
    assert found.stream("v").heavy == {"k": {3: 0.25}, "x": {2: 0.5}}
    assert given.with_heavy({}) is given
