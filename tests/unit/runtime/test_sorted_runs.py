"""Sorted runs are cut by value and merged portion by portion: nothing is lost, nothing is out of order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from weft.runtime.output.ordered_results import range_cuts
from weft.runtime.wire.sorted_runs import (
    RunSlice,
    SortedRun,
    counts_by_head,
    merged_portions,
    portions,
    sample_of,
)

RUN = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3)), min_size=1, max_size=40)
RUNS = st.lists(RUN, min_size=1, max_size=5)


def run_of(keys: list[tuple[int, int]], first: int = 0) -> pa.RecordBatch:
    """A run sorted by two keys, whose rows are numbered."""
    heads, others = zip(*sorted(keys), strict=True)
    numbers = np.arange(first, first + len(keys))
    return pa.RecordBatch.from_arrays(
        [pa.array(heads, pa.int64()), pa.array(others, pa.int64()), pa.array(numbers)], ["a", "b", "n"]
    )


def runs_of(lists: list[list[tuple[int, int]]]) -> list[pa.RecordBatch]:
    """Runs, with rows numbered through."""
    return [run_of(keys, 100 * at) for at, keys in enumerate(lists)]


@given(RUNS, st.integers(1, 400), st.integers(1, 2))
def test_portions_are_the_whole_in_order(lists: list[list[tuple[int, int]]], size: int, keys: int) -> None:
    """However small portions are; with one key, rows of one key may be in any order."""
    slices = [RunSlice(run) for run in runs_of(lists)]
    found = pa.Table.from_batches(list(merged_portions(slices, keys, size, keep=True)))
    rows = list(zip(*(found[name].to_pylist() for name in ("a", "b")), strict=True))
    assert [row[:keys] for row in rows] == sorted(row[:keys] for row in rows)
    numbers = sorted(n for run in runs_of(lists) for n in run.column(2).to_pylist())
    assert sorted(found["n"].to_pylist()) == numbers


@given(RUNS, st.integers(1, 300))
def test_heads_are_counted_and_never_divided(lists: list[list[tuple[int, int]]], size: int) -> None:
    """A punctuation between two rows of one tuple would be wrong."""
    slices = [RunSlice(run) for run in runs_of(lists)]
    parts = [counts_by_head(mine) for mine in portions(slices, 1, size)]
    heads = [head for found, _ in parts for head in found.tolist()]
    assert heads == sorted(set(heads))
    every = [head for keys in lists for head, _ in keys]
    assert [(h, c) for found, counts in parts for h, c in zip(found, counts, strict=True)] == [
        (head, every.count(head)) for head in sorted(set(every))
    ]


@given(RUNS, st.integers(1, 6), st.none() | st.integers(-9, 9))
def test_ranges_are_the_whole_and_none_is_empty(
    lists: list[list[tuple[int, int]]], tasks: int, high: int | None
) -> None:
    """The last of them says that the batch is complete, so there has to be something in it."""
    runs = [run for run in runs_of(lists) if high is None or run.column(0)[0].as_py() < high]
    known = [SortedRun.of_batch(f"{at}", run) for at, run in enumerate(runs)]
    if not runs:
        return
    assert range_cuts(known, tasks, None, high) == []  # they are too small to be worth more than one task
    cuts = range_cuts([replace(one, bytes=1 << 30) for one in known], tasks, None, high)
    assert len(cuts) < tasks
    bounds = [None, *((cut,) for cut in cuts), None if high is None else (high,)]
    slices = [RunSlice(run) for run in runs]
    sizes = [sum(one.between(low, up).num_rows for one in slices) for low, up in pairwise(bounds)]
    assert all(sizes)
    wanted = [head for run in runs for head in run.column(0).to_pylist() if high is None or head < high]
    assert sum(sizes) == len(wanted)


@given(RUN, st.integers(-50, 50), st.integers(1, 7), st.integers(-20, 20))
def test_numbers_within_a_read_task_are_cut_like_what_they_stand_for(
    keys: list[tuple[int, int]], shift: int, block: int, cut: int
) -> None:
    """So no task has to number all rows of a run of which it needs a few."""
    batch = run_of(keys)
    run = SortedRun.of_batch("x", batch).numbered(shift, block)
    one = RunSlice.of_run(run, batch)
    stands_for = [(head + shift) // block for head in batch.column(0).to_pylist()]
    assert one.heads().tolist() == one.rows().column(0).to_pylist() == stands_for
    assert one.place((cut,)) == sum(head < cut for head in stands_for)
    assert (run.sample[0], run.sample[-1]) == (stands_for[0], stands_for[-1])


def test_a_sample_is_small_and_knows_both_ends() -> None:
    """The driver has nothing else to go by."""
    found = sample_of(run_of([(head, 0) for head in range(1000)]))
    assert (len(found), found[0], found[-1]) == (17, 0, 999)
    assert sample_of(run_of([(5, 0)])) == (5,)
