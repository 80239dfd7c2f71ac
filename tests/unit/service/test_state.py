"""`weft state`, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.runtime.checkpoints import COUNTED, PAIR, checkpoint
from tests.unit.service.command import weft
from weft.runtime.log.checkpoint import FORMAT
from weft.runtime.observe.inspect import CheckpointState, Files, QueryState, StoreState
from weft.service.terminal.state_view import state_tables
from weft.stats.report import StatisticsRow


def test_state_shows_streams_stores_and_queries(tmp_path: Path) -> None:
    """Without the session that made it."""
    checkpoint(tmp_path).close()
    done = weft("state", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for expected in (
        f"Checkpoint {tmp_path} · format {FORMAT} · last batch 2 · 2 partitions",
        "13 bucket files, 770 B · 0 that no manifest names, 0 B · 0 dead letters",
        "v 9 1970-01-01 00:00:00.000 vid long, x long, ts timestamp, event time ts",
        "v partitioned by v.vid 9 90 B 3 2 1970-01-01 00:00:00.000 1970-01-01 00:00:00.000 counted, pair",
        "w [ROWS] partitioned by w [ROWS].vid 6 60 B 1 1 tuple 90 tuple 95 counted",
        "Queries (2)",
        "counted · since batch 0 · 0 results · 60 B of its own, shares 90 B",
        COUNTED,  # brackets are no markup
        "wrong failed: SinkError: no room",
    ):
        assert expected in lines, done.stdout


def test_state_of_a_hundred_queries_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    """Two lines per query, and no store lists a hundred names."""
    names = tuple(f"q{number:02}" for number in range(100))
    store = StoreState("v scattered", "v", "scattered", 1, 100, 1, 1, 0, 0, users=names)
    queries = tuple(QueryState(name, PAIR, 0, 5, 1.0) for name in names)
    nothing = Files(0, 0)
    state = CheckpointState("ck", FORMAT, 2, 7, (), (store,), queries, {}, nothing, nothing, 0)
    state_tables(state, Console(highlight=False, width=200))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 2 * len(names) + 10
    assert next(line for line in lines if "scattered" in line).rstrip().endswith("100 queries")


def test_state_shows_what_is_known_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Each figure with its source, age and evidence."""
    row = StatisticsRow("v.vid = w.vid", "selectivity", 0.05, "observed", 100.0, 1, 0.5)
    nothing = Files(0, 0)
    state = CheckpointState("ck", FORMAT, 2, 7, (), (), (), {}, nothing, nothing, 0, (row,))
    state_tables(state, Console(highlight=False, width=200))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "of what value source batches ago seconds ago evidence" in lines
    assert "v.vid = w.vid selectivity 0.05 observed 1 0.5 100" in lines


def test_state_as_json_is_read_by_other_tools(tmp_path: Path) -> None:
    """Numbers as they are, times in microseconds."""
    checkpoint(tmp_path).close()
    done = weft("state", str(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["last_batch"] == 2
    assert found["streams"][0] == {
        "name": "v",
        "text": "vid long, x long, ts timestamp, event time ts",
        "arrived": 9,
        "watermark": 7,
        "moved": None,
    }
    assert (found["stores"][0]["rows"], found["stores"][0]["users"]) == (9, ["counted", "pair"])
    assert (found["queries"][0]["text"], found["stopped"]["old"]) == (COUNTED, "stopped")


def test_what_is_no_checkpoint_is_said_so(tmp_path: Path) -> None:
    """A message and a hint, no stack trace."""
    done = weft("state", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "no checkpoint directory" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
