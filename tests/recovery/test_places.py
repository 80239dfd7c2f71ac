"""Places that are not what they were: a checkpoint, a lock or a sink that is something else is an error of Weft's."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import weft
from tests.shares import seeds


def run(root: Path) -> list[int]:
    """Run a query over the files in a folder; its results so far."""
    session = weft.Session(checkpoint=root / "ck", execution="local", adapt="off")
    session.stream("s", weft.files("json", root / "in", schema="k long"))
    session.query("SELECT s.k FROM s WHERE s.k >= 0", name="q", sink=weft.to_parquet(root / "out"))
    session.run_available()
    return sorted(
        int(file.parent.name.partition("=")[2]) for file in (root / "out").glob("batch=*/*.parquet")
    )


def places(root: Path) -> list[Path]:
    """Every file and folder of the checkpoint and the sink."""
    return sorted(path for top in ("ck", "out") for path in (root / top, *(root / top).rglob("*")))


def replace(path: Path, kind: str) -> None:
    """Put something else in the place of a file or a folder."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if kind == "file":
        path.write_bytes(b"something else")
    elif kind == "folder":
        (path / "inside").mkdir(parents=True)
    elif kind == "link to nothing":
        path.symlink_to(path.with_name("no such thing"))
    elif kind == "link in a circle":
        path.symlink_to(path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ck", "file"),
        ("ck/lock", "folder"),
        ("ck/state", "file"),
        ("ck/plan", "link in a circle"),
        ("ck/weft.json", "folder"),
        ("out", "file"),
        ("out", "link in a circle"),
        ("out/_weft", "file"),
    ],
)
def test_a_place_that_is_something_else(tmp_path: Path, name: str, kind: str) -> None:
    """What comes is an error of Weft's that says which, or the session goes on as if nothing had been."""
    begin(tmp_path)
    replace(tmp_path / name, kind)
    attempt(tmp_path)


@pytest.mark.parametrize("seed", seeds(4))
def test_random_places(tmp_path: Path, seed: int) -> None:
    """Of all that is in a checkpoint and a sink."""
    draw = random.Random(seed)
    begin(tmp_path)
    for _ in range(2):
        if found := [path for path in places(tmp_path) if path.exists()]:
            replace(
                draw.choice(found),
                draw.choice(["file", "folder", "link to nothing", "link in a circle", "gone"]),
            )
    attempt(tmp_path)


def begin(root: Path) -> None:
    """A session that ran, and input for the next."""
    (root / "in").mkdir()
    (root / "in" / "first.json").write_text('{"k": 1}\n')
    run(root)


def attempt(root: Path) -> None:
    """Start again; an error that a user can cause is a `WeftError`."""
    (root / "in" / "more.json").write_text('{"k": 7}\n')
    try:
        run(root)
    except weft.WeftError as error:
        assert str(root) in str(error)  # noqa: PT017
