"""What would be lost: a file that is never read, read twice, or read while it is being written, without a word."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.sources import writers
from weft.errors import SourceError
from weft.ports.source import MemoryBlobs, Offer, Part, Place
from weft.sources.file_cursor import FileCursor
from weft.sources.spec import FilesSource, files

DAY = 86_400
SCHEMA = "k long"


def place(state: dict[str, Any] | None = None, blobs: MemoryBlobs | None = None, **more: Any) -> Place:
    return Place("s", state or {}, blobs or MemoryBlobs(), Path("unused"), **more)


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


def take_all(cursor: FileCursor, now: float | None = None) -> list[str]:
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
    assert Part.from_dict(part.to_dict()) == part
