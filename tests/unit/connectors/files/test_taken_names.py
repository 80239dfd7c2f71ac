"""What would be lost: a file read twice because its name was forgotten; a checkpoint that grows for ever."""

from __future__ import annotations

import json

import pytest

from weft.connectors.files.cursor import TakenNames
from weft.errors import StateError
from weft.ports.source import MemoryBlobs


def test_names_move_to_few_blobs_and_survive() -> None:
    blobs = MemoryBlobs()
    taken = TakenNames({}, blobs, most=10)
    present = [f"ü/{number}" for number in range(2000)]
    for number, name in enumerate(present):
        taken.add(name)
        state = json.loads(json.dumps(taken.state(present, float(number))))
        assert len(state["since"]) <= 10
        assert len(state["blobs"]) <= 10
    again = TakenNames(state, blobs, most=10)
    assert len(again) == 2000
    assert not again.not_taken(frozenset(present))
    assert again.not_taken(frozenset(["new"])) == {"new"}
    assert len(blobs.kept) <= 2000 // 10


def test_names_of_files_that_are_gone_for_long_are_forgotten() -> None:
    taken, now = TakenNames({}, MemoryBlobs(), most=10), 0.0
    for number in range(3000):
        taken.add(str(number))
        now += 60
        taken.state([str(number), "0"], now)  # each file goes at once, but the first stays
    assert "0" in taken
    assert len(taken) < 150


def test_a_file_that_is_out_of_sight_for_a_moment_is_remembered() -> None:
    taken, now = TakenNames({}, MemoryBlobs(), most=10), 0.0
    taken.add("there")
    for number in range(400):
        taken.add(str(number))
        now += 60
        taken.state([str(number), *(["there"] if number % 12 else [])], now)
    assert "there" in taken


def test_a_file_that_was_back_in_between_is_remembered() -> None:
    """It was missed twice, long after each other, but not all the time."""
    taken = TakenNames({}, MemoryBlobs(), most=0)
    taken.add("there")
    taken.state([], 0.0)
    taken.not_taken(frozenset(["there"]))
    taken.add("another")
    taken.state([], 700.0)
    assert "there" in taken
    taken.add("more")
    taken.state([], 1400.0)
    assert "there" not in taken


def test_without_a_listing_nothing_is_forgotten() -> None:
    taken = TakenNames({}, MemoryBlobs(), most=10)
    for number in range(500):
        taken.add(str(number))
        taken.state(None, 3600.0 * number)
    assert len(taken) == 500


def test_a_damaged_blob_is_named() -> None:
    blobs = MemoryBlobs({"blob-7": b"nonsense"})
    with pytest.raises(StateError, match="blob-7"):
        TakenNames({"blobs": ["blob-7"]}, blobs)
