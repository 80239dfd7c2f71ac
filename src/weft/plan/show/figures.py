"""Figures and tables as texts.

Guarantees: equal values give equal texts; columns of figures are aligned to the right, all others to the left.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.stats.input_figures import REASONS

__all__ = ["number", "table"]


def number(value: float) -> str:
    """A figure as a short text.

    >>> number(1234567), number(0.04567), number(12), number(0)
    ('1.23M', '0.0457', '12', '0')
    """
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose columns are aligned; `_FIGURES` names the heads of those with figures."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    right = {i for i, head in enumerate(heads) if head in _FIGURES}
    return ["  " + _line(row, widths, right) for row in (heads, *rows)]


_FIGURES = (
    *("hop", "from hop", "tuples", "new/s", "in/s", "copies", "out/s", "cost"),
    *(
        "observed",
        "bytes",
        "matches/probe",
        "rows",
        "rows/s",
        *REASONS,
        "backlog",
        "seconds",
    ),
    *("µs/row", "lets through", "value", "batches ago", "seconds ago", "evidence"),
    *("rows in", "rows out", "of all", "state, bytes", "busiest task"),
    *("of best", "hops", "stored", "probes/s", "shipped/s", "latency"),
)


def _line(row: Sequence[str], widths: Sequence[int], right: set[int]) -> str:
    cells = [
        cell.rjust(width) if i in right else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
