"""How far estimates from samples are from the truth, over many draws of two streams.

Guarantees: the same seed gives the same figures. Every draw has other values, and so other hashes; the samples are
taken by what read tasks take them with, and the truth is counted over all tuples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weft.logical.expr.expression import Column
from weft.logical.schema import DataType
from weft.runtime.hop.admission import sample_column
from weft.stats.sampling.attributes import Attribute, JoinAttribute
from weft.stats.sampling.estimates import Between, comparison, distinct_count
from weft.stats.sampling.sampled import equality
from weft.stats.sampling.samples import Sample

Values = npt.NDArray[np.int64]
Draw = Callable[[np.random.Generator, int, int], tuple[Values, Values]]

_EQUAL = JoinAttribute("r", Attribute("r", "k"), Column("r", "k", DataType("long")), equal=True)
_ORDERED = JoinAttribute("r", Attribute("r", "x"), Column("r", "x", DataType("double")), ordered=True)


@dataclass(frozen=True, slots=True)
class Trial:
    """An estimate and the truth; ``error`` is the relative standard error that the estimate states."""

    what: str
    shape: str
    kept: int
    estimate: float
    truth: float
    error: float

    @property
    def off(self) -> float:
        """How far the estimate is from the truth, as a part of it."""
        return abs(self.estimate / self.truth - 1)


def _zipf(exponent: float) -> Draw:
    def draw(rng: np.random.Generator, rows: int, keys: int) -> tuple[Values, Values]:
        edges = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -exponent)
        left, right = (np.searchsorted(edges, rng.random(rows) * edges[-1]) for _ in range(2))
        return left, right

    return draw


def _uniform(rng: np.random.Generator, rows: int, keys: int) -> tuple[Values, Values]:
    return rng.integers(0, keys, rows), rng.integers(0, keys, rows)


def _some_in_common(rng: np.random.Generator, rows: int, keys: int) -> tuple[Values, Values]:
    """A tenth of the keys of either stream are in both."""
    return rng.integers(0, keys, rows), rng.integers(0, keys, rows) + keys * 9 // 10


def _reversed(rng: np.random.Generator, rows: int, keys: int) -> tuple[Values, Values]:
    """What is frequent in one stream is rare in the other."""
    left, right = _zipf(1.0)(rng, rows, keys)
    return left, keys - 1 - right


def _few_of_many(rng: np.random.Generator, rows: int, keys: int) -> tuple[Values, Values]:
    """One stream has a twentieth of the other's keys."""
    return rng.integers(0, keys, rows), rng.integers(0, max(1, keys // 20), rows)


KEYS: dict[str, Draw] = {
    "uniform": _uniform,
    "Zipf 0.5": _zipf(0.5),
    "Zipf 0.8": _zipf(0.8),
    "Zipf 1.0": _zipf(1.0),
    "Zipf 1.2": _zipf(1.2),
    "Zipf 1.5": _zipf(1.5),
    "Zipf 1.0, reversed": _reversed,
    "a tenth in common": _some_in_common,
    "few of many": _few_of_many,
}

BANDS = {
    "a < b": Between(high=0.0, high_open=True),
    "band of 10 %": Between(-0.05, 0.05),
    "band of 1 %": Between(-0.005, 0.005),
    "band of 0.1 %": Between(-0.0005, 0.0005),
}


def trials(shape: str, rows: int, keys: int, kept: tuple[int, ...], seed: int) -> Iterator[Trial]:
    """Estimates of the selectivity of an equality, and of a distinct count, with samples of every size."""
    rng = np.random.default_rng([seed, list(KEYS).index(shape)])
    factor = int(rng.integers(1, 1 << 60)) * 2 + 1  # odd, so that different keys stay different
    left, right = (side * np.int64(factor) for side in KEYS[shape](rng, rows, keys))
    (mine, counts), (theirs, others) = (np.unique(side, return_counts=True) for side in (left, right))
    _, one, other = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    truth = float(counts[one].astype(np.float64) @ others[other]) / (left.size * right.size)
    for size in kept:
        samples = [
            Sample.from_report(sample_column(_EQUAL, pa.array(side), rows, seed, size), 0)
            for side in (left, right)
        ]
        found, distinct = equality(*samples), distinct_count(samples[0])
        yield Trial("selectivity", shape, size, found.value, truth, 1 / math.sqrt(found.evidence))
        yield Trial("distinct", shape, size, distinct.value, mine.size, 1 / math.sqrt(distinct.evidence))


def comparisons(name: str, rows: int, kept: tuple[int, ...], seed: int) -> Iterator[Trial]:
    """Estimates of the selectivity of a comparison of values that are spread differently in two streams."""
    rng = np.random.default_rng([seed, list(BANDS).index(name)])
    left, right = np.sort(rng.random(rows)), np.sort(rng.beta(2.0, 2.0, rows))
    between = BANDS[name]
    low = 0 if between.high is None else np.searchsorted(right, left - between.high, "right")
    high = rows if between.low is None else np.searchsorted(right, left - between.low, "left")
    truth = float(np.mean(high - low)) / rows
    for size in kept:
        samples = [
            Sample.from_report(sample_column(_ORDERED, pa.array(rng.permutation(side)), rows, seed, size), 0)
            for side in (left, right)
        ]
        found = comparison(samples[0], samples[1], between)
        yield Trial("selectivity", name, size, found.value, truth, 1 / math.sqrt(found.evidence))
