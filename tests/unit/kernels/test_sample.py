"""Samples of columns: what is kept, and that all who sample keep the same."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.kernels.route.sample import EVERY_HASH, draw_rows, frequent, least_hashes, ordered_values


def hashes_of(values: list[int]) -> dict[int, int]:
    """The hash of every value, one at a time."""
    return {value: int(least_hashes(pa.array([value]), 1).hashes[0]) for value in set(values)}


@given(st.lists(st.integers(-50, 50) | st.none(), max_size=300), st.integers(1, 30))
def test_the_least_hashes_are_kept_with_all_their_rows(values: list[int | None], most: int) -> None:
    """Compared with sorting the hashes of all values."""
    found = least_hashes(pa.array(values, pa.int64()), most)
    there = [value for value in values if value is not None]
    hashes, counts = hashes_of(there), Counter(there)
    ranked = sorted(counts, key=lambda value: hashes[value])
    assert found.hashes.tolist() == [hashes[value] for value in ranked[:most]]
    assert found.counts.tolist() == [counts[value] for value in ranked[:most]]
    assert found.threshold == (hashes[ranked[most]] if len(ranked) > most else EVERY_HASH)
    assert found.rows == len(there)
    asked = [hashes[value] for value in ranked[::-2]]
    others = least_hashes(pa.array(values, pa.int64()), most, [*asked, 7]).others
    assert others.tolist() == [*(counts[value] for value in ranked[::-2]), 0]


@pytest.mark.parametrize(
    "layouts",
    [
        [pa.array([1, 2, None, 3], kind) for kind in (pa.int8(), pa.int32(), pa.int64())],
        [pa.array(["a", "b", None, ""], kind) for kind in (pa.string(), pa.large_string())],
        [pa.array([0.5, -0.0, None, 2], kind) for kind in (pa.float32(), pa.float64())],
        [pa.chunked_array([[1, 2], [None, 3]]), pa.array([1, 2, None, 3]).dictionary_encode()],
    ],
)
def test_equal_values_have_equal_hashes(layouts: list[Any]) -> None:
    """Whatever the width of a column and however it is laid out."""
    first, *others = [least_hashes(layout, 8) for layout in layouts]
    for other in others:
        assert other.hashes.tolist() == first.hashes.tolist()


def test_a_sample_finds_what_is_common() -> None:
    """Also where the same key comes at equal distances, and among NULLs."""
    dealt = pa.array([i % 8 if i % 8 else None for i in range(80_000)])
    found = frequent(dealt, 20_000, 32, 1)
    assert set(found.values) == set(range(1, 8))
    assert all(count == pytest.approx(2_500, rel=0.1) for count in found.counts)
    known = hashes_of(found.values)
    assert found.hashes == [known[value] for value in found.values]


def test_the_commonest_are_told_first_and_no_more_than_asked() -> None:
    """Of many values, the ones that matter."""
    keys = np.concatenate([np.arange(10_000), np.full(500, 3), np.full(900, 5)])
    found = frequent(pa.array(keys), 20_000, 2, 0)
    assert (found.values, found.counts) == ([5, 3], [901, 501])


def test_rows_are_drawn_from_everywhere() -> None:
    """One of each stretch, and all where there are not too many."""
    assert draw_rows(5, 5, 0) is None
    drawn = draw_rows(1_003, 100, 7)
    assert drawn is not None
    assert np.all(np.diff(drawn) > 0)
    assert np.bincount(drawn // 101, minlength=10).min() >= 8


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([3, None, -1], pa.int32()), [-1.0, 3.0]),
        (pa.array([5, 2], pa.timestamp("us", "UTC")), [2.0, 5.0]),
        (pa.array([5, 2], pa.date32()), [2.0, 5.0]),
        (pa.array([Decimal("1.50"), Decimal("-2.25")]), [-2.25, 1.5]),
        (pa.array([float("nan"), 0.5], pa.float32()), [0.5, float("nan")]),
    ],
)
def test_ordered_values_are_numbers(column: Any, expected: list[float]) -> None:
    """Of every type that has distances; NULL is none."""
    np.testing.assert_array_equal(ordered_values(column, 10, 0), expected)
