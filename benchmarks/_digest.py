"""Digests by which the results of contenders are compared.

Guarantees: two directories of results have the same digest only if, up to a chance of 1 in 2^64, they hold the same
rows equally often, in whatever order and files. The results of a prefix of the streams are recognised by their row
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

Words = npt.NDArray[np.uint64]
# (how many rows, a checksum of their row numbers, the sum of their prices)
Digest = tuple[int, int, float]


def digest(folder: str, streams: tuple[str, ...], rows: int) -> Digest:
    """The digest of the results whose tuples are all among the first ``rows`` of their streams."""
    count, checksum, price = 0, 0, 0.0
    for file in _files(Path(folder)):
        table = pq.ParquetFile(file).read()
        numbers = np.stack([table.column(f"{stream}_n").to_numpy() for stream in streams])
        inside = numbers.max(axis=0, initial=0) < rows
        mixed = _mixed(numbers[:, inside].astype(np.uint64))
        count += mixed.size
        checksum = (checksum + int(mixed.sum(dtype=np.uint64))) % 2**64
        price += float(table.column(f"{streams[0]}_price").to_numpy()[inside].sum())
    return count, checksum, price


def _files(folder: Path) -> Iterator[Path]:
    """The files of results; names that begin with _ or . are the writers' own."""
    for file in sorted(folder.rglob("*.parquet")):
        if not any(part[0] in "_." for part in file.relative_to(folder).parts):
            yield file


def _mixed(numbers: Words) -> Words:
    """One word for the row numbers of each result."""
    mixed = np.zeros(numbers.shape[1], np.uint64)
    for row in numbers:
        mixed = (mixed ^ row) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
