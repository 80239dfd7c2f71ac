"""Samples: merging them, and what they tell, compared with counting everything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from weft.stats.sampling.attributes import Attribute
from weft.stats.sampling.estimates import (
    Between,
    comparison,
    distinct_count,
    heavy_shares,
    null_share,
)
from weft.stats.sampling.sampled import equality
from weft.stats.sampling.samples import EVERY_HASH, AttributeSample, Common, Sample, SampleHistory, merge

Values = NDArray[np.int64]
ATTRIBUTE = Attribute("r", "k")


def hash_of(value: int) -> int:
    """A hash of a value, for tests: SplitMix."""
    bits = (value + 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)


def report(values: Values, kept: int = 256, *, nulls: int = 0, rows: int | None = None) -> AttributeSample:
    """What a task reports that looked at these values, and at some NULLs."""
    counts = Counter(values.tolist())
    ranked = sorted((hash_of(value), count) for value, count in counts.items())
    threshold = ranked[kept][0] if len(ranked) > kept else EVERY_HASH
    common = tuple(Common(v, hash_of(v), n) for v, n in counts.most_common(32) if n >= 5)
    looked = values.size + nulls
    ordered = tuple(np.sort(values[:: max(1, values.size // 256)]).astype(float).tolist())
    return AttributeSample(
        ATTRIBUTE,
        looked if rows is None else rows,
        looked,
        nulls,
        threshold,
        tuple(hashed for hashed, _ in ranked[:kept]),
        tuple(count for _, count in ranked[:kept]),
        common,
        ordered,
    )


def sample(values: Values, kept: int = 256, *, nulls: int = 0) -> Sample:
    """A sample of these values."""
    return Sample.from_report(report(values, kept, nulls=nulls), 0)


def zipf(rng: np.random.Generator, exponent: float, keys: int, rows: int) -> Values:
    """Values whose frequencies follow Zipf's law."""
    weights = np.arange(1, keys + 1) ** -exponent
    return rng.choice(keys, rows, p=weights / weights.sum()).astype(np.int64)


def exact(left: Values, right: Values) -> float:
    """The part of all pairs that are equal."""
    mine, theirs = Counter(left.tolist()), Counter(right.tolist())
    return sum(count * theirs[value] for value, count in mine.items()) / (left.size * right.size)


def uniform(rng: np.random.Generator) -> tuple[Values, Values]:
    return rng.integers(0, 5_000, 20_000), rng.integers(0, 8_000, 10_000)


def skewed(rng: np.random.Generator) -> tuple[Values, Values]:
    return zipf(rng, 1.2, 10_000, 20_000), zipf(rng, 0.8, 10_000, 20_000)


def one_heavy(rng: np.random.Generator) -> tuple[Values, Values]:
    heavy = rng.integers(0, 10_000, 20_000)
    heavy[:10_000] = 42
    return heavy, rng.permutation(np.repeat(np.arange(10_000), 2))


@pytest.mark.parametrize("draw", [uniform, skewed, one_heavy])
def test_equalities_are_estimated_without_bias_and_within_their_error(
    draw: Callable[[np.random.Generator], tuple[Values, Values]],
) -> None:
    """Over many draws, errors are as large as the evidence says, and their mean is small."""
    errors, scores = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        left, right = (side + 20_000 * seed for side in draw(rng))  # other values have other hashes
        figure, truth = equality(sample(left), sample(right)), exact(left, right)
        errors.append(figure.value / truth - 1)
        scores.append((figure.value / truth - 1) * math.sqrt(figure.evidence))
    assert abs(np.mean(errors)) < 0.1
    assert np.sqrt(np.mean(np.square(scores))) < 1.5
    assert np.sqrt(np.mean(np.square(errors))) < 0.25


def test_all_values_give_the_exact_selectivity() -> None:
    """As long as there are no more than a sample keeps; NULL joins nothing."""
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 90, 3_000), rng.integers(50, 200, 2_000)
    assert equality(sample(left), sample(right)).value == pytest.approx(exact(left, right))
    with_nulls = equality(sample(left, nulls=3_000), sample(right)).value
    assert with_nulls == pytest.approx(exact(left, right) / 2)
    assert null_share(sample(left, nulls=1_000)).value == pytest.approx(0.25)


def test_values_that_have_no_partner_are_told_from_too_small_a_sample() -> None:
    """Two streams of different keys have next to no pairs; a handful of keys among many may have some."""
    rng = np.random.default_rng(2)
    apart = equality(sample(rng.permutation(9_000)), sample(rng.permutation(9_000) + 9_000))
    assert apart.value < 1e-5
    assert apart.evidence > 50
    many, few = np.arange(200_000) * 7, np.arange(4) * 7
    assert equality(sample(many), sample(few)).value == pytest.approx(1 / 200_000, rel=0.3)
    assert equality(sample(many), sample(few)).evidence <= 1


def test_a_stream_joined_with_itself_does_not_count_a_tuple_as_its_own_partner() -> None:
    """Else keys that rarely come twice would seem to match far too often."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 50_000, 20_000)
    found = equality(sample(values, 2_000), sample(values, 2_000), same=True)
    assert found.value == pytest.approx(1 / 50_000, rel=0.25)


@pytest.mark.parametrize("keys", [100, 3_000, 100_000])
def test_distinct_values_are_counted(keys: int) -> None:
    """Exactly if they are few, and within the error of the sample if they are many."""
    values = np.random.default_rng(keys).integers(0, keys, 50_000)
    figure, truth = distinct_count(sample(values)), np.unique(values).size
    assert abs(figure.value / truth - 1) <= 3 / math.sqrt(figure.evidence)
    assert keys > 256 or figure.value == truth


def test_distinct_values_among_tuples_that_nobody_looked_at_are_extrapolated() -> None:
    """A tenth of the tuples shows a third of the values, and tells how many there are."""
    values = np.random.default_rng(5).integers(0, 20_000, 100_000)
    looked = report(values[:10_000], 2_000, rows=100_000)
    figure = distinct_count(Sample.from_report(looked, 0))
    assert figure.value == pytest.approx(np.unique(values).size, rel=0.2)


BETWEENS = [
    Between(high=0.0, high_open=True),
    Between(high=0.0),
    Between(low=-50.0, low_open=True),
    Between(low=-100.0, high=100.0),
    Between(low=-100.0, high=100.0, low_open=True, high_open=True),
    Between(low=900.0, high=900.5),
]


@pytest.mark.parametrize("between", BETWEENS, ids=str)
def test_comparisons_are_counted_over_the_pairs_of_two_samples(between: Between) -> None:
    """Compared with all pairs of the samples; with more values, of all tuples."""
    rng = np.random.default_rng(7)
    left, right = rng.integers(0, 1_000, 256), rng.integers(200, 1_200, 200)
    difference = left[:, None].astype(float) - right[None, :]
    fits = np.ones(difference.shape, np.bool_)
    if between.low is not None:
        fits &= difference > between.low if between.low_open else difference >= between.low
    if between.high is not None:
        fits &= difference < between.high if between.high_open else difference <= between.high
    found = comparison(sample(left), sample(right), between)
    if fits.sum() >= 30:
        assert found.value == pytest.approx(fits.mean())
    assert 0 < found.value <= 1
    assert found.evidence > 0


def test_a_narrow_band_is_taken_from_the_distributions() -> None:
    """Two samples of 256 values have too few pairs that are so close."""
    rng = np.random.default_rng(9)
    left, right = rng.integers(0, 10**6, 10_000), rng.integers(0, 10**6, 10_000)
    found = comparison(sample(left), sample(right), Between(-20.0, 20.0))
    assert found.value == pytest.approx(40 / 10**6, rel=0.3)


def test_merging_does_not_depend_on_order_or_grouping() -> None:
    """Tasks end in any order, and batches are merged again and again."""
    rng = np.random.default_rng(4)
    parts = [sample(zipf(rng, 1.0, 3_000, 4_000), 64) for _ in range(4)]
    once = merge(parts, [1.0, 0.5, 0.25, 0.5])
    pairs = [merge(parts[2:], [0.5, 1.0]), merge(parts[:2], [1.0, 0.5])]
    twice = merge(pairs, [0.5, 1.0])
    for name in ("rows", "looked", "nulls", "threshold", "batch", "tuples", "tuples_looked_at"):
        assert getattr(once, name) == pytest.approx(getattr(twice, name))
    for name in ("hashes", "counts", "seen", "ordered"):
        np.testing.assert_allclose(getattr(once, name), getattr(twice, name))
    assert once.common.keys() == twice.common.keys()


def test_a_merged_sample_is_that_of_all_tuples() -> None:
    """Whether one task reads all tuples or several read parts of them."""
    values = zipf(np.random.default_rng(6), 1.0, 3_000, 8_000)
    whole = sample(values)
    merged = merge([sample(values[:3_000]), sample(values[3_000:])], [1.0, 1.0])
    below = whole.hashes < merged.threshold
    np.testing.assert_array_equal(merged.hashes[merged.hashes < whole.threshold], whole.hashes[below])
    assert merged.trimmed(100).hashes.tolist() == whole.trimmed(100).hashes.tolist()
    assert merged.trimmed(100).threshold == whole.trimmed(100).threshold
    assert merged.trimmed(100).weights.sum() == pytest.approx(merged.weights.sum())
    assert merged.trimmed(100).ordered.size == 100


def test_what_was_long_ago_weighs_less() -> None:
    """After a few half-lives the new values are all that counts, and the sample stays small."""
    history = SampleHistory(half_life=4)
    history.add(0, [report(np.full(1_000, 1)), report(np.full(1_000, 3))])
    assert dict(heavy_shares(history.merged()[ATTRIBUTE])) == {1: 0.5, 3: 0.5}
    history.add(4, [report(np.full(1_000, 2))])
    merged = history.merged()[ATTRIBUTE]
    assert dict(heavy_shares(merged)) == {1: 0.25, 2: 0.5, 3: 0.25}
    assert merged.batch == 4
    for number in range(8, 60, 4):
        history.add(number, [report(np.full(1_000, 2))])
    assert dict(heavy_shares(history.merged()[ATTRIBUTE])) == {2: pytest.approx(1.0, abs=0.02)}
    assert len(history._samples[ATTRIBUTE]) <= 7
    history.add(99, [AttributeSample(ATTRIBUTE, 0, 0, 0)])
    assert history.merged()[ATTRIBUTE].batch == 56
