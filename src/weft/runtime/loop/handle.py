"""The handle of a run, whose loop is in a thread of its own.

Guarantees: an error that ended the run is raised, as it is, by every method that waits. `process_all_available` waits
for all input that was there when it was called, including files that were not complete yet, and for all changes of
queries that were asked for by then. Who waits is told if queries are suspended: after all that could be processed, at
the end of the run, and when no query goes on. A process that ends, be it by Ctrl-C, ends its runs first: no thread of a
run is left in the middle of something when Python is taken down.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from weft.ports.sink import Sink
from weft.runtime.loop.loop import Loop
from weft.runtime.output.suspended import suspended_error
from weft.runtime.queries.request import QueryRequest

__all__ = ["Running", "launch"]

POLL = 0.05  # seconds between two looks whether the thread has ended
LOOK = 0.5  # seconds between two looks whether queries are suspended
PATIENCE = 30.0  # seconds that a process which ends waits for the batch under way


@dataclass
class Running:
    """A running loop; with ``available_now``, it stops when all input that is there is processed.

    ``failure`` is the error that ended it, if one did.
    """

    loop: Loop
    available_now: bool = False
    failure: BaseException | None = None
    _thread: threading.Thread | None = None

    def start(self) -> Running:
        """Start the loop's thread, which runs batches until `stop`."""
        self._thread = threading.Thread(target=self._run, name="weft-loop", daemon=True)
        atexit.register(self._end_with_process)
        self._thread.start()
        if self.available_now:
            threading.Thread(target=self._stop_when_done, name="weft-available-now", daemon=True).start()
        return self

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            self.failure = error
        finally:
            self.loop.stopping = True
            self.loop.close()
            atexit.unregister(self._end_with_process)

    def _end_with_process(self) -> None:
        """End the loop and its tasks; Python aborts if a thread that reads from Spark is left when it ends."""
        self.loop.stopping = True
        self.loop.wake.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _stop_when_done(self) -> None:
        self._wait_for_all()
        self.loop.stopping = True
        self.loop.wake.set()

    @property
    def is_active(self) -> bool:
        """Whether the loop still runs."""
        return self._thread is not None and self._thread.is_alive()

    def process_all_available(self) -> None:
        """Wait until all input that is there now is processed; queries that are suspended are raised as an error."""
        self.process_what_can_be()
        self.check_suspended()

    def process_what_can_be(self) -> None:
        """Wait until all input that is there now is processed, as far as queries are not suspended."""
        self._wait_for_all()
        self._raise()

    def _wait_for_all(self) -> None:
        self.loop.intake.catch_up()
        wait_point = self.loop.wait_point()
        while self.is_active and not wait_point.reached.wait(POLL):
            pass

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the loop ends, for at most ``timeout`` seconds; return whether it has ended.

        If all queries are suspended, that is raised, though the loop goes on: nothing comes of waiting longer.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._thread is not None and self.is_active:
            left = LOOK if until is None else min(LOOK, until - time.monotonic())
            self._thread.join(max(0.0, left))
            if self.is_active and self.loop.all_suspended():
                self.check_suspended()
            if left < LOOK:
                break
        if not self.is_active:
            self._raise()
            self.check_suspended()
        return not self.is_active

    def check_suspended(self) -> None:
        """Raise an error that says which queries are suspended, if some are."""
        error = suspended_error(self.loop.suspended())
        if error is not None:
            raise error

    def _raise(self) -> None:
        """Raise the error that ended the loop, if one did."""
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Stop after the batch under way, and wait until the loop has closed the log."""
        self.loop.stopping = True
        self.loop.wake.set()
        if self._thread is not None:
            self._thread.join()


def launch(
    loop: Loop, queries: Mapping[str, tuple[QueryRequest, Sink]], *, available_now: bool = False
) -> Running:
    """Start queries in a new thread; if the start fails, the log is closed."""
    try:
        loop.start(queries)
    except BaseException:
        loop.stopping = True
        loop.close()
        raise
    return Running(loop, available_now).start()
