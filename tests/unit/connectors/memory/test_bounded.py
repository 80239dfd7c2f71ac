"""Sinks in the driver's memory are bounded, and say so."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import weft
from weft.connectors.sink_descriptions import describe_sink, make_sink
from weft.errors import ConfigError, SinkError

ROWS = pa.table({"k": list(range(100))})  # of 800 bytes


def test_memory_refuses_what_is_beyond_its_limit_and_keeps_what_it_has() -> None:
    """A query that fills the driver's memory would end all others."""
    sink = weft.to_memory(limit=2_000)
    sink.open(ROWS.schema)
    for batch in (0, 1, 1, 1):  # a batch that comes again counts once
        sink.commit(batch, ROWS)
    with pytest.raises(SinkError, match="with batch 2, results have 2,400 bytes, and the limit is 2,000"):
        sink.commit(2, ROWS)
    sink.commit(2, ROWS.slice(0, 0))
    assert sink.results().num_rows == 200
    sink.recover(0)
    sink.commit(1, ROWS)
    assert sink.results().num_rows == 200


def test_a_limit_is_a_number_of_bytes_that_is_there_again_after_a_restart() -> None:
    """Without one, it is half of what the machine has, wherever that is."""
    sink = weft.to_memory(limit="1 KB")
    assert sink.limit == 1024
    again = make_sink(describe_sink(sink) or {})
    assert isinstance(again, type(sink))
    assert again.limit == 1024
    assert describe_sink(weft.to_memory()) == {"kind": "memory"}
    assert weft.to_memory().limit > 1 << 24
    with pytest.raises(SinkError, match="no results fit into 0 bytes"):
        weft.to_memory(limit=0)
    with pytest.raises(ConfigError, match="limit of to_memory cannot be 'much'"):
        weft.to_memory(limit="much")


def test_a_function_can_have_a_batch_portion_by_portion() -> None:
    """And finds the punctuations of ordered results in the schema, as in a table."""
    seen: list[tuple[int, list[int], Any]] = []

    def take(rows: pa.RecordBatchReader, batch: int) -> None:
        seen.append((batch, [one.num_rows for one in rows], rows.schema.metadata))

    sink = weft.foreach_batch(take, arrow="reader")
    sink.open(ROWS.schema)
    sink.commit(0, ROWS.to_batches(max_chunksize=40))
    sink.commit(1, ROWS.replace_schema_metadata({"x": "y"}))
    sink.commit(2, [])
    assert seen == [(0, [40, 40, 20], None), (1, [100], {b"x": b"y"}), (2, [], None)]
    with pytest.raises(SinkError, match="arrow cannot be 'batches'"):
        weft.foreach_batch(take, arrow="batches")
