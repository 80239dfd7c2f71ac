"""Paths are absolute from the beginning, and storage that is not supported is refused at once."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weft
from weft.connectors.files import file_system as files
from weft.errors import ConfigError, SinkError
from weft.storage.paths import own_python

SCHEMA = pa.schema({"k": pa.int64()})
URIS = ["hdfs://name/ck", "ftp://name/ck", "file://other-host/ck"]


def test_relative_paths_stay_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    session, sink = weft.Session(checkpoint="ck"), weft.to_parquet("out")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert session._settings.checkpoint == tmp_path / "ck"
    assert sink.path == tmp_path / "out"
    assert weft.Session(checkpoint=f"file://{tmp_path}/a%20b")._settings.checkpoint == tmp_path / "a b"


@pytest.mark.parametrize("uri", URIS)
def test_other_storage_is_refused_at_once(uri: str) -> None:
    with pytest.raises(ConfigError, match="names no storage that Weft knows"):
        weft.Session(checkpoint=uri)
    with pytest.raises(SinkError, match="not a path of this machine's file system"):
        weft.to_parquet(uri)


def test_an_empty_checkpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        weft.Session(checkpoint=" ")


def test_a_sink_that_cannot_be_made_is_named_when_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = weft.to_parquet(tmp_path / "file" / "out")
    with pytest.raises(SinkError, match=r"file/out cannot be written: Not a directory"):
        sink.open(SCHEMA, "me")


@pytest.mark.parametrize(
    ("code", "said"), [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")]
)
@pytest.mark.parametrize("known", [False, True])
def test_a_sink_that_takes_no_files_is_named_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str, known: bool
) -> None:
    sink = weft.to_parquet(tmp_path / "out")
    if known:
        sink.open(SCHEMA, "me")  # from another day: its owner is not written again

    def fail(_: Any) -> None:
        raise OSError(code, said)

    monkeypatch.setattr(files, "_flush", fail)
    with pytest.raises(SinkError, match=f"out cannot be written: {said}"):
        sink.open(SCHEMA, "me")


def test_opening_a_sink_leaves_nothing_but_its_owner(tmp_path: Path) -> None:
    sink = weft.to_parquet(tmp_path / "out")
    sink.open(SCHEMA, "me")
    sink.open(SCHEMA, "me")
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["owner.json"]


def test_no_process_of_ours_takes_a_users_file_for_a_library(tmp_path: Path) -> None:
    """A `types.py` in the working directory ended the planner's process."""
    for name in ("types", "json", "pickle"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is not the library')\n")
    command = own_python("weft.adapting.background")
    done = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("sink", "module"),
    [(weft.to_delta("/tmp/x"), "deltalake"), (weft.to_postgres("env:X", "t"), "psycopg")],
)
def test_a_library_that_is_missing_is_named_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: Any, module: str
) -> None:
    """Else one waits for Java, and is then told what could have been said at once."""
    session = weft.Session(checkpoint=tmp_path / "ck", execution="jobs")
    session.stream("a", weft.files("json", str(tmp_path), schema="k long"))
    session.query("SELECT a.k FROM a", sink=sink)
    monkeypatch.setattr("weft.session.start.find_spec", lambda name: None if name == module else object())
    monkeypatch.setattr("weft.session.start._spark_for", lambda _: pytest.fail("Spark is started"))
    with pytest.raises(ConfigError, match=f"{module}, which is not installed"):
        session.start()


def test_a_process_of_its_own_runs_the_same_weft_and_finds_no_room_of_it_as_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the folder of the package on its path, `sql` or `stats` of another library would be ours."""
    (tmp_path / "probe.py").write_text("import sys, weft; print(weft.__file__); print(*sys.path, sep='\\n')")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = subprocess.run(own_python("probe"), capture_output=True, text=True, check=True)
    weft_file, *searched = done.stdout.splitlines()
    assert weft_file == weft.__file__
    assert str(Path(weft_file).parent) not in searched
