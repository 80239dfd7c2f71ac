"""What samples tell: selectivities of comparisons and bands, distinct counts, parts of NULL, and heavy values.

Guarantees: pure. An estimate comes with its variance, as far as theory gives it, so that the `evidence` of its figure
is (value / standard error)²: an evidence of n means a relative standard error of 1/√n, as if n matches were counted.

- The *distinct count* is k/θ, with k values below θ, and a relative standard error of √((1-θ)/k). Where tasks did not
  look at all tuples, what the others would add is extrapolated from how many values were seen once and twice
  (Chao et al., Ecological Monographs 84, 2014, equation 9).
- A *comparison* or a *band* is counted over all pairs of two ordered samples (Mann and Whitney's statistic), with the
  variance σ²_R / n_R + σ²_S / n_S + s / (n_R n_S), where σ² is that of the part of partners over one side's tuples.
  A band that so few pairs are in that they tell nothing is taken from the samples' distributions, made continuous.
- *Heavy values* are kept in the manifest, so that a session that is started again has them: `next_heavy` is a function
  of what the manifest before a batch has and of what the batch's tasks reported, so a batch that is repeated leaves the
  same. The optimiser decides whether the shares call for another plan (`optimizer/adaptation.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.stats.figure import Figure
from weft.stats.sampling.attributes import Attribute
from weft.stats.sampling.samples import AttributeSample, Sample, merge
from weft.stats.skew import HeavyShares, HeavyValue

__all__ = ["Between", "comparison", "distinct_count", "figure_of", "heavy_shares", "next_heavy", "null_share"]


Numbers = NDArray[np.float64]

LEAST_SHARE = 0.005  # a value with a smaller share than this is not heavy
MOST_HEAVY = 32  # at most so many values of an attribute are heavy
FEW_PAIRS = 30  # a band with fewer pairs in the samples is taken from continuous distributions


@dataclass(frozen=True, slots=True)
class Between:
    """A condition on the difference of two values: above ``low`` and below ``high``, where None is no bound.

    A difference that is equal to a bound fulfils the condition unless the bound is open.
    """

    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False


def distinct_count(sample: Sample) -> Figure:
    """How many different values there are among the tuples that a sample stands for."""
    values, part = float(sample.hashes.size), sample.part
    once, twice = (float(np.count_nonzero(sample.seen == number)) for number in (1, 2))
    unseen = once * (once - 1) / (2 * (twice + 1)) / part
    more = sample.tuples - sample.tuples_looked_at
    if unseen and more:
        known = sample.tuples_looked_at * unseen + once / part
        unseen *= 1 - (1 - once / part / known) ** more
    count = values / part + (unseen if more else 0.0)
    missed = 1 - part
    evidence = min(float(sample.tuples_looked_at), values / missed if missed else math.inf)
    return Figure(max(1.0, count), "sampled", evidence, sample.batch)


def null_share(sample: Sample) -> Figure:
    """The part of the tuples that have no value."""
    return Figure(sample.null_share, "sampled", sample.looked, sample.batch)


def heavy_shares(sample: Sample) -> tuple[tuple[HeavyValue, float], ...]:
    """The heavy values of an attribute and their shares of the tuples that have a value, the largest first."""
    with_value = max(1.0, sample.rows - sample.nulls)
    known = [(value, count / with_value) for value, count in sample.common.values() if value is not None]
    ranked = sorted(known, key=lambda item: (-item[1], str(item[0])))
    return tuple((value, _short(share)) for value, share in ranked[:MOST_HEAVY] if share >= LEAST_SHARE)


def _short(share: float) -> float:
    """A share in few digits, rounded down, so that the sum of all shares never exceeds 1."""
    return math.floor(share * 1e6) / 1e6


def comparison(left: Sample, right: Sample, between: Between) -> Figure:
    """The part of pairs for which the difference left - right is between bounds."""
    batch = max(left.batch, right.batch)
    if not (left.ordered.size and right.ordered.size):
        return Figure(0.0, "sampled", 0.0, batch)
    mine, theirs = left.weights / left.weights.sum(), right.weights / right.weights.sum()
    other = Between(_minus(between.high), _minus(between.low), between.high_open, between.low_open)
    partners = _partners(left.ordered, right.ordered, theirs, between)
    found = float(mine @ partners)
    sizes = [1 / float(np.sum(side**2)) for side in (mine, theirs)]
    if found * sizes[0] * sizes[1] < FEW_PAIRS:
        found = max(
            _continuous(left.ordered, mine, right.ordered, theirs, between), 0.5 / sizes[0] / sizes[1]
        )
    reverse = _partners(right.ordered, left.ordered, mine, other)
    spread = [float(a @ (b - found) ** 2) for a, b in ((mine, partners), (theirs, reverse))]
    variance = spread[0] / sizes[0] + spread[1] / sizes[1] + found / (sizes[0] * sizes[1])
    with_value = (1 - left.null_share) * (1 - right.null_share)
    return figure_of(with_value * found, with_value**2 * variance, batch)


def _minus(bound: float | None) -> float | None:
    return None if bound is None else -bound


def _partners(values: Numbers, others: Numbers, weights: Numbers, between: Between) -> Numbers:
    """For each value, the weight of the others from which its difference is between the bounds."""
    edges = np.concatenate(([0.0], np.cumsum(weights)))
    first, last = np.zeros(values.size, np.int64), np.full(values.size, others.size, np.int64)
    if between.high is not None:
        first = np.searchsorted(others, values - between.high, "right" if between.high_open else "left")
    if between.low is not None:
        last = np.searchsorted(others, values - between.low, "left" if between.low_open else "right")
    found: Numbers = np.maximum(0.0, edges[last] - edges[first])
    return found


def _continuous(left: Numbers, mine: Numbers, right: Numbers, theirs: Numbers, between: Between) -> float:
    """The part of pairs if the values between two neighbours in a sample are equally likely."""
    middle = np.cumsum(theirs) - theirs / 2
    low, high = between.low, between.high
    upper = 1.0 if low is None else np.interp(left - low, right, middle, 0.0, 1.0)
    lower = 0.0 if high is None else np.interp(left - high, right, middle, 0.0, 1.0)
    return float(mine @ np.maximum(0.0, np.broadcast_to(upper - lower, left.shape)))


def figure_of(value: float, variance: float, batch: int) -> Figure:
    """The figure of an estimate with a variance."""
    evidence = value**2 / variance if variance > 0 else 0.0
    return Figure(value, "sampled", evidence, batch)


NEWEST = 0.5  # The weight of a new sample; all earlier ones together have the rest.

Shares = tuple[tuple[HeavyValue, float], ...]


def next_heavy(before: HeavyShares, reports: Iterable[AttributeSample]) -> dict[str, dict[str, Shares]]:
    """The share of each heavy value after a batch, from the shares before it and the samples of its tasks."""
    samples: dict[Attribute, list[Sample]] = {}
    for report in reports:
        if report.looked and report.hashes:
            samples.setdefault(report.attribute, []).append(Sample.from_report(report, 0))
    shares = {stream: dict(columns) for stream, columns in before.items()}
    for attribute, some in sorted(samples.items()):
        columns = shares.setdefault(attribute.stream, {})
        new = heavy_shares(merge(some, [1.0] * len(some)))
        columns[attribute.name] = _merged(columns.get(attribute.name), new)
    return shares


def _merged(old: Shares | None, new: Shares) -> Shares:
    if old is None:
        return new
    before, now = dict(old), dict(new)
    every = [*before, *(value for value in now if value not in before)]
    shares = {v: NEWEST * now.get(v, 0.0) + (1 - NEWEST) * before.get(v, 0.0) for v in every}
    ranked = sorted(shares.items(), key=lambda item: (-item[1], str(item[0])))
    return tuple((value, _short(share)) for value, share in ranked[:MOST_HEAVY] if share >= LEAST_SHARE)
