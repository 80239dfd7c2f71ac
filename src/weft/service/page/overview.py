"""The overview: how fast, how late, how much waits and how much is kept; every stream and every query."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from weft.runtime.observe.metrics import BatchMetrics
from weft.service.hub.values import Overview, QueryInfo, StreamInfo
from weft.service.page.charts import CHARTS, Second, chart_data, chart_options
from weft.service.page.elements import heading, set_rows, text_table
from weft.service.page.visit import Live, Visit
from weft.service.terminal.view import bytes_text, duration_text
from weft.stats.input_figures import REASONS

__all__ = ["overview", "task_cells"]

_TILES = ("rows/s in", "results/s out", "latency p50", "latency p95", "backlog", "state", "last batch")
_STREAMS = (
    "stream",
    "rows/s",
    "rows",
    "watermark delay",
    *REASONS,
    "backlog",
    "read by",
)
_QUERIES = ("query", "status", "results/s", "results", "latency p95", "state", "why")
_TASKS = ("where", "slowest task", "of the work", "what it says")
_UNKNOWN = "–"
_SKEWED = 0.6  # of a hop's work in one task
_PRESSED = 2.0  # seconds that a part may wait before it is said that too much comes


def overview(visit: Visit) -> Live:
    """Build the view."""
    tiles: dict[str, ui.label] = {}
    with ui.element("div").classes("w-tiles"):
        for name in _TILES:
            with ui.element("div").classes("w-card"):
                ui.label(name).classes("w-dim")
                tiles[name] = ui.label(_UNKNOWN).classes("w-big").mark(f"tile-{name}")
    charts: dict[str, ui.echart] = {}
    with ui.element("div").classes("w-charts"):
        for name, (unit, _) in CHARTS.items():
            with ui.element("div").classes("w-card"):
                heading(f"{name}, {unit}")
                charts[name] = ui.echart(chart_options(name)).style("height: 190px; width: 100%")
    with ui.element("section").classes("w-card"):
        heading("Streams")
        streams = text_table(_STREAMS, left=("read by",), label="streams")
    with ui.element("section").classes("w-card"):
        heading("Queries")
        queries = text_table(_QUERIES, left=("status", "why"), label="queries")
        none = ui.label("No query yet: add one under Query.").classes("w-dim")

    with ui.element("section").classes("w-card"):
        heading("Tasks of the last batch")
        ui.label(
            "A hop is as slow as its slowest task. Where one task does most of the work, values of a key are skewed; "
            "where parts wait, more comes than is joined."
        ).classes("w-dim")
        tasks = text_table(_TASKS, left=("what it says",), label="tasks of the last batch")

    def load() -> tuple[Overview, tuple[Second, ...], BatchMetrics | None]:
        return visit.hub.overview(), visit.model.trend.seconds(), visit.hub.seen().last

    def show(found: tuple[Overview, tuple[Second, ...], BatchMetrics | None]) -> None:
        seen, seconds, last = found
        set_rows(tasks, task_cells(last, seen.streams))
        for name, text in tile_texts(seen).items():
            tiles[name].set_text(text)
        for name, chart in charts.items():
            for line, points in zip(chart.options["series"], chart_data(name, seconds), strict=True):
                line["data"] = points
            chart.update()
        set_rows(streams, [stream_cells(one) for one in seen.streams])
        set_rows(queries, [query_cells(one) for one in seen.queries])
        none.set_visibility(not seen.queries)

    return Live(load, show)


def task_cells(last: BatchMetrics | None, streams: Sequence[StreamInfo]) -> list[tuple[str, ...]]:
    """By hop, how long its slowest task took and which part of the work it did; then merging, and streams that wait."""
    rows: list[tuple[str, ...]] = []
    for number, seconds in enumerate(last.seconds if last is not None else ()):
        share = last.busiest[number] if last is not None and number < len(last.busiest) else None
        told = "skewed: one task does most of it" if share is not None and _SKEWED < share < 1 else ""
        where = "reading" if number == 0 else f"hop {number}"
        rows.append((where, duration_text(seconds), _UNKNOWN if share is None else f"{share:.0%}", told))
    if last is not None and (last.merged_bytes or last.merge_debt):
        merged, waits = bytes_text(last.merged_bytes), bytes_text(last.merge_debt)
        told = f"{merged} of stored runs merged, {waits} wait to be"
        rows.append(("merging", _UNKNOWN, _UNKNOWN, told))
    for stream in streams:
        if stream.backlog and stream.behind > _PRESSED:
            waits = (
                f"backpressure: {stream.backlog:,} parts wait, the first for {duration_text(stream.behind)}"
            )
            rows.append((f"stream {stream.name}", _UNKNOWN, _UNKNOWN, waits))
    return rows


def tile_texts(seen: Overview) -> dict[str, str]:
    """The large figures as texts."""
    waiting = [one.backlog for one in seen.streams if one.backlog is not None]
    texts = (
        f"{seen.rows_per_second:,.0f}",
        f"{seen.results_per_second:,.0f}",
        _seconds(seen.latency.get("p50")),
        _seconds(seen.latency.get("p95")),
        f"{sum(waiting):,}" if waiting else _UNKNOWN,
        bytes_text(seen.state_bytes),
        duration_text(seen.last_seconds) if seen.batches else _UNKNOWN,
    )
    return dict(zip(_TILES, texts, strict=True))


def _seconds(value: float | None) -> str:
    return _UNKNOWN if value is None else duration_text(value)


def stream_cells(stream: StreamInfo) -> tuple[str, ...]:
    """A stream as a row; one that brings nothing is said to be silent."""
    silent = "silent" if stream.rows and not stream.rows_per_second else f"{stream.rows_per_second:,.0f}"
    return (
        stream.name,
        silent if stream.readers else "not read",
        f"{stream.rows:,}",
        _delay(stream),
        *(f"{count:,}" for count in stream.set_aside.values()),
        _UNKNOWN if stream.backlog is None else f"{stream.backlog:,}",
        ", ".join(stream.readers) if len(stream.readers) <= 3 else f"{len(stream.readers)} queries",
    )


def _delay(stream: StreamInfo) -> str:
    """How far the watermark is behind the clock; of old data, behind its newest event time, and when that was."""
    if stream.watermark_delay is None:
        return _UNKNOWN
    text = duration_text(stream.watermark_delay)
    when = stream.newest or stream.watermark
    return text if stream.delay_of == "clock" or when is None else f"{text} (data of {when:%Y-%m-%d %H:%M})"


def _state(query: QueryInfo) -> str:
    """What a query has of its own, and what it shares with others."""
    own = bytes_text(query.own_bytes)
    return f"{own} + {bytes_text(query.shared_bytes)} shared" if query.shared_bytes else own


def query_cells(query: QueryInfo) -> tuple[str, ...]:
    """A query as a row."""
    return (
        query.name,
        query.status,
        f"{query.results_per_second:,.0f}",
        f"{query.results:,}",
        _seconds(query.latency.get("p95")),
        _state(query),
        query.reason,
    )
