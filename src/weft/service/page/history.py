"""What happened and what is kept: the log, what was asked for, dead letters, and what the checkpoint holds.

Guarantees: the newest stands first. Dead letters say where they came from and why; the checkpoint is shown as
`weft state` shows it.
"""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

from nicegui import ui

from weft.connectors.formats.dead_letters import DeadLetters
from weft.connectors.formats.records import BadRecord
from weft.errors import WeftError
from weft.runtime.observe.inspect import inspect
from weft.service.hub.values import Asked
from weft.service.page.elements import heading, set_rows, text_table
from weft.service.page.visit import Live, LogRecord, Visit
from weft.service.terminal.state_view import (
    STORE_HEADS,
    STREAM_HEADS,
    query_line,
    state_summary,
    store_cells,
    stream_cells,
)
from weft.service.terminal.view import counted
from weft.session.show.statistics_report import HEADS, report_cells

__all__ = [
    "asked_cells",
    "dead_letters",
    "log",
    "state",
]


NEWEST = 200  # so many records are shown
_LETTERS = 300  # so many of a record

Found = list[tuple[int, BadRecord]]


def dead_letters(visit: Visit) -> Live:
    """Build the view."""
    with ui.element("section").classes("w-card"):
        heading("Dead letters")
        about = ui.label("").classes("w-dim").mark("about")
        table = text_table(
            ("batch", "stream", "where", "why", "record"),
            left=("stream", "where", "why", "record"),
            most=25,
            label="dead letters",
        )
        table.props("wrap-cells")

    def load() -> tuple[int, Found]:
        return newest_letters(f"{visit.hub.pipeline.checkpoint}/dead_letters")

    def show(found: tuple[int, Found]) -> None:
        batches, records = found
        some = (
            f"{counted(len(records), 'record')}, of {counted(batches, 'batch', 'batches')} with bad records"
        )
        about.set_text(f"the newest {some}" if records else "Every record could be read so far.")
        set_rows(table, [letter_cells(batch, one) for batch, one in records])

    return Live(load, show, every=3.0)


def newest_letters(directory: Path | str) -> tuple[int, Found]:
    """How many batches had bad records, and the newest of these, newest first."""
    letters = DeadLetters(directory)
    batches = sorted(letters.batches(), reverse=True)
    found = ((batch, record) for batch in batches for record in reversed(letters.read(batch)))
    return len(batches), list(islice(found, NEWEST))


def letter_cells(batch: int, record: BadRecord) -> tuple[str, ...]:
    """A record as a row."""
    at = {"row": record.row, "line": record.line, "offset": record.offset}
    place = [f"{name} {value}" for name, value in at.items() if value is not None]
    text = record.raw.decode("utf-8", "replace")
    shown = text if len(text) <= _LETTERS else text[:_LETTERS] + "…"
    return str(batch), record.source, ", ".join([Path(record.file).name, *place]), record.reason, shown


def log(visit: Visit) -> Live:
    """Build the view."""
    with ui.element("section").classes("w-card"):
        heading("Log")
        ui.label(
            "Queries that began or stopped, plans that changed and why, and warnings of the service; times are in UTC."
        ).classes("w-dim")
        table = text_table(("time", "level", "what"), left=("level", "what"), most=50, label="log")
        table.props("wrap-cells")

    with ui.element("section").classes("w-card"):
        heading("What was asked for")
        ui.label("Queries that visitors and clients ran or stopped, and why some were refused.").classes(
            "w-dim"
        )
        asked = text_table(
            ("time", "what", "query", "text", "refused because"),
            left=("what", "query", "text", "refused because"),
            most=25,
            label="what was asked for",
        )
        asked.props("wrap-cells")

    def load() -> tuple[list[LogRecord], tuple[Asked, ...]]:
        return visit.model.events(), visit.hub.history()

    def show(loaded: tuple[list[LogRecord], tuple[Asked, ...]]) -> None:
        lines, requests = loaded
        set_rows(table, [(_time(line.at), line.level, line.text) for line in lines])
        set_rows(asked, [asked_cells(request) for request in requests])

    return Live(load, show, every=2.0)


def asked_cells(request: Asked) -> tuple[str, ...]:
    """A request as a row."""
    text = request.sql if len(request.sql) <= _LETTERS else request.sql[:_LETTERS] + "…"
    return _time(request.at.timestamp()), request.what, request.name, text, request.error or ""


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%H:%M:%S.%f")[:-3]


def state(visit: Visit) -> Live:
    """Build the view."""
    with ui.element("section").classes("w-card"):
        heading("Checkpoint")
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
            heading(title)
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
