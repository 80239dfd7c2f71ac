"""Plans that somebody asks for, to see them or to run by them: in processes of their own, one at a time for each asker.

Guarantees: whoever asks, by whatever query, takes no time from batches, from requests of other kinds, or from the plans
of others. Everybody has a lane: in each, one plan is worked out at a time, and a few more wait. A plan that takes too
long, or whose asker has gone, is given up, and its process ends. Lanes take turns where there are more than processes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from weft.adapting.background import GivenUpError, PlanningProcess, Question
from weft.service.hub.refusals import BusyError
from weft.session.preview import LoadQuestion

__all__ = ["PlanningLanes"]

WAITING = 4  # so many questions of a lane wait beside the one that is worked out
PROCESSES = max(2, min(4, os.cpu_count() or 1))
IDLE = 1  # so many processes are kept that have nothing to do
LOOK = 0.1  # seconds between two looks whether an asker has gone


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """A question that waits in a lane."""

    lane: str


class PlanningLanes:
    """Who has plans worked out, each for so many ``seconds`` at most; safe from any thread."""

    def __init__(self, seconds: float, processes: int = PROCESSES) -> None:
        self._seconds, self._most = seconds, processes
        self._changed = threading.Condition()
        self._waiting: deque[_Turn] = deque()
        self._busy: dict[str, PlanningProcess] = {}  # by lane
        self._idle: list[PlanningProcess] = []
        self._is_closed = False

    def ask(self, question: Question, lane: str = "", gone: threading.Event | None = None) -> Any:
        """The answer to a question; once ``gone`` is set, nobody waits for it any more."""
        gone = gone or threading.Event()
        with self._turn(lane, gone) as process:
            return process.ask(question, self._seconds, gone)

    @contextmanager
    def _turn(self, lane: str, gone: threading.Event) -> Iterator[PlanningProcess]:
        """Wait until it is a lane's turn, and give it a process."""
        turn = _Turn(lane)
        with self._changed:
            if sum(one.lane == lane for one in self._waiting) >= WAITING:
                raise BusyError(
                    "so many plans are being worked out for this client", hint="wait for them first"
                )
            self._waiting.append(turn)
            try:
                while not self._is_next(turn):
                    if gone.is_set() or self._is_closed:
                        raise GivenUpError("nobody waits for the plan any more")
                    self._changed.wait(LOOK)
                process = self._idle.pop() if self._idle else PlanningProcess(LoadQuestion())
                self._busy[lane] = process
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
        try:
            yield process
        finally:
            with self._changed:
                del self._busy[lane]
                is_kept = len(self._idle) < IDLE and not self._is_closed
                if is_kept:
                    self._idle.append(process)
                self._changed.notify_all()
            if not is_kept:
                process.end()

    def _is_next(self, turn: _Turn) -> bool:
        """Whether a question is the first of those whose lane is free, and there is a process for it."""
        first = next((one for one in self._waiting if one.lane not in self._busy), None)
        return first is turn and len(self._busy) < self._most and not self._is_closed

    def close(self) -> None:
        """Give up all that is under way."""
        with self._changed:
            self._is_closed = True
            processes = [*self._busy.values(), *self._idle]
            self._idle.clear()
            self._changed.notify_all()
        for process in processes:
            process.end()
