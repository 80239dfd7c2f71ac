"""What would be lost: files that are no files hold up all others, and links that lead where nothing may be read."""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.shares import seeds
from weft.connectors.files.checks import LEADS_OUT, open_file
from weft.connectors.files.source import FilesSource, files
from weft.errors import SourceError
from weft.ports.source import CursorContext, MemoryBlobs, Offer


def place(state: dict[str, Any] | None = None, **more: Any) -> CursorContext:
    return CursorContext("s", state or {}, MemoryBlobs(), Path("unused"), **more)


def source(folder: Path, *, enclosed: bool = False, **options: Any) -> FilesSource:
    found = files("json", str(folder), schema="k long", **options)
    return replace(found, enclosed=enclosed)


def line(key: int) -> bytes:
    return b'{"k": %d}\n' % key


def keys(of: FilesSource, offer: Offer) -> list[int]:
    return sorted(row["k"] for part in offer.parts for row in of.read("s", part).batch.to_pylist())


def long_after() -> float:
    return time.time() + 100


# What is no file


def test_what_is_no_file_is_named_once_and_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pipe would be waited for without end, a link in a circle ended the session."""
    (tmp_path / "a").write_bytes(line(1))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nothing").symlink_to(tmp_path / "no such file")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        of = source(tmp_path, recursive=True)
        cursor = of.open(place())
        with caplog.at_level(logging.WARNING, "weft"):
            for _ in range(3):
                offer = cursor.look(long_after())
                os.utime(tmp_path)  # the folder is listed again
    assert keys(of, offer) == [1]
    assert (offer.unfinished, offer.backlog[0]) == ((), 1)
    said = [
        record.getMessage().removeprefix(f"stream s does not read {tmp_path}/") for record in caplog.records
    ]
    assert said == [
        "circle: it is a symbolic link in a circle",
        "deep/up/: it is a folder that is read under another name",
        "nothing: it is a symbolic link to nothing",
        "pipe: it is a pipe",
        "socket: it is a socket",
    ]


@pytest.mark.parametrize("becomes", ["directory", "pipe", "link to nothing", "link in a circle"])
def test_a_file_that_becomes_something_else_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, becomes: str
) -> None:
    """Whoever waits for all that is there would wait without end; it is read when it is a file again."""
    of = source(tmp_path, recursive=becomes == "directory")
    cursor, file = of.open(place()), tmp_path / "a"
    file.write_bytes(b'{"k"')
    assert len(cursor.look(time.time()).unfinished) == 1
    file.unlink()
    if becomes == "directory":
        file.mkdir()
    elif becomes == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file if "circle" in becomes else tmp_path / "no such file")
    for _ in range(2):
        offer = cursor.look(time.time())
    assert offer == Offer()
    file.rmdir() if becomes == "directory" else file.unlink()
    file.write_bytes(line(3))
    assert keys(of, cursor.look(time.time())) == []
    assert keys(of, cursor.look(long_after())) == [3]
    assert len(caplog.records) == (becomes != "directory")


def test_a_folder_that_becomes_a_file_is_read_as_one(tmp_path: Path) -> None:
    """It ended the session."""
    of = source(tmp_path, recursive=True)
    cursor, inner = of.open(place()), tmp_path / "x"
    inner.mkdir()
    (inner / "a").write_bytes(line(1))
    cursor.take(cursor.look(long_after()).parts)
    (inner / "a").unlink()
    inner.rmdir()
    inner.write_bytes(line(2))
    cursor.look(long_after())
    assert keys(of, cursor.look(long_after() + 1)) == [2]


def test_a_pipe_in_place_of_a_file_that_was_taken_is_an_error(tmp_path: Path) -> None:
    """A task that opens it would wait without end."""
    of = source(tmp_path)
    (tmp_path / "a").write_bytes(line(1))
    (part,) = of.open(place()).look(long_after()).parts
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    with pytest.raises(SourceError, match="a cannot be read: it is a pipe"):
        of.read("s", part)


# Empty files


def test_an_empty_file_that_is_filled_later_is_read(tmp_path: Path) -> None:
    """Also by a later session; as long as it is empty, it is set aside once."""
    of, now = source(tmp_path, unfinished_after="10 seconds"), time.time()
    cursor = of.open(place())
    (tmp_path / "a").touch()
    assert len(cursor.look(now).unfinished) == 1
    (part,) = cursor.look(now + 20).parts
    (tmp_path / "a").write_bytes(line(7))  # it is filled after it was taken and before it is read
    assert [bad.reason for bad in of.read("s", part).bad] == ["empty file"]
    (tmp_path / "a").write_bytes(b"")
    cursor.take([part])
    assert cursor.look(now + 30) == Offer()
    again = of.open(place(cursor.state()))
    assert again.look(now + 31) == Offer()
    (tmp_path / "a").write_bytes(line(7))
    again.catch_up()
    offer = again.look(now + 31.1)
    assert len(offer.unfinished) + len(offer.parts) == 1  # whoever waits for all waits for it
    offer = again.look(now + 60)
    assert keys(of, offer) == [7]
    again.take(offer.parts)
    assert (again.look(now + 90), again.state().get("empty")) == (Offer(), None)
    third = of.open(place(again.state()))
    assert third.look(now + 99) == Offer()


# Links that lead out


def test_no_link_leads_out_of_an_enclosed_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither one to a file nor one to a folder; links that stay inside do no harm."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "x", outside):
        folder.mkdir(parents=True)
    (inside / "x" / "a").write_bytes(line(1))
    (outside / "b").write_bytes(line(666))
    (inside / "file").symlink_to(outside / "b")
    (inside / "folder").symlink_to(outside)
    (inside / "up").symlink_to(tmp_path)
    (inside / "chain").symlink_to("file")
    (inside / "near").symlink_to(Path("x") / "a")
    of = source(inside, enclosed=True, recursive=True)
    assert keys(of, of.open(place()).look(long_after())) == [1, 1]
    assert sorted(of.paths()) == [str(inside / "near"), str(inside / "x" / "a")]
    assert {record.getMessage().rsplit(": ")[-1] for record in caplog.records} == {LEADS_OUT}
    free = source(inside, recursive=True)
    assert 666 in keys(free, free.open(place()).look(long_after()))


@pytest.mark.parametrize("what", ["file", "folder above", "the folder itself"])
def test_a_link_that_is_put_there_later_does_not_lead_out(tmp_path: Path, what: str) -> None:
    """Files are resolved when they are read, not only when they are found."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "x", outside / "x"):
        folder.mkdir(parents=True)
    (inside / "x" / "a").write_bytes(line(1))
    (outside / "x" / "a").write_bytes(line(6))
    (outside / "a").write_bytes(line(6))
    of = source(inside, enclosed=True, recursive=True)
    cursor = of.open(place())
    (part,) = cursor.look(long_after()).parts
    target = {"file": inside / "x" / "a", "folder above": inside / "x", "the folder itself": inside}[what]
    target.rename(tmp_path / "moved")
    target.symlink_to(
        outside / "a" if what == "file" else outside / "x" if what == "folder above" else outside
    )
    with pytest.raises(SourceError, match=LEADS_OUT):
        of.read("s", part)
    assert not of.open(place()).look(long_after()).parts
    assert [cursor.look(long_after()).parts, cursor.look(long_after())] == [(), Offer()]


def test_a_link_that_is_put_there_while_a_file_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the moment at which a path is resolved and the one at which it is opened."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "x", outside):
        folder.mkdir(parents=True)
        (folder / "a").write_bytes(line(6))
    real = os.path.realpath

    def swap(path: str) -> str:
        found = str(real(path))
        (inside / "x").rename(tmp_path / "moved")
        (inside / "x").symlink_to(outside)
        return found

    monkeypatch.setattr("os.path.realpath", swap)
    with pytest.raises(PermissionError, match=LEADS_OUT):
        open_file(str(inside / "x" / "a"), str(inside))


def test_large_parquet_files_are_read_through_the_file_that_was_checked(tmp_path: Path) -> None:
    """By row groups, which are read one after the other."""
    inside = tmp_path / "in"
    inside.mkdir()
    for name, first in (("in/a", 0), ("secret", 1_000_000)):
        table = pa.table({"k": pa.array(range(first, first + 20_000), pa.int64())})
        pq.write_table(table, tmp_path / name, row_group_size=5_000, compression="none")
    of = replace(files("parquet", str(inside), schema="k long"), enclosed=True)
    parts = of.open(place(most_bytes=100_000)).look(long_after()).parts
    assert of.read("s", parts[0]).batch.num_rows
    (inside / "a").unlink()
    (inside / "a").symlink_to(tmp_path / "secret")
    for part in parts:
        with pytest.raises(SourceError, match=LEADS_OUT):
            of.read("s", part)


def test_one_file_may_be_named(tmp_path: Path) -> None:
    """And is read as long as it is that file."""
    (tmp_path / "a").write_bytes(line(1))
    (tmp_path / "b").write_bytes(line(6))
    of = source(tmp_path / "a", enclosed=True)
    (part,) = of.open(place()).look(long_after()).parts
    assert of.read("s", part).batch.num_rows == 1
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to(tmp_path / "b")
    assert of.open(place()).look(long_after()).parts == ()
    with pytest.raises(SourceError, match=LEADS_OUT):
        of.read("s", part)


@pytest.mark.parametrize("seed", seeds(10))
def test_random_trees(tmp_path: Path, seed: int) -> None:
    """Folders, files, pipes and links of every kind, changed between looks: nothing from outside is ever read."""
    draw = random.Random(seed)
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside, inside / "d0", outside / "d0"):
        folder.mkdir()
    for number in range(3):
        (outside / f"f{number}").write_bytes(line(1000 + number))
        (outside / "d0" / f"f{number}").write_bytes(line(2000 + number))
    of = source(inside, enclosed=True, recursive=True, missing="skip")
    cursor, now, taken = of.open(place()), long_after(), list[int]()
    for step in range(30):
        change(draw, inside, outside, step)
        now += draw.choice([0.1, 100])
        parts = cursor.look(now).parts
        cursor.take(parts)
        if draw.random() < 0.5:
            change(draw, inside, outside, 100 + step)  # after it was found, before it is read
        for part in parts:
            with suppress(SourceError):
                taken += [row["k"] for row in of.read("s", part).batch.to_pylist()]
    assert all(key < 1000 for key in taken)


def change(draw: random.Random, inside: Path, outside: Path, number: int) -> None:
    """Make something of a random kind under a random name, instead of what is there."""
    folder = inside / "d0" if draw.random() < 0.5 and (inside / "d0").is_dir() else inside
    path = folder / draw.choice(["d0", "f0", "f1", "f2", "l0", "l1"])
    if path.is_symlink() or path.exists():
        path.rename(outside.parent / f"old{number}")
    kind = draw.choice(["file", "file", "folder", "pipe", "inner", "outer", "outer", "up", "circle"])
    if kind == "file":
        path.write_bytes(line(number % 1000))
    elif kind == "folder":
        path.mkdir()
        (path / "f0").write_bytes(line(number % 1000))
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        name = draw.choice(["f0", "f1", "d0", "d0/f1"])
        to = {"inner": inside / name, "outer": outside / name, "up": inside.parent, "circle": path}[kind]
        path.symlink_to(to)
