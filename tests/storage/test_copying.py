"""A checkpoint that moves from one storage to another goes on as if it had not."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import weft
from tests.storage.test_sessions import joined, results, session_at, write
from weft.errors import ConfigError, StateError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.copying import copy_checkpoint
from weft.service.cli import app
from weft.service.commands.checkpoint import named_checkpoint
from weft.storage.storage import storage_at


def test_a_copy_goes_on(s3: str, tmp_path: Path) -> None:
    """A session moved to a store and back would lose state or give results twice."""
    chance, sides = random.Random(1), dict[str, list[tuple[int, int]]](a=[], b=[])
    places = [str(tmp_path / "ck"), f"{s3}/ck", str(tmp_path / "back")]
    for number, place in enumerate(places):
        if number:
            told = CliRunner().invoke(app, ["checkpoint", "copy", places[number - 1], place])
            assert told.exit_code == 0, told.output
            assert "copied and compared" in told.output
        write(tmp_path / "in", sides, chance, 2)
        session_at(place, tmp_path / "in", tmp_path / "out").run_available()
        assert results(tmp_path / "out") == joined(sides)


NESTED = """SELECT d.k, d.v, c.v AS w FROM c [RANGE 1 HOUR],
(SELECT a.k, a.v FROM a [ROWS 1000], b [RANGE 1 HOUR] WHERE a.k = b.k) [RANGE 1 HOUR] AS d WHERE d.k = c.k"""


def test_a_copy_with_queries_over_queries_goes_on(s3: str, tmp_path: Path) -> None:
    """Their rows are written where the checkpoint is now, and no more where it was: that is gone."""
    chance, sides = random.Random(2), dict[str, list[tuple[int, int]]](a=[], b=[], c=[])
    places = [str(tmp_path / "ck"), f"{s3}/ck", str(tmp_path / "back")]
    for number, place in enumerate(places):
        if number:
            copy_checkpoint(storage_at(places[number - 1]), storage_at(place))
        if number == 1:
            (tmp_path / "ck").rename(tmp_path / "gone")
        for name, rows in sides.items():
            (tmp_path / "in" / name).mkdir(parents=True, exist_ok=True)
            new = [(chance.randrange(3), chance.randrange(1000)) for _ in range(4)]
            times = pa.array([len(rows) * 1_000_000] * 4, pa.timestamp("us", "UTC"))
            table = pa.table({"k": [k for k, _ in new], "v": [v for _, v in new], "ts": times})
            pq.write_table(table, tmp_path / "in" / name / f"{number}.parquet")
            rows += new
        session = weft.Session(checkpoint=place, execution="local")
        for name in sides:
            session.stream(name, weft.files("parquet", str(tmp_path / "in" / name)), event_time="ts")
        session.query(NESTED, name="q", sink=weft.to_parquet(tmp_path / "out"))
        session.run_available()
        inner = [(k, v) for k, v in sides["a"] for other, _ in sides["b"] if k == other]
        wanted = Counter((k, v, w) for k, v in inner for other, w in sides["c"] if k == other)
        assert results(tmp_path / "out") == wanted
    assert not (tmp_path / "ck").exists()


def test_what_cannot_be_copied_is_refused(s3: str, tmp_path: Path) -> None:
    """A checkpoint in use would be copied half, or another one be overwritten."""
    disk, store = storage_at(str(tmp_path / "ck")), storage_at(f"{s3}/ck")
    with pytest.raises(StateError, match="no checkpoint"):
        copy_checkpoint(disk, store)
    log = Checkpoint(disk)
    log.open({})
    with pytest.raises(StateError, match="in use"):
        copy_checkpoint(disk, store)
    log.close()
    disk.put("frames/q/0.arrow", b"rows")
    with pytest.raises(StateError, match="name their place"):
        copy_checkpoint(disk, store)
    disk.delete("frames/q/0.arrow")
    store.put("anything", b"1")
    with pytest.raises(StateError, match="not empty"):
        copy_checkpoint(disk, store)
    with pytest.raises(StateError, match="itself"):
        copy_checkpoint(disk, disk)


def test_a_uri_is_not_taken_for_a_path() -> None:
    """`weft run --checkpoint s3://…` would keep its state in a folder named s3:."""
    assert named_checkpoint("s3a://bucket/ck/") == "s3://bucket/ck"
    assert named_checkpoint("/x/ck") == Path("/x/ck")
    with pytest.raises(ConfigError, match="names no storage"):
        named_checkpoint("hdfs://host/ck")
