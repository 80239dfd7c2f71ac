"""`weft state`, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.runtime.test_inspect import checkpoint
from tests.unit.service.test_cli import weft
from weft.runtime.checkpoint import FORMAT


def test_state_shows_queries_stores_and_files(tmp_path: Path) -> None:
    """Without the session that made it."""
    checkpoint(tmp_path).close()
    done = weft("state", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for expected in (
        f"Checkpoint {tmp_path} · format {FORMAT} · last batch 2 · 2 partitions",
        "9 bucket files, 28 B · 0 that no manifest names, 0 B · 0 dead letters",
        "Stream v: vid long, x long, ts timestamp, event time ts",
        "Query pair",
        "v 1970-01-01 00:00:00.000",
        "v 9 90 B 3 2 1970-01-01 00:00:00.000 1970-01-01 00:00:00.000",
        "w 6 60 B 1 1 tuple 90 tuple 95",
    ):
        assert expected in lines, done.stdout
    assert "[RANGE 5 SECONDS]" in done.stdout  # brackets are no markup


def test_state_as_json_is_read_by_other_tools(tmp_path: Path) -> None:
    """Numbers as they are, times in microseconds."""
    checkpoint(tmp_path).close()
    done = weft("state", str(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["last_batch"] == 2
    assert found["queries"][0]["stores"][0]["rows"] == 9


def test_what_is_no_checkpoint_is_said_so(tmp_path: Path) -> None:
    """A message and a hint, no stack trace."""
    done = weft("state", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "no checkpoint directory" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
