"""The catalogue: every stream with its columns, its figures and some of its rows, to write queries from.

Guarantees: rows are read when somebody asks for them, and only for visitors who may run queries over them anyway.
"""

from __future__ import annotations

from nicegui import run, ui

from weft.errors import WeftError
from weft.service.hub.values import StreamInfo
from weft.service.page.elements import fill_rows, heading, rows_table, set_rows, text_table
from weft.service.page.frame import error_text
from weft.service.page.visit import Live, Visit, query_link
from weft.service.terminal.view import counted, duration_text

__all__ = ["about_stream", "catalogue", "first_query"]

ROWS = 20  # of a sample


def catalogue(visit: Visit) -> Live:
    """Build the view."""
    ui.label(
        "What queries can read. A stream is named after FROM, with the window in which its rows find partners."
    ).classes("w-dim")
    cards: dict[str, _Card] = {}
    with ui.element("div").classes("w-stack") as place:
        nothing = ui.label("There is no stream yet.").classes("w-dim")

    def show(streams: tuple[StreamInfo, ...]) -> None:
        nothing.set_visibility(not streams)
        for stream in streams:
            if stream.name not in cards:
                with place:
                    cards[stream.name] = _Card(visit, stream)
            cards[stream.name].show(stream)
        for name in set(cards) - {stream.name for stream in streams}:
            cards.pop(name).remove()

    return Live(visit.hub.streams, show, every=2.0)


class _Card:
    """A stream with its columns, and a button that reads some rows of it."""

    def __init__(self, visit: Visit, stream: StreamInfo) -> None:
        self.visit, self.name = visit, stream.name
        with ui.element("section").classes("w-card").mark(f"stream-{stream.name}") as self.card:
            heading(stream.name)
            self.about = ui.label("").classes("w-dim").style("white-space: pre-wrap")
            columns = text_table(
                ("column", "type", ""),
                left=("type", ""),
                label=f"columns of {stream.name}",
                wide=False,
            )
            set_rows(columns, [(one.name, one.type, _role(stream, one.name)) for one in stream.columns])
            with ui.element("div").classes("w-row"):
                self.button = ui.button("Show some rows", icon="table_rows", on_click=self.load)
                self.button.props(f'flat dense no-caps aria-label="show some rows of {stream.name}"')
                self.button.set_visibility(visit.may_change)
                ui.link("Write a query over it", query_link(first_query(stream)))
            self.said = ui.label("").classes("w-dim").props('role="status"')
            self.rows = rows_table(f"rows of {stream.name}")
            self.rows.set_visibility(False)

    def show(self, stream: StreamInfo) -> None:
        """Bring the figures up to date."""
        self.about.set_text(about_stream(stream))

    def remove(self) -> None:
        """Take a stream away that is no longer there."""
        self.card.delete()

    async def load(self) -> None:
        """Read some rows, and show them."""
        if not self.visit.may_change:
            return
        self.said.set_text("…")
        try:
            sample = await run.io_bound(self.visit.hub.sample, self.name, ROWS)
        except WeftError as error:
            self.said.set_text(error_text(error))
            return
        if sample is not None:
            self.said.set_text(
                f"the newest {counted(len(sample.rows), 'row')} of a part that was read for this"
            )
            self.rows.set_visibility(True)
            fill_rows(self.rows, sample.names, sample.rows)


def _role(stream: StreamInfo, column: str) -> str:
    return "event time" if column == stream.event_time else ""


def about_stream(stream: StreamInfo) -> str:
    """Where a stream comes from, what it has brought, and who reads it."""
    rows = f"{counted(stream.rows, 'row')} so far, {stream.rows_per_second:,.0f} a second"
    late = f", late after {duration_text(stream.lateness)}" if stream.lateness else ""
    time = f"time in {stream.event_time}{late}" if stream.event_time else "time of arrival"
    readers = f"read by {', '.join(stream.readers)}" if stream.readers else "read by no query"
    return "\n".join([" · ".join(part for part in (stream.source, time, rows) if part), readers])


def first_query(stream: StreamInfo) -> str:
    """A query to begin with: all columns of a stream."""
    columns = ", ".join(f"s.{_identifier(one.name)}" for one in stream.columns[:8])
    return f"SELECT {columns}\nFROM {_identifier(stream.name)} [RANGE 1 MINUTE] AS s"


def _identifier(name: str) -> str:
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"
