"""Results that are sorted and merged wrongly would leave in no order at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels.order.sort import counted_places, merge_runs, place, place_segments, sort_rows

KEY = st.tuples(st.integers(-3, 3), st.integers(-(1 << 61), 1 << 61), st.integers(0, 1))


@given(st.lists(KEY, max_size=40), st.integers(1, 3))
def test_rows_are_sorted_by_all_keys_and_stay_in_place_otherwise(
    rows: list[tuple[int, ...]], width: int
) -> None:
    """As Python's own stable sort does it."""
    keys = [np.array([row[i] for row in rows], np.int64) for i in range(width)]
    order = sort_rows(keys)
    wanted = sorted(range(len(rows)), key=lambda row: rows[row][:width])
    assert (list(range(len(rows))) if order is None else order.tolist()) == wanted


@given(st.lists(st.lists(KEY, max_size=12), min_size=1, max_size=9), st.integers(1, 3))
def test_the_merge_tree_gives_what_sorting_all_would(runs: list[list[tuple[int, ...]]], width: int) -> None:
    """However many runs there are, empty ones among them; of equal rows, the earlier run's come first."""
    ordered = [sorted(row[:width] for row in run) for run in runs]
    flat = [row for run in ordered for row in run]
    keys = np.array(flat, np.int64).reshape(len(flat), width).T
    splits = np.cumsum([0, *map(len, ordered)]).tolist()
    order = merge_runs(keys, splits[:-1])
    wanted = sorted(range(len(flat)), key=lambda row: flat[row])
    assert (list(range(len(flat))) if order is None else order.tolist()) == wanted


@pytest.mark.parametrize("runs", [[[1, 2], [2, 5], [7]], [[]], [[], [3]], [[4], []]])
def test_runs_that_follow_each_other_are_left_as_they_are(runs: list[list[int]]) -> None:
    """So that what one partition gives after another is not copied."""
    keys = np.array([[key for run in runs for key in run]], np.int64)
    assert merge_runs(keys, np.cumsum([0, *map(len, runs)]).tolist()) is None


def test_values_go_to_their_places() -> None:
    """What is gathered in order must not be mixed up."""
    out = np.zeros(3, np.int64)
    place(np.array([10, 20, 30]), np.array([2, 0, 2], np.int32), np.array([1, 2, 0], np.int32), out)
    assert out.tolist() == [30, 30, 10]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8), st.data())
def test_counting_gives_what_sorting_would(keys: list[int], data: st.DataObject) -> None:
    """Rows of one key stay in the order they came in."""
    numbers = st.lists(st.integers(0, len(keys) - 1), max_size=30)
    rows = np.array(data.draw(numbers), np.int32)
    found = counted_places(np.array(keys, np.int64), rows)
    assert found is not None
    places, some, counts = found
    mine = [keys[row] for row in rows.tolist()]
    assert np.argsort(places).tolist() == sorted(range(rows.size), key=lambda row: mine[row])
    assert np.repeat(some, counts).tolist() == sorted(mine)


def test_keys_that_are_far_apart_are_not_counted() -> None:
    """Which would take more room than the rows themselves."""
    assert counted_places(np.array([0, 1 << 40]), np.array([0, 1], np.int32)) is None


def test_segments_go_to_their_places() -> None:
    """Rows of one key move together."""
    out = np.zeros(6, np.uint32)
    values = np.array([1, 2, 3, 4, 5, 6], np.uint32)
    place_segments(values, np.array([2, 1, 3], np.int32), np.array([4, 0, 1], np.int32), out)
    assert out.tolist() == [3, 4, 5, 6, 1, 2]
