"""A checkpoint that moves from one storage to another goes on as if it had not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.storage.test_sessions import joined, results, session_at, write
from weft.errors import ConfigError, StateError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.copying import copy_checkpoint
from weft.service.checkpoint_commands import named_checkpoint
from weft.service.cli import app
from weft.storage.places import storage_at


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
    disk.put("streams/q/0.arrow", b"rows")
    with pytest.raises(StateError, match="name their place"):
        copy_checkpoint(disk, store)
    disk.delete("streams/q/0.arrow")
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
