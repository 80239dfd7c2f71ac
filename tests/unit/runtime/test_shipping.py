"""A Weft that was sent to executors: unpacked once, loaded from there, and refused where others could have written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from weft.runtime.spark.executor_setup import make_archive

LOAD = """
import sys
sys.path.insert(0, sys.argv[1])
import weft
from weft.bucket import compiled
from weft.version import __version__
assert weft.SHIPPED in sys.argv[1]
assert weft.SHIPPED in compiled.__file__, compiled.__file__
print(compiled.__file__, __version__)
"""


def load(archive: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Import Weft from an archive in another process, which finds no other."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", LOAD, str(archive)]
    return subprocess.run(
        command, env={**known, **environment}, capture_output=True, text=True, check=False, cwd="/"
    )


def test_the_same_sources_give_the_same_archive(tmp_path: Path) -> None:
    """Every application would unpack and compile its own."""
    archives = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        archives.append(make_archive(tmp_path / name))
    assert archives[0].name == archives[1].name
    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_it_is_unpacked_once_and_loaded_from_there(tmp_path: Path) -> None:
    """Kernels would be compiled by every worker, since those of an archive have no cache."""
    archive = make_archive(tmp_path)
    for _ in range(2):
        done = load(archive, XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(str(tmp_path / "cache" / "weft" / "shipped" / archive.stem))
    assert [one.name for one in (tmp_path / "cache" / "weft" / "shipped").iterdir()] == [archive.stem]


def test_a_place_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    """Another user of the host could have its code run."""
    archive = make_archive(tmp_path)
    for place in ("cache/weft/shipped", f"tmp/weft-{os.getuid()}/shipped"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place).chmod(0o777)
    done = load(archive, XDG_CACHE_HOME=str(tmp_path / "cache"), TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode != 0
    assert "can be unpacked nowhere" in done.stderr
    assert "somebody else can write to it" in done.stderr


def test_without_a_home_it_goes_to_temporary_files(tmp_path: Path) -> None:
    """Containers often have a home that cannot be written to."""
    archive = make_archive(tmp_path)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").touch()
    done = load(archive, XDG_CACHE_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "tmp") in done.stdout
