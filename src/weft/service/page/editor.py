"""The editor of SQL: colours, completion of streams and columns, and a wavy line under what is wrong.

Guarantees: what is offered while typing are the streams and columns that the session has, under the aliases of the
text. Completion runs in the browser, on words that were sent once: typing waits for nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from nicegui import ui

from weft.errors import SqlError
from weft.service.hub.values import StreamInfo

__all__ = ["make_editor", "offer_words", "underline"]

_KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "AS", "BETWEEN", "IN", "LIKE", "IS NULL", "IS NOT NULL"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "SEMI JOIN", "ANTI JOIN", "ON", "CASE", "WHEN"),
    *("THEN", "ELSE", "END", "CAST", "INTERVAL", "[RANGE 10 SECONDS]", "[RANGE 1 MINUTE]", "[ROWS 1000]"),
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
    """Let the editor complete streams and columns; the browser must be connected."""
    known = {one.name: [[column.name, column.type] for column in one.columns] for one in streams}
    script = _COMPLETE.replace("ELEMENT", str(editor.id)).replace("STREAMS", json.dumps(known))
    ui.run_javascript(script.replace("KEYWORDS", json.dumps(_KEYWORDS)))


def underline(editor: ui.codemirror, error: SqlError | None) -> None:
    """Draw a wavy line under the culprit of an error, if it is still in the text."""
    marks = []
    if error is not None and error.text == editor.value and error.text:
        start = min(error.start, len(error.text) - 1)
        marks = [{"kind": "mark", "from": start, "to": max(start + 1, error.end), "class": "w-wrong"}]
    if list(editor.decorations) != marks:
        editor.decorations = marks
