"""Sinks keep ordered results in order, and what was said of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

import weft
from weft.connectors.files.parquet_sink import ParquetSink
from weft.connectors.sink_descriptions import describe_sink, make_sink, sink_for
from weft.logical.query.ordering import Ordering
from weft.ports.punctuation import Punctuations
from weft.ports.sink import OrderedPartSink, OrderedSink

OUTER = Ordering("outer")
SCHEMA = pa.schema([("k", pa.int64())])


def marks_of(rows: int) -> Punctuations:
    """One punctuation after so many rows."""
    return Punctuations(np.array([rows]), np.array([10 * rows]))


def test_files_of_ordered_results_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Readers sort by name; batch 10 must not come before batch 2."""
    sink = sink_for(weft.to_parquet(tmp_path / "out"), OUTER)
    assert isinstance(sink, ParquetSink)
    sink.open(SCHEMA, "me")
    for batch in range(12):
        sink.begin(batch)
        for _ in range(2):  # a batch that is replayed replaces what was there
            sink.commit(batch, marks_of(batch + 1).on(pa.table({"k": [batch]})))
    assert sink.batches() == list(range(12))
    found = pads.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert found["k"].to_pylist() == found["batch"].to_pylist() == list(range(12))
    (file,) = sink.batch_directory(10).iterdir()
    schema = pq.read_schema(file)
    assert Punctuations.read(schema)[0] == weft.Punctuation(11, 110)


def test_parts_of_a_batch_are_in_order_and_stay_if_it_is_repeated(tmp_path: Path) -> None:
    """Spark knows files by their names: the same rows under other names would be seen twice."""
    sink = weft.to_parquet(tmp_path / "out").in_order()
    assert isinstance(sink, OrderedPartSink)
    assert not weft.to_parquet(tmp_path / "out").keeps_order
    sink.open(SCHEMA, "me")

    def commit(*parts: list[int]) -> list[Path]:
        names = []
        for place, values in reversed(list(enumerate(parts))):  # whichever task is done first
            part = sink.open_part(0, place)
            batch = pa.RecordBatch.from_pydict({"k": values}, SCHEMA)
            part.write(marks_of(values[-1]).on_batch(batch))
            names.append(part.close())
        sink.commit_parts(0, names)
        return sorted(sink.batch_directory(0).iterdir())

    first = commit([1, 2], [3], [4, 5])
    assert [pq.read_table(file)["k"].to_pylist() for file in first] == [[1, 2], [3], [4, 5]]
    assert [Punctuations.read(pq.read_schema(file))[0].rows for file in first] == [2, 3, 5]
    assert commit([1, 2], [3], [4, 5]) == first
    assert commit([1, 2, 3], [4, 5]) == first  # by fewer tasks
    assert commit([1, 2], [3], [5, 4]) != first


def test_a_sink_that_is_made_again_goes_on_in_order(tmp_path: Path) -> None:
    """After a crash, results of a query that was added later must not go to other places."""
    sink = sink_for(weft.to_parquet(tmp_path, compression="zstd"), OUTER)
    assert sink is not None
    assert make_sink(json.loads(json.dumps(describe_sink(sink)))) == sink
    assert sink_for(sink, OUTER) == sink
    assert sink_for(weft.to_parquet(tmp_path), None) == weft.to_parquet(tmp_path)
    assert make_sink(describe_sink(weft.to_parquet(tmp_path)) or {}) != sink
    console = weft.to_console()
    assert sink_for(console, OUTER) is console
    assert sink_for(None, OUTER) is None


def test_memory_keeps_punctuations_with_their_batches() -> None:
    """Those of a batch that comes again are said again, once."""
    sink = weft.to_memory()
    assert isinstance(sink, OrderedSink)
    sink.open(SCHEMA)
    for batch in (0, 1, 1):
        sink.commit_ordered(batch, pa.table({"k": [batch]}), marks_of(batch + 1))
    assert list(sink.punctuations()) == [weft.Punctuation(1, 10), weft.Punctuation(2, 20)]
    sink.recover(0)
    assert sink.results()["k"].to_pylist() == [0]
    assert list(sink.punctuations()) == [weft.Punctuation(1, 10)]
