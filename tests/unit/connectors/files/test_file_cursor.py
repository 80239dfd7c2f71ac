"""What would be lost: a file that is never read, read twice, or read while it is being written, without a word."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.connectors.formats import writers
from weft.connectors.files import checks, parts
from weft.connectors.files.checks import SETTLED
from weft.connectors.files.parts import FileStatus
from weft.connectors.files.source import FilesSource, files
from weft.errors import SourceError
from weft.logical.codec import decode, encode
from weft.ports.source import Cursor, CursorContext, MemoryBlobs, Offer, Part

DAY = 86_400
SCHEMA = "k long"


def place(
    state: dict[str, Any] | None = None, blobs: MemoryBlobs | None = None, **more: Any
) -> CursorContext:
    return CursorContext("s", state or {}, blobs or MemoryBlobs(), Path("unused"), **more)


def parquet(path: Path, *values: int, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": pa.array(values, pa.int64())}), path, **options)
    return path


def source(folder: Path, format_: str = "parquet", **options: Any) -> FilesSource:
    return files(format_, str(folder), schema=SCHEMA, **options)


def names(offer: Offer) -> list[str]:
    return [Path(part.what["file"]).name for part in offer.parts]


def reasons(offer: Offer) -> dict[str, str]:
    return {Path(one.name).name: one.reason for one in offer.unfinished}


def take_all(cursor: Cursor, now: float | None = None) -> list[str]:
    offer = cursor.look(time.time() if now is None else now)
    cursor.take(offer.parts)
    return names(offer)


def values(of: FilesSource, offer: Offer) -> list[int]:
    return [row["k"] for part in offer.parts for row in of.read("s", part).batch.to_pylist()]


def test_times_of_files_do_not_decide_whether_they_are_read(tmp_path: Path) -> None:
    cursor = source(tmp_path).open(place())
    now = time.time()
    os.utime(parquet(tmp_path / "ahead.parquet", 1), (now + 30 * DAY,) * 2)
    assert take_all(cursor) == ["ahead.parquet"]
    os.utime(parquet(tmp_path / "old.parquet", 2), (now - 8 * DAY,) * 2)
    os.utime(parquet(tmp_path / "older.parquet", 2), (now - 9 * DAY,) * 2)
    parquet(tmp_path / "new.parquet", 3)
    assert take_all(cursor) == ["older.parquet", "old.parquet", "new.parquet"]
    os.utime(tmp_path / "old.parquet")
    assert take_all(cursor) == []


@pytest.mark.parametrize("name", ["parquet", "arrow file", "arrow stream"])
def test_a_binary_file_is_taken_as_soon_as_it_is_complete(tmp_path: Path, name: str) -> None:
    format_, write = writers.WRITERS[name]
    content = write([(1, "a", 2)] * 100, writers.PLAIN)
    of = files(format_, str(tmp_path), schema=writers.PLAIN)
    cursor, file, now = of.open(place()), tmp_path / "a", time.time()
    for length in (0, 1, 5, 12, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        offer = cursor.look(now)
        assert (offer.parts, list(reasons(offer))) == ((), ["a"])
        assert offer.backlog == (0, 0)
    file.write_bytes(content)
    (part,) = cursor.look(now).parts
    assert of.read("s", part).batch.num_rows == 100


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_text_is_taken_when_it_no_longer_grows_and_its_last_line_ends(tmp_path: Path, format_: str) -> None:
    of = source(tmp_path, format_)
    cursor, file, now = of.open(place()), tmp_path / "a", time.time()
    line = b'{"k": 1}' if format_ == "json" else b"k\n1"
    file.write_bytes(b"")
    assert reasons(cursor.look(now)) == {"a": "it is empty"}
    file.write_bytes(line)
    assert reasons(cursor.look(now + 0.1)) == {"a": "its last line has no end"}
    assert reasons(cursor.look(now + 0.9)) == {"a": "its last line has no end"}
    file.write_bytes(line + b"\n")
    assert reasons(cursor.look(now + 1)) == {"a": "it is being written"}
    assert values(of, cursor.look(now + 1.3)) == [1]


def test_what_stays_unfinished_is_taken_as_it_is(tmp_path: Path) -> None:
    of = source(tmp_path, "json", unfinished_after="30 seconds")
    cursor, now = of.open(place()), time.time()
    (tmp_path / "open").write_bytes(b'{"k": 1}\n{"k": 2}')
    (tmp_path / "empty").write_bytes(b"")
    assert len(cursor.look(now).unfinished) == 2
    assert cursor.look(now + 29).parts == ()
    offer = cursor.look(now + 31)
    read = {Path(part.what["file"]).name: of.read("s", part) for part in offer.parts}
    assert read["open"].batch.to_pylist() == [{"k": 1}, {"k": 2}]
    assert [bad.reason for bad in read["empty"].bad] == ["empty file"]
    assert read["empty"].batch.schema == read["open"].batch.schema
    assert offer.unfinished == ()


def test_a_damaged_file_is_set_aside_after_a_while(tmp_path: Path) -> None:
    of, now = source(tmp_path), time.time()
    cursor = of.open(place())
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "empty.parquet").write_bytes(b"")
    assert set(reasons(cursor.look(now)).values()) == {"its footer is missing", "it is empty"}
    bad = [record for part in cursor.look(now + 61).parts for record in of.read("s", part).bad]
    assert [Path(record.file).name for record in bad] == ["cut.parquet", "empty.parquet"]


def test_a_file_that_changed_long_ago_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"k": 1}')
    assert take_all(source(tmp_path, "json").open(place()), time.time() + 61) == ["a.json"]


def test_a_missing_file_is_an_error_that_names_it_until_it_is_back(tmp_path: Path) -> None:
    of = source(tmp_path)
    file = parquet(tmp_path / "a.parquet", 1)
    (part,) = of.open(place()).look(time.time()).parts
    file.rename(tmp_path / "_away")
    with pytest.raises(SourceError, match=r"file .*/a\.parquet is missing\n.*put it back"):
        of.read("s", part)
    skipped = source(tmp_path, missing="skip").read("s", part)
    assert (skipped.batch.num_rows, [bad.reason for bad in skipped.bad]) == (0, ["the file is missing"])
    (tmp_path / "_away").rename(file)
    assert of.read("s", part).batch.to_pylist() == [{"k": 1}]


def test_a_file_that_changed_is_an_error_that_names_it(tmp_path: Path) -> None:
    of = source(tmp_path, "json")
    file = tmp_path / "a.json"
    file.write_bytes(b'{"k": 1}\n')
    (part,) = of.open(place()).look(time.time() + 3).parts
    os.utime(file, (0, 0))
    assert of.read("s", part).batch.num_rows == 1
    file.write_bytes(b'{"k": 2}\n')
    with pytest.raises(SourceError, match=r"a\.json has changed: its last bytes"):
        of.read("s", part)
    file.write_bytes(b'{"k": 12}\n')
    with pytest.raises(SourceError, match=r"a\.json has changed: it had 9 bytes .* and has 10 now"):
        of.read("s", part)


def test_a_restart_goes_on_behind_what_was_taken(tmp_path: Path) -> None:
    of, blobs = source(tmp_path, max_files_per_batch=2), MemoryBlobs()
    for number in range(5):
        parquet(tmp_path / f"{number}.parquet", number)
    state: dict[str, Any] = {}
    taken: list[str] = []
    for _ in range(4):
        cursor = of.open(place(state, blobs))
        offer = cursor.look(time.time())
        assert offer.backlog[0] == 5 - len(taken)
        cursor.take(offer.parts)
        taken += names(offer)
        state = cursor.state()
    assert taken == [f"{number}.parquet" for number in range(5)]


def test_parts_survive_the_plan_of_a_batch(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", 1)
    (part,) = source(tmp_path).open(place()).look(time.time()).parts
    assert decode(Part, encode(part)) == part


def test_a_large_parquet_file_is_read_in_parts(tmp_path: Path) -> None:
    of, blobs = source(tmp_path), MemoryBlobs()
    parquet(tmp_path / "a.parquet", *range(20_000), row_group_size=2_000, compression="none")
    first = of.open(place({}, blobs, most_bytes=200_000))
    offer = first.look(time.time())
    assert offer.backlog[0] > len(offer.parts) >= 1
    assert all(part.bytes <= 200_000 for part in offer.parts)
    found = values(of, offer)
    first.take(offer.parts)
    state, rounds = first.state(), 0
    assert state["since"] == []
    while True:
        cursor = of.open(place(state, blobs, most_bytes=200_000))
        offer = cursor.look(time.time())
        if not offer.parts:
            break
        found += values(of, offer)
        cursor.take(offer.parts)
        state, rounds = cursor.state(), rounds + 1
    assert rounds > 1
    assert sorted(found) == list(range(20_000))
    assert state["since"] == ["a.parquet"]
    assert "begun" not in state


def test_the_rest_of_a_file_that_is_gone_is_not_passed_over(tmp_path: Path) -> None:
    of = source(tmp_path)
    file = parquet(tmp_path / "a.parquet", *range(20_000), row_group_size=2_000, compression="none")
    cursor = of.open(place(most_bytes=200_000))
    cursor.take(cursor.look(time.time()).parts)
    file.unlink()
    (tmp_path / "b").touch()
    for one in (cursor, of.open(place(cursor.state(), most_bytes=200_000))):
        part = one.look(time.time()).parts[0]
        with pytest.raises(SourceError, match=r"a\.parquet is missing"):
            of.read("s", part)


def test_bad_rows_of_a_part_are_counted_from_the_beginning_of_the_file(tmp_path: Path) -> None:
    of = source(tmp_path)
    table = pa.table({"k": pa.array([*range(19_999), None], pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2_000, compression="none")
    cursor, bad = of.open(place(most_bytes=200_000)), []
    while parts := cursor.look(time.time()).parts:
        bad += [record for part in parts for record in of.read("s", part, "k").bad]
        cursor.take(parts)
    assert [record.row for record in bad] == [20_000]


def test_an_offer_is_no_larger_than_wanted_and_the_rest_is_told(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.json").write_bytes(b'{"k": 1}\n' * 1000)
    cursor = source(tmp_path, "json").open(place(most_bytes=50_000))
    now = time.time() + 3
    assert len(cursor.look(now).parts) == 2
    assert cursor.look(now).backlog == (10, 10 * 18_000)
    cursor.take(cursor.look(now).parts)
    assert cursor.look(now).backlog == (8, 8 * 18_000)
    assert len(source(tmp_path, "json").open(place(most_bytes=1)).look(now).parts) == 1


def test_files_that_were_read_are_deleted_when_all_of_them_was_released(tmp_path: Path) -> None:
    of = source(tmp_path, clean="delete")
    small = parquet(tmp_path / "0.parquet", 1)
    large = parquet(tmp_path / "1.parquet", *range(20_000), row_group_size=2_000, compression="none")
    cursor = of.open(place(most_bytes=300_000))
    state: dict[str, Any] = {}
    while parts := cursor.look(time.time()).parts:
        assert large.exists()
        cursor.take(parts)
        cursor.release(parts)
        assert not small.exists()
        state = cursor.state()
        cursor = of.open(place(state, most_bytes=300_000))
    assert not large.exists()
    assert "released" not in state
    cursor.release([Part({"file": str(large), "size": 1})])  # again, as after a crash


def test_an_archive_keeps_folders_and_what_it_has(tmp_path: Path) -> None:
    folder, archive = tmp_path / "in", tmp_path / "done"
    of = source(folder, recursive=True, clean="archive", archive=str(archive))
    (archive / "x").mkdir(parents=True)
    (archive / "x" / "a.parquet").write_text("older")
    parquet(folder / "x" / "a.parquet", 1)
    cursor = of.open(place())
    offer = cursor.look(time.time())
    cursor.take(offer.parts)
    cursor.release(offer.parts)
    assert (archive / "x" / "a.parquet").read_text() == "older"
    assert pq.read_table(archive / "x" / "a.parquet.1").num_rows == 1
    assert not (folder / "x" / "a.parquet").exists()
    for inside in (folder, folder / "done"):
        with pytest.raises(SourceError, match="lies in the folder that is read"):
            source(folder, recursive=True, clean="archive", archive=str(inside)).open(place())


def test_what_cannot_be_cleaned_or_has_grown_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    of = source(tmp_path, "json", clean="delete")
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(b'{"k": 1}\n')
    cursor = of.open(place())
    parts = cursor.look(time.time() + 3).parts
    cursor.take(parts)
    (tmp_path / "a.json").write_bytes(b'{"k": 1}\n{"k": 2}\n')
    monkeypatch.setattr(os, "remove", refuse)
    cursor.release(parts)
    assert "a.json had 9 bytes when it was read and has 18 now" in caplog.text
    assert "b.json could not be cleaned" in caplog.text
    assert (tmp_path / "a.json").exists()


def test_a_single_file_a_folder_to_come_and_a_pattern_in_the_path(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", 1)
    parquet(tmp_path / "b.parquet", 2)
    assert take_all(source(tmp_path / "a.parquet").open(place())) == ["a.parquet"]
    assert [source(tmp_path / name).count() for name in ("a.parquet", "", "later")] == [1, 2, 0]
    cursor = source(tmp_path / "later").open(place())
    assert take_all(cursor) == []
    parquet(tmp_path / "later" / "c.parquet", 3)
    assert take_all(cursor) == ["c.parquet"]
    with pytest.raises(SourceError, match=r"no folder .*\*\.parquet\n.*glob="):
        source(tmp_path / "*.parquet").open(place())


def test_another_folder_under_the_same_state_is_refused(tmp_path: Path) -> None:
    """Names are relative: files of the same names in another folder would be passed over."""
    parquet(tmp_path / "one" / "a.parquet", 1)
    parquet(tmp_path / "two" / "a.parquet", 2)
    cursor = source(tmp_path / "one").open(place())
    take_all(cursor)
    with pytest.raises(SourceError, match=r"read from .*/one, not from .*/two"):
        source(tmp_path / "two").open(place(cursor.state()))


def test_a_name_that_cannot_be_written_down_is_said(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.parquet"
    parquet(tmp_path / "a.parquet", 1).rename(os.fsdecode(path))
    offer = source(tmp_path).open(place()).look(time.time())
    assert [one.reason for one in offer.unfinished] == ["its name is not UTF-8: rename it"]


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_file_that_may_not_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    def refuse(path: str, *_: object) -> Any:
        raise PermissionError(13, "Permission denied", path)

    parquet(tmp_path / "a.parquet", 1)
    cursor = source(tmp_path).open(place())
    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        if not is_seen:
            patched.setattr(FileStatus, "read", refuse)
        for now in (time.time(), time.time() + 100):
            assert reasons(cursor.look(now)) == {"a.parquet": "it cannot be read: Permission denied"}
    assert take_all(cursor) == ["a.parquet"]


def test_a_text_is_unfinished_until_it_has_settled(tmp_path: Path) -> None:
    """So that whoever waits for all that is there waits for it too."""
    cursor = source(tmp_path, "json").open(place())
    (tmp_path / "a.json").write_bytes(b'{"k": 1}\n')
    now = (tmp_path / "a.json").stat().st_ctime
    found = cursor.look(now)
    assert (found.parts, len(found.unfinished)) == ((), 1)
    assert names(cursor.look(now + 2 * SETTLED)) == ["a.json"]


def test_a_plan_of_an_earlier_run_can_be_taken_without_a_look(tmp_path: Path) -> None:
    of = source(tmp_path)
    parquet(tmp_path / "a.parquet", *range(20_000), row_group_size=2_000, compression="none")
    parquet(tmp_path / "b.parquet", 1)
    parts = of.open(place(most_bytes=200_000)).look(time.time()).parts
    again = of.open(place(most_bytes=200_000))
    again.take(parts)
    rest = again.look(time.time()).parts
    groups = [part.what["row_groups"] for part in (*parts, *rest) if "row_groups" in part.what]
    assert len({first for first, _ in groups}) == len(groups)


def test_to_take_parts_twice_changes_nothing(tmp_path: Path) -> None:
    """After a crash the parts of a plan may be in the state already."""
    of, found = source(tmp_path), list[int]()
    parquet(tmp_path / "a.parquet", *range(20_000), row_group_size=2_000, compression="none")
    cursor = of.open(place(most_bytes=60_000))
    while parts := cursor.look(time.time()).parts:
        found += [row["k"] for part in parts for row in of.read("s", part).batch.to_pylist()]
        for _ in range(3):
            cursor.take(parts)
        state = cursor.state()
        kept = json.dumps(state)
        cursor = of.open(place(state, most_bytes=60_000))
        cursor.take(parts)
        assert json.dumps(state) == kept
    assert sorted(found) == list(range(20_000))
    assert cursor.state()["since"] == ["a.parquet"]


def test_a_file_that_may_not_be_read_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits for all that is there would wait for ever; nobody would know for what."""
    open_file, denied = checks.open_file, {"secret.parquet"}

    def refusing(path: str, within: str | None = None) -> Any:
        if Path(path).name in denied:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_file(path, within)

    for module in (checks, parts):
        monkeypatch.setattr(module, "open_file", refusing)
    cursor = source(tmp_path, unfinished_after="1 minute").open(place())
    parquet(tmp_path / "secret.parquet", 1)
    parquet(tmp_path / "plain.parquet", 2)
    now = time.time()
    offer = cursor.look(now)
    assert names(offer) == ["plain.parquet"]
    assert [file.awaited for file in offer.unfinished] == [True]
    for later in (61, 62, 63):
        offer = cursor.look(now + later)
        assert [file.awaited for file in offer.unfinished] == [False]
        assert reasons(offer) == {"secret.parquet": "it cannot be read: Permission denied"}
    assert caplog.text.count("does not read") == 1
    assert str(tmp_path / "secret.parquet") in caplog.text
    denied.clear()
    assert sorted(names(cursor.look(now + 64))) == ["plain.parquet", "secret.parquet"]
