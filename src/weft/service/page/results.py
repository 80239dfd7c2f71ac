"""The results of a query: the newest as a table that stays up to date, and all that are kept as a file."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from nicegui import run, ui

from weft.errors import WeftError
from weft.service.hub.hub import SessionHub
from weft.service.hub.results import ResultsPage
from weft.service.hub.values import QueryInfo
from weft.service.page.elements import fill_rows, heading, rows_table
from weft.service.page.frame import tell_error
from weft.service.page.visit import Live, Visit
from weft.service.terminal.view import counted

__all__ = ["all_results", "as_csv", "as_parquet", "results"]

NEWEST = 100  # so many results are shown
_PAGE = 1000


@dataclass
class Choice:
    """The query whose results a visitor looks at."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class _Shown:
    queries: tuple[QueryInfo, ...]
    page: ResultsPage | None
    note: str


def results(visit: Visit, choice: Choice) -> Live:
    """Build the part of the view that shows results, and stops queries."""
    with ui.element("section").classes("w-card").mark("results"):
        with ui.element("div").classes("w-row"):
            heading("Results")
            which = ui.select([], label="query", with_input=False).props("dense outlined options-dense")
            which.style("min-width: 190px").mark("which")
            status = ui.label("").classes("w-dim").mark("status")
            ui.space()
            csv = ui.button("CSV", icon="download").props("flat dense no-caps")
            parquet = ui.button("Parquet", icon="download").props("flat dense no-caps")
            stop = ui.button("Stop", icon="stop").props("flat dense no-caps color=negative").mark("stop")
        note = ui.label("").classes("w-dim").style("white-space: pre-wrap")
        table = rows_table("results")

    def load() -> _Shown:
        return _load(visit.hub, choice)

    def show(found: _Shown) -> None:
        names = [one.name for one in found.queries]
        if which.options != names or which.value != choice.name:
            which.set_options(names, value=choice.name)
        query = next((one for one in found.queries if one.name == choice.name), None)
        rate = f"{query.results_per_second:,.0f}/s · {counted(query.results, 'result')}" if query else ""
        status.set_text(f"{query.status} · {rate}" if query else "")
        note.set_text(found.note)
        stop.set_visibility(visit.may_change and query is not None and query.status != "stopped")
        for button in (csv, parquet):
            button.set_visibility(found.page is not None)
        table.set_visibility(found.page is not None and found.page.newest > 0)
        _show_rows(table, found.page)

    def chosen(event: object) -> None:
        name = getattr(event, "value", None)
        if name is not None and name != choice.name:
            choice.name = str(name)
            show(load())

    async def download(kind: str) -> None:
        name = choice.name
        if name is None:
            return
        try:
            made = await run.io_bound(_file, visit.hub, name, kind)
        except WeftError as error:
            tell_error(error)
            return
        if made is not None:
            safe = re.sub(r"[^\w.-]+", "_", name) or "results"
            ui.download.content(made, f"{safe}.{kind}")

    async def end() -> None:
        if choice.name is None or not visit.may_change:
            return
        try:
            await run.io_bound(visit.hub.stop_query, choice.name)
        except WeftError as error:
            tell_error(error)

    which.on_value_change(chosen)
    csv.on_click(lambda: download("csv"))
    parquet.on_click(lambda: download("parquet"))
    stop.on_click(end)
    return Live(load, show)


def _load(hub: SessionHub, choice: Choice) -> _Shown:
    queries = hub.queries()
    running = [one.name for one in queries if one.status != "stopped"]
    if choice.name not in [one.name for one in queries]:
        choice.name = running[0] if running else (queries[0].name if queries else None)
    query = next((one for one in queries if one.name == choice.name), None)
    if query is None:
        return _Shown(queries, None, "No query yet.")
    why = (
        f"{query.status}: {query.reason}\n"
        if query.status in ("stopped", "suspended") and query.reason
        else ""
    )
    if not query.readable:
        return _Shown(
            queries, None, f"{why}Its results go to its sink ({query.sink}); the service keeps none of them."
        )
    newest = hub.results(query.name, -1, 1).newest
    page = hub.results(query.name, max(0, newest - NEWEST), NEWEST)
    shown = (
        f"the newest {page.table.num_rows:,} of {counted(page.newest, 'result')}"
        if page.newest
        else "no results yet"
    )
    return _Shown(queries, page, f"{why}{shown}")


def _show_rows(table: ui.table, page: ResultsPage | None) -> None:
    """Show the rows of a page, the newest first."""
    if page is None:
        fill_rows(table, (), ())
        return
    names = [column.name for column in page.columns]
    rows = [[row.get(name) for name in names] for row in reversed(page.rows())]
    fill_rows(table, names, rows, [page.last - place for place in range(len(rows))])


def _file(hub: SessionHub, name: str, kind: str) -> bytes:
    table = all_results(hub, name)
    return as_csv(table) if kind == "csv" else as_parquet(table)


def all_results(hub: SessionHub, name: str) -> pa.Table:
    """All results of a query that are kept, oldest first."""
    first = page = hub.results(name, 0, _PAGE)
    tables = [page.table]
    while page.last < first.newest:
        page = hub.results(name, page.last, _PAGE, origin=first.origin)
        if page.restarted or not page.table.num_rows:
            break
        tables.append(page.table)
    return pa.concat_tables(tables)


def as_csv(table: pa.Table) -> bytes:
    """A table as CSV with a line of names; bytes become base64, and what CSV cannot hold otherwise becomes text."""
    out = io.BytesIO()
    plain = [
        table.column(place) if _is_plain(field.type) else table.column(place).cast(pa.string())
        for place, field in enumerate(table.schema)
    ]
    pa_csv.write_csv(pa.table(plain, names=table.column_names), out)
    return out.getvalue()


def _is_plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_decimal(kind)


def as_parquet(table: pa.Table) -> bytes:
    """A table as a file of Parquet."""
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()
