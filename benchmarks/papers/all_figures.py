"""All figures of all papers, by name."""

from __future__ import annotations

from benchmarks.papers import clash
from benchmarks.papers.figures import Figure

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (*clash.FIGURES,)}
