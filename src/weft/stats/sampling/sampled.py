"""The statistics that samples give of queries: selectivities of their join predicates, distinct counts, heavy values.

Guarantees: pure. There are figures for every predicate whose two sides are sampled, also for one that no probe has ever
checked; filters are not among them.

An equality of attributes R and S lets through s = Σ p_R(v) p_S(v) of all pairs, where p(v) is the part of tuples that
have the value v. The values are of two kinds:

- Those that are *common* in R or in S are counted one by one. One that is common in R and that the sample of S does not
  know (it is neither common there nor below its threshold) is taken to be as frequent in S as known values are on
  average that are about as frequent in R.
- All others are *light*. Those below the common threshold θ stand for all: their sum is divided by θ (Horvitz and
  Thompson), which is unbiased since a hash tells nothing about a value.

The variance is Σ x²(1-θ)/θ² over the light x = p_R(v) p_S(v), plus what comes of having looked at n_R and n_S tuples
only, (Σ p_R p_S² - s²) / n_R + (Σ p_S p_R² - s²) / n_S + s / (n_R n_S), plus that of the frequencies that were taken
from others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from weft.logical.expr.bounds import Bound
from weft.logical.expr.expression import Call, Expr
from weft.logical.query.query import Query
from weft.stats.figure import Figure
from weft.stats.sampling.attributes import Attribute, attribute_of, bands_of, comparisons_of, equalities_of
from weft.stats.sampling.estimates import (
    Between,
    comparison,
    distinct_count,
    figure_of,
    heavy_shares,
    null_share,
)
from weft.stats.sampling.samples import EVERY_HASH, Sample
from weft.stats.skew import HeavyShares
from weft.stats.statistics import predicate_name

__all__ = ["SampledStatistics", "equality", "sampled_statistics"]


Samples = Mapping[Attribute, Sample]


@dataclass(frozen=True, slots=True)
class SampledStatistics:
    """What samples tell: ``selectivities`` by `predicate_name`, all else by stream and name of the attribute.

    ``distinct`` are the numbers of different values, ``nulls`` the parts of tuples without a value, and ``heavy`` the
    heavy values with their shares. An attribute that is no column goes by its text (`weft.stats.sampling.attributes`).
    """

    selectivities: Mapping[str, Figure] = field(default_factory=dict)
    distinct: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    nulls: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    heavy: HeavyShares = field(default_factory=dict)


def sampled_statistics(samples: Samples, queries: Iterable[Query]) -> SampledStatistics:
    """What the samples of attributes (`SampleHistory.merged`) tell about queries.

    Of the two bounds of a band, each gets the square root of the band's selectivity, as in `Statistics.given`.
    """
    selectivities: dict[str, Figure] = {}
    for query in queries:
        selectivities |= _equalities(samples, query, selectivities)
        selectivities |= _comparisons(samples, query)
    distinct: dict[str, dict[str, Figure]] = {}
    nulls: dict[str, dict[str, Figure]] = {}
    heavy: dict[str, dict[str, tuple[tuple[int | str, float], ...]]] = {}
    for attribute, sample in sorted(samples.items()):
        nulls.setdefault(attribute.stream, {})[attribute.name] = null_share(sample)
        if sample.hashes.size:
            distinct.setdefault(attribute.stream, {})[attribute.name] = distinct_count(sample)
            heavy.setdefault(attribute.stream, {})[attribute.name] = heavy_shares(sample)
    return SampledStatistics(selectivities, distinct, nulls, heavy)


def _equalities(samples: Samples, query: Query, known: Mapping[str, Figure]) -> dict[str, Figure]:
    found = {}
    for predicate, left, right in equalities_of(query):
        one, other = attribute_of(query, left), attribute_of(query, right)
        name = predicate_name(query, predicate)
        sides = [samples[a] for a in (one, other) if a in samples and samples[a].hashes.size]
        if len(sides) == 2 and name not in known:
            found[name] = equality(*sides, same=one == other)
    return found


def _comparisons(samples: Samples, query: Query) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for band in bands_of(query):
        between = Between(band.low.shift, band.high.shift, _is_open(band.low), _is_open(band.high))
        figure = _compared(samples, query, band.low, between)
        if figure is not None:
            each = replace(figure, value=math.sqrt(figure.value))
            found |= {predicate_name(query, bound.predicate): each for bound in (band.low, band.high)}
    for bound in comparisons_of(query):
        name = predicate_name(query, bound.predicate)
        if name not in found:
            low = bound.limit.lower
            between = (
                Between(low=bound.shift, low_open=_is_open(bound))
                if low
                else Between(high=bound.shift, high_open=_is_open(bound))
            )
            figure = _compared(samples, query, bound, between)
            if figure is not None:
                found[name] = figure
    return found


def _compared(samples: Samples, query: Query, bound: Bound, between: Between) -> Figure | None:
    names = [attribute_of(query, side) for side in (bound.stored, bound.base)]
    sides = [samples[name] for name in names if name in samples and samples[name].ordered.size]
    return comparison(sides[0], sides[1], between) if len(sides) == 2 else None


def _is_open(bound: Bound) -> bool:
    predicate: Expr = bound.predicate
    return isinstance(predicate, Call) and predicate.function == "<"


Hashes = NDArray[np.uint64]
Numbers = NDArray[np.float64]

FEW = 8  # so few sampled values tell nothing by having no partner
ALIKE = 24  # a frequency that is not known is taken from so many values


def equality(left: Sample, right: Sample, *, same: bool = False) -> Figure:
    """The selectivity of an equality between two attributes, or, if ``same``, of one attribute with itself."""
    pairs = _Pairs.of(left, right)
    common, light, part = pairs.common(same), pairs.light(same), pairs.part
    total = float(common.sum() + light.sum() / part)
    if total <= 0:
        return _no_partners(pairs)
    sampling = float(np.sum(light**2)) * (1 - part) / part**2
    variance = sampling + pairs.variance_of_rows(total) + pairs.taken_from_others
    return figure_of(min(1.0, total), variance, max(left.batch, right.batch))


def _no_partners(pairs: _Pairs) -> Figure:
    """The selectivity of an equality for which the samples have no pair.

    If both had values enough, half a pair is assumed; if one had too few to tell, that the values of the side that has
    fewer occur in the other.
    """
    left, right = pairs.left, pairs.right
    batch, fewer = max(left.batch, right.batch), min(pairs.sizes)
    if fewer >= FEW:
        least = 0.5 / (pairs.part * max(1.0, left.rows) * max(1.0, right.rows))
        return Figure(min(1.0, least), "sampled", float(fewer), batch)
    with_value = (1 - left.null_share) * (1 - right.null_share)
    most = max(1.0, distinct_count(left).value, distinct_count(right).value)
    return Figure(with_value / most, "sampled", 1.0, batch)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """The values that two samples know: for each, the part of the tuples of either side that have it.

    ``common_*`` are those that are common on one side, and ``light_*`` those below the threshold of both, of which the
    samples have the ``part``. ``sizes`` says how many light values each side has below that threshold. The shares that
    were ``taken_from_others`` add this much to the variance.
    """

    left: Sample
    right: Sample
    part: float
    common_left: Numbers
    common_right: Numbers
    light_left: Numbers
    light_right: Numbers
    sizes: tuple[int, int]
    taken_from_others: float

    @classmethod
    def of(cls, left: Sample, right: Sample) -> _Pairs:
        """The values of two samples."""
        threshold = min(left.threshold, right.threshold)
        common = np.array(sorted({*left.common, *right.common}), np.uint64)
        sampled = np.union1d(left.hashes, right.hashes)
        below = sampled <= threshold if threshold == EVERY_HASH else sampled < threshold
        light = sampled[below & ~np.isin(sampled, common)]
        mine, theirs = (_shares(sample, np.concatenate([common, light])) for sample in (left, right))
        in_left, more = _filled(mine, theirs)
        in_right, yet_more = _filled(theirs, mine)
        size = common.size
        both = (in_left[size:] > 0) & (in_right[size:] > 0)
        return cls(
            left,
            right,
            min(left.part, right.part),
            in_left[:size],
            in_right[:size],
            in_left[size:][both],
            in_right[size:][both],
            (int(np.count_nonzero(in_left[size:])), int(np.count_nonzero(in_right[size:]))),
            more + yet_more,
        )

    def common(self, same: bool) -> Numbers:
        """The part of all pairs that each value has which is common on one side."""
        return self._products(self.common_left, self.common_right, same)

    def light(self, same: bool) -> Numbers:
        """The part of all pairs that each of the other values has."""
        return self._products(self.light_left, self.light_right, same)

    def _products(self, left: Numbers, right: Numbers, same: bool) -> Numbers:
        """Products of shares; of one sample with itself, without the pairs of a tuple with itself."""
        if not same:
            return left * right
        return np.maximum(0.0, left * right - left / max(1.0, self.left.looked))

    def variance_of_rows(self, total: float) -> float:
        """The variance that comes of having looked at some tuples only."""
        seen = (max(1.0, self.left.looked), max(1.0, self.right.looked))
        a, b, c, d = self.common_left, self.common_right, self.light_left, self.light_right
        by_left = float(np.sum(a * b**2) + np.sum(c * d**2) / self.part)
        by_right = float(np.sum(b * a**2) + np.sum(d * c**2) / self.part)
        squares = max(0.0, by_left - total**2) / seen[0] + max(0.0, by_right - total**2) / seen[1]
        return squares + total / (seen[0] * seen[1])


def _shares(sample: Sample, hashes: Hashes) -> Numbers:
    """The part of tuples that have each of some values; NaN where the sample does not know it."""
    has_all = sample.threshold == EVERY_HASH
    found = np.where(has_all | (hashes < sample.threshold), 0.0, np.nan)
    keys = np.array(sorted(sample.common), np.uint64)
    counts = np.array([sample.common[key][1] for key in keys.tolist()], np.float64)
    for known, numbers in ((keys, counts), (sample.hashes, sample.counts)):
        if known.size:
            places = np.minimum(np.searchsorted(known, hashes), known.size - 1)
            there = known[places] == hashes
            found[there] = numbers[places[there]]
    return found / max(1.0, sample.rows)


def _filled(shares: Numbers, others: Numbers) -> tuple[Numbers, float]:
    """The shares of values in a sample, where those that it does not know are taken from values like them.

    ``others`` are the shares of the same values in the other sample. Values are alike if their shares there are. The
    second result is the variance that this adds to the sum of products of shares.
    """
    unknown = np.isnan(shares)
    known = ~unknown & ~np.isnan(others) & (others > 0)
    if not unknown.any() or not known.any():
        return np.nan_to_num(shares), 0.0
    asked, given = np.log(others[unknown]), np.log(others[known])
    alike = min(ALIKE, given.size)
    nearest = np.argsort(np.abs(asked[:, None] - given[None, :]), axis=1, kind="stable")[:, :alike]
    taken = shares[known][nearest]
    found, spread = taken.mean(axis=1), taken.var(axis=1)
    weights = others[unknown]
    alone, together = float(weights**2 @ spread), float((weights @ np.sqrt(spread)) ** 2) / alike
    filled = shares.copy()
    filled[unknown] = found
    return filled, alone + together
