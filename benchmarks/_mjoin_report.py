"""The figures of `weft bench mjoin`, beside those of the paper's Tables 4 and 5.

Guarantees: figures are pure functions of the runs. As in the paper, time is measured in the time that the policy
`timestamp` takes for the same batch, over the last 80 % of the batches.
"""

from __future__ import annotations

import csv
import importlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks._harness import make_table
from benchmarks._mjoin_run import Run
from rich.table import Table

ARRIVAL = "arrival"  # no policy: batches are cut into slices by time
POLICIES = ("round_robin", "timestamp", "consumption_rate", "initial_output_size", "output_rate")
CONTENDERS = (ARRIVAL, *POLICIES)
MANY, FEW = 100, 10  # batches: periods of 0.1M and of 1M time units
NA = float("nan")

Paper = Mapping[int, Mapping[str, Sequence[float]]]


def _read(text: str) -> Paper:
    """A table of the paper: for every data set the figures of the policies, with many batches and with few."""
    rows = [line.replace("–", "nan").split() for line in text.strip().splitlines()]
    figures = {name: list(map(float, cells)) for name, *cells in rows}
    return {
        MANY: {name: cells[: len(POLICIES)] for name, cells in figures.items()},
        FEW: {name: cells[len(POLICIES) :] for name, cells in figures.items()},
    }


# Running times, where that of `timestamp` is 1.
TABLE_4 = _read("""
I   0.985     1     – 0.854 0.903  1.012     1     – 0.791 0.769
II  1.002     1     – 0.859  0.84  1.002     1     – 0.773 0.777
III 1.003     1     – 0.871 0.884  1.014     1     – 0.811 0.815
IV  0.966     1     – 0.744 0.755  0.997     1     – 0.801 0.789
V   0.948     1 0.863 0.882 0.906  0.927     1 0.808   0.5 0.851
VI  1.128     1 0.785 0.785 0.956  0.926     1 0.728 0.611 0.819
""")
# The part of the results that is there after half of the time.
TABLE_5 = _read("""
I     0.5  0.45     –  0.85  0.85    0.4  0.45     –  0.85  0.85
II   0.45   0.5     –  0.85  0.85    0.4  0.45     –  0.85  0.85
III   0.5   0.5     –   0.8   0.8   0.45  0.45     –   0.8   0.8
IV   0.55   0.5     –  0.65   0.6    0.5  0.45     –   0.6   0.6
V    0.85   0.5   0.1  0.95   0.9    0.9  0.45  0.05     1  0.95
VI   0.65   0.5   0.4   0.8   0.7   0.55  0.45  0.35  0.95   0.7
""")


@dataclass(frozen=True, slots=True)
class Figures:
    """A contender on a data set.

    ``seconds`` is what a batch takes on average. ``running`` is Table 4: its time in that of `timestamp`. ``early`` is
    Table 5: the part of the results that is there after half of `timestamp`'s time; ``by_half`` is the same when half
    of the batch's tuples are processed, which is the same in every run. ``waiting`` is the part of a
    batch's tuples that are not processed yet, on average over `timestamp`'s time: the buffers that the policy
    `consumption_rate` is to empty soon. ``state`` are the bytes stored at the end, and ``peak`` is the most memory that
    a batch needed beyond what is stored, in bytes.
    """

    seconds: float
    running: float
    early: float
    by_half: float
    waiting: float
    state: float
    peak: float


def figures_of(run: Run, reference: Run) -> Figures:
    """The figures of a run; ``reference`` is the one of `timestamp` over the same batches."""
    pairs = list(zip(run.measured, reference.measured, strict=True))
    spans = [theirs.seconds for _, theirs in pairs]
    taken = sum(mine.seconds for mine, _ in pairs)
    early = sum(mine.results_by(theirs.seconds / 2) for mine, theirs in pairs)
    tuples = sum(sum(mine.rows.values()) for mine, _ in pairs)
    waiting = sum(mine.waiting(theirs.seconds) for mine, theirs in pairs)
    results = max(1, sum(mine.results for mine, _ in pairs))
    return Figures(
        taken / len(pairs),
        taken / sum(spans),
        early / results,
        sum(mine.results_after(0.5) for mine, _ in pairs) / results,
        waiting / max(1, tuples),
        run.state,
        max(mine.peak for mine, _ in pairs),
    )


Found = Mapping[tuple[int, str, str], Figures]  # by number of batches, data set and contender
Show = Callable[[Figures], float]


def _paper(table: Paper, batches: int, dataset: str, name: str) -> float:
    row = table.get(batches, {}).get(dataset)
    return NA if row is None or name not in POLICIES else row[POLICIES.index(name)]


def averages(found: Found, show: Show, table: Paper, batches: int) -> dict[str, tuple[float, float]]:
    """By policy, the averages of Weft and of the paper, over the data sets for which the paper has a figure."""
    result = {}
    for name in POLICIES:
        both = [
            (show(one), paper)
            for (count, dataset, contender), one in found.items()
            if (count, contender) == (batches, name)
            and (paper := _paper(table, batches, dataset, name)) == paper  # a figure, that is: not NaN
        ]
        if both:
            result[name] = statistics.mean(a for a, _ in both), statistics.mean(b for _, b in both)
    return result


def shown(found: Found, batches: int) -> list[Table]:
    """The tables of one number of batches: running time, early results, and memory."""
    period = {MANY: "0.1M", FEW: "1M"}.get(batches, f"1/{batches} of all")
    time, part = (
        f"batches of {period} time units: running time",
        f"batches of {period} time units: part of the results",
    )
    driven = {key: figures for key, figures in found.items() if key[2] != ARRIVAL}
    return [
        _table(f"Table 4, {time}", found, batches, _running, TABLE_4),
        _table(f"Table 5, {part} at half of the time", found, batches, _early, TABLE_5),
        _table(f"Table 5, {part} when half of the tuples are processed", driven, batches, _by_half, TABLE_5),
        _memory(found, batches, period),
    ]


_running, _early, _by_half = (attrgetter(name) for name in ("running", "early", "by_half"))


def _table(title: str, found: Found, batches: int, show: Show, paper: Paper) -> Table:
    table = make_table(
        title, ("data set", *CONTENDERS), caption="in parentheses: the paper's; time 1 is that of timestamp"
    )
    for dataset in _datasets(found, batches):
        cells = (
            _cell(show(one), _paper(paper, batches, dataset, name)) if one is not None else ""
            for name in CONTENDERS
            for one in [found.get((batches, dataset, name))]
        )
        table.add_row(dataset, *cells)
    means = averages(found, show, paper, batches)
    table.add_row("average", *(_cell(*means[name]) if name in means else "" for name in CONTENDERS))
    return table


def _memory(found: Found, batches: int, period: str) -> Table:
    table = make_table(
        f"Memory, batches of {period} time units: tuples that wait, on average · needed at most, MB",
        ("data set", "stored, MB", *CONTENDERS),
        caption="beside what is stored, which is the same for all policies",
    )
    for dataset in _datasets(found, batches):
        mine = [found[batches, dataset, name] for name in CONTENDERS]
        stored = max(one.state for one in mine if one is not mine[0])
        cells = (f"{one.waiting:.0%} · {one.peak / 1e6:.1f}" for one in mine[1:])
        table.add_row(dataset, f"{stored / 1e6:.1f}", f"{mine[0].peak / 1e6:.1f}", *cells)
    return table


def _datasets(found: Found, batches: int) -> list[str]:
    return list(dict.fromkeys(dataset for count, dataset, _ in found if count == batches))


def _cell(mine: float, paper: float) -> str:
    return f"{mine:.2f}" if paper != paper else f"{mine:.2f} ({paper:.2f})"


def verdicts(found: Found, batches: int) -> list[tuple[str, bool]]:
    """What the paper concludes, and whether it holds here too."""
    running, early = averages(found, _running, TABLE_4, batches), averages(found, _early, TABLE_5, batches)
    half = averages(found, _by_half, TABLE_5, batches)
    result = []
    for name in ("initial_output_size", "output_rate"):
        if name in running:
            what = f"{name} takes less time than timestamp ({running[name][0]:.2f} × its time)"
            result.append((what, running[name][0] < 1))
        for when, means in (("at half of the time", early), ("by half of the tuples", half)):
            if name in means and "timestamp" in means:
                mine, theirs = means[name][0], means["timestamp"][0]
                result.append((f"{name} gives more {when} ({mine:.2f}, not {theirs:.2f})", mine > theirs))
    ranked = (("running time", running, min), ("early results", early, max), ("results by tuples", half, max))
    for what, means, best in ranked:
        if means:
            here, there = (best(means, key=lambda name: means[name][side]) for side in (0, 1))
            order = " < ".join(sorted(means, key=lambda name: means[name][0]))
            wanted = " < ".join(sorted(means, key=lambda name: means[name][1]))
            result.append((f"the best in {what} is {there}: here {order}; paper {wanted}", here == there))
    return result


def write_csv(found: Found, path: Path) -> None:
    """All figures, one line per number of batches, data set and contender."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("batches", "dataset", "policy", *Figures.__slots__, "paper_running", "paper_early"))
        for (batches, dataset, name), one in found.items():
            paper = (_paper(table, batches, dataset, name) for table in (TABLE_4, TABLE_5))
            figures = (getattr(one, field) for field in Figures.__slots__)
            writer.writerow((batches, dataset, name, *figures, *("" if p != p else p for p in paper)))


def write_png(runs: Mapping[tuple[int, str, str], Run], path: Path) -> None:
    """The paper's Figures 6 to 8: the part of the results against time, for every data set and number of batches."""
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    counts, datasets = (list(dict.fromkeys(key[place] for key in runs)) for place in (0, 1))
    figure, axes = pyplot.subplots(
        len(counts), len(datasets), figsize=(3.2 * len(datasets), 3 * len(counts)), squeeze=False, sharey=True
    )
    for (batches, dataset, name), one in runs.items():
        axis = axes[counts.index(batches)][datasets.index(dataset)]
        axis.plot(*_production(one, runs[batches, dataset, "timestamp"]), label=name)
        axis.set_title(f"{dataset}, {batches} batches", fontsize=9)
        axis.set_xlabel("time", fontsize=8)
    axes[0][0].set_ylabel("part of the results")
    axes[0][0].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _production(run: Run, reference: Run, steps: int = 60) -> tuple[list[float], list[float]]:
    """Times, in the reference's time for the same batch, and the part of the results that is there by then."""
    pairs = list(zip(run.measured, reference.measured, strict=True))
    total = max(1, sum(mine.results for mine, _ in pairs))
    times = [1.3 * step / steps for step in range(steps + 1)]
    return times, [sum(m.results_by(time * t.seconds) for m, t in pairs) / total for time in times]
