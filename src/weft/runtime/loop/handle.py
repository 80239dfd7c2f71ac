"""The handle of a run, whose loop is in a thread of its own.

Guarantees: an error that ended the run is raised, as it is, by every method that waits. `process_all_available` waits
for all input that was there when it was called, including files that were not complete yet, and for all changes of
queries that were asked for by then.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from weft.ports.sink import Sink
from weft.runtime.loop.loop import Loop
from weft.runtime.queries.request import QueryRequest

__all__ = ["Running", "launch"]

POLL = 0.05  # seconds between two looks whether the thread has ended


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

    def _stop_when_done(self) -> None:
        self._wait_for_all()
        self.loop.stopping = True
        self.loop.wake.set()

    @property
    def is_active(self) -> bool:
        """Whether the loop still runs."""
        return self._thread is not None and self._thread.is_alive()

    def process_all_available(self) -> None:
        """Wait until all input that is there now is processed."""
        self._wait_for_all()
        self._raise()

    def _wait_for_all(self) -> None:
        self.loop.intake.catch_up()
        mark = self.loop.mark()
        while self.is_active and not mark.reached.wait(POLL):
            pass

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the loop ends, for at most ``timeout`` seconds; return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        if not self.is_active:
            self._raise()
        return not self.is_active

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
