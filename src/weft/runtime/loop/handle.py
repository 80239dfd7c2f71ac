"""A run in a thread of its own, and what whoever started it holds.

Guarantees: an error of the user's comes out as itself, from every method that waits. `process_all_available` waits for
all that was there when it was called, files that are not complete yet included, and for what was asked for by then.
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
    """A running set of queries; with ``available_now``, until what is there is processed."""

    loop: Loop
    available_now: bool = False
    failure: BaseException | None = None
    _thread: threading.Thread | None = None

    def start(self) -> Running:
        """Begin; batches follow each other until `stop`."""
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
        """Whether batches may still follow."""
        return self._thread is not None and self._thread.is_alive()

    def process_all_available(self) -> None:
        """Wait until all that is there is processed."""
        self._wait_for_all()
        self._raise()

    def _wait_for_all(self) -> None:
        self.loop.intake.catch_up()
        mark = self.loop.mark()
        while self.is_active and not mark.reached.wait(POLL):
            pass

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end, so many seconds at most; whether it has come."""
        if self._thread is not None:
            self._thread.join(timeout)
        if not self.is_active:
            self._raise()
        return not self.is_active

    def _raise(self) -> None:
        """An error of the user's, such as a file of another schema, as itself."""
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Stop after the batch under way, and let the log go."""
        self.loop.stopping = True
        self.loop.wake.set()
        if self._thread is not None:
            self._thread.join()


def launch(
    loop: Loop, queries: Mapping[str, tuple[QueryRequest, Sink]], *, available_now: bool = False
) -> Running:
    """Start queries; a start that fails lets the log go."""
    try:
        loop.start(queries)
    except BaseException:
        loop.stopping = True
        loop.close()
        raise
    return Running(loop, available_now).start()
