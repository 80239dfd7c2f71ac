"""What a partition costs: the same join of the same rows on 2 to 512 partitions.

A chain of three streams is joined, a file of each a batch; the data are the same for every number of partitions, so
whatever grows is the price of partitions. Of each batch but the first ones are taken: its seconds from the look for
input to the commit; the processor time of the driver's process (Python; with `--execution local` without the tasks,
which are in it); the files that it made; the messages that the driver got, and their bytes; and the bytes of the
driver's own entries in the log, which are the batch's plan and manifest. Figures per partition are what the largest
number of partitions has more than the smallest, divided by the difference. With `--durability process machine`, every
number runs both ways, which shows what it costs to survive the death of the machine. All runs must find the same
number of results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._data import Shape, write_streams
from benchmarks._joins import JOINS
from benchmarks._partitions_run import PartitionsTask
from benchmarks._process import run_alone
from rich.console import Console
from rich.table import Table

__all__ = ["main"]

SECONDS = 1.5  # that a batch may take on so many partitions
MANY = 128
DRIVER = 0.0001  # seconds of the driver per partition and batch
BYTES = 200  # of the driver's entries per partition and batch

Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]  # by durability and number of partitions


def measure(root: Path, options: argparse.Namespace) -> dict[str, dict[int, dict[str, Any]]]:
    """The figures of every run."""
    shape = Shape(options.batches * options.rows, options.rows, options.rows, options.keys)
    names = JOINS[options.join].streams
    write_streams(root / "in", names, shape)
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for durability in options.durability:
        for partitions in options.partitions:
            task = PartitionsTask(
                data=str(root / "in"),
                work=str(root / f"{durability or 'default'}{partitions}"),
                join=options.join,
                partitions=partitions,
                execution=options.execution,
                durability=durability,
                cores=options.cores,
                rate=shape.rate,
                keys=shape.keys,
                drop=options.drop,
            )
            answer = run_alone("benchmarks._partitions_run", asdict(task), options.timeout)
            found.setdefault(durability, {})[partitions] = answer
    return found


def per_partition(runs: Mapping[int, Mapping[str, Any]], figure: str) -> float | None:
    """How much a figure's median grows with a partition; None if there is but one number of partitions."""
    few, many = min(runs), max(runs)
    if few == many:
        return None
    return float(median(runs[many][figure]) - median(runs[few][figure])) / (many - few)


def partitions_table(runs: Mapping[int, Mapping[str, Any]], title: str) -> Table:
    """The table of figures (medians of batches), with one row for each number of partitions."""
    table = Table(title=title, caption="medians of batches; ÷ P: per partition")
    heads = ("partitions", "batch ms", "driver ms", "÷ P", "files", "÷ P", "messages", "÷ P", "their kB")
    for head in (*heads, "log bytes", "÷ P"):
        table.add_column(head, justify="right")
    for partitions, run in runs.items():
        middle = {name: median(run[name]) for name in run if isinstance(run[name], list) and run[name]}
        table.add_row(
            str(partitions),
            f"{1000 * middle['seconds']:,.0f}",
            f"{1000 * middle['driver']:,.1f}",
            f"{1000 * middle['driver'] / partitions:.3f}",
            *(f"{middle['files']:,.0f}", f"{middle['files'] / partitions:.1f}"),
            *(f"{middle['messages']:,.0f}", f"{middle['messages'] / partitions:.1f}"),
            f"{middle['message_bytes'] / 1000:,.0f}",
            *(f"{middle['log_bytes']:,.0f}", f"{middle['log_bytes'] / partitions:,.0f}"),
        )
    return table


def verdicts(runs: Mapping[int, Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    found = []
    driver, size = per_partition(runs, "driver"), per_partition(runs, "log_bytes")
    if driver is not None and size is not None:
        what = f"the driver's time at most {DRIVER * 1000:g} ms per partition ({driver * 1000:.3f} ms)"
        found.append((what, driver <= DRIVER))
        found.append((f"its log at most {BYTES} bytes per partition ({size:.0f} bytes)", size <= BYTES))
    if MANY in runs:
        taken = median(runs[MANY]["seconds"])
        found.append((f"a batch on {MANY} partitions within {SECONDS:g} s ({taken:.2f} s)", taken <= SECONDS))
    return found


def main(arguments: list[str]) -> int:
    """Print the tables and the verdicts; 1 if results differ or, with ``--strict``, a target is missed."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=options.directory) as folder:
        found = measure(Path(folder), options)
    console = Console(width=None if sys.stdout.isatty() else 130)
    missed = False
    for durability, runs in found.items():
        rows = f"{options.join}, {len(JOINS[options.join].streams)} × {options.rows:,} rows a batch"
        kind = ", ".join(filter(None, (rows, options.execution, durability)))
        console.print(partitions_table(runs, kind))
        for target, reached in verdicts(runs):
            missed |= not reached
            console.print(f"verdict: {'reached' if reached else 'missed '}  {target}", highlight=False)
    results = {run["results"] for runs in found.values() for run in runs.values()}
    if len(results) > 1:
        console.print(f"the runs found different numbers of results: {sorted(results)}", highlight=False)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2), encoding="utf-8")
    return int(len(results) > 1 or (options.strict and missed))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="weft bench partitions", description=__doc__)
    add = parser.add_argument
    add("--partitions", type=int, nargs="+", default=[2, 8, 32, 128, 512], help="how many, one after another")
    add("--join", choices=sorted(JOINS), default="chain3", help="what is joined")
    add("--execution", choices=("resident", "jobs", "local"), default="resident", help="who runs the tasks")
    add("--durability", nargs="+", default=[""], help="process, machine or both; the default of a session")
    add("--rows", type=int, default=8_000, help="rows of a file; a batch is a file of each stream")
    add("--batches", type=int, default=12, help="files of each stream")
    add("--drop", type=int, default=4, help="batches left out at the beginning")
    add("--keys", type=int, default=10_000, help="of either column")
    add("--cores", type=int, default=2, help="of Spark")
    add("--timeout", type=float, default=900, help="seconds a run may take")
    add("--directory", help="where data and checkpoints go; a temporary directory")
    add("--json", metavar="FILE", help="write the figures there, too")
    add("--strict", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    if not 0 <= options.drop < options.batches:
        parser.error("--drop must be less than --batches")
    if min(options.partitions) < 1:
        parser.error("--partitions must be 1 or more")
    return options
