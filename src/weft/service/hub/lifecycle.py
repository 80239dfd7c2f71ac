"""The life of a service's session: it starts, runs, stops or fails, and is followed batch by batch.

Guarantees: the state says what is, also after a failure, which is kept with its reason. A session that fails while it
runs is noticed by whoever asks next. Every batch is counted once, when it is committed, in its order, so that totals
are known however long the session runs; batches that were forgotten before they were seen are counted as ``missed``.
One thread looks; what it saw is replaced as a whole, so that others always see figures that belong together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from weft.errors import SuspendedError, WeftError
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.observe.metrics import BatchMetrics
from weft.service.figures import BatchFigures, RunTotals, batch_figures
from weft.service.hub.refusals import NotReadyError
from weft.service.hub.values import Health, State
from weft.session.session import Session

__all__ = ["Follower", "Lifecycle", "Seen", "moment"]


KEPT = 240  # so many batches are kept for rates and trends
EVERY = 0.1  # seconds between two looks

Look = Callable[[int], tuple[tuple[PhysicalGraph | None, BatchMetrics], ...]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a run: its totals, the last batches, oldest first, and how many batches were missed."""

    totals: RunTotals = RunTotals()  # noqa: RUF009
    recent: tuple[BatchFigures, ...] = ()
    missed: int = 0
    last: BatchMetrics | None = None


class Follower:
    """Looks for new batches again and again; ``told`` is called for each, in the follower's thread."""

    def __init__(self, look: Look, told: Callable[[BatchFigures, BatchMetrics], None]) -> None:
        self._look, self._told = look, told
        self.seen = Seen()
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with the first batch of the run."""
        self._thread = threading.Thread(target=self._run, name="weft-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(EVERY):
            self.look()

    def look(self) -> None:
        """Take in the batches that have ended since the last look."""
        with self._lock:
            seen = self.seen
            for graph, metrics in self._look(seen.totals.last):
                batch = batch_figures(graph, metrics)
                gap = batch.number - seen.totals.last - 1 if seen.totals.batches else 0
                recent = (*seen.recent[-KEPT + 1 :], batch)
                seen = Seen(seen.totals.plus(batch), recent, seen.missed + gap, metrics)
                self._told(batch, metrics)
            self.seen = seen

    def stop(self) -> None:
        """Look once more, and no longer."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self.look()


Tell = Callable[[BatchFigures, BatchMetrics], None]


class Lifecycle:
    """Starts and stops a session, and knows how it is."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.state: State = "starting"
        self._since = time.time()
        self._failure: BaseException | None = None
        self._follower = Follower(session.batches_after, self._tell)
        self._listeners: dict[object, Tell] = {}

    def start(self, prepare: Callable[[], None]) -> None:
        """Prepare the session, start it and follow it; after an error, it has failed."""
        try:
            prepare()
            self._session.start(idle=True)
            self._follower.start()
        except BaseException as error:
            self._enter("failed", error)
            raise
        self._enter("running")

    def stop(self) -> None:
        """Stop after the batch under way, and take in all that it did."""
        if self.state not in ("stopped", "failed"):
            self._enter("stopping")
        self._session.stop()
        self._follower.stop()
        if self.state == "stopping":
            self._enter("stopped")

    def _enter(self, state: State, failure: BaseException | None = None) -> None:
        self.state, self._since, self._failure = state, time.time(), failure

    def health(self) -> Health:
        """Whether the session runs, and if not, why."""
        if self.state == "running":
            try:
                if self._session.await_termination(0):
                    self._enter("stopped")
            except SuspendedError:  # queries say so themselves; the session goes on
                pass
            except Exception as error:
                if self.state == "running":
                    self._enter("failed", error)
        failure, last = self._failure, self.seen.totals.last
        return Health(
            self.state,
            self.state == "running",
            moment(self._since),
            last if last >= 0 else None,
            None if failure is None else _reason(failure),
            failure.hint if isinstance(failure, WeftError) else None,
        )

    def check_ready(self) -> None:
        """Refuse what only a running session can do."""
        health = self.health()
        if not health.ready:
            said = f"the session {_DOES[health.state]}"
            raise NotReadyError(f"{said}: {health.error}" if health.error else said, hint=health.hint)

    @property
    def seen(self) -> Seen:
        """What was seen of the run so far."""
        return self._follower.seen

    def _tell(self, batch: BatchFigures, metrics: BatchMetrics) -> None:
        for tell in list(self._listeners.values()):
            tell(batch, metrics)

    def follow(self, tell: Tell) -> Callable[[], None]:
        """Have a function called with every batch from now on, in a thread of its own; returns how to end that."""
        key = object()
        self._listeners[key] = tell

        def end() -> None:
            self._listeners.pop(key, None)

        return end


def moment(seconds: float) -> datetime:
    """A moment in UTC, given in seconds since 1970."""
    return datetime.fromtimestamp(seconds, timezone.utc)


_DOES = {
    "starting": "is starting",
    "running": "runs",
    "stopping": "is stopping",
    "stopped": "has stopped",
    "failed": "has failed",
}


def _reason(error: BaseException) -> str:
    """What happened, without a stack trace."""
    if isinstance(error, WeftError):
        return error.message
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
