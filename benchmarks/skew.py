"""What heavy keys cost, and what scattering them saves: Weft's join of two streams whose keys follow Zipf's law.

V.k = W.k AND |V.price - W.price| <= 1 within a window, on 8 partitions. The same files are joined in turns by three
sessions, each time by all in one Spark: `plain` partitions all keys, `given` knows the heavy keys from its statistics,
`measured` finds them while it runs and lays its stores out anew. Results are compared by count and checksum: a
difference gives the exit code 1.

The most that can be gained follows from the data: with C tasks at once a batch takes at least 1/C of its work, and
without treatment at least what the commonest key needs, since that is in one task. It is shown as `at most`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from benchmarks._digest import Digest, digest
from benchmarks._harness import conclude, make_console, make_parser, make_table, say, working_directory
from benchmarks._progress import wait_for_weft, weft_batches
from benchmarks._race import percentile
from benchmarks._zipf import SCHEMA, STREAMS, Zipf, write_zipf
from rich.table import Table

import weft

WAYS = ("plain", "given", "measured")
TARGET = 1.5  # how many times as fast as `plain`
HEAVY = 16  # how many keys the given statistics have

SQL = """
SELECT v.n AS v_n, w.n AS w_n, v.price AS v_price
FROM v [RANGE {window} SECONDS], w [RANGE {window} SECONDS]
WHERE v.k = w.k AND v.price BETWEEN w.price - 1 AND w.price + 1
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one session: seconds and rows of the measured batches, and the busiest task's part of a hop."""

    seconds: list[float]
    rows: int
    busiest: float
    scattered: int  # how many keys are scattered at the end
    results: Digest

    @property
    def rate(self) -> float:
        """Input rows per second."""
        return self.rows / sum(self.seconds)


def measure(way: str, data: Path, work: Path, zipf: Zipf, options: argparse.Namespace) -> Run:
    """Join the files in one of the ways; the first batches do not count."""
    session = _session(way, data, work, zipf, options)
    sql = SQL.format(window=options.window)
    session.query(sql, name="skew", sink=weft.to_parquet(work / "out"))
    session.start(available_now=True)
    wait_for_weft(session, way)
    timed = weft_batches(session)
    by_number = {batch.number: batch for batch in session.progress["skew"]}
    done, seconds = [by_number[number] for number, _, _ in timed], [alone for _, alone, _ in timed]
    running: Any = session._last_run
    stores = running.loop.active_queries.program.graph.stores
    session.stop()
    counted = done[options.drop :]
    return Run(
        seconds[options.drop :],
        sum(one.rows for batch in counted for one in batch.inputs.values()),
        fmean(batch.busiest[1] for batch in counted),
        max(len(store.layout.heavy) for store in stores),
        digest(str(work / "out"), STREAMS, zipf.rows * zipf.batches),
    )


def _session(way: str, data: Path, work: Path, zipf: Zipf, options: argparse.Namespace) -> weft.Session:
    heavy = {"k": zipf.heavy(HEAVY)} if way == "given" else {}
    known = weft.StreamStatistics(rate=zipf.rows, distinct={"k": zipf.keys}, heavy=heavy)
    session = weft.Session(
        checkpoint=work / "checkpoint",
        master=f"local[{options.cores}]",
        statistics=weft.Statistics(dict.fromkeys(STREAMS, known)),
        options=weft.Options(
            partitions=options.partitions, tasks=options.cores, scatter_heavy=way != "plain"
        ),
    )
    for name in STREAMS:
        source = weft.files("parquet", str(data / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    return session


def gain_at_most(zipf: Zipf, partitions: int, tasks: int) -> float:
    """How many times as fast a batch can become if it does nothing but compare pairs of equal keys."""
    pairs = zipf.shares**2 / np.sum(zipf.shares**2)
    busiest = float(pairs[0] + (1 - pairs[0]) / partitions)
    return max(1.0, busiest * min(tasks, partitions))


def _joined(runs: Mapping[str, Sequence[Run]]) -> dict[str, Run]:
    """The rounds of each way, as one run."""
    return {
        way: Run(
            [second for run in some for second in run.seconds],
            sum(run.rows for run in some),
            fmean(run.busiest for run in some),
            some[-1].scattered,
            some[-1].results,
        )
        for way, some in runs.items()
    }


def _table(found: Mapping[str, Run], zipf: Zipf, options: argparse.Namespace) -> Table:
    table = make_table(
        f"Zipf {zipf.exponent:g} over {zipf.keys:,} keys: 2 × {zipf.rows:,} rows a batch, "
        f"{options.partitions} partitions, {options.cores} cores",
        (
            "heavy keys",
            "scattered",
            "rows/s",
            "of plain",
            "batch p50",
            "batch p95",
            "busiest task",
            "results",
        ),
    )
    for way, run in found.items():
        ascending = sorted(run.seconds)
        table.add_row(
            way,
            str(run.scattered),
            f"{run.rate:,.0f}",
            f"{run.rate / found['plain'].rate:.2f} ×" if "plain" in found else "–",
            *(f"{percentile(ascending, share):.2f} s" for share in (0.5, 0.95)),
            f"{100 * run.busiest:.0f} %",
            f"{run.results[0]:,}",
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("skew", __doc__, "cores directory json strict")
    add = parser.add_argument
    add("--rows", type=int, default=100_000, help="of each stream in a batch, which is a second")
    add("--batches", type=int, default=18, help="of each round")
    add("--drop", type=int, default=12, help="batches that do not count at the beginning of a round")
    add("--window", type=int, default=1, help="seconds")
    add("--keys", type=int, default=100_000, help="different ones")
    add("--exponent", type=float, default=1.2, help="of Zipf's law")
    add("--partitions", type=int, default=8, help="of every store")
    add("--rounds", type=int, default=1, help="how often each way runs")
    add("--seed", type=int, default=1, help="of the data")
    add(
        "--only", type=lambda text: [w for w in WAYS if w in text.split(",")], default=list(WAYS), help="ways"
    )
    add("--timeout", type=float, default=3_600, help="seconds after which no further way is begun")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Print the table and the verdict; 1 if results differ, or, with ``--strict``, if the target is missed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not 0 <= options.drop < options.batches:
        parser.error("--drop must be less than --batches")
    zipf = Zipf(options.rows, options.batches, options.keys, options.exponent)
    runs: dict[str, list[Run]] = {way: [] for way in options.only}
    began = time.perf_counter()
    with working_directory(options) as folder:
        root = folder
        write_zipf(root / "in", zipf, options.seed)
        for number in range(options.rounds):
            for way in options.only:
                if time.perf_counter() - began > options.timeout:
                    raise SystemExit(f"it took more than {options.timeout:g} s")
                say(f"round {number + 1} of {options.rounds}: {way}")
                runs[way].append(measure(way, root / "in", root / f"{way}{number}", zipf, options))
    return _told(runs, zipf, options)


def _told(runs: Mapping[str, Sequence[Run]], zipf: Zipf, options: argparse.Namespace) -> int:
    console = make_console()
    found = _joined(runs)
    console.print(_table(found, zipf, options))
    troubles = (
        ["the results differ"] if len({run.results for some in runs.values() for run in some}) > 1 else []
    )
    judged = []
    if not troubles and {"plain", "given"} <= found.keys():
        gain = found["given"].rate / found["plain"].rate
        most = gain_at_most(zipf, options.partitions, options.cores)
        what = f"at least {TARGET:g} × faster with heavy keys scattered ({gain:.2f} ×, at most {most:.2f} ×)"
        judged = [(what, gain >= TARGET)]
    return conclude(console, options, judged, troubles, {way: asdict(run) for way, run in found.items()})
