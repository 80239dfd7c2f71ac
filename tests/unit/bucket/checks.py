"""Random tables for buckets, and what must hold for their indexes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tests.unit.kernels.columns import batches, less
from weft.bucket.bucket import Bucket, words_of
from weft.bucket.compiled import mix
from weft.bucket.index import Index, Order


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
    assert index.slots is not None
    for slot in range(index.directory.size - 1):
        inside = entries[index.directory[slot] : index.directory[slot + 1]]
        hashes = [int(mix(np.int64(words[i]))) for i in inside]
        assert all((one >> index.slots.shift) - index.slots.first == slot for one in hashes)
        tie = arrival if index.permutation is None else np.zeros_like(arrival)
        sort_keys = [(int(mix(np.int64(words[i]))), int(times[i]), int(tie[i])) for i in inside]
        assert sort_keys == sorted(sort_keys)
