"""What would be lost: a result that is there twice or not at all after a crash, half a batch in a reader's hands."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from rich.console import Console

from weft.connectors.files import file_system as files
from weft.connectors.files.parquet_files import ParquetFile
from weft.connectors.files.parquet_sink import ParquetSink, to_parquet
from weft.connectors.memory.console import to_console
from weft.connectors.memory.foreach import foreach_batch
from weft.connectors.memory.sink import to_memory
from weft.errors import SinkError
from weft.ports.sink import PartSink, Sink

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
STEPS = ("make_directory", "write_text", "move", "set_aside", "remove")
COMMIT_STEPS = ("names_in", "flush", "make_directory", "move", "set_aside", "remove")


def rows(*keys: int) -> pa.Table:
    return pa.table(
        [pa.array(keys, pa.int64()), pa.array([f"é{key}" for key in keys], pa.string())], schema=SCHEMA
    )


def content(path: Path) -> list[int]:
    """What a reader sees, who knows nothing of batches."""
    if not path.exists():
        return []
    found = pads.dataset(path, format="parquet", schema=SCHEMA).to_table()
    return sorted(found["k"].to_pylist())


class CrashError(Exception):
    """The process ends here."""


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Make the given step of all that follow fail, before it does anything or after; nothing is done from then on."""
    done = 0
    limit: int | None = None

    def wrapped(step: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            nonlocal done
            done += 1
            if limit is not None and done * 2 >= limit:
                raise CrashError
            step(*args)
            if limit is not None and done * 2 + 1 >= limit:
                raise CrashError

        return run

    def arm(at: int | None) -> None:
        nonlocal done, limit
        done, limit = 0, at

    for name in STEPS:
        monkeypatch.setattr(files, name, wrapped(getattr(files, name)))
    for name in ("write", "close"):
        monkeypatch.setattr(ParquetFile, name, wrapped(getattr(ParquetFile, name)))
    return arm


def opened(sink: Any) -> Any:
    """A sink that has been opened, as the loop does it first of all."""
    sink.open(SCHEMA)
    return sink


def commit_rows(sink: ParquetSink, batch: int, *keys: int) -> None:
    sink.begin(batch)
    sink.commit(batch, rows(*keys))


def commit_parts(sink: ParquetSink, batch: int, *keys: int) -> None:
    sink.begin(batch)
    names = [sink.write_part(batch, number, rows(key).to_batches()) for number, key in enumerate(keys)]
    sink.write_part(batch, 0, rows(-1))  # a task that was run twice
    sink.commit_parts(batch, names)


@pytest.mark.parametrize("commit", [commit_rows, commit_parts])
@pytest.mark.parametrize("committed_before", [False, True])
def test_a_crash_at_any_step_leaves_every_row_once(
    commit: Callable[..., None],
    committed_before: bool,
    tmp_path: Path,
    crash_at: Callable[[int | None], None],
) -> None:
    for step in range(2, 200):
        path = tmp_path / f"out-{step}"
        started(path, -1)
        commit(to_parquet(path), 0, 1, 2)
        if committed_before:
            commit(to_parquet(path), 1, 3, 4, 5)
        crashed = crashes(lambda path=path: commit(started(path, 0), 1, 3, 4, 5), step, crash_at)  # type: ignore[misc]
        assert content(path) in ([1, 2], [1, 2, 3, 4, 5])
        commit(started(path, 0), 1, 3, 4, 5)
        commit(to_parquet(path), 2, 6)
        assert content(path) == [1, 2, 3, 4, 5, 6]
        assert sorted(entry.name for entry in path.glob("_weft/*/*")) == []
        if not crashed:
            return
    pytest.fail("it never ran to its end")


def started(path: Path, last: int) -> ParquetSink:
    """A sink after a restart."""
    sink = to_parquet(path)
    sink.open(SCHEMA, "checkpoint-1")
    sink.recover(last)
    return sink


def crashes(run: Callable[[], None], step: int, crash_at: Callable[[int | None], None]) -> bool:
    crash_at(step)
    try:
        run()
    except CrashError:
        return True
    finally:
        crash_at(None)
    return False


def test_a_batch_that_turns_out_empty_leaves_nothing(tmp_path: Path) -> None:
    sink = opened(to_parquet(tmp_path))
    sink.commit(0, rows(1))
    sink.commit(0, [])
    sink.commit(1, rows())
    assert content(tmp_path) == []
    assert sink.batches() == []


def test_a_batch_that_is_committed_again_keeps_files_that_hold_the_same(tmp_path: Path) -> None:
    """Spark, which knows files by their names, would read the same results once more."""
    sink = opened(ParquetSink(tmp_path / "out"))
    first = pa.table({"x": [1.0, float("nan"), None, 0.0], "s": ["a", None, "b", "b"]})
    sink.commit(0, first)
    names = files.names_in(sink.batch_directory(0))
    again = [sink.write_part(0, 0, first.slice(2)), sink.write_part(0, 1, first.slice(0, 2))]
    sink.commit_parts(0, again)
    assert files.names_in(sink.batch_directory(0)) == names
    for other in (
        first.slice(1),
        pa.table({"x": [1.0, float("nan"), None, -0.0], "s": ["a", None, "b", "b"]}),
    ):
        sink.commit(0, other)
        assert files.names_in(sink.batch_directory(0)).isdisjoint(names)
        names = files.names_in(sink.batch_directory(0))
    ordered = opened(ParquetSink(tmp_path / "ordered").in_order())
    for rows_, kept in ((first, False), (first, True), (first.take([1, 0, 2, 3]), False)):
        before = files.names_in(ordered.batch_directory(0))
        ordered.commit(0, rows_)
        assert (files.names_in(ordered.batch_directory(0)) == before) == kept


def test_batches_are_numbers_and_parts_keep_their_order(tmp_path: Path) -> None:
    sink = opened(to_parquet(f"file://{tmp_path}", compression="zstd", batch_column="n"))
    for batch in (9, 10, 2):
        sink.commit(batch, rows(batch))
    assert sink.batches() == [2, 9, 10]
    table = pads.dataset(tmp_path, format="parquet", partitioning="hive").to_table()
    assert sorted(table["n"].to_pylist()) == [2, 9, 10]


def test_results_of_another_checkpoint_are_refused_and_kept(tmp_path: Path) -> None:
    commit_rows(started(tmp_path, -1), 0, 1)
    with pytest.raises(SinkError, match="holds the results of another checkpoint"):
        to_parquet(tmp_path).open(SCHEMA, "checkpoint-2")
    for batch in (1, 2):
        commit_rows(to_parquet(tmp_path), batch, batch + 1)
    with pytest.raises(SinkError, match="has batch 2, but the checkpoint ends with 0"):
        started(tmp_path, 0)
    assert content(tmp_path) == [1, 2, 3]
    (tmp_path / "_weft/owner.json").write_text('{"format": 99}')
    with pytest.raises(SinkError, match="another version"):
        to_parquet(tmp_path).open(SCHEMA)


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="have a column batch"):
        to_parquet(tmp_path).open(pa.schema([("Batch", pa.int64())]))
    with pytest.raises(SinkError, match="unknown compression") as caught:
        to_parquet(tmp_path, compression="zstandard")
    assert "did you mean zstd?" in str(caught.value)
    with pytest.raises(SinkError, match="not a path of this machine"):
        to_parquet("hdfs://name/out")
    with pytest.raises(SinkError, match="cannot be the name"):
        to_parquet(tmp_path, batch_column="a/b")
    with pytest.raises(SinkError, match="path is empty"):
        to_parquet(" ")
    with pytest.raises(SinkError, match="cannot show 0 rows"):
        to_console(0)
    with pytest.raises(SinkError, match="function cannot be 3"):
        foreach_batch(3)  # type: ignore[arg-type]


def test_a_part_that_is_gone_is_not_passed_over(tmp_path: Path) -> None:
    sink = opened(to_parquet(tmp_path))
    name = sink.write_part(0, 0, rows(1))
    with pytest.raises(SinkError, match="batch 0 lacks its file part-00001"):
        sink.commit_parts(0, [name, "part-00001-x.parquet"])
    assert content(tmp_path) == []


@pytest.mark.parametrize("committed_before", [False, True])
def test_a_task_that_goes_on_while_its_batch_is_committed_adds_nothing(
    committed_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs slow tasks twice and ends the job with the first of both; the other may write for seconds yet."""
    late: Callable[[], None] | None = None
    done = at = 0

    def interrupted(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            pass_moment()
            found = step(*args)
            pass_moment()
            return found

        return run

    def pass_moment() -> None:
        nonlocal late, done
        if late is not None:
            done += 1
            if done == at:
                write, late = late, None  # what it does itself is not interrupted
                write()

    for name in COMMIT_STEPS:
        monkeypatch.setattr(files, name, interrupted(getattr(files, name)))
    for at in range(1, 200):
        sink = opened(to_parquet(tmp_path / str(at)))
        if committed_before:
            commit_parts(sink, 0, 1, 2)
        names = [sink.write_part(0, number, rows(key)) for number, key in enumerate((1, 2))]
        done, late = 0, lambda sink=sink: write_late(sink)
        sink.commit_parts(0, names)
        assert content(tmp_path / str(at)) == [1, 2]
        if late is not None:
            assert at > 6
            return
    pytest.fail("it never ran to its end")


def write_late(sink: ParquetSink) -> None:
    """What a task does that nobody waits for; its directory may go under its hands, and nobody hears of it."""
    with suppress(OSError):
        sink.write_part(0, 0, rows(1))


def test_memory_holds_each_batch_once_and_in_order() -> None:
    sink = to_memory()
    sink.open(SCHEMA)
    assert sink.results().schema == SCHEMA
    for batch, keys in ((1, (2,)), (0, (1,)), (1, (2,)), (2, ())):
        sink.begin(batch)
        sink.commit(batch, rows(*keys).to_batches())
    assert sink.results()["k"].to_pylist() == [1, 2]
    sink.recover(0)
    assert sink.results()["k"].to_pylist() == [1]
    with pytest.raises(SinkError, match="other columns"):
        sink.open(pa.schema([("x", pa.int8())]))


def test_the_console_shows_the_first_rows_as_they_are() -> None:
    out = io.StringIO()
    sink = to_console(2, console=Console(file=out, width=60))
    sink.open(SCHEMA)
    sink.commit(3, pa.table({"k": [1, None, 3], "s": ["[red]x", "b", "c"]}))
    sink.commit(4, [])
    text = out.getvalue()
    assert all(part in text for part in ("batch 3: 3 rows", "[red]x", "NULL", "… 1 more"))
    assert "batch 4" not in text


def test_a_function_gets_every_batch_with_its_number() -> None:
    seen: list[tuple[int, int]] = []
    sink = foreach_batch(lambda table, batch: seen.append((table.num_rows, batch)), arrow=True)
    sink.open(SCHEMA)
    sink.begin(0)
    sink.commit(0, rows(1, 2))
    sink.commit(1, [])
    assert seen == [(2, 0), (0, 1)]


def test_every_sink_speaks_the_protocol(tmp_path: Path) -> None:
    sinks: list[Sink] = [to_parquet(tmp_path), to_memory(), to_console(), foreach_batch(print)]
    assert all(isinstance(sink, Sink) for sink in sinks)
    assert [isinstance(sink, PartSink) for sink in sinks] == [True, False, False, False]
    assert [sink.exactly_once for sink in sinks] == [True, True, False, False]


@pytest.mark.parametrize("content", [b"", b'{"format": 1, "own', b"[1]", b"\xd0\x00"])
def test_a_directory_whose_owner_cannot_be_told_is_refused(tmp_path: Path, content: bytes) -> None:
    """Another checkpoint's results could be replaced; the error names the file that is damaged."""
    to_parquet(tmp_path).open(SCHEMA, "me")
    (tmp_path / "_weft/owner.json").write_bytes(content)
    with pytest.raises(SinkError, match=r"_weft/owner\.json is damaged"):
        to_parquet(tmp_path).open(SCHEMA, "me")
