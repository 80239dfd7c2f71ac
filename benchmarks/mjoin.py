"""What driver policies gain on bursty streams (MJoin driver selection, section 4): `weft bench mjoin`.

Three streams are joined on one key, without windows, over the paper's six data sets: uniform rates, rates that change
with every quarter, a sine, and bursts by a b-model of 20 % to 80 %. What arrives in a period of 0.1M or 1M time units
is one batch. Every policy runs over the same batches, in this process; figures are the paper's: running time (Table 4)
and the part of the results that is there after half of the time (Table 5), both in the time that `timestamp` takes for
the same batch; and memory: the tuples of a batch that still wait, and the most that a batch needs beside the stores.
Table 5 is also shown by tuples: what is there when half of a batch's tuples are processed, which no clock has a say in.

What differs from the paper: Weft stores and probes whole columns, all tuples of an input and then all of the next,
under every policy. The paper's timestamp-based and round-robin policies go from tuple to tuple, so they change the
driver thousands of times in a batch; here every policy changes it twice. So a policy cannot save much running time in
Weft: what there is to save is saved for all of them. The column "arrival" shows what the paper's difference comes to:
batches that are cut into --slices by time, each run as a batch of its own, which is as near to the order of arrival as
Weft comes. How early results come in a batch does depend on the policy, though less than in the paper: a batch is read
before its first input is processed, and its state is settled after the last one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from benchmarks._harness import make_console, make_parser, say
from benchmarks._mjoin_report import (
    ARRIVAL,
    CONTENDERS,
    FEW,
    MANY,
    Figures,
    figures_of,
    shown,
    verdicts,
    write_csv,
    write_png,
)
from benchmarks._mjoin_run import DATASETS, Dataset, Run, batches, generate, run
from rich.console import Console


def measure(
    dataset: Dataset, count: int, scale: float, rounds: int, slices: int, seed: int = 0
) -> dict[str, Run]:
    """By contender, a run over a data set in so many batches: each batch as in the round in which it was fastest.

    A round runs every contender once, each time beginning with another, so that none is always first. An error is
    raised if two of them have different results.
    """
    cut = list(batches(generate(dataset, scale, seed), count))
    runs: dict[str, list[Run]] = {name: [] for name in CONTENDERS}
    for number in range(rounds):
        turn = number % len(CONTENDERS)
        for name in (*CONTENDERS[turn:], *CONTENDERS[:turn]):
            runs[name].append(run(cut, "timestamp", slices) if name == ARRIVAL else run(cut, name))
    results = {name: {one.results for one in some} for name, some in runs.items()}
    if len(set.union(*results.values())) > 1:
        raise ValueError(f"results differ: {results}")
    return {name: Run.fastest(some) for name, some in runs.items()}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = make_parser("mjoin", __doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the streams; 1 is the paper's")
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts, batch by batch")
    parser.add_argument("--slices", type=int, default=8, help="that a batch is cut into for arrival")
    parser.add_argument("--batches", default=f"{MANY},{FEW}", help="that the streams are cut into")
    parser.add_argument("--datasets", default=",".join(one.name for one in DATASETS), help="as in I,IV")
    parser.add_argument("--seed", type=int, default=0, help="of the keys")
    parser.add_argument("--csv", type=Path, help="a file for all figures")
    parser.add_argument(
        "--png", type=Path, help="a file for the plots, as the paper's Figures 6 to 8 (matplotlib)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if something does not hold here")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Print the tables and whether what the paper concludes holds here; 1 if it does not and ``--strict`` is given."""
    options, began = parse(arguments), time.perf_counter()
    console = make_console(160)
    wanted = [one for one in DATASETS if one.name in options.datasets.split(",")]
    measure(DATASETS[0], FEW, 0.01, 1, 1)  # so that compiling and loading is not measured
    found: dict[tuple[int, str, str], Figures] = {}
    runs: dict[tuple[int, str, str], Run] = {}
    judged: list[tuple[str, bool]] = []
    for count in map(int, options.batches.split(",")):
        for dataset in wanted:
            say(f"data set {dataset.name} in {count} batches")
            some = measure(dataset, count, options.scale, options.rounds, options.slices, options.seed)
            runs |= {(count, dataset.name, name): one for name, one in some.items()}
            for name, one in some.items():
                found[count, dataset.name, name] = figures_of(one, some["timestamp"])
        for table in shown(found, count):
            console.print(table)
        judged += [(f"{count} batches: {what}", holds) for what, holds in verdicts(found, count)]
    _say_verdicts(console, judged)
    if options.csv:
        write_csv(found, options.csv)
    if options.png:
        write_png(runs, options.png)
    console.print(f"{timedelta(seconds=round(time.perf_counter() - began))} in all")
    return int(options.strict and not all(holds for _, holds in judged))


def _say_verdicts(console: Console, judged: Iterable[tuple[str, bool]]) -> None:
    for what, holds in judged:
        console.print(f"verdict: {'holds ' if holds else 'differs'}  {what}", highlight=False)
