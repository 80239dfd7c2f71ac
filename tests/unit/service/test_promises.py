"""What a service acknowledges holds after its process has died, at whatever moment."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from tests.shares import seeds
from tests.unit.service.api.running import place, running_hub, wait_for
from tests.unit.service.promises import EMPTY, QUERIES, DeadError, Death, Story, mortal
from weft.errors import StateError
from weft.service.hub.values import NewQuery


def test_an_acknowledged_query_is_there_after_a_kill_before_its_first_batch(tmp_path: Path) -> None:
    """Whoever was told 201 had no query after the restart."""
    here, death = place(tmp_path), Death()
    with mortal(death), suppress(DeadError), running_hub(tmp_path, EMPTY) as hub:
        made = hub.create(NewQuery(QUERIES[0], "late"))
        assert made.status == "waiting"
        death.left = 0
    for _ in range(2):
        with running_hub(tmp_path, EMPTY) as hub:
            assert hub.query("late").status in ("waiting", "running")
            if hub.query("late").status == "waiting":
                here.pair(1)
            wait_for(lambda: hub.query("late").status == "running")
            assert [one.name for one in hub.queries()] == ["late"]


def test_an_acknowledged_query_whose_first_batch_was_planned_is_there_at_once(tmp_path: Path) -> None:
    """It ran, but nobody could name it."""
    here, death = place(tmp_path), Death()
    with mortal(death), suppress(DeadError), running_hub(tmp_path, EMPTY) as hub:
        hub.create(NewQuery(QUERIES[0], "late"))
        death.left = 2  # the blueprint and the plan
        here.pair(1)
        wait_for(lambda: not hub.health().ready)
    with running_hub(tmp_path, EMPTY) as hub:
        assert [one.name for one in hub.queries()] == ["late"]
        wait_for(lambda: hub.query("late").results == 1)


def test_a_query_that_stopped_and_came_again_is_there_after_a_kill(tmp_path: Path) -> None:
    """The log knows that it was stopped once; that counts no more."""
    here, death = place(tmp_path), Death()
    with mortal(death), suppress(DeadError), running_hub(tmp_path, EMPTY) as hub:
        hub.create(NewQuery(QUERIES[1], "again"))
        here.pair(3)
        wait_for(lambda: hub.query("again").status == "running")
        hub.stop_query("again")
        wait_for(lambda: hub.query("again").status == "stopped")
        hub.create(NewQuery(QUERIES[1], "again"))
        death.left = 0
    with running_hub(tmp_path, EMPTY) as hub:
        assert hub.query("again").status == "waiting"


def test_a_lost_record_of_what_was_asked_for_is_named(tmp_path: Path) -> None:
    """Else the query would be missing without a word."""
    place(tmp_path)
    with running_hub(tmp_path, EMPTY) as hub:
        hub.create(NewQuery(QUERIES[0], "late"))
    (tmp_path / "ck" / "requested.json").unlink()
    with pytest.raises(StateError, match=r"requested\.json is missing"), running_hub(tmp_path, EMPTY):
        pass


@pytest.mark.parametrize("seed", seeds(4))
def test_what_was_acknowledged_holds_whenever_the_process_dies(tmp_path: Path, seed: int) -> None:
    """Random requests, and a death between any two writes."""
    rng, death = random.Random(seed), Death()
    place(tmp_path)
    story = Story(tmp_path, rng)
    with mortal(death):
        for _ in range(4):
            story.live(rng.randrange(2, 9), death)
        with running_hub(tmp_path, EMPTY) as hub:
            story.check(hub)
