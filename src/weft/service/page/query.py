"""Queries: an editor that says what is wrong while one types, the plan before it runs, and the results when it does.

Guarantees: what is offered while typing are the streams and columns that the session has, under the aliases of the
text, and all functions. Completion runs in the browser, on words that were sent once: typing waits for nobody.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from nicegui import run, ui

from weft.errors import SqlError, WeftError
from weft.logical.expr.functions import FUNCTIONS, SYNONYMS, named_functions
from weft.optimizer.single.strategies import STRATEGIES
from weft.plan.show.figures import number
from weft.plan.show.layout import draw_graph
from weft.plan.show.svg import svg
from weft.service.hub.values import NewQuery, StreamInfo
from weft.service.page.elements import heading
from weft.service.page.frame import tell_error
from weft.service.page.results import Choice, results
from weft.service.page.visit import Live, Visit, query_link
from weft.session.preview import Preview

__all__ = [
    "make_editor",
    "offer_words",
    "offered_functions",
    "query",
    "underline",
]


_PAUSE = 0.35  # seconds after the last key, before a text is looked at
_AUTO = "as the session plans"


@dataclass(frozen=True, slots=True)
class _Looked:
    """What is known of a text: an error, or the plan that the query would get."""

    error: WeftError | None = None
    preview: Preview | None = None


def query(visit: Visit) -> Live:
    """Build the view."""
    choice, form = Choice(), _Form(visit)
    with ui.element("div").classes("w-two"):
        with ui.element("section").classes("w-card"):
            form.build(choice)
        with ui.element("section").classes("w-card"):
            form.build_preview()
    live = results(visit, choice)

    def load() -> object:
        return live.load()

    return Live(load, live.show)


class _Form:
    """The editor with its options, and what it says of the text."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.turn = 0  # counts changes of the text, so that an answer to an older one is not shown
        self.gone = Event()  # set when nobody waits for the plan of the last text any more

    def build(self, choice: Choice) -> None:
        with ui.element("div").classes("w-row"):
            heading("Query")
            self.name = ui.input("name").props("dense outlined").style("width: 170px").mark("name")
            self.strategy = ui.select(
                [_AUTO, *STRATEGIES], value=_AUTO, label="strategy", on_change=self.changed
            )
            self.strategy.props("dense outlined options-dense").style("width: 225px")
            self.backfill = (
                ui.checkbox("backfill")
                .props("dense")
                .tooltip("also give the results that lie in the stored past")
            )
        self.name.set_value(self.visit.asked.get("name", ""))
        self.editor = make_editor(self.visit.asked.get("sql", ""), self.changed, lambda: self.create(choice))
        if self.editor.value:
            ui.timer(0.1, self.changed, once=True)
        self.visit.themed.append(self._theme)
        ui.timer(0.3, lambda: offer_words(self.editor, self.visit.hub.streams()), once=True)
        self.wrong = ui.label("").classes("w-pre w-error").props('role="alert"').mark("error")
        self.wrong.set_visibility(False)
        with ui.element("div").classes("w-row"):
            self.button = ui.button("Run", icon="play_arrow", on_click=lambda: self.create(choice))
            self.button.props("unelevated no-caps").mark("run")
            self.button.set_visibility(self.visit.may_change)
            if not self.visit.may_change:
                ui.label("You may look at plans; running queries needs a token that allows it.").classes(
                    "w-dim"
                )
            else:
                ui.label("Ctrl+Enter runs it").classes("w-dim")
            ui.space()
            share = ui.button("Copy a link to it", icon="link", on_click=self.share).props(
                "flat dense no-caps"
            )
            share.mark("share")

    async def share(self) -> None:
        """Put the address of this text into the bar of the browser, and into the clipboard where that is allowed."""
        link = query_link(self.editor.value or "", (self.name.value or "").strip())
        script = (
            f"history.replaceState(null, '', {json.dumps(link)});"
            "navigator.clipboard && navigator.clipboard.writeText(location.href).catch(() => {});"
        )
        ui.run_javascript(script)
        ui.notify("the address of this page now has the query", type="positive", html=False)

    def build_preview(self) -> None:
        heading("Before it runs")
        self.summary = ui.label(_EMPTY).classes("w-dim").style("white-space: pre-wrap").mark("summary")
        self.picture = (
            ui.html(sanitize=False).classes("w-scroll w-fit").style("max-height: 330px").mark("preview")
        )
        self.picture.set_visibility(False)
        with ui.expansion("The plan as text").style("width: 100%") as self.text_panel:
            self.text = ui.label("").classes("w-pre")
        with ui.expansion("Strategies side by side", on_value_change=self.compare).style(
            "width: 100%"
        ) as self.sides:
            self.strategies = ui.label("").classes("w-pre").mark("strategies")
        for panel in (self.text_panel, self.sides):
            panel.set_visibility(False)

    def _theme(self, is_dark: bool) -> None:
        self.editor.set_theme("vscodeDark" if is_dark else "basicLight")

    def _wanted(self) -> NewQuery:
        strategy = None if self.strategy.value == _AUTO else str(self.strategy.value)
        name = (self.name.value or "").strip() or None
        return NewQuery(self.editor.value or "", name, strategy=strategy, backfill=bool(self.backfill.value))

    async def changed(self) -> None:
        """Look at the text, once nobody has typed for a moment."""
        self.turn += 1
        turn = self.turn
        await asyncio.sleep(_PAUSE)
        if turn != self.turn:
            return
        self.gone.set()
        self.gone = gone = Event()
        found = await run.io_bound(_look, self.visit, self._wanted(), gone)
        if turn == self.turn and found is not None:
            self._show(found)

    def _show(self, found: _Looked) -> None:
        error = found.error
        self.wrong.set_text("" if error is None else str(error))
        self.wrong.set_visibility(error is not None)
        underline(self.editor, error if isinstance(error, SqlError) else None)
        preview = found.preview
        for element in (self.picture, self.text_panel, self.sides):
            element.set_visibility(preview is not None)
        if preview is None:
            self.summary.set_text("" if error is not None else _EMPTY)
            return
        self.summary.set_text(summary(preview))
        self.picture.set_content(svg(draw_graph(preview.graph), scale=0.8))
        self.text.set_text(preview.explain(self.name.value or "query"))
        self.strategies.set_text("")
        self.sides.set_value(False)

    async def compare(self) -> None:
        """Compare the strategies, when somebody wants to see them."""
        if self.sides.value and not self.strategies.text:
            self.strategies.set_text("…")
            found = await run.io_bound(_compare, self.visit, self.editor.value or "")
            self.strategies.set_text(found or "")

    async def create(self, choice: Choice) -> None:
        """Run the query, and show its results."""
        if not self.visit.may_change:
            return
        try:
            made = await run.io_bound(self.visit.hub.create, self._wanted(), self.visit.client)
        except WeftError as error:
            self._show(_Looked(error))
            tell_error(error)
            return
        if made is not None:
            choice.name = made.name
            ui.notify(f"{made.name} runs from the next batch on", type="positive", html=False)


_EMPTY = "Write a query to see its plan: what it would share with those that run, and what it would add."


def _look(visit: Visit, wanted: NewQuery, gone: Event) -> _Looked:
    if not wanted.sql.strip():
        return _Looked()
    try:
        wanted = NewQuery(wanted.sql, strategy=wanted.strategy)
        return _Looked(None, visit.hub.preview(wanted, visit.client, gone))
    except WeftError as error:
        return _Looked(error)


def _compare(visit: Visit, text: str) -> str:
    try:
        return visit.hub.compare(text, visit.client)
    except WeftError as error:
        return str(error)


def summary(preview: Preview) -> str:
    """What a query would share and add, in a few lines."""
    shares, adds = preview.shares, preview.adds
    cost = preview.graph.cost
    lines = [
        f"shares {_stores(len(shares))}{_named(shares)}",
        f"adds {_stores(len(adds))}{_named(adds)}{_rows(preview)}, "
        f"{_more(preview.added_steps, 'probe step')}, {_more(preview.added_hops, 'hop')}",
    ]
    if cost is not None:
        lines.append(
            f"cost {number(cost.total)} · {number(cost.probes)} probes/s · {_more(cost.hops, 'hop')} of its own"
        )
    return "\n".join(lines)


def _rows(preview: Preview) -> str:
    return f" of about {number(round(preview.added_rows))} rows" if preview.adds else ""


def _stores(count: int) -> str:
    return "no store" if not count else f"{count} store{'s' * (count > 1)}"


def _named(stores: tuple[str, ...]) -> str:
    return f" ({', '.join(stores)})" if stores else ""


def _more(count: int, what: str) -> str:
    return f"{max(0, count)} {what}{'s' * (count != 1)}"


_KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "AS", "BETWEEN", "IN", "LIKE", "IS NULL", "IS NOT NULL"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "SEMI JOIN", "ANTI JOIN", "ON", "CASE", "WHEN"),
    *("THEN", "ELSE", "END", "CAST", "INTERVAL", "[RANGE 10 SECONDS]", "[RANGE 1 MINUTE]", "[ROWS 1000]"),
    *(
        "DISTINCT",
        "GROUP BY",
        "HAVING",
        "ORDER BY",
        "LIMIT",
        "EXISTS",
        "UNION ALL",
        "NATURAL JOIN",
        "ASOF JOIN",
    ),
)

_COMPLETE = Path(__file__).with_name("complete.js").read_text(encoding="utf-8")


def make_editor(text: str, changed: Callable[[], object], run: Callable[[], object]) -> ui.codemirror:
    """An editor with a text; Ctrl+Enter runs it."""
    editor = ui.codemirror(
        text,
        language="SQL",
        theme="basicLight",
        line_wrapping=True,
        on_change=lambda _: changed(),
        keymap={"Mod-Enter": lambda _: run()},
    )
    return editor.classes("w-editor").props('aria-label="SQL of the query"')


def offer_words(editor: ui.codemirror, streams: Sequence[StreamInfo]) -> None:
    """Let the editor complete streams, columns and functions; the browser must be connected."""
    known = {one.name: [[column.name, column.type] for column in one.columns] for one in streams}
    script = _COMPLETE.replace("ELEMENT", str(editor.id)).replace("STREAMS", json.dumps(known))
    script = script.replace("FUNCTIONS", json.dumps(offered_functions()))
    ui.run_javascript(script.replace("KEYWORDS", json.dumps(_KEYWORDS)))


def offered_functions() -> list[tuple[str, str]]:
    """All functions that are called by a name, also by a synonym, with how they are written."""
    names = {name: name for name in named_functions()} | SYNONYMS
    return [(name, re.sub(r"\), .*", ")", FUNCTIONS[entry].form)) for name, entry in sorted(names.items())]


def underline(editor: ui.codemirror, error: SqlError | None) -> None:
    """Draw a wavy line under the culprit of an error, if it is still in the text."""
    marks = []
    if error is not None and error.text == editor.value and error.text:
        start = min(error.start, len(error.text) - 1)
        marks = [{"kind": "mark", "from": start, "to": max(start + 1, error.end), "class": "w-wrong"}]
    if list(editor.decorations) != marks:
        editor.decorations = marks
