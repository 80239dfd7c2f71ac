"""Looking into a checkpoint that may be in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.joins import graph
from weft.bucket.bucket import Bounds
from weft.errors import StateError
from weft.runtime.checkpoint import FORMAT, Checkpoint, Manifest, Plan, RunFile, Runs
from weft.runtime.inspect import Files, StoreState, inspect

SQL = "SELECT v.x, w.uid FROM v [RANGE 5 SECONDS], w [ROWS 10] WHERE v.vid = w.vid"
IDENTITY: dict[str, Any] = {
    "streams": {"v": ["vid long, x long, ts timestamp", "ts"], "u": ["vid long", None]},
    "queries": {"pair": SQL},
    "partitions": 2,
}


def checkpoint(root: Path) -> Checkpoint:
    """A checkpoint that a session holds, with three batches, of which the last two are kept."""
    made = Checkpoint(root)
    made.open(**IDENTITY)
    made.claim()
    for number in range(3):
        made.write_plan(Plan(number, 0, {"pair": graph(SQL).to_json()}, {}))
        made.commit(_manifest(made, number))
    return made


def _manifest(made: Checkpoint, number: int) -> Manifest:
    def run(name: str, rows: int, first: int, last: int) -> RunFile:
        (made.buckets / name).write_bytes(b"x" * rows)
        return RunFile(name, Bounds(rows, 10 * rows, first, last))

    runs: Runs = {
        "pair": {
            "v⋈w": {0: (run(f"{number}-c", 1, 5, 5),)},
            "v": {0: (run(f"{number}-a", 3, 1, 5), run(f"{number}-b", 2, 0, 9)), 1: (run("1", 4, 3, 4),)},
            "w": {1: (run(f"{number}-d", 6, 90, 95),)},
        }
    }
    return Manifest(number, runs, {"pair": {"v": 7}}, {}, {"pair": {"v": 9, "w": 6}}, {})


def test_a_checkpoint_is_shown_as_its_last_manifest_says(tmp_path: Path) -> None:
    """Also while a session holds it."""
    made = checkpoint(tmp_path)
    (made.buckets / "3-0-under-way").write_bytes(b"12345")
    (tmp_path / "dead_letters").mkdir()
    (tmp_path / "dead_letters" / "batch-000000000001.jsonl").write_bytes(b'{"a": 1}\n{"a": 2}\n')
    found = inspect(tmp_path)
    assert (found.format, found.partitions, found.last_batch, found.dead_letters) == (FORMAT, 2, 2, 2)
    assert found.streams == {"v": "vid long, x long, ts timestamp, event time ts", "u": "vid long"}
    assert found.live == Files(9, 2 * (1 + 3 + 2 + 6) + 4)
    assert found.unnamed == Files(1, 5)
    (query,) = found.queries
    assert (query.name, query.text) == ("pair", SQL)
    assert (query.watermarks, query.arrived) == ({"v": 7}, {"v": 9, "w": 6})
    assert query.stores == (
        StoreState("v", 9, 90, 3, 2, 0, 9),
        StoreState("w", 6, 60, 1, 1, 90, 95, counted=True),
        StoreState("v⋈w", 1, 10, 1, 1, 5, 5),
    )
    made.close()


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """Not even the time of a file."""
    made = checkpoint(tmp_path)
    (made.buckets / "left-over").write_bytes(b"1")
    before = {file: file.stat().st_mtime_ns for file in sorted(tmp_path.rglob("*"))}
    inspect(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in sorted(tmp_path.rglob("*"))} == before
    made.close()


def test_a_checkpoint_without_a_batch_is_one(tmp_path: Path) -> None:
    """A session that has just started."""
    made = Checkpoint(tmp_path)
    made.open(**IDENTITY)
    made.claim()
    made.close()
    found = inspect(tmp_path)
    assert (found.last_batch, found.live, found.unnamed) == (-1, Files(0, 0), Files(0, 0))
    assert [query.stores for query in found.queries] == [()]
    assert json.loads(json.dumps(found.to_dict()))["queries"][0]["name"] == "pair"


def test_a_plan_that_is_gone_leaves_the_rest_visible(tmp_path: Path) -> None:
    """Then only what the numbers mean is unknown."""
    checkpoint(tmp_path).close()
    (tmp_path / "plan" / "2.json").unlink()
    assert not any(store.counted for store in inspect(tmp_path).queries[0].stores)


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
    with pytest.raises(StateError, match=r"manifest .* is damaged"):
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
            raise FileNotFoundError
        return original(self, number)

    monkeypatch.setattr(Checkpoint, "manifest", vanishing)
    made_last = inspect(tmp_path).last_batch
    assert made_last == 3
    made.close()
