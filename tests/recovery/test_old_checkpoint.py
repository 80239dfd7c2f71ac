"""A checkpoint that an earlier version wrote is read, and goes on as if nothing had changed (design, D16).

`old_checkpoint.tar.xz` is the root of a `World` as the version before the common codec left it: five queries, one of
them added with its past, results that are held, a change of stores, and a batch whose results are in their sinks but
whose manifest is not written. Every value of the log is in it in the form in which that version wrote it.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.recovery.fault_world import Rows
from tests.recovery.test_log_losses import Scene
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.entries import write_record
from weft.runtime.log.totals import QueryTotals
from weft.runtime.observe.inspect import inspect
from weft.runtime.observe.metrics import BatchMetrics
from weft.storage.storage import LocalDisk

OLD = Path(__file__).parent / "old_checkpoint.tar.xz"
WRITTEN_AT = "/srv/weft"  # the root of the world when the checkpoint was written

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """The world that the old version left, at another place."""
    scene = Scene(tmp_path, "chain", "ordered", "outer", "one")
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    _move(LocalDisk(scene.checkpoint), str(tmp_path))
    _restore_times(scene.checkpoint)
    scene.meant = {file: _rows(file) for file in sorted((tmp_path / "in").glob("*/*"))}
    scene._ids = max(row[0] for rows in scene.meant.values() for row in rows)
    scene._files = len(scene.meant)
    scene._ask("pair", backfill=True)
    scene.added.append("pair")
    yield scene
    scene.stop()


def _move(disk: LocalDisk, root: str) -> None:
    """Have all entries of a log name the files of another root."""
    for folder in ("plan", "state", "migrated", "blueprints"):
        for file in sorted(Path(disk.locate(folder)).glob("*.json")):
            body = file.read_text().partition("\n")[2]
            moved = body.replace(json.dumps(WRITTEN_AT)[1:-1], json.dumps(root)[1:-1])
            write_record(disk, f"{folder}/{file.name}", json.loads(moved))


def _restore_times(checkpoint: Path) -> None:
    """Give the input of the last batch the times to the nanosecond by which its plan knows it."""
    plan = Checkpoint.at(checkpoint).plan(4)
    assert plan is not None
    for _, part in plan.parts:
        os.utime(part.what["file"], ns=(part.what["modified"], part.what["modified"]))


def _rows(file: Path) -> Rows:
    if file.suffix == ".parquet":
        table = pq.ParquetFile(file).read()
        times = table.column("ts").cast("int64").to_pylist()
        return list(zip(*(table.column(name).to_pylist() for name in ("id", "k", "g")), times, strict=True))
    lines = map(json.loads, file.read_text().splitlines())
    return [(line["id"], line["k"], line["g"], _micros(line["ts"])) for line in lines]


def _micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)


def test_it_says_what_it_said(scene: Scene) -> None:
    """Counters, held results, partitions and metrics are those of the batch that was committed last."""
    left = scene.manifest
    assert (left.number, set(left.partitions), left.bytes_of("c replicated")) == (3, {0, 1}, 1320)
    assert left.results == {"chain": 64, "one": 5, "ordered": 0, "outer": 1, "pair": 21}
    assert left.totals.queries["pair"] == QueryTotals(3, 1, 21)
    assert {name: one.rows for name, one in left.totals.streams.items()} == {"a": 15, "b": 15, "c": 13}
    assert [run.rows for run in left.held["ordered"]] == [24, 10]
    metrics = BatchMetrics.from_dict(left.metrics)
    assert {alias: one.rows for alias, one in metrics.inputs.items()} == {"a": 5, "b": 2, "c": 3}
    assert {name: one.count for name, one in metrics.latencies.items()} == {"chain": 42, "one": 2, "pair": 10}
    assert inspect(scene.checkpoint).last_batch == 3


def test_the_batch_that_was_under_way_is_repeated_and_others_follow(scene: Scene) -> None:
    """With the input that its plan names; what had been given before is not given again."""
    scene.check()
    assert scene.last == 4
    scene.run(2)
    scene.check()
