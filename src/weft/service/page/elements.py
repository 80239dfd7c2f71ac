"""The look of the page, and elements that several views have.

Guarantees: colours follow light and dark by CSS variables. Texts and figures in tables are shown as they are and never
taken for markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from weft.plan.show.svg import STYLE

__all__ = [
    "CSS",
    "SERIES",
    "fill_rows",
    "heading",
    "rows_table",
    "set_rows",
    "text_table",
]


# The colours of lines in charts, which are legible on light and on dark.
SERIES = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444")

CSS = Path(__file__).with_name("page.css").read_text(encoding="utf-8") + STYLE


# On a phone every row is a small card of its own, with the heads of the columns beside the values.
_NARROW = ':grid="window.innerWidth < 600"'


class _Heading(TextElement):
    """A heading, by which people who do not see the page find their way."""

    def __init__(self, text: str, level: int) -> None:
        super().__init__(tag=f"h{level}", text=text)


def heading(text: str, level: int = 2) -> TextElement:
    """A heading of a part of the page."""
    return _Heading(text, level).classes("w-title")


def labelled(table: ui.table, label: str) -> ui.table:
    """The table, with what it is about for those who do not see the heading above it."""
    table._props["aria-label"] = label
    table._props["role"] = "region"
    return table


def rows_table(label: str) -> ui.table:
    """A table for rows whose columns are not known yet; `fill_rows` fills it."""
    table = ui.table(columns=[], rows=[], row_key="#").props("flat dense virtual-scroll hide-pagination")
    table.classes("w-results").props(':rows-per-page-options="[0]"')
    return labelled(table, label)


def fill_rows(
    table: ui.table, names: Sequence[str], rows: Sequence[Sequence[object]], keys: Sequence[int] = ()
) -> None:
    """Show other rows, if they are others; columns are by place, since names may be anything, NULL as that word."""
    columns = [
        {"name": f"c{place}", "label": name, "field": f"c{place}", "align": "left"}
        for place, name in enumerate(names)
    ]
    if table.columns != columns:
        table.columns = columns
    shown = [
        {
            "#": keys[number] if keys else number,
            **{f"c{place}": "NULL" if value is None else str(value) for place, value in enumerate(row)},
        }
        for number, row in enumerate(rows)
    ]
    if table.rows != shown:
        table.rows = shown


def text_table(
    heads: Sequence[str], *, left: Sequence[str] = (), most: int = 0, label: str = "", wide: bool = True
) -> ui.table:
    """A table whose columns are aligned to the right, but for the first and those named; ``most`` rows a page.

    One that is not ``wide`` stays a table on a phone, too.
    """
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
    table.props("flat dense hide-no-data" + ("" if most else " hide-pagination"))
    table.classes("w-table").style("width: 100%")
    if wide:
        table.props(_NARROW)
    return labelled(table, label) if label else table


def set_rows(table: ui.table, rows: Sequence[Sequence[str]]) -> None:
    """Show other rows, if they are others."""
    heads = [column["name"] for column in table.columns]
    shown = [{"#": place, **dict(zip(heads, row, strict=True))} for place, row in enumerate(rows)]
    if shown != table.rows:
        table.rows = shown
