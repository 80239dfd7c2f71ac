"""Random statistics: what a planner may know, or believe, of streams.

Streams that bring nothing or very much, columns with one value or very many, values that most tuples have; and often
nothing is known.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from weft.stats.statistics import Statistics, StreamStatistics

RATES = (0.0, 0.0, 1.0, 100.0, 1e4, 1e5)
DISTINCT = (1.0, 1.0, 10.0, 1e3, 1e6)


def random_statistics(rng: random.Random, columns: Mapping[str, Sequence[str]]) -> Statistics:
    """Statistics of some streams, given the columns of each of which something may be known."""
    if rng.random() < 0.15:
        return Statistics()
    rates = rng.choice((RATES, RATES, RATES[2:], (0.0,), (1.0, 100.0)))
    return Statistics({name: _stream(rng, rates, known) for name, known in columns.items()}, origin="given")


def _stream(rng: random.Random, rates: Sequence[float], columns: Sequence[str]) -> StreamStatistics:
    rate = 10 ** rng.uniform(0, 4) if rng.random() < 0.3 else rng.choice(rates)
    distinct = {column: rng.choice(DISTINCT) for column in columns if rng.random() < 0.5}
    heavy = {column: _heavy(rng) for column in columns if rng.random() < 0.1}
    return StreamStatistics(rate, distinct, heavy)


def _heavy(rng: random.Random) -> dict[int | str, float]:
    shares = rng.choice(((1.0,), (0.5,), (0.2, 0.3), (0.05,), (0.4, 0.4, 0.2)))
    return dict(enumerate(shares))
