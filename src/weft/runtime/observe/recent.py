"""What is known of the data while batches run: it follows them, and stays when the plan changes.

Guarantees: every batch that is remembered counts once, whichever graph it ran by, and is looked at when somebody asks,
not before. Of each graph, the largest queries are watched. It can be asked by several threads.
"""

from __future__ import annotations

import logging
import threading
from itertools import groupby

from weft.errors import StatisticsError
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.observe.counts import SeenBatch
from weft.runtime.observe.feedback import Folding, heavy_known
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History
from weft.runtime.observe.watched import watch
from weft.stats.combine import Sampled, combined
from weft.stats.known import HalfLife, Known
from weft.stats.statistics import Statistics

__all__ = ["RecentStatistics"]

_LOG = logging.getLogger("weft")

TELLING = 16  # how many queries, the largest, statistics are measured from


class RecentStatistics:
    """Keeps what the batches of a session tell; ``known`` may be what an earlier run knew in the end."""

    def __init__(self, half_life: HalfLife | None = None, known: Known | None = None) -> None:
        self.half_life = half_life or HalfLife()
        self.known = known or Known()
        self._history: History | None = None
        self._last = -1  # the last batch of this history that has been folded in
        self._foldings: dict[int, Folding] = {}  # by graph of this history
        self._guard = threading.Lock()

    def restore(self, text: str | None) -> None:
        """Go on with what an earlier run knew (`Known.to_json`); a text that is none is ignored, with a warning."""
        try:
            self.known = Known() if text is None else Known.from_json(text)
        except StatisticsError as error:
            _LOG.warning("what was known of the data is measured again: %s", error)

    def statistics(
        self,
        given: Statistics,
        history: History | None,
        sampled: Sampled | None = None,
    ) -> Statistics:
        """What queries are planned by: the ``given`` figures, with what samples and all batches so far tell."""
        with self._guard:
            if history is not None:
                self._follow(history, given, sampled)
            found = combined(given, self.known, sampled)
            return heavy_known(
                found, history.last if history else None
            )  # which outlive a restart, samples do not

    def _follow(self, history: History, given: Statistics, sampled: Sampled | None) -> None:
        """Fold in the batches that were added since the last time."""
        if self._history is not history:
            self._history, self._foldings, self._last = history, {}, -1
        batches, graphs = history.batches, history.graphs  # read once: another thread may add meanwhile
        new = [place for place, (_, one) in enumerate(batches) if self._is_new(one)]
        for graph, places in groupby(new, key=lambda place: batches[place][0]):
            seen = [_seen(batches, place) for place in places]
            if graph in graphs:
                folding = self._folding(graph, graphs[graph])
                self.known = folding.fold(self.known, seen, lambda known: combined(given, known, sampled))
            self._last = seen[-1].metrics.number
        self._foldings = {graph: one for graph, one in self._foldings.items() if graph in graphs}

    def _is_new(self, one: BatchMetrics) -> bool:
        """Whether a batch has not been folded in yet, neither in this history nor in one before."""
        if self._last >= 0:
            return one.number > self._last
        return one.number > self.known.batch or one.started > self.known.moment

    def _folding(self, number: int, graph: PhysicalGraph) -> Folding:
        if number not in self._foldings:
            members = sorted(graph.members, key=lambda member: -len(member.query.inputs))
            watched = [watch(graph, member.name) for member in members[:TELLING]]
            self._foldings[number] = Folding(watched, self.half_life)
        return self._foldings[number]


def _seen(batches: list[tuple[int, BatchMetrics]], place: int) -> SeenBatch:
    """A batch with what the stores held before it, if the one before is remembered and ran by the same graph."""
    graph, metrics = batches[place]
    if metrics.number == 0:
        return SeenBatch(metrics, {})
    before = batches[place - 1] if place else None
    is_next = before is not None and before[0] == graph and before[1].number == metrics.number - 1
    return SeenBatch(metrics, before[1].stores if before is not None and is_next else None)
