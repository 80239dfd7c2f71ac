"""What the loop logs, and does, about failed and slow queries, large keys, late rows, incomplete files, statistics."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from weft.logical.times import AHEAD_OF_THE_CLOCK, shown_time
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.loop.batch.executed_batch import ExecutedBatch
from weft.runtime.loop.config import RunConfig
from weft.runtime.observe.analysis import analyse
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History, too_large
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.changelog import Changelog

__all__ = [
    "BatchWatch",
    "LateRows",
    "SlowQueries",
    "UnfinishedFiles",
    "save_statistics",
    "stop_failed_queries",
    "warn_of_large_keys",
]

_LOG = logging.getLogger("weft")

LEAST = 50  # rows of a stream before anything is said of how many are late
SLOW_FOR = 15.0  # seconds for which results must have been late
SLOW_BATCHES = 5  # in which they must have been
BILLED = 20  # batches, of which bills are made
LARGE = 0.5  # the share of late rows of which it is said


def stop_failed_queries(
    changelog: Changelog, program: ExecutableGraph, manifest: Manifest, state_limit: int | None
) -> None:
    """Stop the queries that failed in a batch, and those whose state is larger than the limit after it."""
    large = too_large(program, manifest, state_limit)
    for reason, queries in (("failed", manifest.failed), ("stopped", large)):
        for name, why in queries.items():
            _LOG.warning("query %s is stopped: %s", name, why)
            changelog.stop(name, f"{reason}: {why}")


def warn_of_large_keys(metrics: BatchMetrics, key_limit: int) -> None:
    """Log the keys that would have too many results, so that their new tuples were set aside."""
    for name, keys in metrics.keys.items():
        for one in keys.too_many:
            counts = " × ".join(f"{count:,} of {alias}" for alias, count in one.items() if alias != "key")
            _LOG.warning(
                "query %s: key %s would have more than %s results (%s); its new tuples are set aside",
                *(name, one["key"], f"{key_limit:,}", counts),
            )


def save_statistics(statistics: RecentStatistics, log: Checkpoint, *, at_once: bool = False) -> None:
    """Write down what batches measured, for a later session, if it is time to; a failure costs no more than that."""
    try:
        text = statistics.unsaved(at_once=at_once)
        if text is not None:
            log.write_statistics(text)
    except Exception as error:
        _LOG.warning("what batches measured of the data is not kept: %s", error)


class BatchWatch:
    """Looks at what every batch leaves: stops queries that failed, warns of large keys, late rows and slow queries."""

    def __init__(self, config: RunConfig, changelog: Changelog, history: History) -> None:
        self.slow = SlowQueries(history, stops=config.too_slow == "stop")
        self._config, self._changelog, self._late = config, changelog, LateRows()

    def look(
        self, ran: ExecutedBatch, left: Manifest, metrics: BatchMetrics, targets: Mapping[str, float]
    ) -> None:
        """Look at a batch, which left a manifest; results of queries are wanted within ``targets``."""
        if ran.program is not None:
            stop_failed_queries(self._changelog, ran.program, left, self._config.state_limit)
        warn_of_large_keys(metrics, self._config.key_limit)
        self._late.look(ran, left)
        for name, why in self.slow.look(targets, time.monotonic()).items():
            _LOG.warning("query %s is stopped: %s", name, why)
            self._changelog.stop(name, f"stopped: too slow: {why}")


class LateRows:
    """Warns once of each watermark behind which most rows of a stream are: a wrong time may have moved it.

    What came before counts less with every batch, by half for each `LEAST` rows. It also says once of each stream that
    records of it were set aside because they are ahead of the clock.
    """

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, float]] = {}  # by stream, rows and those of them that were late
        self._ahead: set[str] = set()  # the streams of which records were ahead of the clock
        self._said: dict[str, Any] = {}  # by stream, what moved the watermark of which it was said

    def look(self, ran: ExecutedBatch, left: Manifest) -> None:
        """Look at a batch, which left a manifest."""
        if ran.program is None:
            return
        self._look_ahead(ran)
        behind, read = _behind(ran, ran.program.graph), ran.reports.read
        for stream in sorted({one.stream for one in read.reads if one.rows}):
            rows = sum(one.rows for one in read.reads if one.stream == stream)
            seen, late = self._counts.get(stream, (0.0, 0.0))
            fading = 0.5 ** (rows / LEAST)
            seen, late = seen * fading + rows, late * fading + behind.get(stream, 0)
            self._counts[stream] = seen, late
            moved = left.moved.get(stream, ())
            if seen >= LEAST and late > LARGE * seen and self._said.get(stream, ()) != (moved,):
                self._said[stream] = (moved,)
                _LOG.warning(_late_text(stream, late / seen, ran.before, moved))

    def _look_ahead(self, ran: ExecutedBatch) -> None:
        for line in ran.reports.read.bad:
            if AHEAD_OF_THE_CLOCK.encode() in line:
                record = json.loads(line)
                stream, place, why = (str(record[name]) for name in ("source", "file", "reason"))
                if AHEAD_OF_THE_CLOCK in why and stream not in self._ahead:
                    self._ahead.add(stream)
                    told = "stream %s: a record was set aside as a dead letter (%s): %s; ahead= says what is permitted"
                    _LOG.warning(told, stream, place, why)


def _behind(ran: ExecutedBatch, graph: PhysicalGraph) -> dict[str, int]:
    """How many tuples were behind the watermark, by stream; all inputs of a stream have the same tuples."""
    behind: dict[str, int] = {}
    for alias, figures in ran.reports.read.inputs.items():
        name = graph.input(alias).stream.name
        behind[name] = max(figures.behind, behind.get(name, 0))
    return behind


def _late_text(stream: str, share: float, before: Manifest, moved: Sequence[Any]) -> str:
    mark = before.marks.get(stream)
    shown = "not known" if mark is None else shown_time(mark)
    text = f"stream {stream}: {share:.0%} of its last rows were late, behind its watermark, {shown}"
    if moved:
        text += f", which a record of the time {shown_time(moved[0])} in batch {moved[1]} moved"
        text += f" ({moved[2]})" if moved[2] else ""
    return (
        f"{text}. If that time is wrong, session.reset_watermark({stream!r}, to=…) or `weft watermark` mends it; "
        "if not, a longer lateness= admits such rows"
    )


class UnfinishedFiles:
    """Logs once of each file that is not complete that it is waited for."""

    def __init__(self) -> None:
        self._known: Mapping[str, tuple[str, ...]] = {}

    def report(self, unfinished: Mapping[str, tuple[str, ...]]) -> None:
        """Log the files, by stream, that have come since this was called last."""
        if unfinished == self._known:
            return
        for name, files in unfinished.items():
            for file in sorted(set(files) - set(self._known.get(name, ()))):
                _LOG.info("stream %s waits for %s", name, file)
        self._known = unfinished


class SlowQueries:
    """Queries whose results take longer than is wanted; ``reasons`` says of each by how much, and who is to blame.

    A query is late if 95 % of its results have not left within its target, batch after batch, for `SLOW_FOR` seconds:
    by then the tasks have changed as far as they can. The log says it once, until it is in time again. All queries
    share a batch, so the one to blame is that with the largest bill (decision 58), be it the late one or another. With
    ``stops``, that is the one which `look` names to be stopped, and then all are watched anew.
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
        slow = [
            n for n, (since, count) in self._late.items() if now - since >= SLOW_FOR and count >= SLOW_BATCHES
        ]
        known, self.reasons = self.reasons, {name: self._reason(name, targets[name]) for name in slow}
        for name in slow:
            if name not in known:
                _LOG.warning("query %s is too slow: %s", name, self.reasons[name])
        return self._to_stop(slow) if slow and self._stops else {}

    def _committed(self) -> list[BatchMetrics]:
        """The batches whose latencies are known and were not looked at."""
        recent = [batch for _, batch in self._history.batches[-BILLED:] if batch.number > self._number]
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
        return [batch for number, batch in batches[-BILLED:] if number == batches[-1][0]]

    def _to_stop(self, slow: list[str]) -> dict[str, str]:
        """The query that is to blame, which may be another one; it is given up, and all begin to be watched anew."""
        late = slow[0]
        blamed, reason = self._blamed(late)[0], self.reasons[late]
        self._late, self.reasons = {}, {}
        return {blamed: reason if blamed == late else f"results of {late} are late: {reason}"}
