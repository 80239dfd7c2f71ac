"""What would be lost: a file that a listing overlooks; the time of a look, if every one of them lists everything."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.connectors.files import listing as module
from weft.connectors.files.listing import Listing, is_passed_over, name_matcher
from weft.connectors.files.source import files
from weft.errors import SourceError
from weft.ports.source import CursorContext, MemoryBlobs


def over(root: Path, glob: str | None = None, *, recursive: bool = False) -> Listing:
    return Listing(str(root), name_matcher(glob), recursive=recursive)


@pytest.mark.parametrize("name", ["_temporary", ".hidden", "a.tmp", "a.csv.INPROGRESS", "a.csv._COPYING_"])
def test_files_that_are_being_written_are_known_by_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "a.csv").touch()
    assert is_passed_over(name)
    found = over(tmp_path)
    found.refresh()
    assert found.names == {"a.csv"}


def test_folders_inside_are_listed_on_request(tmp_path: Path) -> None:
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", "x/d.txt", "_t/e.csv", ".g/f.csv", "_k=1/h.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    flat, deep = over(tmp_path), over(tmp_path, "*.{csv,json}", recursive=True)
    assert (flat.refresh(), deep.refresh()) == (True, True)
    assert flat.names == {"a.csv"}
    assert deep.names == {"a.csv", "x/b.csv", "x/y/c.csv", "_k=1/h.csv"}
    (tmp_path / "x/y/z.json").touch()
    assert deep.refresh()
    assert "x/y/z.json" in deep.names
    (tmp_path / "x/circle").symlink_to(tmp_path)
    deep.refresh()
    assert len(deep.names) == 5


@pytest.mark.parametrize("grain", [10_000_000, 1_000_000_000])
def test_a_change_within_the_grain_of_the_clock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grain: int
) -> None:
    """A listing that began just after a change may miss another one that shows the same time."""
    real, shown = os.stat, (time.time_ns() - 100_000_000) // grain * grain

    def coarse(path: Any, **options: Any) -> Any:
        found = real(path, **options)
        if found.st_ino != inode:
            return found
        return SimpleNamespace(st_dev=1, st_ino=1, st_mtime_ns=shown, st_ctime_ns=shown)

    inode = real(tmp_path).st_ino
    monkeypatch.setattr(os, "stat", coarse)
    found = over(tmp_path)
    for number in range(3):
        shown = (time.time_ns() if grain < 1_000_000_000 else time.time_ns() - 900_000_000) // grain * grain
        for second in ("a", "b"):
            (tmp_path / f"{number}{second}").touch()
            assert found.refresh()
            assert f"{number}{second}" in found.names


def test_a_folder_whose_time_was_set_is_listed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRAIN", 1_000_000)
    found = over(tmp_path)
    (tmp_path / "a").touch()
    before = os.stat(tmp_path).st_mtime_ns
    time.sleep(0.02)
    found.refresh()
    assert not found.refresh()
    time.sleep(0.02)
    (tmp_path / "b").touch()
    os.utime(tmp_path, ns=(before, before))
    assert found.refresh()
    assert found.names == {"a", "b"}


def test_a_folder_is_listed_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share may show an old time for as long as it likes."""
    monkeypatch.setattr(module, "_GRAIN", 1_000_000)
    found = over(tmp_path)
    time.sleep(0.02)
    found.refresh()
    assert not found.refresh()
    monkeypatch.setattr(module, "_LIST_AGAIN", 0.0)
    assert found.refresh()


def test_a_folder_may_appear_and_vanish(tmp_path: Path) -> None:
    found = over(tmp_path / "in")
    assert not found.refresh()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    assert found.refresh()
    assert found.names == {"a"}
    (tmp_path / "in").rename(tmp_path / "away")
    assert found.refresh()
    assert found.names == frozenset()


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(SourceError, match=f"folder {tmp_path}/? cannot be read: Permission denied"):
        over(tmp_path).refresh()
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot be read: Not a directory"):
        over(tmp_path / "file").refresh()


def test_a_hundred_thousand_files_are_looked_at_quickly() -> None:
    """In time of this process, whatever the machine does: about 0.1 ms without a change, 100 ms with a new file."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files of a disk take long to make
    with tempfile.TemporaryDirectory(dir=memory) as root:
        known = [f"part-{number:06d}.json" for number in range(100_000)]
        for name in known:
            os.close(os.open(os.path.join(root, name), os.O_CREAT | os.O_WRONLY))
        place = CursorContext("s", {"since": known, "folder": root}, MemoryBlobs(), Path(root))
        cursor = files("json", root, schema="k long").open(place)
        time.sleep(0.1)
        now = time.time()
        assert cursor.look(now).backlog == (0, 0)
        assert _took(lambda: cursor.look(now)) < 0.005
        (Path(root) / "new.json").write_bytes(b'{"k": 1}\n')
        began = time.process_time()
        offer = cursor.look(time.time() + 3)
        assert time.process_time() - began < 0.5
        assert [part.what["file"] for part in offer.parts] == [os.path.join(root, "new.json")]


def _took(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began
