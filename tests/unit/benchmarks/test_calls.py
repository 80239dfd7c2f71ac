"""How functions of the engine are timed while it runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest
from benchmarks._calls import timing


def spend(seconds: float) -> None:
    """Use the processor."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def outer(seconds: float) -> None:
    """Use it for a while, and within another function for twice as long."""
    spend(seconds)
    inner(2 * seconds)


def inner(seconds: float) -> None:
    """Use it."""
    spend(seconds)


def portions(seconds: float) -> Iterator[int]:
    """Use it before each of three numbers."""
    for number in range(3):
        spend(seconds)
        yield number


def test_functions_are_timed_without_those_inside_them() -> None:
    """What a stage takes is not said to be taken by the stage around it; waiting is not counted."""
    entered = list[tuple[str, float]]()

    def note(name: str, frame: FrameType) -> None:
        entered.append((name, frame.f_locals["seconds"]))

    with timing({"o": outer, "i": inner, "p": portions}, note) as calls:
        thread = threading.Thread(target=outer, args=(0.02,))
        thread.start()
        thread.join()
        for _ in portions(0.01):
            spend(0.01)
    assert calls.seconds == {
        "o": pytest.approx(0.02, rel=0.3),
        "i": pytest.approx(0.04, rel=0.3),
        "p": pytest.approx(0.03, rel=0.3),
    }
    assert entered[:3] == [("o", 0.02), ("i", 0.04), ("p", 0.01)]


def test_nothing_is_timed_afterwards() -> None:
    """The hook is taken away, also after an error."""
    with pytest.raises(ZeroDivisionError), timing({"i": inner}) as calls:
        raise ZeroDivisionError
    inner(0.001)
    assert (calls.seconds, sys.getprofile()) == ({}, None)
