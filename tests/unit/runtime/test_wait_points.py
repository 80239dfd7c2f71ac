"""Whoever waits for all that is there must neither return before it is committed nor wait for what will never come."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.shares import seeds
from weft.ports.source import Offer, Part, Unfinished
from weft.runtime.loop.intake.cursors import Intake
from weft.runtime.loop.intake.wait_points import WaitPoints

X = Unfinished("x", "it is being written")
PART = Part({"file": "x"}, 10)


class Scripted:
    """A cursor that offers what it is told to."""

    def __init__(self) -> None:
        self.offer = Offer()
        self.during: Callable[[], object] = lambda: None

    def look(self, now: float) -> Offer:  # noqa: ARG002
        """The offer as it was when the look began; something may happen meanwhile."""
        offer = self.offer
        self.during()
        return offer


def scripted() -> tuple[Scripted, Intake, WaitPoints]:
    """Wait points over one stream."""
    cursor: Any = Scripted()
    intake = Intake(lambda *_: None, 1 << 20)  # type: ignore[arg-type]
    intake.cursors["s"], intake.taken["s"], intake.released["s"] = cursor, 0, 0
    return cursor, intake, WaitPoints(intake)


def test_what_nobody_can_read_is_not_waited_for() -> None:
    """A file without permission would hold up whoever waits, for ever."""
    cursor, _, wait_points = scripted()
    point = wait_points.add()
    for unfinished, reached in ((X, False), (Unfinished("x", "no permission", awaited=False), True)):
        cursor.offer = Offer((), (unfinished,))
        wait_points.look()
        wait_points.release(0, 0, lambda: False)
        assert point.reached.is_set() == reached


def test_a_look_that_was_under_way_does_not_count() -> None:
    """It may not have seen what was there when somebody began to wait."""
    cursor, _, wait_points = scripted()
    made = []
    cursor.during = lambda: made.append(wait_points.add())
    wait_points.look()
    cursor.offer, cursor.during = Offer((PART,), backlog=(1, 10)), lambda: None
    wait_points.release(0, 0, lambda: False)
    assert not made[0].reached.is_set()
    wait_points.look()
    wait_points.release(0, 0, lambda: False)
    assert made[0].target == {"s": 1}
    assert not made[0].reached.is_set()


def test_a_file_that_an_offer_had_no_room_to_name_is_still_waited_for() -> None:
    """Files that came later are many, and the one that was there is not among those that were committed."""
    cursor, intake, wait_points = scripted()
    point = wait_points.add()
    cursor.offer = Offer((), (X,))
    wait_points.look()
    cursor.offer = Offer((PART,), (), (5, 50))  # it is full before it comes to x
    wait_points.look()
    intake.taken["s"] = intake.released["s"] = 50
    wait_points.release(0, 0, lambda: False)
    assert not point.reached.is_set()
    cursor.offer = Offer()
    wait_points.look()
    wait_points.release(0, 0, lambda: False)
    assert point.reached.is_set()


def within(seconds: float, do: Callable[[], object]) -> None:
    """Do something that must not take longer."""
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for ever"


@pytest.mark.parametrize("seed", seeds(6))
def test_all_that_is_there_is_waited_for_at_every_restart(tmp_path: Path, seed: int) -> None:
    """Also files that are being written meanwhile, are replaced by something else, or are filled late."""
    draw, folder = random.Random(seed), tmp_path / "in"
    folder.mkdir()
    meant, number = set[int](), 0
    sink = weft.to_memory()
    for _ in range(4):
        session = weft.Session(checkpoint=tmp_path / "ck", execution="local", adapt="off")
        files = weft.files("json", str(folder), schema="k long", unfinished_after="1 minute")
        session.stream("s", files)
        session.query("SELECT s.k FROM s WHERE s.k >= 0", name="q", sink=sink)
        writers = []
        for _ in range(draw.randrange(1, 4)):
            number += 1
            meant.add(number)
            file, text = folder / f"{number}.json", f'{{"k": {number}}}\n'
            file.write_text(text[: draw.randrange(len(text))])
            writers.append(threading.Timer(draw.random() / 5, file.write_text, (text,)))
        strange = folder / f"strange{number}.json"
        strange.write_text('{"k"')
        writers.append(threading.Timer(draw.random() / 5, become_folder, (strange,)))
        session.start()
        for writer in writers:
            writer.start()
        time.sleep(draw.random() / 10)
        within(60, session.process_all_available)
        found = [row["k"] for row in sink.results().to_pylist()]
        session.stop()
        for writer in writers:
            writer.join()
        assert sorted(found) == sorted(meant)


def become_folder(file: Path) -> None:
    """A file is replaced by a folder of its name."""
    file.unlink()
    file.mkdir()
