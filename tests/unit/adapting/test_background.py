"""The planner beside the batches: if it harmed them, or outlived them, it would be better not to have it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.adapting.snapshots import snapshot
from weft.adapting import background
from weft.adapting.background import BackgroundPlanner, ForegroundPlanner
from weft.adapting.proposal import Proposal, Snapshot
from weft.optimizer.adaptation import is_alike

SOON = 60.0  # seconds, on a busy machine


class Calling:
    """Stands for a snapshot that calls a function when the process reads it."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """How it is read."""
        return self.call[0], self.call[1:]


def slow() -> Snapshot:
    """A snapshot whose plan takes a minute."""
    return Calling(time.sleep, 60.0)  # type: ignore[return-value]


def wait_for(condition: Callable[[], bool], seconds: float = SOON) -> bool:
    """Whether a condition holds within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def pid_of(planner: BackgroundPlanner) -> int:
    """The process of a planner, once it has one."""
    assert wait_for(lambda: planner._process is not None)
    process = planner._process
    assert process is not None
    return process.pid


def answer(planner: BackgroundPlanner) -> Proposal | None:
    """What is found for the last snapshot."""
    found: list[Proposal | None] = []

    def taken() -> bool:
        proposal = planner.take()
        if proposal is not None:
            found.append(proposal)
        return bool(found) or not planner.is_busy

    assert wait_for(taken)
    return found[0] if found else planner.take()


@pytest.fixture
def planner() -> Iterator[BackgroundPlanner]:
    """A planner whose process ends with the test."""
    found = BackgroundPlanner(30.0)
    yield found
    found.close()


def test_a_plan_is_found_in_another_process(planner: BackgroundPlanner) -> None:
    """It is the one that this process would have found, and the next one is found by the same process."""
    planner.ask(snapshot())
    assert planner.is_busy
    found, here = answer(planner), ForegroundPlanner()
    here.ask(snapshot())
    expected = here.take()
    assert found is not None
    assert expected is not None
    assert is_alike(found.plan, expected.plan)
    assert (found.cost_now, found.cost_then, found.beside, found.cause) == (
        expected.cost_now,
        expected.cost_then,
        expected.beside,
        "a test",
    )
    assert found.gain > 0.5
    assert not planner.is_busy
    pid = pid_of(planner)
    assert pid != os.getpid()
    planner.ask(snapshot())
    assert answer(planner) is not None
    assert pid_of(planner) == pid


def test_a_plan_that_waits_to_be_taken_is_taken_once(planner: BackgroundPlanner) -> None:
    """Nobody asks for another one before."""
    planner.ask(snapshot())
    assert wait_for(lambda: planner._answer is not None)
    assert planner.is_busy
    assert planner.take() is not None
    assert planner.take() is None
    assert not planner.is_busy


def test_batches_survive_the_death_of_the_process(
    planner: BackgroundPlanner, caplog: pytest.LogCaptureFixture
) -> None:
    """One plan is lost, which a warning says; the next one is found by a new process."""
    planner.ask(slow())
    pid = pid_of(planner)
    os.kill(pid, signal.SIGKILL)
    assert answer(planner) is None
    assert "has ended" in caplog.text
    planner.ask(snapshot())
    assert answer(planner) is not None
    assert pid_of(planner) != pid


def test_a_process_that_dies_while_nobody_asks_is_replaced(
    planner: BackgroundPlanner, caplog: pytest.LogCaptureFixture
) -> None:
    """The first plan that is asked for afterwards is found."""
    planner.ask(snapshot())
    assert answer(planner) is not None
    pid = pid_of(planner)
    os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: not is_alive(pid))
    planner.ask(snapshot())
    assert answer(planner) is not None
    assert not caplog.records


@pytest.mark.parametrize("finder", [BackgroundPlanner(30.0), ForegroundPlanner()], ids=["background", "here"])
def test_what_cannot_be_planned_changes_nothing(
    finder: BackgroundPlanner | ForegroundPlanner, caplog: pytest.LogCaptureFixture
) -> None:
    """The queries go on as they are, and the reason is logged."""
    finder.ask("no snapshot")  # type: ignore[arg-type]
    found = answer(finder) if isinstance(finder, BackgroundPlanner) else finder.take()
    assert found is None
    assert "cannot be planned again" in caplog.text
    assert "AttributeError: 'str' object" in caplog.text
    finder.close()


def test_what_cannot_be_sent_changes_nothing(
    planner: BackgroundPlanner, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that cannot be pickled would end the thread that asks, with a stack trace."""
    planner.ask(lambda: None)  # type: ignore[arg-type]
    assert answer(planner) is None
    assert "cannot be planned again" in caplog.text


def test_what_the_process_prints_is_no_answer(planner: BackgroundPlanner) -> None:
    """Solvers print what they like, to wherever they like."""
    planner.ask(Calling(print, "x" * 1000))  # type: ignore[arg-type]
    assert answer(planner) is None
    planner.ask(Calling(os.write, 1, b"y" * 1000))  # type: ignore[arg-type]
    assert answer(planner) is None
    planner.ask(snapshot())
    assert answer(planner) is not None


def test_a_planner_can_be_closed_at_any_moment(
    planner: BackgroundPlanner, caplog: pytest.LogCaptureFixture
) -> None:
    """Before its process has started, in the middle of a search, and twice; nothing is left over."""
    caplog.set_level(logging.WARNING)
    planner.close()
    planner.ask(slow())
    planner.close()
    assert not planner.is_busy
    planner.ask(slow())
    pid = pid_of(planner)
    planner.close()
    assert not is_alive(pid)
    assert not planner.is_busy
    planner.ask(snapshot())  # while the thread of the search before may still be ending
    assert answer(planner) is not None
    planner.close()
    assert planner._process is None
    assert not caplog.records


def test_a_planner_that_is_silent_for_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else there would never be another plan."""
    monkeypatch.setattr(background, "PATIENCE", 0.0)
    planner = BackgroundPlanner(0.0)
    planner.ask(slow())
    pid = pid_of(planner)
    assert not planner.is_busy
    assert "does not answer" in caplog.text
    assert not is_alive(pid)


PARENT = """
import time
from tests.unit.adapting.test_background import pid_of, slow, snapshot, wait_for
from weft.adapting.background import BackgroundPlanner
planner = BackgroundPlanner(30.0)
planner.ask({snapshot})
print(pid_of(planner), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("asked", ["slow()", "snapshot()"])
def test_the_process_ends_with_the_one_that_started_it(asked: str) -> None:
    """In the middle of a search, or after one: killed sessions would leave planners behind."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(snapshot=asked)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert is_alive(child)
        parent.kill()
        assert wait_for(lambda: not is_alive(child), 20.0)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_the_process_imports_no_pandas() -> None:
    """It starts beside batches, on their cores; a third of what its start took was a library that it does not use."""
    code = "import sys, weft.adapting.background; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
