"""A disk that really is full, under a sink or under the checkpoint: it is named, and with room again nothing is lost.

The disk is a small file system in memory, which only root can mount.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import weft
from weft.errors import SuspendedError, WeftError
from weft.ports.sink import Sink

ROWS = 3_000
SIZE = 4 << 20  # bytes of the disk
TEXT = "SELECT a.id AS a, b.id AS b, a.text AS t FROM a, b WHERE a.id = b.id"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Take all room that is left."""
    file = disk / "ballast"
    with file.open("wb", buffering=0) as out:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                continue
    return file


def write(root: Path, number: int) -> None:
    """Some more rows of both streams, which no compression makes small."""
    for name in ("a", "b"):
        rows = range(number * ROWS, (number + 1) * ROWS)
        lines = [
            json.dumps({"id": n, "text": os.urandom(64).hex(), "ts": "2026-01-01 00:00:00"}) for n in rows
        ]
        (root / name).mkdir(exist_ok=True)
        (root / "partial").write_text("\n".join(lines) + "\n")
        (root / "partial").rename(root / name / f"{number}.json")


def session_of(root: Path, checkpoint: Path, sink: Sink) -> weft.Session:
    """A session of two queries over these streams, of which one counts."""
    session = weft.Session(checkpoint=checkpoint, execution="local", adapt="off")
    for name in ("a", "b"):
        source = weft.files("json", str(root / name), schema="id long, text string, ts timestamp")
        session.stream(name, source, event_time="ts", lateness="1 day")
    session.query(TEXT, name="pair", sink=sink)
    session.query("SELECT a.id FROM a", name="count", sink=weft.to_count())
    return session


def content(out: Path, kind: str) -> Counter[int]:
    """The results in a sink, each with how often it is there."""
    if kind == "parquet":
        table = ds.dataset([str(one) for one in out.glob("batch=*/*.parquet")]).to_table()
    else:
        import deltalake

        table = deltalake.DeltaTable(str(out)).to_pyarrow_table()
    return Counter(table["a"].to_pylist())


@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.parametrize("again", ["here", "after a restart"])
def test_a_full_disk_under_a_sink_loses_nothing(disk: Path, tmp_path: Path, kind: str, again: str) -> None:
    """The query is suspended, who waits is told, the other goes on; with room, all results are there once."""
    out = disk / "out"
    sink = (weft.to_parquet if kind == "parquet" else weft.to_delta)(out)
    session = session_of(tmp_path, tmp_path / "ck", sink)
    write(tmp_path, 0)
    session.start()
    session.process_all_available()
    ballast = fill(disk)
    for number in (1, 2):
        write(tmp_path, number)
        with pytest.raises(SuspendedError, match=rf"query pair is suspended .*{out}.*No space left"):
            session.process_all_available()
    assert session.query_progress("count").results == 3 * ROWS
    assert set(session.suspended) == {"pair"}
    if again == "after a restart":
        session.stop()
        session = session_of(
            tmp_path, tmp_path / "ck", (weft.to_parquet if kind == "parquet" else weft.to_delta)(out)
        )
        session.start()
        with pytest.raises(SuspendedError, match="No space left"):
            session.process_all_available()
    ballast.unlink()
    session.process_all_available()
    session.stop()
    assert content(out, kind) == Counter(range(3 * ROWS))


def test_a_full_disk_under_the_checkpoint_is_named_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    """The session ends, since it could not keep what it does; started again when there is room, it goes on."""
    write(tmp_path, 0)
    session = session_of(tmp_path, disk / "ck", weft.to_parquet(tmp_path / "out"))
    session.start()
    session.process_all_available()
    ballast = fill(disk)
    write(tmp_path, 1)
    with pytest.raises(WeftError, match=rf"{disk}/ck.* cannot be written: No space left on device"):
        session.process_all_available()
    session.stop()
    again = session_of(tmp_path, disk / "ck", weft.to_parquet(tmp_path / "out"))
    with pytest.raises(WeftError, match=rf"{disk}/ck.*No space left on device"):
        again.run_available()
    again.stop()
    ballast.unlink()
    session = session_of(tmp_path, disk / "ck", weft.to_parquet(tmp_path / "out"))
    session.start()
    session.process_all_available()
    session.stop()
    assert content(tmp_path / "out", "parquet") == Counter(range(2 * ROWS))


@pytest.mark.ci
def test_the_command_line_says_that_a_query_is_suspended(disk: Path, tmp_path: Path) -> None:
    """A script that looks at the exit code must not take half of the results for all of them."""
    write(tmp_path, 0)
    (tmp_path / "pipeline.yaml").write_text(
        f"""
checkpoint: {tmp_path}/ck
execution: local
streams:
  a: {{source: {{files: json, path: a}}, schema: "id long, text string, ts timestamp", event_time: ts}}
  b: {{source: {{files: json, path: b}}, schema: "id long, text string, ts timestamp", event_time: ts}}
queries:
  pair:
    sql: {TEXT}
    sink: {{parquet: {disk}/out}}
"""
    )
    weft_ = str(Path(sys.executable).with_name("weft"))
    command = [weft_, "run", str(tmp_path / "pipeline.yaml"), "--available-now"]
    first = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert first.returncode == 0, first.stderr
    ballast = fill(disk)
    write(tmp_path, 1)
    full = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert full.returncode != 0
    assert f"{disk}/out" in full.stdout + full.stderr
    ballast.unlink()
    last = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert last.returncode == 0, last.stderr
    assert content(disk / "out", "parquet") == Counter(range(2 * ROWS))
