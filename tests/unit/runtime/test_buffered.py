"""Results that are held back leave once, in the order of their times, from memory and from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from weft.runtime.loop.buffered import BufferedResults, read_buffered, release, write_buffered
from weft.storage.storage import LocalDisk

BATCH = st.tuples(st.lists(st.lists(st.integers(0, 20), max_size=6), max_size=3), st.integers(0, 12))


def run_of(times: list[int], first: int) -> pa.RecordBatch:
    """A sorted run of results that are numbered."""
    times = sorted(times)
    columns = [pa.array(times, pa.int64()), pa.array(times), pa.array(range(first, first + len(times)))]
    kinds = pa.schema([("$key0", pa.int64()), ("time", pa.int64()), ("number", pa.int32())])
    return pa.RecordBatch.from_arrays(
        [c.cast(k) for c, k in zip(columns, kinds.types, strict=True)], schema=kinds
    )


@given(st.lists(BATCH, max_size=6))
def test_everything_leaves_once_and_in_order(batches: list[tuple[list[list[int]], int]]) -> None:
    """What is found is never of a time before the clock, which rises by so much."""
    held: list[BufferedResults] = []
    left: list[pa.RecordBatch] = []
    clock = count = 0
    for found, rise in batches:
        runs = []
        for times in found:
            runs.append(run_of([clock + time for time in times], count))
            count += len(times)
        clock += rise
        leaving, held, _ = release(held, runs, clock)
        assert all(run.column(0).to_numpy().max() < clock for run in leaving)
        left += leaving
    left += release(held, [], 1 << 62)[0]
    every = np.concatenate([np.empty(0, np.int64), *(run.column(0).to_numpy() for run in left)])
    assert (np.diff(every) >= 0).all()
    assert sorted(number for run in left for number in run.column(1).to_pylist()) == list(range(count))


def test_what_waits_is_in_few_runs() -> None:
    """A watermark that does not move must not make every batch slower than the one before."""
    held: list[BufferedResults] = []
    for batch in range(100):
        _, held, _ = release(held, [run_of([batch + 1_000, batch], 0)], 0)
    assert sum(one.run.num_rows for one in held) == 200
    assert len(held) <= 8


def test_files_are_written_once_and_read_from_where_they_are(tmp_path: Path) -> None:
    """A run that stays is not written again; a replay finds what the batch before left."""
    storage = LocalDisk(tmp_path)
    _, held, _ = release([], [run_of([1, 5, 9], 0)], 0)
    first = write_buffered(storage, 3, held)
    assert [(run.first, run.rows, run.time) for run in first] == [(0, 3, 1)]
    for _ in range(2):
        leaving, staying, times = release(read_buffered(storage, first), [run_of([7], 3)], 6)
        assert times.tolist() == [1, 5]
        assert [run.column(1).to_pylist() for run in leaving] == [[0, 1]]
        second = write_buffered(storage, 4, staying)
        assert sum(run.rows for run in second) == 2
    last, nothing, _ = release(read_buffered(storage, second), [], 100)
    assert [n for run in last for n in run.column(1).to_pylist()] == [3, 2]
    assert not nothing
    _, still, _ = release(read_buffered(storage, first), [], 6)
    assert write_buffered(storage, 5, still)[0].name == first[0].name
    assert not list(tmp_path.rglob("*.tmp"))
