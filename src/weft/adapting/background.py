"""A planner that works beside the batches, in a process of its own.

Guarantees: batches never wait for it: a slow solver takes no time from them, and neither a plan that cannot be found
nor the death of the process harms them. The process ends with the one that started it, however that ends. What it is
told and what it answers are pickled values over its standard input and output; it runs no code of users.

`PlanningProcess` asks the same program other questions that may take long, such as the plan of a query that somebody
only wants to see: an answer is waited for as long as it may take and no longer, and a question whose answer nobody
waits for any more is given up at once. What is given up ends with its process, so it takes no time from anybody.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Any, Protocol

from weft.adapting.proposal import Proposal, Snapshot, propose
from weft.errors import PlanError, WeftError
from weft.storage.paths import own_python

__all__ = [
    "BackgroundPlanner",
    "ForegroundPlanner",
    "GivenUpError",
    "PlanFinder",
    "PlanningProcess",
    "Question",
    "end_process",
    "receive",
    "send",
    "start_process",
]


_LOG = logging.getLogger("weft")

_SIZE = struct.Struct("<Q")
PATIENCE = 30.0  # seconds beyond the time for planning after which a silent planner is given up
POLITE = 10  # by how much the process lets others go first (`os.nice`)


class Question(Protocol):
    """What a planning process can be asked: a value that goes there, is answered there, and whose answer comes back."""

    def answer(self) -> Any:
        """Work out the answer, which is a function of the question."""


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


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search under way: the snapshot, and when it was asked for."""

    snapshot: Snapshot
    asked: float


class BackgroundPlanner:
    """Finds plans in a process that is started when the first one is asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: Proposal | None = None
        self._search: _Search | None = None
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a plan is being looked for, or waits to be taken."""
        with self._lock:
            search = self._search
        if search is not None and time.monotonic() - search.asked > self._seconds + PATIENCE:
            _LOG.warning("the planner in the background does not answer, and is given up")
            self.close()
        with self._lock:
            return self._search is not None or self._answer is not None

    def ask(self, snapshot: Snapshot) -> None:
        """Look for a better plan for a snapshot."""
        search = _Search(snapshot, time.monotonic())
        with self._lock:
            self._answer, self._search = None, search
        threading.Thread(target=self._exchange, args=(search,), name="weft-planner", daemon=True).start()

    def take(self) -> Proposal | None:
        """The plan that was found; None as long as there is none."""
        with self._lock:
            answer, self._answer = self._answer, None
            return answer

    def close(self) -> None:
        """End the process, and the search under way."""
        with self._lock:
            process, self._process, self._search = self._process, None, None
        if process is not None:
            end_process(process)

    def _exchange(self, search: _Search) -> None:
        """Have the process answer a search; the answer of one that was given up meanwhile is dropped."""
        answer: Proposal | None = None
        try:
            data = pickle.dumps(search.snapshot)
            reply = self._replied(search, data)
            if isinstance(reply, Proposal):
                answer = reply
            elif reply is not None:
                _warn(reply)
        except Exception as error:
            _warn(error)
        finally:
            with self._lock:
                if self._search is search:
                    self._answer, self._search = answer, None

    def _replied(self, search: _Search, data: bytes) -> object:
        """What the process replies to a snapshot; None if it ends meanwhile, or has been closed."""
        process = self._process_for(search)
        if process is None or process.stdin is None or process.stdout is None:
            return None
        try:
            send(process.stdin, data)
            return pickle.loads(receive(process.stdout))
        except (OSError, ValueError, EOFError, pickle.PickleError) as error:
            with self._lock:
                is_lost = process is self._process  # else it was closed meanwhile
                self._process = None if is_lost else self._process
            if is_lost:
                _LOG.warning("the planner in the background has ended: %s", error)
                end_process(process)
            return None

    def _process_for(self, search: _Search) -> subprocess.Popen[bytes] | None:
        """The process, started if none runs; None if the search was given up before it began."""
        with self._lock:
            if self._search is not search:
                return None
            if self._process is not None and self._process.poll() is not None:
                end_process(self._process)
                self._process = None
            if self._process is None:
                self._process = start_process()
            return self._process


def start_process() -> subprocess.Popen[bytes]:
    """A new process that answers questions: what it is told, and what it answers, has a size and then pickled bytes."""
    return subprocess.Popen(
        own_python("weft.adapting.background"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal is for the session, which ends this process
    )


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process, whatever it does, and let go of all that it holds."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not written yet is of no use
                pipe.close()


def _warn(error: object) -> None:
    reason = _reason(error) if isinstance(error, Exception) else error
    _LOG.warning("the queries cannot be planned again, and go on as they are: %s", reason)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"


def send(pipe: IO[bytes], data: bytes) -> None:
    """Write a value."""
    pipe.write(_SIZE.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """The next value; `EOFError` if there is none any more."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError("its output has ended")
    size = _SIZE.unpack(head)[0]
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("its output has ended")
    return data


def _serve() -> None:
    """Answer snapshots until there are no more: the main program of the process."""
    os.nice(POLITE)
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    snapshots: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(given, snapshots), daemon=True).start()
    while True:
        try:
            question: Question = pickle.loads(snapshots.get())
            reply = pickle.dumps(question.answer())
        except WeftError as error:
            reply = pickle.dumps(error)
        except Exception as error:
            reply = pickle.dumps(PlanError(_reason(error)))
        send(answers, reply)


def _listen(given: IO[bytes], snapshots: SimpleQueue[bytes]) -> None:
    """Pass snapshots on; when there are no more because whoever asks has ended, end the process in mid-search."""
    try:
        while True:
            snapshots.put(receive(given))
    except EOFError:
        os._exit(0)


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
        reply = pickle.loads(answer)
        if isinstance(reply, Exception):
            raise reply
        return reply

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


if __name__ == "__main__":
    _serve()
