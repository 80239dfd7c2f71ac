"""Buckets: what is built holds every row once, in the order its index promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bucket.checks import check_index, rows, tables
from tests.unit.kernels.columns import KEY_TYPES, VALUE_TYPES, same
from weft.bucket.bucket import build
from weft.bucket.index import Order, by_hash, by_value
from weft.errors import StateError


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
