"""The state: what the checkpoint holds, as `weft state` shows it."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from weft.errors import WeftError
from weft.runtime.observe.inspect import inspect
from weft.service.page.elements import set_rows, text_table
from weft.service.page.visit import Live, Visit
from weft.service.terminal.state_view import (
    STORE_HEADS,
    STREAM_HEADS,
    query_line,
    state_summary,
    store_cells,
    stream_cells,
)
from weft.session.statistics_report import HEADS, report_cells

__all__ = ["state"]


def state(visit: Visit) -> Live:
    """Build the view."""
    with ui.element("section").classes("w-card"):
        ui.label("Checkpoint").classes("w-title")
        about = ui.label("").classes("w-dim").style("white-space: pre-wrap").mark("checkpoint")
    tables: dict[str, ui.table] = {}
    for title, heads, left in (
        ("Streams", STREAM_HEADS, ("columns", "watermark")),
        ("Stores", STORE_HEADS, ("layout", "oldest", "newest", "used by")),
        ("Queries", ("query", "text"), ("text",)),
        ("Suspended", ("query", "why"), ("why",)),
        ("Stopped", ("query", "why"), ("why",)),
        ("What is known of the data", HEADS, HEADS[:2]),
    ):
        with ui.element("section").classes("w-card"):
            ui.label(title).classes("w-title")
            tables[title] = text_table(heads, left=left, most=25 if title.startswith("What") else 0).props(
                "wrap-cells"
            )

    def load() -> Any:
        directory = visit.hub.pipeline.checkpoint
        try:
            return inspect(str(directory))
        except WeftError as error:
            return error

    def show(found: Any) -> None:
        if isinstance(found, WeftError):
            about.set_text(str(found))
            return
        about.set_text("\n".join(state_summary(found)))
        set_rows(tables["Streams"], [stream_cells(one) for one in found.streams])
        set_rows(tables["Stores"], [store_cells(one) for one in found.stores])
        set_rows(tables["Queries"], [(query_line(one), one.text) for one in found.queries])
        set_rows(tables["Suspended"], list(found.suspended.items()))
        set_rows(tables["Stopped"], list(found.stopped.items()))
        set_rows(tables["What is known of the data"], [report_cells(one) for one in found.statistics])

    return Live(load, show, every=3.0)
