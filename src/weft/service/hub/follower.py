"""Follows a session batch by batch, so that its totals are known however long it runs.

Guarantees: every batch is counted once, when it is committed, in its order; batches that were forgotten before they
were seen are counted as ``missed``. One thread looks; what it found is replaced as a whole, so that others always see
figures that belong together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from weft.plan.graph import PhysicalGraph
from weft.runtime.observe.metrics import BatchMetrics
from weft.service.figures import BatchFigures, RunTotals, batch_figures

__all__ = ["Follower", "Seen"]

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
