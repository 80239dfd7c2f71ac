"""The highest rate of input that is sustained within a latency: Weft, Spark's own stream-stream join, and Flink's.

Files of every stream appear by the clock, at a rate. A rate is sustained if 95 of 100 results are in the sink within
`--bound` seconds after their last tuple came, if results do not come later and later, and if nothing is left to be read
shortly after the input has ended. The rate is doubled until it is not sustained, and then found by bisection. All are
measured alike, by the files that their sinks make visible; what Weft says of its latency itself stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._flink import STATES, find_flink
from benchmarks._harness import ContenderError, make_console, make_parser, make_table, run_alone, say
from benchmarks._joins import JOINS
from benchmarks._sustainable import SustainableTask, run_trials
from rich.table import Table

CONTENDERS = ("weft", "rocksdb", "hdfs", *STATES)


def sustainable_table(join: str, found: dict[str, dict[str, Any]], options: argparse.Namespace) -> Table:
    """The table of a join, with one row for each contender."""
    title = f"{join}: the highest rate with p95 ≤ {options.bound:g} s, {options.cores} cores"
    table = make_table(
        title,
        ("contender", "rows/s per stream", "rows/s in all", "p50 (s)", "p95 (s)", "own p95 (s)", "trials"),
    )
    streams = len(JOINS[join].streams)
    for name, one in found.items():
        best = next((trial for trial in one["trials"] if trial["rate"] == one["best"]), None)
        own = best["own"].get("p95") if best else None
        figures = [f"{best['p50']:.3f}", f"{best['p95']:.3f}"] if best else ["", ""]
        cells = [f"{one['best']:,}", f"{streams * one['best']:,}", *figures]
        table.add_row(name, *cells, "" if own is None else f"{own:.3f}", str(len(one["trials"])))
    return table


def run_join(join: str, root: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Try all contenders on a join; one that fails is left out, with the reason on standard error."""
    found: dict[str, dict[str, Any]] = {}
    for contender in options.contenders:
        first = options.first if contender == "weft" else options.peers_first
        task = SustainableTask(
            join,
            contender,
            str(root / join / contender),
            first,
            options.most,
            options.steps,
            options.seconds,
            options.warm_up,
            options.interval,
            options.bound,
            options.cores,
            options.memory,
            options.flink if contender in STATES else None,
        )
        try:
            found[contender] = run_alone(run_trials, task, options.timeout)
        except ContenderError as error:
            say(f"{join}: {contender} failed: {error}")
    return found


def _leave_out_flink(options: argparse.Namespace) -> None:
    """Find Flink, and leave it out with a sentence where its package is not installed."""
    given, options.flink = options.flink, find_flink(options.flink)
    asked = [name for name in options.contenders if name in STATES]
    if asked and options.flink is None:
        say(
            f"Flink is not measured: {given or sys.executable} has no package apache-flink; --flink names one that has"
        )
        options.contenders = [name for name in options.contenders if name not in STATES]


def main(arguments: list[str]) -> int:
    """Print a table for each join; 1 if a contender sustained no rate at all, or failed."""
    parser = make_parser("sustainable", __doc__, "cores")
    parser.add_argument("--joins", default="pair,chain3", help=f"some of {', '.join(JOINS)}")
    parser.add_argument("--contenders", default="weft,rocksdb,flink", help=f"some of {', '.join(CONTENDERS)}")
    parser.add_argument(
        "--flink",
        default=os.environ.get("WEFT_FLINK_PYTHON"),
        help="the Python that has the package apache-flink; by default this one, if it has, or WEFT_FLINK_PYTHON",
    )
    parser.add_argument("--bound", type=float, default=1.0, help="seconds that 95 of 100 results may take")
    parser.add_argument("--first", type=int, default=200_000, help="Weft's first rate, rows/s of each stream")
    parser.add_argument(
        "--peers-first", type=int, default=5_000, help="the first rate of Spark's own join and of Flink's"
    )
    parser.add_argument("--most", type=int, default=4_000_000, help="no higher rate is tried")
    parser.add_argument("--steps", type=int, default=3, help="of bisection, after doubling")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a trial, after its warm-up")
    parser.add_argument(
        "--warm-up", type=float, default=8.0, help="seconds at the beginning that do not count"
    )
    parser.add_argument("--interval", type=float, default=0.25, help="seconds between files of a stream")
    parser.add_argument("--memory", default="4g", help="of Spark's driver")
    parser.add_argument(
        "--timeout", type=float, default=3600.0, help="seconds that a contender may take in all"
    )
    parser.add_argument("--json", help="also write all trials to this file")
    options = parser.parse_args(arguments)
    options.joins, options.contenders = options.joins.split(","), options.contenders.split(",")
    for given, known in ((options.joins, JOINS), (options.contenders, CONTENDERS)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            parser.error(f"{unknown[0]} is none of {', '.join(known)}")
    _leave_out_flink(options)
    console = make_console()
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        for join in options.joins:
            found[join] = run_join(join, Path(folder), options)
            console.print(sustainable_table(join, found[join], options))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2), encoding="utf-8")
    wanted = len(options.contenders)
    return int(
        any(len(one) < wanted or not all(each["best"] for each in one.values()) for one in found.values())
    )
