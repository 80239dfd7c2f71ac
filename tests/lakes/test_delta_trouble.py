"""What would be lost: results in a Delta table that others change meanwhile, or whose disk is full."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.lakes.story import OWNER
from weft.connectors.delta.sink import DeltaSink
from weft.connectors.files import file_system as files
from weft.connectors.files.parquet_files import ParquetFile
from weft.errors import SinkError

deltalake = pytest.importorskip("deltalake", reason='needs pip install "weft[delta]"')

SCHEMA = pa.schema([("k", pa.int64()), ("c", pa.string())])


def rows(*keys: int) -> pa.Table:
    """A batch."""
    return pa.table([keys, [f"text {key}" for key in keys]], schema=SCHEMA)


def opened(path: Path, last: int = -1, **options: Any) -> DeltaSink:
    """A sink whose session goes on after a batch."""
    sink = weft.to_delta(path, **options)
    sink.open(SCHEMA, OWNER)
    sink.recover(last)
    return sink


def table(path: Path) -> Any:
    """The table as others open it."""
    return deltalake.DeltaTable(str(path))


def keys(path: Path) -> list[int]:
    """What a reader sees."""
    return sorted(table(path).to_pyarrow_table()["k"].to_pylist())


def test_others_add_delete_compact_and_vacuum_between_batches(tmp_path: Path) -> None:
    """Their rows and ours are there, ours once."""
    path = tmp_path / "t"
    sink = opened(path)
    sink.commit(0, rows(0))
    deltalake.write_deltalake(str(path), rows(100, 101), mode="append")
    sink.commit(1, rows(1))
    table(path).delete("k = 100")
    sink.commit(2, rows(2))
    table(path).optimize.compact()
    table(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    sink.commit(3, rows(3))
    again = opened(path, 2)
    again.commit(3, rows(3))
    assert keys(path) == [0, 1, 2, 3, 101]
    deltalake.write_deltalake(str(path), rows(200), mode="overwrite")
    again.commit(4, rows(4))
    opened(path, 3).commit(4, rows(4))
    assert keys(path) == [4, 200]


def test_batches_are_known_after_the_log_was_cut_off(tmp_path: Path) -> None:
    """Old entries of the log are deleted after a checkpoint of the table, which keeps the number of the batch."""
    path = tmp_path / "t"
    sink = opened(path)
    for batch in range(5):
        sink.commit(batch, rows(batch))
    table(path).create_checkpoint()
    for entry in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    again = opened(path, 3)
    again.commit(4, rows(4))
    again.commit(5, rows(5))
    assert keys(path) == [*range(6)]


def test_a_table_with_other_columns_meanwhile_is_refused(tmp_path: Path) -> None:
    """The values of a column that is no longer there would be seen by nobody."""
    path = tmp_path / "t"
    sink = opened(path)
    sink.commit(0, rows(0))
    other = pa.table({"k": pa.array([9], pa.int64()), "z": ["x"]})
    deltalake.write_deltalake(str(path), other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(
        SinkError, match=r"the results have a column c of type string, the table .* has no such"
    ):
        sink.commit(1, rows(1))
    assert keys(path) == [9]


def test_a_change_at_the_moment_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that others add are no obstacle; other columns are."""
    path = tmp_path / "t"
    sink, stale = opened(path), table(path)
    deltalake.write_deltalake(str(path), rows(100), mode="append")
    with monkeypatch.context() as patched:
        patched.setattr(DeltaSink, "_table", lambda _: stale)
        sink.commit(0, rows(0))
    assert keys(path) == [0, 100]
    stale, wider = table(path), pa.table({**rows(5).to_pydict(), "z": ["x"]})
    deltalake.write_deltalake(str(path), wider, mode="append", schema_mode="merge")
    monkeypatch.setattr(DeltaSink, "_table", lambda _: stale)
    with pytest.raises(SinkError, match=r"cannot be given batch 1: .*Metadata changed"):
        sink.commit(1, rows(1))
    assert keys(path) == [0, 5, 100]


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    """And not made anew: what was there would be missed by nobody."""
    sink = opened(tmp_path / "t")
    sink.commit(0, rows(0))
    part = sink.write_part(1, 0, rows(1))
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    with pytest.raises(SinkError, match=r"to_delta: .*/t cannot be given batch 1"):
        sink.commit_parts(1, [part])
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(SinkError, match=r"to_delta: .*/t cannot be given batch 1: No such file"):
        sink.commit(1, rows(1))


@pytest.mark.parametrize("step", ["write", "flush", "commit"])
def test_a_full_disk_loses_nothing(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever write it is that finds no room; the batch is there once when there is room again."""
    path = tmp_path / "t"
    sink = opened(path)
    sink.commit(0, rows(0))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner, name = {
        "write": (ParquetFile, "close"),
        "flush": (files, "flush"),
        "commit": (deltalake.DeltaTable, "create_write_transaction"),
    }[step]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, full)
        with pytest.raises(SinkError, match="cannot be given batch 1: No space left") as caught:
            sink.commit(1, rows(1))
        assert "there is room" in str(caught.value.hint)
    assert keys(path) == [0]
    sink.commit(1, rows(1))
    opened(path, 0).commit(1, rows(1))
    assert keys(path) == [0, 1]


def test_a_compaction_that_fails_is_reported_and_the_results_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again later; the query goes on."""
    path = tmp_path / "t"
    sink = opened(path, compact=True)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "weft"):
        patched.setattr(deltalake.table.TableOptimizer, "compact", full)
        for batch in range(32):
            sink.commit(batch, rows(batch))
    assert "was not compacted: [Errno 28] No space left" in caplog.text
    assert len(table(path).file_uris()) == 32
    for batch in range(32, 64):
        sink.commit(batch, rows(batch))
    assert keys(path) == [*range(64)]
    assert len(table(path).file_uris()) < 32


def test_features_that_are_listed_and_not_used_are_no_obstacle(tmp_path: Path) -> None:
    """As of tables that were brought to a newer version of the format; one that is used is."""
    path = tmp_path / "t"
    deltalake.write_deltalake(str(path), rows(1))
    table(path).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    assert table(path).protocol().min_writer_version >= 7
    opened(path).commit(0, rows(2))
    assert (
        len(table(path).file_uris()) == 2
    )  # through Arrow, deltalake reads no table that may have deleted rows
    table(path).alter.add_constraint({"small": "k < 10"})
    with pytest.raises(SinkError, match=r"asks its writers for delta\.constraints\.small"):
        opened(path, 0)


def test_a_second_query_cannot_lose_its_results_to_the_first(tmp_path: Path) -> None:
    """By a path that looks different, as of another mount."""
    one, other = opened(tmp_path / "t"), opened(tmp_path / "t")
    one.commit(0, rows(1))
    with pytest.raises(SinkError, match=r"/t has got batch 0 from another query or session"):
        other.commit(0, rows(2))
    assert keys(tmp_path / "t") == [1]


def test_odd_names_and_values_arrive(tmp_path: Path) -> None:
    """Also as values of partitions."""
    names = ['a b,;{}()\n\t="', "SELECT", "ü", "x"]
    schema = pa.schema([(name, pa.string()) for name in names[:3]] + [("x", pa.float64())])
    found = pa.table(
        [["a/b=c%20 ü\n", "NULL", "."], ["", None, "é"], ["1", "2", "3"], [float("nan"), None, -0.0]], schema
    )
    sink = weft.to_delta(tmp_path / "t", partition_by=names[0])
    sink.open(schema, OWNER)
    sink.commit(0, found)
    sink.commit(1, found.slice(0, 0))
    read = table(tmp_path / "t").to_pyarrow_table().select(names).sort_by("ü")
    assert [str(row) for row in read.to_pylist()] == [str(row) for row in found.to_pylist()]
    assert table(tmp_path / "t").version() == 1
