"""Buckets: what is built holds every row once, in the order its index promises."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernels.columns import KEY_TYPES, VALUE_TYPES, batches, less, same
from weft.bucket.bucket import Bucket, build, words_of
from weft.bucket.compiled import mix
from weft.bucket.index import Index, Order, by_hash, by_value
from weft.errors import StateError


@st.composite
def tables(draw: st.DrawFn, kinds: list[Any]) -> Any:
    """A batch with two keys, an event time and a number that tells its rows apart."""
    batch = draw(batches({"k": draw(st.sampled_from(kinds)), "u": draw(st.sampled_from(kinds))}, 40))
    times = draw(st.lists(st.integers(0, 9), min_size=batch.num_rows, max_size=batch.num_rows))
    batch = batch.append_column("ts", pa.array(times, pa.int64()).view(pa.timestamp("us")))
    return batch.append_column("row", pa.array(range(batch.num_rows), pa.int64()))


def rows(batch: Any) -> list[Any]:
    return sorted(map(repr, batch.to_pylist()))


def listed(index: Index) -> Any:
    return np.arange(index.rows) if index.permutation is None else index.permutation


def check_index(bucket: Bucket, order: Order) -> None:
    """Every row with a key once; words, directory and in-slot order as promised."""
    index = bucket.index(order)
    entries = listed(index)
    keys = [bucket.batch.column(name).to_pylist() for name in order.columns]
    with_key = {i for i in range(bucket.batch.num_rows) if all(column[i] is not None for column in keys)}
    assert sorted(entries.tolist()) == sorted(with_key)
    assert index.directory[0] == 0
    assert (np.diff(index.directory) >= 0).all()
    assert index.words.values.tolist() == words_of(bucket.batch, order).values.tolist()
    if order.kind == "hash":
        check_slots(bucket, index, entries)
    else:
        values = [keys[0][i] for i in entries]
        assert all(less(one, other, or_equal=True) for one, other in pairwise(values)) or not (
            index.words.exact
        )


def check_slots(bucket: Bucket, index: Index, entries: Any) -> None:
    words, times = index.words.values, bucket.times
    arrival = bucket.batch.column("row").to_numpy()
    assert times is not None
    for slot in range(index.directory.size - 1):
        inside = entries[index.directory[slot] : index.directory[slot + 1]]
        assert all(int(mix(np.int64(words[i]))) >> int(index.shift) == slot for i in inside)
        tie = arrival if index.permutation is None else np.zeros_like(arrival)
        sort_keys = [(int(mix(np.int64(words[i]))), int(times[i]), int(tie[i])) for i in inside]
        assert sort_keys == sorted(sort_keys)


@given(st.data(), tables(KEY_TYPES))
def test_equality_indexes(data: st.DataObject, batch: Any) -> None:
    orders = [by_hash("k"), by_hash("u"), by_hash("k", "u")]
    layout = data.draw(st.sampled_from([*orders, None]))
    bucket = build(batch, layout=layout, indexes=orders, event_time="ts")
    assert rows(bucket.batch) == rows(batch)
    assert bucket.layout == layout
    for order in orders:
        check_index(bucket, order)


@given(st.data(), tables(VALUE_TYPES))
def test_value_indexes(data: st.DataObject, batch: Any) -> None:
    orders = [by_value("k"), by_value("ts")]
    layout = data.draw(st.sampled_from([*orders, None]))
    bucket = build(batch, layout=layout, indexes=orders, event_time="ts")
    assert rows(bucket.batch) == rows(batch)
    for order in orders:
        check_index(bucket, order)


def test_many_rows_of_few_keys_are_sorted_by_time() -> None:
    """Slots too long for the insertion sort: two keys, alternating, in no order of time."""
    times = np.random.default_rng(3).integers(0, 500, 2_000)
    keys = np.arange(2_000) % 2
    batch = pa.record_batch(
        {"k": keys, "ts": pa.array(times).view(pa.timestamp("us")), "row": np.arange(2_000)}
    )
    check_index(build(batch, layout=by_hash("k"), event_time="ts"), by_hash("k"))


@pytest.mark.parametrize("width", [1, 8, 11, 12, 22, 31, 33, 44, 63])
def test_values_of_any_span_are_sorted(width: int) -> None:
    """The radix sort looks only at the bits that differ: one, two, three or six digits."""
    values = np.random.default_rng(width).integers(-(2 ** (width - 1)), 2 ** (width - 1), 3_000)
    batch = pa.record_batch({"k": values, "row": np.arange(3_000)})
    bucket = build(batch, layout=by_value("k"))
    expected = np.argsort(values, kind="stable")
    assert bucket.batch.column("row").to_pylist() == expected.tolist()


def test_bounds() -> None:
    columns = {"k": [3, 1, 2], "ts": pa.array([7, 5, 9], pa.timestamp("us"))}
    bucket = build(pa.record_batch(columns), layout=by_hash("k"), event_time="ts")
    bounds = bucket.bounds
    assert (bounds.rows, bounds.min_time, bounds.max_time) == (3, 5, 9)
    assert bounds.bytes == bucket.batch.nbytes + bucket.indexes[0].nbytes
    empty = build(pa.record_batch(columns).slice(0, 0), layout=by_hash("k"), event_time="ts").bounds
    assert (empty.rows, empty.min_time, empty.max_time) == (0, None, None)


def test_an_index_is_small() -> None:
    """State must stay near the size of its columns: a layout by an integer costs its directory alone."""
    size = 100_000
    batch = pa.record_batch({"k": np.arange(size), "u": np.arange(size), "ts": np.arange(size)})
    one = build(batch, layout=by_hash("k"), event_time="ts").bounds.bytes - batch.nbytes
    two = (
        build(batch, layout=by_hash("k"), indexes=[by_hash("u")], event_time="ts").bounds.bytes - batch.nbytes
    )
    assert one <= 4.1 * size
    assert two <= one + 9.1 * size


def test_dictionaries_are_resolved() -> None:
    batch = pa.record_batch({"k": pa.array(["b", "a", "b"]).dictionary_encode(), "row": [0, 1, 2]})
    bucket = build(batch, layout=by_hash("k"))
    assert bucket.batch.schema.field("k").type == pa.string()
    assert same(sorted(bucket.batch.column("k").to_pylist()), ["a", "b", "b"])


def test_wrong_input_is_named() -> None:
    batch = pa.record_batch(
        {"k": [1], "ts": pa.array([None], pa.timestamp("us")), "ms": pa.array([1], pa.timestamp("ms"))}
    )
    with pytest.raises(StateError, match="1 NULLs"):
        build(batch, event_time="ts")
    with pytest.raises(StateError, match=r"timestamp\[ms\]"):
        build(batch, event_time="ms")
    with pytest.raises(StateError, match="no column 'x'"):
        build(batch, layout=by_hash("x"))
    with pytest.raises(StateError, match="0 columns"):
        by_hash()
    with pytest.raises(StateError, match="2 columns"):
        Order("value", ("k", "ts"))
