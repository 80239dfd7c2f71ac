"""Histograms that can be added up, and how exact their quantiles are."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels.ages import ages_of_pairs, ages_of_times, count_by_query, count_classes
from weft.logical.codec import decode, encode
from weft.stats.histogram import BITS, CLASSES, NEGATIVE, Histogram, Latency, class_of, micros_of

DAYS = 40 * 86_400_000_000
SPANS = st.lists(st.integers(0, DAYS) | st.integers(0, 2_000), max_size=60)
AGES = st.lists(st.integers(-(1 << 61), 1 << 61) | st.integers(-3, 5_000), max_size=60)


@given(SPANS, SPANS, SPANS)
def test_the_order_of_adding_does_not_matter(one: list[int], two: list[int], three: list[int]) -> None:
    """Counts of tasks, batches and queries are added up as they come."""
    a, b, c = map(Histogram.of, (one, two, three))
    assert (a + b) + c == a + (b + c) == Histogram.sum([c, a, b]) == Histogram.of([*one, *two, *three])
    assert a + Histogram() == a == Histogram() + a


@given(SPANS.filter(bool), st.floats(0, 1), st.integers(0, DAYS))
def test_a_quantile_is_near_the_exact_one(spans: list[int], part: float, later: int) -> None:
    """Within 1.6 %, and within 3.2 % after all durations were lengthened."""
    exact = sorted(spans)[max(1, math.ceil(part * len(spans) - 1e-9)) - 1]
    found = Histogram.of(spans)
    assert abs(found.quantile(part) * 1e6 - exact) <= exact / 64 + 0.5
    assert abs(found.longer(later).quantile(part) * 1e6 - exact - later) <= (exact + later) / 31 + 1
    assert found.p50 <= found.p95 <= found.p99 <= found.max
    assert found.count == found.longer(later).count == len(spans)


@given(SPANS)
def test_histograms_survive_json(spans: list[int]) -> None:
    """They are in manifests and in reports of tasks."""
    found = Histogram.of(spans)
    assert decode(Histogram, json.loads(json.dumps(encode(found)))) == found
    assert Histogram.from_classes(found.classes) == found
    latency = Latency(found, found, 2)
    assert decode(Latency, json.loads(json.dumps(encode(latency)))) == latency


def test_nothing_has_no_latency() -> None:
    """A batch without results is no reason to divide by zero."""
    assert (Histogram().p50, Histogram().max, Histogram().mean, Latency().count) == (0, 0, 0, 0)


def test_what_is_ahead_of_the_clock_is_counted_and_clamped() -> None:
    """Event times may be anything; a latency is not negative."""
    ages = Latency(Histogram.of([0, 0]), Histogram.of([-5_000_000, 2_000_000]))
    found = ages.committed(1_000_000) + ages.committed(-7)
    assert found.ahead == 2
    assert [round(found.event.quantile(part), 1) for part in (0.25, 0.5, 0.75, 1)] == [0.0, 1.0, 2.0, 3.0]


@given(AGES)
def test_compiled_classes_are_the_same(ages: list[int]) -> None:
    """Tasks count by compiled code what the driver reads as plain Python."""
    times = np.array([7 - age for age in ages], np.int64)
    found = ages_of_times(times, 7, BITS)
    assert found.tolist() == [class_of(age) for age in ages]
    assert all(0 <= one < CLASSES for one in found.tolist())
    counts = np.zeros(CLASSES, np.int64)
    count_classes(found, counts)
    assert Histogram.from_counts(counts.tolist()) == Histogram.of(ages)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 7)), max_size=40))
def test_matches_are_as_old_as_their_newer_side(pairs: list[tuple[int, int, int]]) -> None:
    """And are counted for each query that they are for."""
    mine, theirs = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    rows, found = np.arange(len(pairs), dtype=np.int32), np.empty(len(pairs), np.int16)
    ages_of_pairs(mine, rows, theirs, rows, 10**9, BITS, found)
    assert found.tolist() == [class_of(10**9 - max(one, other)) for one, other, _ in pairs]
    counts = np.zeros((64, CLASSES), np.int64)
    sets = np.array([[which for *_, which in pairs]], np.int64)
    count_by_query(sets, np.array([0b101], np.int64), found, counts)
    for slot in range(3):
        mine_alone = [10**9 - max(a, b) for a, b, which in pairs if which >> slot & 1 and slot != 1]
        assert Histogram.from_counts(counts[slot].tolist()) == Histogram.of(mine_alone)


def test_classes_follow_each_other() -> None:
    """The middle of every class is in it, and classes grow by at most a thirty-second."""
    middles = [micros_of(number) for number in range(CLASSES)]
    assert middles == sorted(middles)
    large = range(class_of(1_000), CLASSES - 32)
    assert all(class_of(round(micros_of(number))) == number for number in large)
    assert class_of(-1) == NEGATIVE
