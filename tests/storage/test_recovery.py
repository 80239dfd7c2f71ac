"""Runs whose checkpoint, input and results are in an object store that makes trouble, and that are killed or paused."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.recovery.cases import Case
from tests.recovery.processes import Run, until
from tests.shares import numbers, share_of
from tests.storage.s3_front import Front
from tests.storage.stricken import Stricken
from weft.runtime.log.checkpoint import Checkpoint
from weft.storage.storage import storage_at

KINDS = ("changing", "outer", "fixed")
LEASE = 2.0  # seconds
SHORT = {"LEASE_SECONDS": str(LEASE)}


def case_of(number: int, files: int, place: str) -> Case:
    """One of all kinds in turn."""
    (seed,) = numbers(1, number)
    return Case(seed, files, KINDS[number % len(KINDS)], place)


@pytest.mark.parametrize("number", range(share_of(1)))
def test_a_run_that_is_killed_goes_on(front: Front, s3: str, tmp_path: Path, number: int) -> None:
    """A crash would lose results or give them twice, as would a request that takes effect after it."""
    kills = min(4, share_of(1))
    with ExitStack() as stack:
        one = Stricken(tmp_path, case_of(number, 3 + 3 * kills, s3), front, stack)
        run = one.start()
        while len(one.story) < kills and one.signal(run, signal.SIGKILL):
            run.end()
            run = one.start()
        assert run.wait() == 0, f"{one.story}\n{run.tail()}"
        one.check()


def last_of(place: str) -> int:
    """The last batch that is committed; asked for now and then, since the store has other things to do."""
    time.sleep(0.2)
    return Checkpoint(storage_at(f"{place}/ck")).last()


def outlive(one: Stricken, first: Run) -> None:
    """Have a session take over from one that is paused, which goes on when the second has come somewhere."""
    paused, before = time.monotonic(), last_of(one.case.place)
    until(lambda: time.monotonic() > paused + 1.3 * LEASE, lambda: "time stands still")
    second, ahead = one.start(), one.rng.choice((0, 1, 100))  # batches
    until(
        lambda: second.code is not None or last_of(one.case.place) > before + ahead,
        lambda: f"no batch comes\n{second.tail()}",
    )
    os.kill(first.members("driver")[0], signal.SIGCONT)
    one.story.append(f"the second was {ahead} batches ahead; they ended with {first.wait()}, {second.wait()}")


def beside(one: Stricken, first: Run) -> None:
    """Have a second session begin while one of the first one's requests waits, which is renewing its lease."""
    second: list[Run] = []

    def begin() -> None:
        second.append(one.start())
        second[0].wait()

    if one.strike(first, "a second session", begin):
        codes = (first.wait(), second[0].code)
        one.story.append(f"they ended with {codes}")
        assert codes != (0, 0), "both have run to the end"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(share_of(3)))
@pytest.mark.parametrize("how", ["paused", "alive"])
def test_of_two_sessions_one_commits(front: Front, s3: str, tmp_path: Path, how: str, number: int) -> None:
    """Two sessions on one checkpoint would both give results, also when one of them was paused past its lease."""
    with ExitStack() as stack:
        one = Stricken(tmp_path, case_of(number, 6, s3), front, stack, environment=SHORT)
        first = one.start()
        if how == "alive":
            beside(one, first)
        elif how == "paused" and one.signal(first, signal.SIGSTOP):
            outlive(one, first)
        again = one.start()
        assert again.wait() == 0, f"{one.story}\n{again.tail()}"
        one.check()
