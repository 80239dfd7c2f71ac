"""Questions that may take long, such as the plan of a query that somebody only wants to see, answered elsewhere.

Guarantees: an answer is waited for as long as it may take and no longer; a question whose answer nobody waits for any
more is given up at once. What is given up ends with its process, so it takes no time from anybody. The process is the
same program as that of the background planner, and lets others go first.
"""

from __future__ import annotations

import pickle
import select
import subprocess
import threading
import time
from typing import Any

from weft.adapting.background import Question, end_process, receive, send, start_process
from weft.errors import PlanError

__all__ = ["GivenUpError", "PlanningProcess"]

LOADING = 60.0  # seconds that a new process may take until it can be asked
LOOK = 0.05  # seconds between two looks whether somebody still waits


class GivenUpError(PlanError):
    """A question was not answered: it took too long, or nobody waited for the answer any more."""


class PlanningProcess:
    """A process that answers one question after the other; for one thread at a time, but for `end`.

    ``first`` is a question that loads what others need: how long that takes counts for none of them.
    """

    def __init__(self, first: Question) -> None:
        self._first = pickle.dumps(first)
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: Question, seconds: float, gone: threading.Event) -> Any:
        """The answer to a question; an error of Weft's that it ends in is raised.

        After so many seconds, or when ``gone`` is set, it is given up.
        """
        try:
            is_loaded = self._is_loaded(gone)
            until = time.monotonic() + seconds
            answer = self._replied(pickle.dumps(question), until, gone) if is_loaded else None
        except (OSError, ValueError, EOFError, pickle.PickleError) as error:
            self.end()
            raise GivenUpError(f"the process that plans has ended: {error}", hint="ask again") from None
        if answer is None:
            self.end()
            if gone.is_set():
                raise GivenUpError("nobody waits for the plan any more")
            raise GivenUpError(
                f"the query cannot be planned within {seconds:g} seconds",
                hint='join fewer inputs, or choose a quicker strategy, such as "greedy_left_deep"',
            )
        found = pickle.loads(answer)
        if isinstance(found, Exception):
            raise found
        return found

    def _is_loaded(self, gone: threading.Event) -> bool:
        """Start a process if there is none, and wait until it can be asked; False if nobody waits any more."""
        if self._process is not None and self._process.poll() is None:
            return True
        self.end()
        self._process = start_process()
        return self._replied(self._first, time.monotonic() + LOADING, gone) is not None

    def _replied(self, data: bytes, until: float, gone: threading.Event) -> bytes | None:
        """What the process replies; None if that takes too long, or nobody waits."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise EOFError("it was ended")
        given, answers = process.stdin, process.stdout
        send(given, data)
        while not gone.is_set() and time.monotonic() < until:
            if select.select([answers], [], [], LOOK)[0]:
                return receive(answers)
        return None

    def end(self) -> None:
        """End the process, and the question under way; the next question starts another one."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process)
