"""A sink that cannot be made again, or is made otherwise, costs a query its results after a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from weft.connectors.files.parquet_sink import to_parquet
from weft.connectors.memory.console import to_console
from weft.connectors.memory.count import CountSink, to_count
from weft.connectors.memory.foreach import foreach_batch
from weft.connectors.memory.sink import to_memory
from weft.connectors.sink_descriptions import describe_sink, make_sink, same_place
from weft.errors import SinkError
from weft.ports.sink import Sink

ROWS = pa.table({"k": [1, 2, 3]})


def test_counts_are_of_committed_batches_each_once() -> None:
    """However often a batch was replayed."""
    sink = to_count()
    assert isinstance(sink, Sink)
    sink.open(ROWS.schema)
    sink.recover(-1)
    for batch in (0, 1, 1):
        sink.begin(batch)
        sink.commit(batch, ROWS)
    assert sink.count() == 6
    sink.commit_count(2, 10)
    sink.commit_count(2, 20)
    assert sink.count() == 26
    sink.commit(3, [])
    sink.commit(4, ROWS.to_batches())
    assert sink.count() == 29
    sink.recover(1)
    assert sink.count() == 6


@pytest.mark.parametrize("compression", ["zstd", "snappy"])
def test_a_parquet_sink_is_made_again_as_it_was(tmp_path: Path, compression: str) -> None:
    """Another form would be refused by those who read the folder."""
    sink = to_parquet(tmp_path / "out", compression=compression)
    found = describe_sink(sink)
    assert found is not None
    again = make_sink(json.loads(json.dumps(found)))
    assert describe_sink(again) == found
    assert same_place(sink, again)


@pytest.mark.parametrize("sink", [to_memory(), to_count(), to_console(rows=3)])
def test_other_sinks_are_made_again_empty(sink: Sink) -> None:
    """What was in memory is gone with its process."""
    found = describe_sink(sink)
    assert found is not None
    again = make_sink(json.loads(json.dumps(found)))
    assert type(again) is type(sink)
    assert describe_sink(again) == found
    assert not isinstance(again, CountSink) or again.count() == 0


def test_a_function_cannot_be_described() -> None:
    """The user has to give it again."""
    assert describe_sink(foreach_batch(lambda *_: None)) is None


def test_a_sink_of_another_version_is_named() -> None:
    """Not an exception from somewhere inside."""
    with pytest.raises(SinkError, match="no sink of the kind 'pulsar'") as caught:
        make_sink({"kind": "pulsar"})
    assert caught.value.hint


def test_two_sinks_are_one_place_only_if_they_write_to_it(tmp_path: Path) -> None:
    """Two queries in one folder would delete each other's results."""
    one, other = to_parquet(tmp_path / "a"), to_parquet(tmp_path / "b")
    assert same_place(one, to_parquet(tmp_path / "a"))
    assert same_place(one, one)
    assert not same_place(one, other)
    assert not same_place(to_memory(), to_memory())
    assert not same_place(one, foreach_batch(lambda *_: None))
