"""A planner that works beside the batches, in a process of its own.

Guarantees: batches never wait for it: a slow solver takes no time from them, and neither a plan that cannot be found
nor the death of the process harms them. The process ends with the one that started it, however that ends. What it is
told and what it answers are pickled values over its standard input and output; it runs no code of users.
"""

from __future__ import annotations

import logging
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
from typing import IO, Protocol

from weft.adapting.proposal import Proposal, Snapshot, propose

__all__ = ["BackgroundPlanner", "ForegroundPlanner", "PlanFinder"]

_LOG = logging.getLogger("weft")

_SIZE = struct.Struct("<Q")
PATIENCE = 30.0  # seconds beyond the time for planning after which a silent planner is given up
POLITE = 10  # by how much the process lets others go first (`os.nice`)


class PlanFinder(Protocol):
    """Finds better plans, one at a time."""

    @property
    def is_busy(self) -> bool:
        """Whether a plan is being looked for, or waits to be taken."""

    def ask(self, snapshot: Snapshot) -> None:
        """Look for a better plan for a snapshot."""

    def take(self) -> Proposal | None:
        """The plan that was found; None as long as there is none."""

    def close(self) -> None:
        """End what is under way."""


class ForegroundPlanner:
    """Finds a plan when it is taken, in this thread; for tests, and where every epoch must be followed."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a plan waits to be taken."""
        return self._snapshot is not None

    def ask(self, snapshot: Snapshot) -> None:
        """Look for a better plan for a snapshot."""
        self._snapshot = snapshot

    def take(self) -> Proposal | None:
        """The plan for the last snapshot; None if there was none, or if planning fails, which is logged."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return None
        try:
            return propose(snapshot)
        except Exception as error:
            _warn(f"{type(error).__name__}: {error}")
            return None

    def close(self) -> None:
        """There is nothing to end."""


class BackgroundPlanner:
    """Finds plans in a process that is started when the first one is asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: Proposal | None = None
        self._asked: float | None = None  # when the plan under way was asked for
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a plan is being looked for, or waits to be taken."""
        with self._lock:
            overdue = self._asked is not None and time.monotonic() - self._asked > self._seconds + PATIENCE
        if overdue:
            _LOG.warning("the planner in the background does not answer, and is given up")
            self.close()
        return self._asked is not None or self._answer is not None

    def ask(self, snapshot: Snapshot) -> None:
        """Look for a better plan for a snapshot."""
        with self._lock:
            self._answer, self._asked = None, time.monotonic()
        threading.Thread(target=self._exchange, args=(snapshot,), name="weft-planner", daemon=True).start()

    def take(self) -> Proposal | None:
        """The plan that was found; None as long as there is none."""
        with self._lock:
            answer, self._answer = self._answer, None
            return answer

    def close(self) -> None:
        """End the process."""
        with self._lock:
            process, self._process, self._asked = self._process, None, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _exchange(self, snapshot: Snapshot) -> None:
        answer: Proposal | None = None
        process: subprocess.Popen[bytes] | None = None
        try:
            process = self._started()
            if process.stdin is None or process.stdout is None:
                return
            _write(process.stdin, snapshot)
            found = _read(process.stdout)
            if isinstance(found, Proposal):
                answer = found
            else:
                _warn(found)
        except (OSError, ValueError, EOFError, pickle.PickleError) as error:
            with self._lock:
                gone = self._process is not process  # it was closed meanwhile
                self._process = None if not gone else self._process
            if not gone:
                _LOG.warning("the planner in the background has ended: %s", error)
        finally:
            with self._lock:
                self._answer, self._asked = answer, None

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._process is None:
                paths = os.pathsep.join(path for path in sys.path if path)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "weft.adapting.background"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": paths},
                )
            return self._process


def _warn(error: object) -> None:
    _LOG.warning("the queries cannot be planned again, and go on as they are: %s", error)


def _write(pipe: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    pipe.write(_SIZE.pack(len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> object:
    """The next value; `EOFError` if there is none any more."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError("its output has ended")
    size = _SIZE.unpack(head)[0]
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("its output has ended")
    return pickle.loads(data)


def _serve() -> None:
    """Answer snapshots until there are no more: the main program of the process."""
    os.nice(POLITE)
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    while True:
        try:
            snapshot = _read(given)
        except EOFError:
            return
        try:
            _write(answers, propose(snapshot))  # type: ignore[arg-type]
        except BrokenPipeError:
            return
        except Exception as error:
            _write(answers, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _serve()
