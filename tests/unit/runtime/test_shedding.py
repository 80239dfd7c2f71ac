"""Rows that are shed where not all can be in time: counted exactly, and the same ones when a batch is repeated."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.shares import examples
from weft.connectors.memory.source import TableSource
from weft.errors import CatalogError
from weft.ports.source import Part, PartRows
from weft.runtime.task.worker import shed_rows


@examples(30)
@given(st.integers(0, 5_000), st.floats(0.01, 1.0), st.integers(0, 2**40))
def test_shed_rows_are_a_fair_part_and_always_the_same(count: int, kept: float, number: int) -> None:
    """A batch that is repeated would give other results; fewer rows that are kept are among more of them."""
    part = Part({"file": f"/in/{number}", "size": number})
    rows = PartRows(
        pa.RecordBatch.from_pydict({"k": np.arange(count)}), arrived=np.arange(count, dtype=np.int64)
    )
    some, shed = shed_rows(part, rows, kept)
    again, _ = shed_rows(part, rows, kept)
    assert some.batch.equals(again.batch)
    assert some.batch.num_rows + shed == count
    assert some.batch["k"].to_pylist() == some.arrived.tolist()
    assert abs(some.batch.num_rows - kept * count) <= 6 * np.sqrt(count) + 1
    fewer = shed_rows(part, rows, kept / 2)[0].batch["k"].to_pylist()
    assert set(fewer) <= set(some.batch["k"].to_pylist())


def test_a_stream_that_is_too_late_is_sampled_and_the_rest_is_counted(tmp_path: Path) -> None:
    """Of the other stream nothing is lost: all rows are results, or are counted as shed."""
    sources = {name: TableSource("k long") for name in ("a", "b")}
    session = weft.Session(checkpoint=tmp_path, execution="local", latency="10 ms", scale="off")
    session.stream("a", sources["a"], shed="sample")
    session.stream("b", sources["b"])
    queries = {
        name: session.query(f"SELECT {name}.k FROM {name}", name=f"all_{name}", sink=weft.to_memory())
        for name in sources
    }
    session.start()
    for turn in range(4):
        for number in range(10):
            keys = np.arange(50_000) + (10 * turn + number) * 50_000
            for source in sources.values():
                source.offer(pa.table({"k": keys}), arrived=int((time.time() - 60) * 1e6))
        session.process_all_available()
    progress = {name: session.progress[f"all_{name}"] for name in queries}
    totals = session.totals
    session.stop()
    shed = sum(batch.inputs["a"].shed for batch in progress["a"])
    kept = queries["a"].results()["k"].to_pylist()
    assert shed > 0
    assert totals.streams["a"].shed == shed
    assert len(kept) == len(set(kept)) == 40 * 50_000 - shed
    assert not any(batch.inputs["b"].shed for batch in progress["b"])
    assert sorted(queries["b"].results()["k"].to_pylist()) == list(range(40 * 50_000))


def test_a_way_to_shed_that_is_none_is_refused() -> None:
    """The nearest one is named, and works."""
    session = weft.Session()
    with pytest.raises(CatalogError, match="'samples'") as refused:
        session.stream("a", "k long", shed="samples")
    assert "sample" in (refused.value.hint or "")
    session.stream("a", "k long", shed="sample")
