"""What is known of the data while batches run: it follows them, and stays when the plan changes.

Guarantees: every batch that is remembered counts once, whichever graph it ran by, and is looked at when somebody asks,
not before. Of each graph, the largest queries are watched. It can be asked by several threads. Asking writes nothing:
the loop keeps what was measured in its log (`RecentStatistics.unsaved`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from itertools import groupby

from weft.errors import StatisticsError
from weft.logical.query.query import Query
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.observe.batch_statistics import Folding, heavy_known
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History
from weft.runtime.observe.watched_query import watch
from weft.runtime.observe.weighted_batches import SeenBatch
from weft.stats.combine import Sampled, combined
from weft.stats.known import HalfLife, Known
from weft.stats.sampling.sampled import SampledStatistics, sampled_statistics
from weft.stats.statistics import Statistics

__all__ = ["RecentStatistics"]

_LOG = logging.getLogger("weft")

TELLING = 16  # how many queries, the largest, statistics are measured from
SAVE_SECONDS = 5.0  # at least so long from one save to the next
SAVE_SHARE = 0.01  # the part of the time that saving may take


class RecentStatistics:
    """What is known of a session's data: what it was told, what samples show, and what its batches measured.

    ``given`` is what the session was told; it may be replaced while batches run. ``known`` is what batches measured,
    also those of earlier runs. ``table_rows`` is how many rows each table has, by the version that batches see.
    """

    def __init__(
        self, half_life: HalfLife | None = None, known: Known | None = None, given: Statistics | None = None
    ) -> None:
        self.half_life = half_life or HalfLife()
        self.known = known or Known()
        self.given = given or Statistics()
        self.table_rows: Mapping[str, int] = {}
        self._followed: History | None = None  # of the run under way, or the last one
        self._sampled: SampledStatistics | None = None  # when somebody asked last
        self._saved, self._save_again = self.known, 0.0  # what is in the log, and when to write it again
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
        self._saved = self.known

    def follow(self, history: History, saved: str | None) -> None:
        """Know what the batches of a run tell that begins now, and what is ``saved`` in its log."""
        history.samples.half_life = self.half_life.batches
        with self._guard:
            self.restore(saved)
            self._followed, self._sampled = history, None

    def for_queries(self, queries: Collection[Query]) -> Statistics:
        """What queries are planned by: what was given, with what samples tell about them and what batches measured."""
        sampled = self.sampled(queries)
        return self.statistics(self.given, self._followed, sampled).with_rows(self.table_rows)

    def sampled(self, queries: Collection[Query]) -> SampledStatistics | None:
        """What the samples of the run tell about queries; None before the first run."""
        if self._followed is None:
            return None
        self._sampled = sampled_statistics(self._followed.samples.merged(), queries)
        return self._sampled

    def unsaved(self, *, at_once: bool = False) -> str | None:
        """What the log is to keep, as JSON, so that a later run knows it; None if that is there, or it is too soon.

        It is worth a small part of the time: unless it is wanted ``at_once``, the loop waits for long enough after it
        was asked for last.
        """
        began = time.monotonic()
        if self._followed is None or not (at_once or began >= self._save_again):
            return None
        self.statistics(self.given, self._followed, self._sampled)
        text = None if self.known is self._saved else self.known.to_json()
        self._saved, now = self.known, time.monotonic()
        self._save_again = now + max(SAVE_SECONDS, (now - began) / SAVE_SHARE)
        return text

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
