"""Looking into a checkpoint that may be in use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.runtime.checkpoints import (
    COUNTED,
    IDENTITY,
    PAIR,
    ROWS,
    STOPPED,
    V,
    W,
    _manifest,
    _write_plan,
    blueprint,
    checkpoint,
)
from weft.errors import StateError
from weft.logical.codec import encode
from weft.runtime.log.checkpoint import FORMAT, Checkpoint
from weft.runtime.log.entries import read_record, write_record
from weft.runtime.log.values import BatchPlan, Blueprint, Manifest
from weft.runtime.observe.inspect import Files, QueryState, StoreState, StreamState, inspect
from weft.runtime.state.segment_file import BUCKETS
from weft.stats.known import Checked, Known
from weft.stats.report import StatisticsRow


def test_a_checkpoint_is_shown_as_its_last_manifest_says(tmp_path: Path) -> None:
    """Also while a session holds it."""
    made = checkpoint(tmp_path)
    made.storage.put(f"{BUCKETS}/3-0-under-way", b"12345")
    (tmp_path / "dead_letters").mkdir()
    (tmp_path / "dead_letters" / "batch-000000000001.jsonl").write_bytes(b'{"a": 1}\n{"a": 2}\n')
    found = inspect(tmp_path)
    assert (found.format, found.partitions, found.last_batch, found.dead_letters) == (FORMAT, 2, 2, 2)
    assert found.streams == (
        StreamState("v", "vid long, x long, ts timestamp, event time ts", 9, 7),
        StreamState("u", "vid long"),
    )
    manifests = sum(
        file.stat().st_size for file in (tmp_path / BUCKETS).glob("*-m")
    )  # of both partitions, twice
    assert found.live == Files(9 + 4, 2 * (1 + 3 + 2 + 6) + 4 + manifests)
    assert found.unnamed == Files(1, 5)
    made.close()


def test_a_store_is_shown_once_with_all_who_use_it(tmp_path: Path) -> None:
    """One without runs too; one that no query knows is not hidden."""
    checkpoint(tmp_path).close()
    layouts = [f"partitioned by {by}" for by in ("v.vid", "w.vid", "`w$rows`.vid")]
    assert inspect(tmp_path).stores == (
        StoreState(V, "v", layouts[0], 9, 90, 3, 2, 0, 9, users=("counted", "pair")),
        StoreState(W, "w", layouts[1], 0, 0, 0, 0, None, None, users=("pair",)),
        StoreState(ROWS, "w$rows", layouts[2], 6, 60, 1, 1, 90, 95, counted=True, users=("counted",)),
        StoreState("v⋈w", "v⋈w", "", 1, 10, 1, 1, 5, 5),
    )


def test_queries_are_shown_as_their_authors_wrote_them(tmp_path: Path) -> None:
    """With what their part of the state takes; those that stopped with the reason."""
    checkpoint(tmp_path).close()
    found = inspect(tmp_path)
    assert found.queries == (
        QueryState("counted", COUNTED, 0, 0, 90 / 2 + 60, 60, 90),
        QueryState("pair", PAIR, 0, 12, 90 / 2, 0, 90),
    )
    assert found.stopped == STOPPED


def test_a_session_all_of_whose_queries_stopped_has_no_stores(tmp_path: Path) -> None:
    """It goes on, and waits for others."""
    made = checkpoint(tmp_path)
    name = made.write_blueprint(Blueprint("", "", {}, STOPPED))
    made.write_plan(BatchPlan(3, 0, name))
    made.commit(Manifest(3, marks={"v": 7}, blueprint=name))
    made.close()
    found = inspect(tmp_path)
    assert (found.stores, found.queries, found.stopped) == ((), (), STOPPED)


def test_looking_needs_no_kernels() -> None:
    """To load them takes longer than to look."""
    modules = "weft.runtime.observe.inspect, weft.service.terminal.state_view"
    code = f"import sys, {modules}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """Not even the time of a file."""
    made = checkpoint(tmp_path)
    made.storage.put(f"{BUCKETS}/left-over", b"1")
    before = {file: file.stat().st_mtime_ns for file in sorted(tmp_path.rglob("*"))}
    inspect(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in sorted(tmp_path.rglob("*"))} == before
    made.close()


def test_a_checkpoint_without_a_batch_is_one(tmp_path: Path) -> None:
    """A session that has just started; its queries are known once its first batch is planned."""
    made = Checkpoint.at(tmp_path)
    made.open(**IDENTITY)
    made.claim()
    found = inspect(tmp_path)
    assert (found.last_batch, found.live, found.unnamed) == (-1, Files(0, 0), Files(0, 0))
    assert (found.stores, found.queries) == ((), ())
    _write_plan(made, 0)
    made.close()
    found = inspect(tmp_path)
    assert [(store.rows, store.bytes) for store in found.stores] == [(0, 0)] * 3
    assert json.loads(json.dumps(encode(found)))["queries"][1]["name"] == "pair"


@pytest.mark.parametrize("damage", ["gone", "cut off", "another graph"])
def test_a_blueprint_that_is_gone_leaves_the_rest_visible(tmp_path: Path, damage: str) -> None:
    """Then only who uses what, and what the numbers mean, is unknown."""
    made = checkpoint(tmp_path)
    name = f"blueprints/{blueprint().name}.json"
    if damage == "another graph":
        write_record(made.storage, name, {**read_record(made.storage, name), "graph": "[]"})
    elif damage == "gone":
        made.storage.delete(name)
    else:
        made.storage.put(name, b"[1")
    made.close()
    found = inspect(tmp_path)
    assert [(store.identity, store.rows) for store in found.stores] == [(V, 9), (ROWS, 6), ("v⋈w", 1)]
    assert not any(store.counted or store.users for store in found.stores)
    assert (found.queries, found.stopped) == ((), {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no checkpoint directory"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 99}', f"has format 99, this version of Weft reads {FORMAT}"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    """With what to do about it."""
    if content is not None:
        (tmp_path / "weft.json").write_text(content, encoding="utf-8")
    with pytest.raises(StateError, match=message) as caught:
        inspect(tmp_path)
    assert caught.value.hint


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    """A disk that was full, say."""
    checkpoint(tmp_path).close()
    (tmp_path / "state" / "2.json").write_text("{", encoding="utf-8")
    with pytest.raises(StateError, match=r"2\.json is damaged"):
        inspect(tmp_path)


def test_a_manifest_that_vanishes_while_it_is_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running session deletes old ones with every batch."""
    made = checkpoint(tmp_path)
    original, calls = Checkpoint.manifest, []

    def vanishing(self: Checkpoint, number: int) -> Manifest | None:
        calls.append(number)
        if len(calls) == 1:
            made.commit(_manifest(made, 3))
            return None
        return original(self, number)

    monkeypatch.setattr(Checkpoint, "manifest", vanishing)
    made_last = inspect(tmp_path).last_batch
    assert made_last == 3
    made.close()


def test_statistics_are_shown_if_they_can_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are no part of what a batch leaves, so that nothing depends on them."""
    made = checkpoint(tmp_path)
    assert inspect(tmp_path).statistics == ()
    known = Known(9, 1.0, first={("v.vid = w.vid",): Checked(100.0, 100.0, 5.0, 8, 0.5)})
    made.write_statistics(known.to_json())
    row = StatisticsRow("v.vid = w.vid", "selectivity", 0.05, "observed", 100.0, 1, 0.5)
    assert inspect(tmp_path).statistics == (row,)
    made.write_statistics('{"other": 1}')
    assert inspect(tmp_path).statistics == ()
    assert "not shown" in caplog.text
    made.close()
