"""Line plots as PNG files, drawn by matplotlib, which only benchmarks need (`pip install weft[bench]`)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines by name, each as its x and its y values; ``marks`` are names of x values at which a line is drawn down."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Line]
    marks: Mapping[str, float] = field(default_factory=dict)
    log_y: bool = False


def draw(path: Path, plots: Sequence[Plot]) -> None:
    """Draw plots below each other into a file."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")  # there need be no screen
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(len(plots), 1, figsize=(9, 3.2 * len(plots)), squeeze=False)
    for plot, axis in zip(plots, axes[:, 0], strict=True):
        for name, (xs, ys) in plot.lines.items():
            axis.plot(xs, ys, label=name, linewidth=1.4)
        for name, x in plot.marks.items():
            axis.axvline(x, color="grey", linestyle=":", linewidth=1)
            axis.annotate(name, (x, 1.0), xycoords=("data", "axes fraction"), fontsize=8, color="grey")
        axis.set(title=plot.title, xlabel=plot.x, ylabel=plot.y, yscale="log" if plot.log_y else "linear")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
