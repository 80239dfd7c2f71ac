"""Query-sets against sets of Python: a bit too few loses a query's result, a bit too many invents one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.bucket.compiled import Longs
from weft.errors import StateError
from weft.kernels.query_sets.query_set import (
    all_of,
    by_thresholds,
    columns_of,
    count_per_query,
    nonempty,
    only,
    rows_per_query,
    set_bit,
    set_names,
    sets_of,
    thresholds,
    words_for,
)

SLOTS = 200
WORDS = words_for(SLOTS)
# The borders of words, and 63, the sign.
slots = st.sampled_from([0, 1, 62, 63, 64, 65, 127, 128, 199]) | st.integers(0, SLOTS - 1)
members = st.lists(st.frozensets(slots, max_size=12), max_size=70)


def packed(queries: list[frozenset[int]], words: int = WORDS) -> Longs:
    sets = np.zeros((words, len(queries)), np.int64)
    for row, present in enumerate(queries):
        for word in range(words):
            value = sum(1 << slot % 64 for slot in present if slot // 64 == word)
            sets[word, row] = value - (1 << 64) if value >> 63 else value
    return sets


def unpacked(sets: Longs) -> list[frozenset[int]]:
    slots_of = range(len(sets) * 64)
    return [
        frozenset(slot for slot in slots_of if int(sets[slot // 64, row]) >> slot % 64 & 1)
        for row in range(sets.shape[1])
    ]


@given(members, st.lists(slots, unique=True, max_size=20))
def test_rows_of_every_query(queries: list[frozenset[int]], asked: list[int]) -> None:
    sets = packed(queries)
    wanted = [[row for row, present in enumerate(queries) if slot in present] for slot in asked]
    offsets, rows = rows_per_query(sets, asked)
    assert (str(offsets.dtype), str(rows.dtype), len(offsets)) == ("int64", "int32", len(asked) + 1)
    assert [rows[a:b].tolist() for a, b in pairwise(offsets)] == wanted
    assert count_per_query(sets, asked).tolist() == [len(found) for found in wanted]
    assert offsets[-1] == len(rows)


def test_a_slot_is_asked_for_once() -> None:
    with pytest.raises(StateError, match="repeat"):
        rows_per_query(packed([frozenset({3})]), [3, 3])
    assert count_per_query(packed([frozenset({3})]), [3, 3]).tolist() == [1, 1]


@given(members, members)
def test_both_sets(one: list[frozenset[int]], other: list[frozenset[int]]) -> None:
    rows = min(len(one), len(other))
    common = [a & b for a, b in zip(one[:rows], other[:rows], strict=True)]
    left = packed(one[:rows])
    assert unpacked(all_of(left, packed(other[:rows]))) == common
    assert unpacked(left) == one[:rows]
    assert all_of(left, packed(other[:rows]), out=left) is left
    assert unpacked(left) == common
    assert nonempty(left).tolist() == [bool(queries) for queries in common]
    assert nonempty(left[:1]).tolist() == [any(slot < 64 for slot in queries) for queries in common]


@given(members, st.data())
def test_a_bit_is_set_and_cleared_and_no_other_touched(queries: list[frozenset[int]], data: Any) -> None:
    slot = data.draw(slots)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(queries), max_size=len(queries))), bool)
    sets = packed(queries)
    set_bit(sets, slot, mask)
    expected = [old - {slot} | ({slot} if new else set()) for old, new in zip(queries, mask, strict=True)]
    assert unpacked(sets) == expected


@given(members, st.lists(slots))
def test_only_some_queries_are_left(queries: list[frozenset[int]], wanted: list[int]) -> None:
    assert unpacked(only(packed(queries), wanted)) == [present & set(wanted) for present in queries]


def test_what_does_not_fit_is_refused() -> None:
    sets = packed([frozenset({1})])
    for slot, rows in ((-1, 1), (WORDS * 64, 1), (0, 2)):
        with pytest.raises(StateError, match="do not fit"):
            set_bit(sets, slot, np.ones(rows, bool))
    for slot in (-1, WORDS * 64):
        with pytest.raises(StateError, match="does not fit"):
            count_per_query(sets, [slot])


@given(members, st.sampled_from([1, WORDS]))
def test_through_columns_and_back(queries: list[frozenset[int]], words: int) -> None:
    sets = packed(queries, words)
    columns = columns_of(sets)
    assert tuple(columns) == set_names(words)
    assert all(column.type == pa.int64() for column in columns.values())
    batch = pa.record_batch(columns)
    assert np.array_equal(sets_of([batch.column(name) for name in set_names(words)]), sets)
    assert np.array_equal(sets_of([pa.chunked_array([column]) for column in columns.values()]), sets)


def test_columns_share_the_memory_of_the_sets() -> None:
    sets = packed([frozenset({1, 70})] * 9)
    addresses = [column.buffers()[1].address for column in columns_of(sets).values()]
    assert addresses == [word.ctypes.data for word in sets]
    one = sets_of([columns_of(sets)["$q1"]])
    assert one.ctypes.data == addresses[1]
    with pytest.raises(StateError, match="copy them first"):
        set_bit(one, 0, np.ones(9, bool))
    assert rows_per_query(one, [6])[1].tolist() == list(range(9))


ages = st.integers(-3, 12) | st.sampled_from([-(2**63), 2**63 - 1])


@given(st.dictionaries(slots, st.none() | ages, max_size=40), st.lists(ages, max_size=60))
def test_windows(windows: dict[int, int | None], values: list[int]) -> None:
    bounds, table = thresholds(windows, WORDS)
    assert np.all(bounds[:-1] < bounds[1:])
    sets = by_thresholds(np.array(values, np.int64), bounds, table)
    expected = [
        frozenset(slot for slot, bound in windows.items() if bound is None or age <= bound) for age in values
    ]
    assert unpacked(sets) == expected


def test_many_rows_cross_no_border_wrongly() -> None:
    """Rows are looked up in blocks."""
    values = np.random.default_rng(0).integers(0, 300, 5000)
    sets = by_thresholds(values, *thresholds({slot: slot for slot in range(SLOTS)}, WORDS))
    assert count_per_query(sets, range(SLOTS)).tolist() == [int((values <= s).sum()) for s in range(SLOTS)]
    offsets, rows = rows_per_query(sets, [199, 5])
    assert np.array_equal(rows[: offsets[1]], np.flatnonzero(values <= 199))
    assert np.array_equal(rows[offsets[1] :], np.flatnonzero(values <= 5))
