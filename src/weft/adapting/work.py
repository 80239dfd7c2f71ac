"""How much work batches were, and how far statistics are from others.

Guarantees: pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History
from weft.stats.statistics import Statistics

__all__ = ["drift", "work_per_row", "work_rate"]

RECENT = 32  # the work is that of so many batches


def work_rate(history: History) -> float:
    """The seconds of work per second of stream in the last batches; the time of a stream is that of its tuples."""
    recent = [metrics for _, metrics in history.batches[-RECENT:]]
    if not recent:
        return 0.0
    spent = sum(batch.elapsed for batch in recent)
    advanced = [_advance(recent, stream) for stream in recent[-1].watermarks]
    seconds = max([*advanced, 0.0]) / 1e6 * len(recent) / max(1, len(recent) - 1)
    wall = recent[-1].started + recent[-1].elapsed - recent[0].started
    return spent / seconds if seconds > 0 else spent / wall if wall > 0 else 0.0


def _advance(batches: list[BatchMetrics], stream: str) -> int:
    marks = [batch.watermarks[stream] for batch in batches if stream in batch.watermarks]
    return marks[-1] - marks[0] if marks else 0


def work_per_row(history: History, since: int = 0) -> float:
    """The seconds of work per row of input in the last batches, from batch ``since`` on; NaN if there were no rows."""
    recent = [metrics for _, metrics in history.batches[-RECENT:] if metrics.number >= since]
    rows = sum(one.rows for batch in recent for one in batch.inputs.values())
    return sum(batch.elapsed for batch in recent) / rows if rows else math.nan


def drift(before: Statistics, now: Statistics) -> float:
    """By how large a part rates, selectivities or distinct counts have changed at most; 1 is twice or half."""
    return max(_ratios(before, now), default=0.0)


def _ratios(before: Statistics, now: Statistics) -> Iterator[float]:
    for name in {*before.streams, *now.streams}:
        yield _change(before.stream(name).rate, now.stream(name).rate)
        yield from _changes(before.stream(name).distinct, now.stream(name).distinct)
    yield from _changes(before.selectivities, now.selectivities)
    yield from _changes(before.costs, now.costs)


def _changes(before: Mapping[str, float], now: Mapping[str, float]) -> Iterator[float]:
    for name, value in now.items():
        yield _change(before[name], value) if name in before else math.inf


def _change(before: float, now: float) -> float:
    if before == now:
        return 0.0
    return math.inf if min(before, now) <= 0 else max(before, now) / min(before, now) - 1
