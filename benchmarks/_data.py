"""Streams of Parquet files for the benchmarks.

Guarantees: the same arguments give the same rows. Row n of a stream has the time n ÷ rate, so files are in the order of
event time and all streams advance together; `n` is also a column, by which results are compared afterwards.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Five columns of eight bytes each: two keys, the time, two payloads.
SCHEMA = "vid long, uid long, ts timestamp, n long, price double"

BEGIN = 1_767_225_600  # the first row's time, in seconds since 1970; not 1970 itself, which is Spark's first watermark


@dataclass(frozen=True, slots=True)
class Shape:
    """How many rows a stream has, in a file, and in a second of event time, and how many keys."""

    rows: int
    file_rows: int
    rate: int
    keys: int

    @property
    def files(self) -> int:
        """How many files a stream has."""
        return -(-self.rows // self.file_rows)


def write_streams(root: Path, names: tuple[str, ...], shape: Shape, seed: int = 7) -> None:
    """Write the files of every stream below a directory of its name."""
    for place, name in enumerate(names):
        folder = root / name
        folder.mkdir(parents=True)
        random = np.random.default_rng([seed, place])
        for number in range(shape.files):
            first = number * shape.file_rows
            rows = _rows(random, shape, first, min(first + shape.file_rows, shape.rows))
            write_file(rows, folder / f"{number:05}.parquet", number)


def link_streams(source: Path, target: Path, names: tuple[str, ...], files: int) -> None:
    """Link the first files of every stream into another directory."""
    for name in names:
        (target / name).mkdir(parents=True)
        for file in sorted((source / name).iterdir())[:files]:
            os.link(file, target / name / file.name)


def write_file(rows: pa.Table, file: Path, number: int) -> None:
    """Write a stream's file of that number."""
    pq.write_table(rows, file)
    # Spark reads files in the order of their ages, which are set apart here, since all are written within a moment.
    os.utime(file, (BEGIN + number, BEGIN + number))


def _rows(random: Any, shape: Shape, first: int, last: int) -> pa.Table:
    numbers = np.arange(first, last, dtype=np.int64)
    columns = {
        "vid": random.integers(0, shape.keys, numbers.size),
        "uid": random.integers(0, shape.keys, numbers.size),
        "ts": pa.array(BEGIN * 1_000_000 + numbers * 1_000_000 // shape.rate).cast(pa.timestamp("us", "UTC")),
        "n": numbers,
        "price": random.integers(0, 4_000, numbers.size)
        / 4,  # multiples of 1/4, so that sums do not depend on the order
    }
    return pa.table(columns)
