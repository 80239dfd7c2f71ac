"""The six data sets of the paper on driver selection (its section 4.1), and how they are cut into batches.

Guarantees: a data set is a function of its number, its scale and the seed. At scale 1 the streams have the sizes of the
paper's Table 3 and the pairwise selectivities of its Table 2. A smaller scale has fewer keys and tuples of each stream,
so selectivities per pair grow, but the partners of a tuple, and hence σ_S = |MJoin| / |S|, stay as they are, and so
does the number of batches.

Table 3 gives 10⁹ tuples for S2 of data sets V and VI; Table 2 says σ_S2 = 10 where σ_S1 = 10² of 10⁴ tuples, so there
are 10⁶ results, and S2 has 10⁵. All selectivities of Table 2 agree with that.

The partners: 1,000 keys are in all three streams, each with 1 tuple of S1, 5 of S2 and 1,000 of S3 in data sets I to IV
(1, 10 and 100 in V and VI); no other key is in two streams. That, and nothing else, gives all six selectivities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["DATASETS", "SPAN", "STREAMS", "Dataset", "batches", "bursts", "generate", "in_quarters", "wave"]

STREAMS = ("s1", "s2", "s3")
SPAN = 10_000_000  # time units from the first tuple to the last: 10⁶ tuples, one every 10 units
_KEYS = 1_000  # in all three streams
_LEVELS = 10  # how often the b-model cuts a span in two

Times = NDArray[np.float64]
Arrivals = Callable[[int], Times]


def evenly(count: int) -> Times:
    """Times in [0, 1) at a uniform rate."""
    return np.arange(count) / count


def in_quarters(*gaps: int) -> Arrivals:
    """Times whose distance changes with every quarter of the tuples."""

    def times(count: int) -> Times:
        each = np.repeat(np.array(gaps, np.float64), -(-count // len(gaps)))[:count]
        ends = np.cumsum(each)
        found: Times = (ends - each[0]) / ends[-1]
        return found

    return times


def wave(count: int, periods: int = 2, depth: float = 0.9) -> Times:
    """Times whose rate is 1 + depth · sin: the paper does not say how many periods there are, or how deep."""
    grid = np.linspace(0.0, 1.0, 4096)
    turn = 2 * np.pi * periods
    passed = grid + depth * (1 - np.cos(turn * grid)) / turn
    found: Times = np.interp((np.arange(count) + 0.5) / count * passed[-1], passed, grid)
    return found


def bursts(first: float) -> Arrivals:
    """Times by the b-model: this part of the tuples in the first half of the time, and so on in either half."""

    def times(count: int) -> Times:
        shares = np.ones(1)
        for _ in range(_LEVELS):
            shares = np.outer(shares, (first, 1 - first)).ravel()
        ends = np.round(np.cumsum(shares) * count).astype(np.int64)
        cells = np.searchsorted(ends, np.arange(count), side="right")
        sizes = np.diff(ends, prepend=0)
        within = (np.arange(count) - (ends - sizes)[cells]) / np.maximum(1, sizes)[cells]
        return (cells + within) / len(shares)

    return times


@dataclass(frozen=True, slots=True)
class Dataset:
    """The sizes of the streams, how many tuples of each have one of the common keys, and how they arrive."""

    name: str
    sizes: tuple[int, int, int]
    partners: tuple[int, int, int]
    arrivals: tuple[Arrivals, Arrivals, Arrivals]


_EQUAL, _UNEQUAL = (10**6, 10**6, 10**6), (10**4, 10**5, 10**6)
_FEW, _MANY = (1, 5, 1_000), (1, 10, 100)
DATASETS = (
    Dataset("I", _EQUAL, _FEW, (evenly, evenly, in_quarters(5, 15, 5, 15))),
    Dataset("II", _EQUAL, _FEW, (evenly, in_quarters(15, 5, 15, 5), in_quarters(5, 15, 5, 15))),
    Dataset("III", _EQUAL, _FEW, (evenly, in_quarters(15, 5, 15, 5), wave)),
    Dataset("IV", _EQUAL, _FEW, (evenly, evenly, bursts(0.2))),
    Dataset("V", _UNEQUAL, _MANY, (evenly, evenly, bursts(0.8))),
    Dataset("VI", _UNEQUAL, _MANY, (evenly, evenly, bursts(0.2))),
)


def generate(dataset: Dataset, scale: float = 1.0, seed: int = 0) -> dict[str, pa.Table]:
    """The streams: a key, and the time in microseconds, which stand for the paper's time units."""
    random, keys = np.random.default_rng(seed), max(1, round(_KEYS * scale))
    found = {}
    for place, name in enumerate(STREAMS):
        common = np.repeat(np.arange(keys), dataset.partners[place])
        size = max(len(common), round(dataset.sizes[place] * scale))
        alone = keys + place + len(STREAMS) * np.arange(size - len(common))
        times = (dataset.arrivals[place](size) * SPAN).astype(np.int64)
        found[name] = pa.table(
            {
                "k": random.permutation(np.concatenate([common, alone])),
                "ts": pa.array(times, pa.timestamp("us")),
            }
        )
    return found


def batches(streams: dict[str, pa.Table], count: int) -> Iterator[dict[str, pa.Table]]:
    """The streams cut into so many batches, each of an equal time."""
    bounds = np.linspace(0, SPAN, count + 1)
    cuts = {
        name: np.searchsorted(table.column("ts").cast(pa.int64()).to_numpy(), bounds)
        for name, table in streams.items()
    }
    for number in range(count):
        first = {name: int(places[number]) for name, places in cuts.items()}
        yield {
            name: table.slice(first[name], int(cuts[name][number + 1]) - first[name])
            for name, table in streams.items()
        }
