"""The process of one peer over a batch of SplitJoin's streams: `python -m benchmarks._splitjoin_peers TASK ANSWER`.

Guarantees: a peer is given the new tuples of one batch and the windows they are joined with, and counts the results
that Weft found in that batch: the stream that comes later in the batch's order also sees the other's new tuples. All
data is in memory as Arrow, and all code is compiled, when the clock starts. Where a peer takes only some of the new
tuples, they are spread evenly over the batch.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks._harness import say
from benchmarks._splitjoin import BAND, SPAN, read_rows
from numba import njit, prange

Whole = npt.NDArray[np.int32]
Float = npt.NDArray[np.float32]
Time = npt.NDArray[np.int64]
_MOST = numba.get_num_threads()  # before anybody changes it


@njit(parallel=True, cache=True)
def _pairs(x: Whole, y: Float, a: Whole, b: Float, whole: np.int32, broken: np.float32) -> int:
    total = 0
    for i in prange(x.size):
        low, high = np.int32(x[i] - whole), np.int32(x[i] + whole)
        under, over = y[i] - broken, y[i] + broken
        found = 0
        for j in range(a.size):
            found += (a[j] >= low) & (a[j] <= high) & (b[j] >= under) & (b[j] <= over)
        total += found
    return total


@njit(parallel=True, cache=True)
def _pairs_within(
    x: Whole, y: Float, t: Time, a: Whole, b: Float, u: Time, whole: np.int32, broken: np.float32, span: int
) -> int:
    total = 0
    for i in prange(x.size):
        low, high = np.int32(x[i] - whole), np.int32(x[i] + whole)
        under, over = y[i] - broken, y[i] + broken
        before, after = t[i] - span, t[i] + span
        found = 0
        for j in range(a.size):
            band = (a[j] >= low) & (a[j] <= high) & (b[j] >= under) & (b[j] <= over)
            found += band & (u[j] >= before) & (u[j] <= after)
        total += found
    return total


def count_pairs(new: pa.Table, window: pa.Table, band: int, span: int | None, cores: int) -> int:
    """How many pairs lie within the band and, if a span of microseconds is given, within that time."""
    numba.set_num_threads(min(cores, _MOST))
    whole, broken = np.int32(band), np.float32(band)
    x, y, t = _arrays(new.combine_chunks().to_batches()[0])
    total = 0
    for bucket in window.to_batches():
        a, b, u = _arrays(bucket)
        if span is None:
            total += int(_pairs(x, y, a, b, whole, broken))
        else:
            total += int(_pairs_within(x, y, t, a, b, u, whole, broken, span))
    return total


def _arrays(bucket: pa.RecordBatch) -> tuple[Any, Any, Any]:
    """The two attributes and the time, as they are in memory."""
    first, second, times = (column.to_numpy(zero_copy_only=True) for column in bucket.columns)
    return first, second, times


COLUMNS = {"r": ("x", "y", "ts"), "s": ("a", "b", "ts")}
PAIRS = 1 << 25  # pairs that Polars makes at a time, as it holds all pairs of the first band in memory
_MICROS = SPAN * 1_000_000

# Both bands, with the two conditions of the first one together, so that DuckDB joins by that band. With BETWEEN it
# would join by the two lower bounds, which a quarter of all pairs fulfil.
_BAND = f"r.x >= s.a - {BAND} AND r.x <= s.a + {BAND} AND r.y >= s.b - {BAND}::FLOAT AND r.y <= s.b + {BAND}::FLOAT"
_WITHIN = f" AND r.t - s.t <= {_MICROS} AND s.t - r.t <= {_MICROS}"


@dataclass(frozen=True, slots=True)
class PeerTask:
    """A batch by its first row and the number of its rows, with the order of its streams."""

    peer: str
    data: str
    kind: str
    size: int
    domain: int
    cores: int
    first: int
    rows: int
    order: tuple[str, str]
    most: int | None = None  # how many new tuples of each stream are joined; None: all
    launched: float = 0.0


@dataclass(frozen=True, slots=True)
class Meeting:
    """New tuples and the window they meet, as the columns of R and S; ``new`` says which of the two is new."""

    r: pa.Table
    s: pa.Table
    new: str
    timed: bool


def meetings(task: PeerTask) -> Iterator[Meeting]:
    """The new tuples of both streams, each with the window they meet."""
    early, late = task.order
    timed = task.kind == "time"
    for new, other, seen in ((early, late, task.first), (late, early, task.first + task.rows)):
        # A window of time is cut by its condition; here it need only be long enough for the first new tuple.
        oldest = task.first - task.size - 1 if timed else seen - task.size
        window = _columns(task, other, max(0, oldest), seen)
        fresh = _columns(task, new, task.first, task.first + task.rows)
        if task.most is not None and task.most < task.rows:
            fresh = fresh.take(np.linspace(0, task.rows - 1, task.most).astype(np.int64))
        sides = {new: fresh, other: window}
        yield Meeting(sides["r"], sides["s"], new, timed)


def _columns(task: PeerTask, stream: str, first: int, last: int) -> pa.Table:
    table = read_rows(Path(task.data, stream), first, last, COLUMNS[stream])
    times = table["ts"].cast(pa.int64())
    return table.drop_columns(["ts"]).append_column("t", times)


def by_loops(cores: int, _: int) -> Callable[[Meeting], int]:
    """Count by compiled loops that compare every new tuple with every tuple of the window, on all cores."""
    from benchmarks._splitjoin_peers import count_pairs

    def count(meeting: Meeting) -> int:
        sides = (meeting.r, meeting.s) if meeting.new == "r" else (meeting.s, meeting.r)
        return count_pairs(*sides, BAND, _MICROS if meeting.timed else None, cores)

    return count


def by_duckdb(cores: int, _: int) -> Callable[[Meeting], int]:
    """Count by DuckDB's range join, with both bands as they are."""
    return _duckdb(cores, "SELECT count(*) FROM r, s WHERE {band}")


def by_cells(cores: int, _: int) -> Callable[[Meeting], int]:
    """Count by DuckDB's hash join over cells of a grid: a tuple of R lies in one, and its partners reach up to four."""
    width = 2 * BAND
    low_x, low_y = f"(a - {BAND}) // {width}", f"CAST(floor((b - {BAND}::FLOAT) / {width}) AS INT)"
    text = (
        f"WITH p AS (SELECT *, x // {width} AS cx, CAST(floor(y / {width}) AS INT) AS cy FROM r), "
        f"w AS (SELECT *, unnest([{low_x}, {low_x} + 1]) AS cx FROM s), "
        f"v AS (SELECT *, unnest([{low_y}, {low_y} + 1]) AS cy FROM w) "
        "SELECT count(*) FROM p AS r JOIN v AS s USING (cx, cy) WHERE {band}"
    )
    return _duckdb(cores, text)


def _duckdb(cores: int, text: str) -> Callable[[Meeting], int]:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {cores}")

    def count(meeting: Meeting) -> int:
        connection.register("r", meeting.r)
        connection.register("s", meeting.s)
        band = _BAND + (_WITHIN if meeting.timed else "")
        return int(connection.execute(text.replace("{band}", band)).fetchall()[0][0])

    return count


def by_polars(cores: int, domain: int) -> Callable[[Meeting], int]:
    """Count by Polars' inequality join, for some of the new tuples at a time."""
    os.environ["POLARS_MAX_THREADS"] = str(cores)  # Polars reads this when it is loaded
    import polars as pl

    x, y, t, u = (pl.col(name) for name in ("x", "y", "t", "u"))
    bands = [x >= pl.col("a_low"), x <= pl.col("a_high"), y >= pl.col("b_low"), y <= pl.col("b_high")]

    def bounds(s: Any) -> Any:
        ends = {
            f"{name}_{end}": pl.col(name) + pl.lit(shift, type_)
            for name, type_ in (("a", pl.Int32), ("b", pl.Float32))
            for end, shift in (("low", -BAND), ("high", BAND))
        }
        return s.rename({"t": "u"}).with_columns(**ends)

    def count(meeting: Meeting) -> int:
        r, s = (pl.DataFrame(pl.from_arrow(one)) for one in (meeting.r, meeting.s))
        window, fresh = (s, r) if meeting.new == "r" else (r, s)
        piece = max(1, PAIRS * domain // ((2 * BAND + 1) * max(1, window.height)))
        found = 0
        for first in range(0, fresh.height, piece):
            part = fresh.slice(first, piece)
            left, right = (part, window) if meeting.new == "r" else (window, part)
            pairs = left.lazy().join_where(bounds(right).lazy(), *bands)
            if meeting.timed:
                pairs = pairs.filter((t - u).abs() <= _MICROS)
            found += int(pairs.select(pl.len()).collect().item())
        return found

    return count


# For each peer, by name: its label, the package it needs, and the function that makes it.
PEERS: dict[str, tuple[str, str, Callable[[int, int], Callable[[Meeting], int]]]] = {
    "loops": ("nested loops, compiled", "numba", by_loops),
    "duckdb": ("DuckDB, range join", "duckdb", by_duckdb),
    "cells": ("DuckDB, rewritten to cells", "duckdb", by_cells),
    "polars": ("Polars, join_where", "polars", by_polars),
}


def is_installed(peer: str) -> bool:
    """Whether a peer's package is there."""
    return importlib.util.find_spec(PEERS[peer][1]) is not None


def run_peer(task: PeerTask) -> dict[str, Any]:
    """Join the batch; give the numbers of new tuples, seconds and results.

    Where only some tuples are joined, Weft's number of results is not the expected one; `by_cells` then counts it.
    """
    count = PEERS[task.peer][2](task.cores, task.domain)
    some = task.most is not None and task.most < task.rows and is_installed("cells")
    check = by_cells(task.cores, task.domain) if some else None
    tuples, results, expected, seconds = 0, 0, 0, 0.0
    for meeting in meetings(task):
        count(Meeting(meeting.r.slice(0, 8), meeting.s.slice(0, 8), meeting.new, meeting.timed))  # compiles
        began = time.perf_counter()
        results += count(meeting)
        seconds += time.perf_counter() - began
        tuples += (meeting.r if meeting.new == "r" else meeting.s).num_rows
        expected += check(meeting) if check else 0
        say(f"{task.peer}: {tuples:,} new tuples joined in {seconds:.1f} s")
    return {"tuples": tuples, "seconds": seconds, "results": results, "expected": expected if check else None}
