"""The life of a service's session: it starts, runs, stops or fails, and is followed batch by batch.

Guarantees: the state says what is, also after a failure, which is kept with its reason. A session that fails while it
runs is noticed by whoever asks next.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from weft.errors import SuspendedError, WeftError
from weft.runtime.observe.metrics import BatchMetrics
from weft.service.figures import BatchFigures
from weft.service.hub.describing import moment
from weft.service.hub.follower import Follower, Seen
from weft.service.hub.refusals import NotReadyError
from weft.service.hub.values import Health, State
from weft.session.session import Session

__all__ = ["Lifecycle"]

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
