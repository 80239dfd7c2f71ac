"""Attempts at something that others are in the way of, or that is away for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from weft.ports.sink import is_hurried

__all__ = ["Patience"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """Turns of a loop for some seconds, with pauses that grow; each says whether it is the last one.

    Whoever is done leaves the loop. At least two turns are given, so that something that takes long is tried again; but
    one alone within `weft.ports.sink.hurried`.

    >>> [last for last in Patience(0.0)]
    [False, True]
    """

    seconds: float

    def __iter__(self) -> Iterator[bool]:
        """Begin now."""
        end, pause = time.monotonic() + self.seconds, _FIRST_PAUSE
        yield is_hurried()
        if is_hurried():
            return
        while True:
            time.sleep(
                pause * random.uniform(0.5, 1.0)
            )  # two who are in each other's way should not keep step
            is_last = time.monotonic() >= end
            yield is_last
            if is_last:
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
