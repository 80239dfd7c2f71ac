"""SplitJoin's benchmark (section 7.1): two streams joined by a band in two dimensions, in Parquet files.

Guarantees: the same arguments give the same rows. A window of time is 15 minutes, whatever its size: row n of a stream
has the time n × 15 minutes ÷ size, so that it holds as many tuples as the window by count of the same size. Floats are
multiples of 1/64, so that no contender's rounding decides whether a pair matches.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._data import BEGIN, write_file

BAND = 10
KINDS = ("time", "count")
SPAN = 900  # seconds of a window of time
SCHEMAS = {
    "r": "x int, y float, z string, ts timestamp",
    "s": "a int, b float, c double, d boolean, ts timestamp",
}
_GRID = 64  # floats are multiples of one divided by this
_TEXT = 20  # characters
_SEED_OF = {"r": 0, "s": 1}


@dataclass(frozen=True, slots=True)
class Shape:
    """Streams that fill a window of ``size`` tuples with large files, and go on in files that are a batch each."""

    size: int  # tuples of the window
    fill_rows: int  # the most rows of a file that fills the window
    batch_rows: int
    batches: int  # how many follow when the window is full
    domain: int = 10_000  # values are uniform over 1 to this
    seed: int = 7

    @property
    def filling(self) -> int:
        """How many files fill the window."""
        return -(-self.size // self.fill_rows)

    @property
    def files(self) -> list[int]:
        """The rows of every file of a stream."""
        ends = np.linspace(0, self.size, self.filling + 1).round().astype(int)
        return [*np.diff(ends).tolist(), *([self.batch_rows] * self.batches)]

    @property
    def name(self) -> str:
        """A name that distinguishes these files from those of other shapes."""
        shape = (self.size, self.fill_rows, self.batch_rows, self.batches, self.domain, self.seed)
        return "splitjoin-" + "-".join(map(str, shape))


def sql(kind: str, size: int) -> str:
    """The join over windows of one kind; all columns are results."""
    window = f"[RANGE {SPAN} SECONDS]" if kind == "time" else f"[ROWS {size}]"
    return (
        f"SELECT r.x, r.y, r.z, s.a, s.b, s.c, s.d FROM r {window}, s {window} "
        f"WHERE r.x BETWEEN s.a - {BAND} AND s.a + {BAND} AND r.y BETWEEN s.b - {BAND} AND s.b + {BAND}"
    )


def matches_per_tuple(size: int, domain: int) -> float:
    """About how many partners a tuple has in a full window, without regard to the borders of the domain."""
    return size * min(1.0, (2 * BAND + 1) / domain) * min(1.0, 2 * BAND / domain)


def window_text(size: int) -> str:
    """A number of tuples, as a power of two where it is one."""
    return f"2^{size.bit_length() - 1}" if size & (size - 1) == 0 else f"{size:,}"


def kept_data(root: Path, shape: Shape) -> Path:
    """The directory with the files of both streams, which are written unless they exist."""
    folder = root / shape.name
    if not folder.exists():
        partial = root / f"{shape.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for stream in SCHEMAS:
            _write(partial / stream, stream, shape)
        partial.rename(folder)
    return folder


def read_rows(folder: Path, first: int, last: int, columns: Sequence[str]) -> pa.Table:
    """Rows of a stream by their numbers, a chunk for every file they are in."""
    parts, begin = [], 0
    for file in sorted(folder.iterdir()):
        rows = pq.ParquetFile(file).metadata.num_rows
        if begin < last and begin + rows > first:
            inside = slice(max(0, first - begin), min(rows, last - begin))
            table = pq.read_table(file, columns=list(columns)).combine_chunks()
            parts.append(table.slice(inside.start, inside.stop - inside.start))
        begin += rows
    return pa.concat_tables(parts)


def _write(folder: Path, stream: str, shape: Shape) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng([shape.seed, _SEED_OF[stream]])
    first = 0
    for number, rows in enumerate(shape.files):
        write_file(_rows(random, stream, shape, first, rows), folder / f"{number:05}.parquet", number)
        first += rows


def _rows(random: np.random.Generator, stream: str, shape: Shape, first: int, rows: int) -> pa.Table:
    numbers = np.arange(first, first + rows, dtype=np.int64)
    whole = random.integers(1, shape.domain + 1, rows, dtype=np.int32)
    fine = random.integers(_GRID, shape.domain * _GRID + 1, rows)
    broken = (fine / _GRID).astype(np.float32)
    times = BEGIN * 1_000_000 + numbers * (SPAN * 1_000_000) // shape.size
    ts = pa.array(times).cast(pa.timestamp("us", "UTC"))
    if stream == "r":
        return pa.table({"x": whole, "y": broken, "z": _texts(random, rows), "ts": ts})
    truths = pa.array(random.random(rows) < 0.5)
    return pa.table({"a": whole, "b": broken, "c": random.random(rows), "d": truths, "ts": ts})


def _texts(random: np.random.Generator, rows: int) -> Any:
    """Texts of small letters."""
    letters: npt.NDArray[np.uint8] = random.integers(97, 123, rows * _TEXT, dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * _TEXT
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
