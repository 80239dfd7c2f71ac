"""All figures of all papers, by name."""

from __future__ import annotations

from benchmarks.papers import (
    ajoin,
    clash_many,
    clash_strategies,
    clash_tasks,
    clash_windows,
    mjoin,
    sopj,
    splitjoin,
)
from benchmarks.papers.figures import Figure

_PAPERS = (clash_strategies, clash_tasks, clash_windows, clash_many, ajoin, splitjoin, sopj, mjoin)

FIGURES: dict[str, Figure] = {figure.name: figure for paper in _PAPERS for figure in paper.FIGURES}
