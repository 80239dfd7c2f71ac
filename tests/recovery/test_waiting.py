"""Whoever waits for all that is there gets all of it, and does not wait for what is gone."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from tests.recovery.fault_world import World, content_of
from weft.runtime.loop.handle import Running


def process_all(world: World) -> Running:
    """Start a session in threads of its own; it must be done before long with what is there."""
    assert world.loop is not None
    running = Running(world.loop).start()
    waiting = threading.Thread(target=running.process_all_available, daemon=True)
    waiting.start()
    waiting.join(60)
    alive = waiting.is_alive()
    if alive:
        running.stop()
    assert not alive, "it waits for ever"
    return running


@pytest.mark.parametrize("overlapping", [False, True])
def test_a_file_that_becomes_complete_is_waited_for_until_it_is_committed(
    tmp_path: Path, overlapping: bool
) -> None:
    """Whoever asked for all would have missed it."""

    def linger(moment: str, number: int, files: set[Path]) -> None:
        if moment == "before manifest" and number >= 0 and not files:
            time.sleep(0.3)

    world = World(tmp_path, random.Random(1), ("one",), overlapping, 1, "auto", linger)
    world.write("c")
    file, rows = world.folder("c") / "late.json", world.rows(text=True)
    content = content_of(file, rows)
    file.write_bytes(content[:-5])
    world.meant[file] = rows
    world.start()
    timer = threading.Timer(0.5, file.write_bytes, (content,))
    timer.start()
    running = process_all(world)
    found = world.wrong()
    running.stop()
    timer.join()
    assert not found


def test_a_file_that_goes_before_it_is_taken_is_not_waited_for(tmp_path: Path) -> None:
    """It had been counted among those that were there."""

    def lose(moment: str, number: int, files: set[Path]) -> None:  # noqa: ARG001
        if moment == "before run" and number == 0:
            for file in sorted(world.folder("c").glob("*.json"))[1:]:
                file.unlink()
                del world.meant[file]

    world = World(tmp_path, random.Random(2), ("one",), True, 1, "auto", lose)
    for _ in range(4):  # one of them is in the first batch
        world.write("c")
    world.start()
    running = process_all(world)
    found = world.wrong()
    running.stop()
    assert len(world.meant) == 1
    assert not found
