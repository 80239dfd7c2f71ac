"""What would be lost: rows of a DataFrame that are put down twice, or in part, when tasks and drivers fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weft.connectors.frames import source as frame_query
from weft.connectors.frames.source import DataFrameSource, FrameCursor, FrameFolder, write_arrow_files
from weft.errors import SourceError
from weft.logical.schema import Schema
from weft.ports.source import CursorContext, MemoryBlobs


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, pa.int64())})


class Batch:
    """Stands for the DataFrame of one of Spark's batches, written by one task in this process."""

    def __init__(self, *batches: pa.RecordBatch, before: Callable[[str], None] | None = None) -> None:
        self.batches, self.before = batches, before

    def mapInArrow(self, write: Any, schema: str) -> Batch:  # noqa: N802
        assert schema == "file string"
        if self.before is not None:
            self.before(write.folder)
        self.written = [name.as_py() for batch in write(iter(self.batches)) for name in batch["file"]]
        return self

    def collect(self) -> list[tuple[str]]:
        return [(name,) for name in self.written]


class Query:
    """Stands for a streaming DataFrame, its writer and its query."""

    def __init__(self) -> None:
        self.isActive, self.names = True, list[str]()
        self.writeStream = self
        self.run: Callable[[Any, int], None] = lambda frame, number: None  # noqa: ARG005

    def queryName(self, name: str) -> Query:  # noqa: N802
        self.names.append(name)
        return self

    def option(self, name: str, value: str) -> Query:
        assert (name, Path(value).name) == ("checkpointLocation", "spark")
        return self

    def foreachBatch(self, run: Callable[[Any, int], None]) -> Query:  # noqa: N802
        self.run = run
        return self

    def start(self) -> Query:
        return self

    def exception(self) -> Exception | None:
        return None

    def stop(self) -> None:
        self.isActive = False

    def processAllAvailable(self) -> None:  # noqa: N802
        pass


def opened(folder: Path, state: dict[str, Any] | None = None) -> tuple[Query, FrameCursor]:
    query = Query()
    return query, FrameCursor(query, CursorContext("s", state or {}, MemoryBlobs(), folder))


def taken(cursor: FrameCursor, now: float = 0.0) -> list[int]:
    source = DataFrameSource(None, Schema.parse("k long"))
    parts = cursor.look(now).parts
    cursor.take(parts)
    found = [row["k"] for part in parts for row in source.read("s", part).batch.to_pylist()]
    cursor.release(parts)
    return found


def test_a_batch_that_is_run_again_is_passed_over(tmp_path: Path) -> None:
    query, cursor = opened(tmp_path)
    query.run(Batch(rows(1, 2)), 0)
    query.run(Batch(rows(1, 2)), 0)
    assert taken(cursor) == [1, 2]
    query.run(Batch(rows(1, 2)), 0)
    query.run(Batch(rows(3)), 1)
    assert taken(cursor) == [3]
    assert [path.name for path in (tmp_path / "arrow").iterdir()] == ["batch-000000000001"]
    cursor.close()
    assert not query.isActive
    assert query.names[0].startswith("weft: s")


def test_files_of_attempts_that_failed_are_left_out(tmp_path: Path) -> None:
    """A task that is believed dead may still write."""

    def straggle(folder: str) -> None:
        list(write_arrow_files(iter([rows(7)]), folder, "part-00000-9"))

    query, cursor = opened(tmp_path)
    query.run(Batch(rows(1), before=straggle), 0)
    assert taken(cursor) == [1]


def test_a_batch_that_fails_leaves_nothing_and_ends_the_stream(tmp_path: Path) -> None:
    def fail(folder: str) -> None:
        straggler = write_arrow_files(iter([rows(7)]), folder, "part-00000-9")
        next(straggler)
        raise ValueError("this went wrong\nand so on")

    query, cursor = opened(tmp_path)
    with pytest.raises(ValueError, match="this went wrong"):
        query.run(Batch(before=fail), 0)
    with pytest.raises(
        SourceError, match="s: Spark's query that reads the DataFrame has ended: this went wrong"
    ):
        cursor.look(0.0)
    query, cursor = opened(tmp_path, cursor.state())
    query.run(Batch(rows(1)), 0)
    assert taken(cursor) == [1]


@pytest.mark.parametrize("number", [0, 3])
def test_numbers_that_do_not_follow_each_other_are_an_error(tmp_path: Path, number: int) -> None:
    query, cursor = opened(tmp_path)
    query.run(Batch(rows(1)), 0)
    query.run(Batch(rows(2)), 1)
    with pytest.raises(SourceError, match=f"batch {number} of the DataFrame after batch 1"):
        query.run(Batch(rows(3)), number)
    with pytest.raises(SourceError, match=f"s: Spark begins batch {number}"):
        cursor.look(0.0)
    assert FrameFolder(tmp_path).batches() == [0, 1]


def test_a_checkpoint_may_be_moved(tmp_path: Path) -> None:
    query, cursor = opened(tmp_path / "old")
    query.run(Batch(rows(1)), 0)
    parts = cursor.look(0.0).parts
    cursor.take(parts)
    state = cursor.state()
    query.run(Batch(rows(2)), 1)
    (tmp_path / "old").rename(tmp_path / "new")
    _, cursor = opened(tmp_path / "new", state)
    assert taken(cursor) == [2]


def test_files_are_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_query, "_FILE_BYTES", 16)
    names = list(write_arrow_files(iter([rows(1, 2), rows(), rows(3), rows(4), rows(5)]), str(tmp_path), "p"))
    assert names == ["p-000.arrow", "p-001.arrow", "p-002.arrow"]
    found = [pa.ipc.open_file(tmp_path / name).read_all()["k"].to_pylist() for name in names]
    assert found == [[1, 2], [3, 4], [5]]


def test_a_query_that_somebody_stopped_is_told(tmp_path: Path) -> None:
    query, cursor = opened(tmp_path)
    query.stop()
    with pytest.raises(SourceError, match="it was stopped"):
        cursor.look(0.0)
