"""Merging: nothing lost, nothing twice, every order kept, what is past is gone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bucket.checks import check_index, rows
from tests.unit.kernels.columns import KEY_TYPES, batches
from weft.bucket.bounds import Bounds
from weft.bucket.bucket import build
from weft.bucket.index import by_hash, by_value
from weft.bucket.merge import expired, merge
from weft.errors import StateError


@st.composite
def run_batches(draw: st.DrawFn) -> list[Any]:
    """Batches of one schema, their rows numbered through."""
    names = {"k": draw(st.sampled_from(KEY_TYPES)), "u": draw(st.sampled_from(KEY_TYPES))}
    found, row = [], 0
    for _ in range(draw(st.integers(1, 4))):
        batch = draw(batches(names, 20))
        times = draw(st.lists(st.integers(0, 9), min_size=batch.num_rows, max_size=batch.num_rows))
        batch = batch.append_column("ts", pa.array(times, pa.int64()).view(pa.timestamp("us")))
        found.append(batch.append_column("row", pa.array(range(row, row + batch.num_rows), pa.int64())))
        row += batch.num_rows
    return found


def joined(parts: list[Any]) -> Any:
    columns = [
        pa.concat_arrays(list(chunks)) for chunks in zip(*(part.columns for part in parts), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)


@given(st.data(), run_batches(), st.sampled_from([None, 0, 4, 100]))
def test_merging(data: st.DataObject, parts: list[Any], since: int | None) -> None:
    orders = [by_hash("k"), by_hash("u"), by_hash("u", "k"), by_value("u"), by_value("ts")]
    layout = data.draw(st.sampled_from([*orders, None]))
    runs = [build(part, layout=layout, indexes=orders, event_time="ts") for part in parts]
    merged = merge(runs, since)
    everything = joined(parts)
    kept = [time >= (since or 0) for time in everything.column("ts").cast(pa.int64()).to_pylist()]
    assert rows(merged.batch) == rows(everything.filter(pa.array(kept, pa.bool_())))
    assert merged.layout == layout
    for order in orders:
        check_index(merged, order)


@given(run_batches())
def test_merging_is_building_at_once(parts: list[Any]) -> None:
    """Merged runs are, row by row, what one build of all tuples would have been."""
    for layout in (by_hash("k"), by_value("ts")):
        merged = merge([build(part, layout=layout, event_time="ts") for part in parts])
        at_once = build(joined(parts), layout=layout, event_time="ts")
        assert merged.batch.column("row").to_pylist() == at_once.batch.column("row").to_pylist()
        assert merged.indexes[0].directory.tolist() == at_once.indexes[0].directory.tolist()


def test_what_does_not_fit_together_is_refused() -> None:
    one = build(pa.record_batch({"k": [1]}), layout=by_hash("k"))
    with pytest.raises(StateError, match="different orders"):
        merge([one, build(pa.record_batch({"k": [1]}), layout=by_value("k"))])
    with pytest.raises(StateError, match="different columns"):
        merge([one, build(pa.record_batch({"k": [1], "x": [1]}), layout=by_hash("k"))])
    with pytest.raises(StateError, match="nothing to merge"):
        merge([])
    with pytest.raises(StateError, match="cannot expire"):
        merge([one], since=3)


def test_expiry_of_whole_runs() -> None:
    run = Bounds(10, 0, min_time=5, max_time=9)
    assert [expired(run, since) for since in (5, 9, 10)] == [False, False, True]
    assert expired(Bounds(0, 0), 0)
