"""Words of keys and routing: a key that has another word in another place never meets its partner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernels.columns import KEY_TYPES, batches, chunked, columns, same
from weft.bucket.bucket import Bucket, build
from weft.bucket.index import by_hash
from weft.bucket.words import key_words
from weft.errors import StateError
from weft.kernels.probe.equality import equal_values, in_order, probe
from weft.kernels.probe.materialise import stored_column
from weft.kernels.probe.ranges import Matches
from weft.kernels.route.partition import by_hash as split_by_hash
from weft.kernels.route.partition import dealt, group, partitions, split


@given(st.sampled_from(KEY_TYPES).flatmap(lambda kind: columns(kind, 12)))
def test_equal_keys_have_equal_words_and_others_have_not(column: Any) -> None:
    words = key_words([column])
    found, valid = words.values, words.valid
    values = column.to_pylist()
    for i, one in enumerate(values):
        assert (valid is None or bool(valid[i])) == (one is not None)
        for j, other in enumerate(values):
            if one is not None and other is not None:
                assert (found[i] == found[j]) == same(one, other)


@given(st.sampled_from(KEY_TYPES).flatmap(lambda kind: columns(kind, 9)), st.integers(2, 4))
def test_a_word_does_not_depend_on_how_the_column_is_stored(column: Any, parts: int) -> None:
    words = key_words([column]).values
    known = [value is not None for value in column.to_pylist()]
    ways = [chunked(column, parts), column.take(pa.array(range(9))), column.dictionary_encode()]
    for other in ways:
        assert key_words([other]).values[known].tolist() == words[known].tolist()


def test_integers_of_any_width_meet() -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    first, *others = (key_words([pa.array([0, 1, 100], kind)]).values.tolist() for kind in kinds)
    assert all(other == first for other in others)
    assert (
        key_words([pa.array([0.5], pa.float32())]).values == key_words([pa.array([0.5], pa.float64())]).values
    )
    coarse, fine = pa.array([5], pa.timestamp("ms")), pa.array([5000], pa.timestamp("us"))
    assert key_words([coarse]).values == key_words([fine]).values


@given(st.data())
def test_composite_keys(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KEY_TYPES), min_size=2, max_size=3))
    batch = data.draw(batches({f"c{i}": kind for i, kind in enumerate(kinds)}, 10))
    words = key_words(batch.columns)
    found, valid = words.values, words.valid
    rows = [tuple(row.values()) for row in batch.to_pylist()]
    for i, one in enumerate(rows):
        assert (valid is None or bool(valid[i])) == (None not in one)
        for j, other in enumerate(rows):
            if None not in one and None not in other:
                assert (found[i] == found[j]) == all(map(same, one, other))


@given(st.data(), st.sampled_from(KEY_TYPES))
def test_verification_compares_values(data: st.DataObject, kind: Any) -> None:
    left, right = data.draw(columns(kind, 8)), data.draw(columns(kind, 8))
    pairs = [(i, j) for i in range(8) for j in range(8) if left[i].is_valid and right[j].is_valid]
    rows = np.array(pairs, np.int32).reshape(-1, 2)
    found = equal_values([left], [right], rows[:, 0].copy(), rows[:, 1].copy())
    values, others = left.to_pylist(), right.to_pylist()
    assert found.tolist() == [same(values[i], others[j]) for i, j in pairs]


def test_strings_whose_hashes_collide_do_not_join() -> None:
    """Forged: the index says two different texts have one hash; only the comparison of values can tell."""
    run = build(pa.record_batch({"k": ["left"]}), layout=by_hash("k"))
    index = run.indexes[0]
    keys = in_order([pa.array(["right"])])
    forged = type(keys)(index.words.values, keys.rows, keys.columns, keys.exact)
    assert len(probe(forged, [run], by_hash("k"))) == 0


def test_a_list_is_no_key() -> None:
    with pytest.raises(StateError, match="cannot be a key"):
        key_words([pa.array([[1]])])


@given(st.data(), st.sampled_from(KEY_TYPES), st.integers(1, 5), st.booleans())
def test_routing_by_hash(data: st.DataObject, kind: Any, count: int, nulls: bool) -> None:
    batch = data.draw(batches({"k": kind, "row": pa.int64()}, 20))
    batch = batch.set_column(1, "row", pa.array(range(batch.num_rows), pa.int64()))
    parts = split_by_hash(batch, ["k"], count, nulls=nulls)
    assert len(parts) == count
    where = {row: number for number, part in enumerate(parts) for row in part.column("row").to_pylist()}
    keys = batch.column("k").to_pylist()
    assert set(where) == {row for row, key in enumerate(keys) if nulls or key is not None}
    assert all(part.column("row").to_pylist() == sorted(part.column("row").to_pylist()) for part in parts)
    for i in where:
        for j in where:
            assert not same(keys[i], keys[j]) or where[i] == where[j]


def test_keys_spread_evenly_over_partitions_and_slots() -> None:
    """Routing must not use up the bits that directories are made of."""
    batch = pa.record_batch({"k": np.arange(40_000)})
    parts = split_by_hash(batch, ["k"], 8)
    assert all(4_500 < part.num_rows < 5_500 for part in parts)
    directory = build(parts[3], layout=by_hash("k")).indexes[0].directory
    assert np.diff(directory).max() < 16
    assert (np.diff(directory) == 0).mean() < 0.5


def test_rows_are_dealt_out_in_turn() -> None:
    batch = pa.record_batch({"k": list(range(7))})
    parts = [part.column("k").to_pylist() for part in split(batch, dealt(7, 3, first=2), 3)]
    assert parts == [[1, 4], [2, 5], [0, 3, 6]]
    grouped, starts = group(batch, dealt(7, 3, first=2), 3)
    assert grouped.column("k").to_pylist() == [1, 4, 2, 5, 0, 3, 6]
    assert starts.tolist() == [0, 2, 4, 7]
    assert partitions([batch.column("k")], 1).tolist() == [0] * 7
    with pytest.raises(StateError, match="0 partitions"):
        dealt(7, 0)


def bucket(values: list[int]) -> Bucket:
    return build(pa.record_batch({"k": values, "name": [f"s{value}" for value in values]}))


def test_columns_are_gathered_across_runs() -> None:
    runs = [bucket([1, 2]), bucket([]), bucket([3])]
    matches = Matches(np.array([1, 0, 1], np.int32), np.array([1, 0, 0], np.int32), (0, 2, 2, 3))
    assert stored_column(matches, runs, "name").to_pylist() == ["s2", "s1", "s3"]
    assert stored_column(matches, runs, "k").to_pylist() == [2, 1, 3]


def test_wrong_columns_are_named() -> None:
    matches = Matches(np.zeros(0, np.int32), np.zeros(0, np.int32), (0, 0))
    with pytest.raises(StateError, match="no column 'kk'"):
        stored_column(matches, [bucket([1])], "kk")
    with pytest.raises(StateError, match="without runs"):
        stored_column(Matches(matches.probe, matches.stored, (0,)), [], "k")
