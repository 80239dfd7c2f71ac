"""Tables as HTML, for notebooks.

Guarantees: every text is escaped, since names of queries, streams and columns may hold anything. No colour is fixed:
the page's own are used, in light and in dark. Columns of figures are aligned to the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["html_table"]

_CELL = "padding:0.15em 0.7em;border-bottom:1px solid rgba(128,128,128,.3);white-space:nowrap"
_FIGURE = set("0123456789.,%-+?eE kKMGTiBs∞")


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """A table with a title above it.

    >>> html_table(("a",), [("<1>",)]).count("&lt;1&gt;")
    1
    """
    right = [all(map(_is_figure, cells)) for cells in zip(*rows, strict=True)] or [False] * len(heads)
    lines = [_row("th", heads, right), *(_row("td", row, right) for row in rows)]
    caption = f"<div><b>{escape(title)}</b></div>" if title else ""
    table = f'<table style="border-collapse:collapse;font-size:90%">{"".join(lines)}</table>'
    return f'<div style="overflow-x:auto">{caption}{table}</div>'


def _is_figure(text: str) -> bool:
    return set(text) <= _FIGURE


def _row(tag: str, cells: Sequence[str], right: Sequence[bool]) -> str:
    aligned = ("right" if is_figure else "left" for is_figure in right)
    shown = (
        f'<{tag} style="{_CELL};text-align:{side}">{escape(str(cell))}</{tag}>'
        for cell, side in zip(cells, aligned, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"
