"""Streams whose keys follow Zipf's law, for the benchmark of skew.

Guarantees: the same arguments give the same rows. Key k of K has a share proportional to k^-exponent; keys are numbered
by frequency, so `shares` gives the statistics that a plan needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks._data import BEGIN, write_file

STREAMS = ("v", "w")
SCHEMA = "k long, n long, price double, ts timestamp"


@dataclass(frozen=True)
class Zipf:
    """Streams with so many rows a batch, which is a second of event time, and so many keys."""

    rows: int
    batches: int
    keys: int
    exponent: float

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """The share of every key, the commonest first."""
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.exponent
        found: npt.NDArray[np.float64] = weights / weights.sum()
        return found

    def heavy(self, count: int) -> dict[int | str, float]:
        """The commonest keys, with their shares."""
        return {key: float(share) for key, share in enumerate(self.shares[:count])}


def write_zipf(root: Path, zipf: Zipf, seed: int) -> None:
    """Write a file of each stream for every batch."""
    edges = np.cumsum(zipf.shares)
    for place, name in enumerate(STREAMS):
        folder = root / name
        folder.mkdir(parents=True)
        random = np.random.default_rng([seed, place])
        for number in range(zipf.batches):
            first = number * zipf.rows
            numbers = np.arange(first, first + zipf.rows, dtype=np.int64)
            keys = np.searchsorted(edges, random.random(zipf.rows) * edges[-1], side="right")
            times = BEGIN * 1_000_000 + numbers * 1_000_000 // zipf.rows
            table = pa.table(
                {
                    "k": np.minimum(keys, zipf.keys - 1).astype(np.int64),
                    "n": numbers,
                    "price": random.integers(0, 4_000, zipf.rows)
                    / 4,  # multiples of 1/4, so that sums do not depend on the order
                    "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                }
            )
            write_file(table, folder / f"{number:05}.parquet", number)
