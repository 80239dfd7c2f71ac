"""The log: what Weft said of itself lately, newest first."""

from __future__ import annotations

from datetime import datetime, timezone

from nicegui import ui

from weft.service.page.tables import set_rows, text_table
from weft.service.page.visit import Live, LogRecord, Visit

__all__ = ["log"]


def log(visit: Visit) -> Live:
    """Build the view."""
    with ui.element("section").classes("w-card"):
        ui.label("Log").classes("w-title")
        ui.label(
            "Queries that began or stopped, plans that changed and why, and warnings of the service; times are in UTC."
        ).classes("w-dim")
        table = text_table(("time", "level", "what"), left=("level", "what"), most=50)
        table.props("wrap-cells")

    def show(lines: list[LogRecord]) -> None:
        set_rows(table, [(_time(one.at), one.level, one.text) for one in lines])

    return Live(visit.model.events, show, every=2.0)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%H:%M:%S.%f")[:-3]
