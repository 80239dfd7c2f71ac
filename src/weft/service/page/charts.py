"""What a run did second by second, and charts of that as options of ECharts.

Guarantees: pure; the clock is that of the batches, and equal figures give equal options. However quick its batches, the
last minutes of a run are kept. A second in which no batch ended has no entry, and so a chart shows that nothing
happened, not that nothing was there. Texts in charts are drawn, never taken for HTML.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.service.figures import BatchFigures, percentiles
from weft.service.page.elements import SERIES
from weft.stats.histogram import Latency

__all__ = [
    "CHARTS",
    "Second",
    "Trend",
    "chart_data",
    "chart_options",
]


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


_GREY = "#8795a5"  # legible on light and on dark

Line = tuple[str, Callable[[Second], float | None]]

# What is drawn: the title, the unit, and the lines.
CHARTS: dict[str, tuple[str, tuple[Line, ...]]] = {
    "Throughput": ("per second", (("rows in", lambda s: s.rows), ("results out", lambda s: s.results))),
    "Latency": (
        "ms",
        (
            ("p50", lambda s: _latency(s, "p50")),
            ("p95", lambda s: _latency(s, "p95")),
            ("slowest batch", lambda s: _millis(s.slowest)),
        ),
    ),
    "Backlog": ("parts that wait", (("backlog", lambda s: s.backlog),)),
    "State": ("MB", (("state", lambda s: s.state / 1e6),)),
}


def _latency(second: Second, which: str) -> float | None:
    return _millis(percentiles(second.latency).get(which))


def _millis(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def chart_options(name: str) -> dict[str, Any]:
    """A chart without data."""
    _, lines = CHARTS[name]
    axis = {"axisLabel": {"color": _GREY}, "axisLine": {"lineStyle": {"color": _GREY}}}
    return {
        "animation": False,
        "color": list(SERIES),
        "aria": {"enabled": True},
        "grid": {"left": 52, "right": 12, "top": 34, "bottom": 26},
        "legend": {
            "top": 0,
            "right": 0,
            "itemWidth": 14,
            "itemHeight": 4,
            "icon": "rect",
            "textStyle": {"color": _GREY},
            "show": len(lines) > 1,
        },
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "xAxis": {
            "type": "time",
            "splitNumber": 3,
            **axis,
            "axisLabel": {"color": _GREY, "hideOverlap": True, "formatter": "{HH}:{mm}:{ss}"},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 1 if name == "Backlog" else 0,
            "splitNumber": 4,
            "splitLine": {"lineStyle": {"color": "rgba(128,128,128,.2)"}},
            **axis,
        },
        "series": [
            {"name": title, "type": "line", "showSymbol": False, "data": [], "lineStyle": {"width": 2}}
            for title, _ in lines
        ],
    }


def chart_data(name: str, seconds: Sequence[Second]) -> list[list[list[float | None]]]:
    """The points of every line of a chart; where seconds are missing, the line has a gap."""
    _, lines = CHARTS[name]
    found: list[list[list[float | None]]] = []
    for _, value in lines:
        points: list[list[float | None]] = []
        before: Second | None = None
        for second in seconds:
            if before is not None and second.at - before.at > _GAP:
                points.append([(before.at + 1) * 1000, None])
            points.append([second.at * 1000, value(second)])
            before = second
        found.append(points)
    return found


_GAP = 10  # seconds without a batch, after which a line ends
