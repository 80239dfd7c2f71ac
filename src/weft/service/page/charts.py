"""Charts of a run as options of ECharts.

Guarantees: pure; equal figures give equal options. Texts in charts are drawn, never taken for HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.service.figures import percentiles
from weft.service.page.style import SERIES
from weft.service.trends import Second

__all__ = ["CHARTS", "chart_data", "chart_options"]

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
    unit, lines = CHARTS[name]
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
            "name": unit,
            "min": 0,
            "minInterval": 1 if name == "Backlog" else 0,
            "splitNumber": 4,
            "nameTextStyle": {"color": _GREY, "align": "left"},
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
