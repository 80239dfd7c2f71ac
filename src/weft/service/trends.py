"""What a run did second by second, for charts: however quick its batches, a few minutes are kept.

Guarantees: pure; the clock is that of the batches. Batches come in their order. A second in which no batch ended has no
entry, and so a chart shows that nothing happened, not that nothing was there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from weft.service.figures import BatchFigures
from weft.stats.latency import Latency

__all__ = ["Second", "Trend"]

KEPT = 300  # seconds


@dataclass(frozen=True, slots=True)
class Second:
    """What the batches that ended in a second did together; ``at`` is the second, counted since 1970.

    ``slowest`` is the longest batch in seconds; ``backlog`` and ``state`` (in bytes) are after the last one.
    ``latency`` is that of all results.
    """

    at: int
    batches: int = 0
    rows: int = 0
    results: int = 0
    slowest: float = 0.0
    backlog: int = 0
    state: int = 0
    latency: Latency = field(default_factory=Latency)

    def plus(self, batch: BatchFigures) -> Second:
        """With one batch more."""
        return replace(
            self,
            batches=self.batches + 1,
            rows=self.rows + batch.rows,
            results=self.results + sum(batch.results.values()),
            slowest=max(self.slowest, batch.elapsed),
            backlog=sum(batch.backlog.values()),
            state=sum(store.bytes for store in batch.stores),
            latency=self.latency + Latency.sum(batch.latency.values()),
        )


class Trend:
    """The last minutes; one thread adds, others read what `seconds` gives."""

    def __init__(self, kept: int = KEPT) -> None:
        self._seconds: deque[Second] = deque(maxlen=kept)

    def add(self, batch: BatchFigures) -> None:
        """Take in a batch that has ended."""
        at = int(batch.started + batch.elapsed)
        last = self._seconds[-1] if self._seconds else None
        if last is not None and at <= last.at:
            self._seconds[-1] = last.plus(batch)
        else:
            self._seconds.append(Second(at).plus(batch))

    def seconds(self) -> tuple[Second, ...]:
        """All that is kept, oldest first."""
        while True:
            try:
                return tuple(self._seconds)
            except RuntimeError:  # another thread has added one meanwhile
                continue
