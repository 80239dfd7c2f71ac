"""Runs with tables that change, latest versions, unions and queries over queries, killed with -9 again and again.

In children of this process, which are many and cheap, and in some sessions on Spark. Whatever was killed when, every
query has given what the definition says, with the versions of tables that the log says were in force.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recovery.processes import Run
from tests.recovery.table_check import Told
from tests.recovery.table_program import main
from tests.recovery.table_story import random_table_story
from tests.shares import seeds

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux to kill processes")

KILLS = 5  # of one story
STEPS, SECONDS = 90, 1.2  # within which a life ends

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.recovery.table_program"])


def random_end(rng: random.Random) -> str:
    """How a life ends: at a step of what it writes, or some time after its start."""
    return str(rng.randint(1, STEPS)) if rng.random() < 0.6 else f"{rng.uniform(0.05, SECONDS):.3f}s"


def live_here(root: Path, seed: int, fatal: str) -> int:
    """A life in a child of this process; what it ended with."""
    child = _PROCESSES.Process(target=main, args=(str(root), str(seed), "local", fatal, ""))
    child.start()
    child.join(120)
    if child.exitcode is None:
        child.kill()
        raise TimeoutError(f"a life does not end: {root}")
    return child.exitcode


def check_story(root: Path, seed: int, ends: list[str]) -> None:
    """Compare what a story gave."""
    story = random_table_story(seed)
    try:
        assert Told(story, root).check() > 0
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, killed at {ends}: {error}") from error


def live_on_spark(root: Path, seed: int, how: str, fatal: str) -> int:
    """A life in a program with a Spark of its own; what it ended with."""
    run = Run(root, [str(seed), how, fatal, "local[2]"], "tests.recovery.table_program")
    try:
        return run.wait()
    finally:
        run.end()


def die_and_go_on(seed: int, live: Callable[[str], int], kills: int) -> list[str]:
    """Live again and again, until a life comes to its end; how each one ended."""
    rng, ends, code = random.Random(seed), list[str](), -1
    while code != 0:
        ends.append(random_end(rng) if len(ends) < kills else "-")
        code = live(ends[-1])
        assert code in (0, -signal.SIGKILL), f"seed {seed}, {ends}: a life ended with {code}"
    return ends


@pytest.mark.ci
@pytest.mark.parametrize("seed", seeds(4))
def test_killed_in_this_machine(seed: int, tmp_path: Path) -> None:
    """A lookup would mix versions, or a result of an inner query would be lost or come twice."""
    ends = die_and_go_on(seed, lambda fatal: live_here(tmp_path, seed, fatal), KILLS)
    check_story(tmp_path, seed, ends)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("how", ["resident", "jobs"])
@pytest.mark.parametrize("seed", seeds(1, block=1))
def test_killed_on_spark(seed: int, how: str, tmp_path: Path) -> None:
    """Tasks elsewhere would read another version than the plan says, or miss files of an inner query."""
    ends = die_and_go_on(seed, lambda fatal: live_on_spark(tmp_path, seed, how, fatal), 2)
    check_story(tmp_path, seed, ends)
