"""The statistics that samples give of queries: selectivities of their join predicates, distinct counts, heavy values.

Guarantees: pure. There are figures for every predicate whose two sides are sampled, also for one that no probe has ever
checked; filters are not among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from weft.logical.expr.bounds import Bound
from weft.logical.expr.expression import Call, Expr
from weft.logical.query.query import Query
from weft.stats.attributes import Attribute, attribute_of, bands_of, comparisons_of, equalities_of
from weft.stats.figure import Figure
from weft.stats.sample_equality import equality
from weft.stats.sample_estimates import (
    Between,
    comparison,
    distinct_count,
    heavy_shares,
    null_share,
)
from weft.stats.samples import Sample
from weft.stats.skew import HeavyShares
from weft.stats.statistics import predicate_name

__all__ = ["SampledStatistics", "sampled_statistics"]

Samples = Mapping[Attribute, Sample]


@dataclass(frozen=True, slots=True)
class SampledStatistics:
    """What samples tell: ``selectivities`` by `predicate_name`, all else by stream and name of the attribute.

    ``distinct`` are the numbers of different values, ``nulls`` the parts of tuples without a value, and ``heavy`` the
    heavy values with their shares. An attribute that is no column goes by its text (`weft.stats.attributes`).
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
