"""The look of the page, and elements that several views have.

Guarantees: colours follow light and dark by CSS variables. Texts and figures in tables are shown as they are and never
taken for markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nicegui import ui

from weft.plan.show.svg import STYLE

__all__ = [
    "CSS",
    "SERIES",
    "set_rows",
    "text_table",
]


# The colours of lines in charts, which are legible on light and on dark.
SERIES = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444")

CSS = Path(__file__).with_name("page.css").read_text(encoding="utf-8") + STYLE


def text_table(heads: Sequence[str], *, left: Sequence[str] = (), most: int = 0) -> ui.table:
    """A table whose columns are aligned to the right, but for the first and those named; ``most`` rows a page."""
    columns = [
        {
            "name": head,
            "label": head,
            "field": head,
            "align": "left" if place == 0 or head in left else "right",
            "sortable": False,
        }
        for place, head in enumerate(heads)
    ]
    table = ui.table(columns=columns, rows=[], row_key="#", pagination=most or None)
    return (
        table.props("flat dense hide-no-data" + ("" if most else " hide-pagination"))
        .classes("w-table")
        .style("width: 100%")
    )


def set_rows(table: ui.table, rows: Sequence[Sequence[str]]) -> None:
    """Show other rows, if they are others."""
    heads = [column["name"] for column in table.columns]
    found = [{"#": place, **dict(zip(heads, row, strict=True))} for place, row in enumerate(rows)]
    if found != table.rows:
        table.rows = found
