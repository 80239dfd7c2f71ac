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
from weft.runtime.loop.slow_queries import SlowQueries
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History, too_large
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.changelog import Changelog

__all__ = [
    "BatchWatch",
    "LateRows",
    "UnfinishedFiles",
    "save_statistics",
    "stop_failed_queries",
    "warn_of_large_keys",
]

_LOG = logging.getLogger("weft")

LEAST = 50  # rows of a stream before anything is said of how many are late
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
