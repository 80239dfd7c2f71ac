"""Figures of the papers, each a value: what was measured there, what is measured here, and what the paper concludes.

Guarantees: a figure is measured in a process of its own, as often as asked, after its code was compiled. Its
measurements are rows of named values, written as JSON with the machine, the versions, the command and every run. What
the paper concludes is a ratio of measured values, so whether it holds here is computed and never written down.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks._harness import run_alone
from benchmarks._plot import Plot

Row = Mapping[str, str | float]
Rows = Sequence[Row]
RESULTS = Path(__file__).parents[1] / "results"
RUNS = 2


@dataclass(frozen=True, slots=True)
class Fact:
    """What a paper reports, as it does, and the figure, table or page where it does."""

    where: str
    said: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper concludes: a ratio that is at least so much there, and how it is computed from rows measured here.

    ``because`` says why it does not hold here, for the case that it does not.
    """

    text: str
    ratio: Callable[[Rows], float]
    least: float = 1.0
    because: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table of a paper, and how it is measured here.

    ``measure`` gives the rows of one run, of a minute or so if it is told to be ``small``. The columns of ``keys`` say
    what a row is of, all others are measured. A plot has a line for each value of ``line``, over ``x``, of ``y``.
    """

    name: str
    paper: str
    title: str
    there: str
    here: str
    differs: str
    facts: tuple[Fact, ...]
    measure: Callable[[bool], Rows]
    keys: tuple[str, ...]
    claims: tuple[Claim, ...] = ()
    plots: tuple[tuple[str, str, str], ...] = ()  # line, x, y

    @property
    def command(self) -> str:
        """The command that measures it."""
        return f"weft bench paper {self.name}"


def value(rows: Rows, column: str, **keys: str | float) -> float:
    """The measured value of the row with these keys; the mean, if there are several."""
    found = [float(row[column]) for row in rows if all(row[name] == key for name, key in keys.items())]
    if not found:
        raise KeyError(f"no row has {keys}")
    return fmean(found)


def over(
    column: str, one: Mapping[str, str | float], other: Mapping[str, str | float], **both: str | float
) -> Callable[[Rows], float]:
    """How many times the value of one row that of another is."""
    return lambda rows: (
        value(rows, column, **{**both, **one}) / max(1e-12, value(rows, column, **{**both, **other}))
    )


def measure(figure: Figure, small: bool, runs: int, timeout: float) -> dict[str, Any]:
    """All that is written of a figure: every run, each in a process of its own."""
    task = {"name": figure.name, "small": small}
    found = [run_alone(measure_here, task, timeout)["rows"] for _ in range(runs)]
    return {
        "figure": figure.name,
        "command": f"{figure.command}{' --small' if small else ''}",
        "small": small,
        "measured": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: version(name) for name in ("weft", "pyarrow", "numpy", "numba", "pyspark")},
        "load": os.getloadavg()[0],
        "runs": found,
    }


def measure_here(task: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of one run of a figure; run in a process of its own."""
    from benchmarks.papers.all_figures import FIGURES

    return {"rows": [dict(row) for row in FIGURES[task["name"]].measure(task["small"])]}


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": sys.version.split()[0],
    }


def write(result: Mapping[str, Any], folder: Path) -> Path:
    """Write a result where the page finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{result['figure']}.json"
    file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """All results of a folder, by figure."""
    found = (json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json")))
    return {one["figure"]: one for one in found if isinstance(one, dict) and "figure" in one}


def means(figure: Figure, runs: Sequence[Rows]) -> list[dict[str, str | float]]:
    """The rows with the mean of every measured value over the runs."""
    found = []
    for same in zip(*runs, strict=True):
        row: dict[str, str | float] = {}
        for name, first in same[0].items():
            is_key = name in figure.keys or isinstance(first, str)
            row[name] = first if is_key else fmean(float(one[name]) for one in same)
        found.append(row)
    return found


def spread(figure: Figure, runs: Sequence[Rows]) -> dict[str, float]:
    """By how much runs differ: of each column, the largest difference of a value, as a part of its mean.

    What is counted does not differ; only columns that do are given.
    """
    worst: dict[str, float] = {}
    for same in zip(*runs, strict=True):
        for name, first in same[0].items():
            if name not in figure.keys and not isinstance(first, str):
                seen = [float(one[name]) for one in same]
                differ = (max(seen) - min(seen)) / max(1e-12, abs(fmean(seen)))
                worst[name] = max(worst.get(name, 0.0), differ)
    return {name: differ for name, differ in worst.items() if differ >= 0.005}


def spread_text(figure: Figure, runs: Sequence[Rows]) -> str:
    """How many runs there were, and by how much they differ at most, in words."""
    differ = ", ".join(f"{name} {part:.0%}" for name, part in spread(figure, runs).items())
    return f"means of {len(runs)} runs; a value differs between them by at most: {differ or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, and by which factor the measured values fulfil it."""

    figure: Figure
    claim: Claim
    factor: float

    @property
    def holds(self) -> bool:
        """Whether it holds here."""
        return self.factor >= self.claim.least

    def __str__(self) -> str:
        if self.holds:
            return f"holds: ×{self.factor:.2f}"
        return f"does not hold: ×{self.factor:.2f}" + (
            f", because {self.claim.because}" if self.claim.because else ""
        )


def verdicts(figure: Figure, result: Mapping[str, Any]) -> list[Verdict]:
    """What becomes of the claims of a figure."""
    rows = means(figure, result["runs"])
    return [Verdict(figure, claim, claim.ratio(rows)) for claim in figure.claims]


def plots(figure: Figure, result: Mapping[str, Any]) -> list[Plot]:
    """The plots of a figure, one for each measured value that it is about."""
    rows, found = means(figure, result["runs"]), []
    for line, x, y in figure.plots:
        lines = {
            str(name): _line([row for row in rows if row[line] == name], x, y)
            for name in dict.fromkeys(row[line] for row in rows)
        }
        found.append(Plot(f"{figure.paper}, {figure.title}", x, y, lines))
    return found


def _line(rows: Rows, x: str, y: str) -> tuple[list[Any], list[float]]:
    """The mean of y for each x, in the order in which they were measured."""
    xs = list(dict.fromkeys(row[x] for row in rows))
    return xs, [fmean(float(row[y]) for row in rows if row[x] == one) for one in xs]


def columns(rows: Iterable[Row]) -> list[str]:
    """The columns of rows, in their order."""
    return list(dict.fromkeys(name for row in rows for name in row))
