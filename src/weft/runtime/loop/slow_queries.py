"""Queries whose results take longer than is wanted: they are told of, and who causes it is stopped if users say so.

Guarantees: a query is late if 95 % of its results have not left within its target, batch after batch, for longer than
`PATIENCE`: by then the tasks have changed as far as they can. It is said once, in the log, until it is in time again;
progress says it for as long as it is so. All queries share a batch, so the one to blame is that with the largest bill
(decision 58), be it the late one or another: that is the one which is stopped, and then the others are watched anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from weft.runtime.observe.analysis import analyse
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History

__all__ = ["SlowQueries"]

_LOG = logging.getLogger("weft")

PATIENCE = 15.0  # seconds for which results must have been late
BATCHES = 5  # in which they must have been
RECENT = 20  # batches, of which bills are made


class SlowQueries:
    """Watches the latencies of queries; ``reasons`` says of those that are late by how much, and who is to blame.

    With ``stops``, `look` names the query to be stopped.
    """

    def __init__(self, history: History, *, stops: bool) -> None:
        self.reasons: Mapping[str, str] = {}
        self._history, self._stops = history, stops
        self._late: dict[str, tuple[float, int]] = {}  # since when, and in how many batches
        self._number = -1  # the last batch whose latencies were looked at

    def look(self, targets: Mapping[str, float], now: float) -> dict[str, str]:
        """Look at the batches that were committed since the last look; gives the queries to stop, and why."""
        for batch in self._committed():
            self._number = batch.number
            for name, target in targets.items():
                self._count(name, target, batch, now)
        self._late = {name: late for name, late in self._late.items() if name in targets}
        slow = [n for n, (since, count) in self._late.items() if now - since >= PATIENCE and count >= BATCHES]
        known, self.reasons = self.reasons, {name: self._reason(name, targets[name]) for name in slow}
        for name in slow:
            if name not in known:
                _LOG.warning("query %s is too slow: %s", name, self.reasons[name])
        return self._to_stop(slow) if slow and self._stops else {}

    def _committed(self) -> list[BatchMetrics]:
        """The batches whose latencies are known and were not looked at."""
        recent = [batch for _, batch in self._history.batches[-RECENT:] if batch.number > self._number]
        return [batch for batch in recent if self._history.is_committed(batch.number)]

    def _count(self, name: str, target: float, batch: BatchMetrics, now: float) -> None:
        """Count a batch in which a query was late; one in time ends it, and one without results tells nothing."""
        latency = batch.latencies.get(name)
        if latency is None or not latency.processing.count:
            return
        if latency.processing.p95 <= target:
            self._late.pop(name, None)
            return
        since, count = self._late.get(name, (now, 0))
        self._late[name] = since, count + 1

    def _reason(self, name: str, target: float) -> str:
        times = [one.latencies[name].processing.p95 for one in self._recent() if name in one.latencies]
        blamed, share = self._blamed(name)
        who = "it" if blamed == name else f"query {blamed}"
        return f"p95 is {max(times, default=0.0):.2g} s, {target:.2g} s are wanted; {who} takes {share:.0%} of batches"

    def _blamed(self, late: str) -> tuple[str, float]:
        """The query that takes most of the batches, and which part of them."""
        batches = self._history.batches
        graph = self._history.graphs.get(batches[-1][0]) if batches else None
        if graph is None:
            return late, 1.0
        analysis = analyse(graph, self._recent())
        most = analysis.bills[0] if analysis.bills else None
        return (most.query, most.seconds / analysis.seconds) if most and analysis.seconds else (late, 1.0)

    def _recent(self) -> list[BatchMetrics]:
        """The last batches of the graph that runs."""
        batches = self._history.batches
        return [batch for number, batch in batches[-RECENT:] if number == batches[-1][0]]

    def _to_stop(self, slow: list[str]) -> dict[str, str]:
        """The query that is to blame, which may be another one; it is given up, and all begin to be watched anew."""
        late = slow[0]
        blamed, reason = self._blamed(late)[0], self.reasons[late]
        self._late, self.reasons = {}, {}
        return {blamed: reason if blamed == late else f"results of {late} are late: {reason}"}
