"""The archive of Spark's classes: used only where it is sound, made by one process, and never heard of."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from weft.runtime.spark import class_archive, class_archive_maker
from weft.runtime.spark.class_archive import ArchivePlace, archive_options, archive_place, make_archive_later
from weft.runtime.spark.class_archive_maker import main, make_archive


@pytest.fixture
def place(tmp_path: Path) -> ArchivePlace:
    folder = tmp_path / "weft"
    folder.mkdir(mode=0o700)
    return ArchivePlace(folder, "key")


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where archives were made; each holds three bytes."""
    made: list[Path] = []

    def rehearse(target: Path, folder: str, limit: float) -> None:  # noqa: ARG001
        made.append(target)
        target.write_bytes(b"abc")

    monkeypatch.setattr(class_archive_maker, "_rehearse", rehearse)
    return made


def java(*options: str) -> str:
    """All that Java says about itself."""
    done = subprocess.run(["java", *options, "-version"], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.mark.ci
@pytest.mark.spark
def test_it_is_named_by_java_and_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEFT_CLASS_ARCHIVE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = archive_place()
    assert found is not None
    assert found.folder == tmp_path / "weft"
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    other = archive_place()
    assert other is not None
    assert other.key != found.key


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CLASS_ARCHIVE", "0")
    assert archive_place() is None
    assert archive_options(None) == ""
    make_archive_later(None)


@pytest.mark.ci
@pytest.mark.spark
def test_a_spark_that_runs_already_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A maker that found the way to a user's Java would stop the user's session."""
    monkeypatch.setenv("WEFT_CLASS_ARCHIVE", "1")
    assert archive_place() is not None
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "secret")
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    assert archive_place() is None
    found = class_archive_maker._environment(str(tmp_path))
    assert not {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE"} & found.keys()
    assert found["WEFT_CLASS_ARCHIVE"] == "0"


def test_only_a_complete_one_is_used(place: ArchivePlace) -> None:
    assert archive_options(place) == ""
    file = place.complete(1000)
    file.write_bytes(bytes(999))
    assert archive_options(place) == ""  # Java would crash
    file.write_bytes(bytes(1000))
    assert f"-XX:SharedArchiveFile={file} " in archive_options(place)


@pytest.mark.parametrize("mode", [0o666, 0o660])
def test_one_that_others_can_write_is_not_used(place: ArchivePlace, mode: int) -> None:
    place.complete(1).write_bytes(b"a")
    assert place.find() is not None
    place.complete(1).chmod(mode)
    assert place.find() is None
    place.complete(1).chmod(0o600)
    place.folder.chmod(0o777)
    assert place.find() is None


@pytest.mark.ci
@pytest.mark.spark
def test_java_uses_a_sound_one_and_is_silent_about_others(place: ArchivePlace) -> None:
    java(f"-XX:ArchiveClassesAtExit={place.folder}/made", "-Xlog:disable")
    made = place.folder / "made"
    made.replace(place.complete(made.stat().st_size))
    plain = java()
    options = archive_options(place).split()
    assert java(*options) == plain
    used = java(*options, "-Xlog:cds=info:stdout")
    assert "Opened archive" in used or "mapped" in used.lower()
    for damaged in (b"no archive", bytes(100_000)):
        shutil.rmtree(place.folder)
        place.folder.mkdir(mode=0o700)
        place.complete(len(damaged)).write_bytes(damaged)
        said = java(*archive_options(place).split())
        assert said.replace(", sharing", "") == plain.replace(", sharing", "")


def test_it_is_made_under_its_name_at_once(place: ArchivePlace, rehearsed: list[Path]) -> None:
    assert make_archive(place) == place.find() == place.complete(3)
    assert sorted(file.name for file in place.folder.iterdir()) == ["classes-key-3.jsa", "classes-key.lock"]
    assert make_archive(place) is None
    assert len(rehearsed) == 1


def test_of_several_makers_one_works(place: ArchivePlace, rehearsed: list[Path]) -> None:
    with place.lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert make_archive(place) is None
    assert rehearsed == []


def test_what_does_not_work_is_not_tried_at_every_start(
    place: ArchivePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(class_archive_maker, "_rehearse", fail)
    monkeypatch.setattr(class_archive_maker, "_step_back", lambda: None)
    assert main([str(place.folder), place.key]) == 0
    assert not place.is_wanted
    assert [file.name for file in place.folder.glob("making-*")] == []
    long_ago = time.time() - class_archive.RETRY - 1
    os.utime(place.tried, (long_ago, long_ago))
    assert place.is_wanted


def test_it_needs_room(place: ArchivePlace, rehearsed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive_maker, "ROOM", 1 << 62)
    assert make_archive(place) is None
    assert rehearsed == []


def test_a_cache_that_cannot_be_written_is_nobodys_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive_maker, "_step_back", lambda: None)
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file" / "weft"), "key"]) == 0


def test_archives_for_others_go_when_they_are_old(place: ArchivePlace, rehearsed: list[Path]) -> None:
    old, new = place.folder / "classes-old-1.jsa", place.folder / "classes-new-1.jsa"
    for file in (old, new):
        file.write_bytes(b"a")
    os.utime(old, (0, 0))
    make_archive(place)
    assert rehearsed
    assert not old.exists()
    assert new.exists()


def test_it_is_made_after_a_while_and_once(place: ArchivePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[ArchivePlace] = []
    at_exit: list[Any] = []
    monkeypatch.setattr(class_archive, "_begin", begun.append)
    monkeypatch.setattr(class_archive, "_planned", set())
    monkeypatch.setattr(class_archive, "DELAY", 0.05)
    monkeypatch.setattr(atexit, "register", at_exit.append)
    make_archive_later(place)
    make_archive_later(place)
    deadline = time.monotonic() + 60
    while not begun and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(at_exit) == 1
    at_exit[0]()
    assert begun == [place]


def test_the_maker_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [
        sys.executable,
        "-m",
        "weft.runtime.spark.class_archive_maker",
        str(tmp_path / "file" / "x"),
        "key",
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
