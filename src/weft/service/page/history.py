"""What happened: the log, newest first, and the dead letters with where they came from and why."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import islice
from pathlib import Path

from nicegui import ui

from weft.connectors.formats.dead_letters import DeadLetters
from weft.connectors.formats.records import BadRecord
from weft.service.page.elements import set_rows, text_table
from weft.service.page.visit import Live, LogRecord, Visit
from weft.service.terminal.view import counted

__all__ = ["dead_letters", "log"]


NEWEST = 200  # so many records are shown
_LETTERS = 300  # so many of a record

Found = list[tuple[int, BadRecord]]


def dead_letters(visit: Visit) -> Live:
    """Build the view."""
    with ui.element("section").classes("w-card"):
        ui.label("Dead letters").classes("w-title")
        about = ui.label("").classes("w-dim").mark("about")
        table = text_table(
            ("batch", "stream", "where", "why", "record"), left=("stream", "where", "why", "record"), most=25
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
