"""State that grows and grows: `weft bench growth`.

Bids join their auctions as in Nexmark's q20, nothing is ever forgotten, and every batch takes a file of each stream:
490,000 rows as in the figures that this benchmark is to compare with. What is told is how rows a second and the times
of batches change while millions of rows are stored, and how long a session that is started again with them takes to its
first result, next to one that has nothing stored. Results are counted: what writing them costs does not grow.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks._data import BEGIN, write_file
from benchmarks._harness import (
    conclude,
    make_console,
    make_parser,
    make_table,
    run_alone,
    say,
    working_directory,
)
from benchmarks._plot import Plot, draw
from benchmarks._progress import wait_for_weft, weft_batches

import weft

SCHEMAS = {
    "bid": "auction long, bidder long, price long, ts timestamp",
    "auction": "id long, seller long, category long, ts timestamp",
}
SQL = "SELECT B.auction, B.price, A.seller FROM bid AS B, auction AS A WHERE B.auction = A.id AND A.category = 10"
CATEGORIES = 5  # numbered from 10
WARM = 4  # so many batches come before those that count: code is compiled, tasks start
SMOOTH, STEADY, RESTART = 3.0, 0.8, 2.0  # the targets: p99 ÷ p50, rows/s at the end ÷ at 1 million, seconds


@dataclass(frozen=True, slots=True)
class GrowthTask:
    """What a session is given: which files of the data it reads, and where its state is."""

    data: str
    checkpoint: str
    auctions: int
    bids: int
    cores: int
    merging: str
    launched: float = 0.0


def write_batch(root: Path, number: int, auctions: int, bids: int) -> None:
    """The files of a batch: new auctions, and bids for any of the last ten batches' auctions."""
    random = np.random.default_rng(number)
    first = number * auctions
    times = (BEGIN + number) * 1_000_000 + np.arange(bids, dtype=np.int64) * 1_000_000 // bids
    stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
    oldest = max(0, first - 9 * auctions)
    bid = {
        "auction": random.integers(oldest, first + auctions, bids),
        "bidder": random.integers(0, 1_000_000, bids),
        "price": random.integers(1, 100_000, bids),
        "ts": stamps,
    }
    auction = {
        "id": np.arange(first, first + auctions),
        "seller": random.integers(0, 1_000_000, auctions),
        "category": 10 + random.integers(0, CATEGORIES, auctions),
        "ts": stamps.slice(0, auctions),
    }
    write_file(pa.table(bid), root / f"bid/{number:05}.parquet", number)
    write_file(pa.table(auction), root / f"auction/{number:05}.parquet", number)


def run_session(task: GrowthTask) -> dict[str, Any]:
    """Join all files that are there and not yet joined, and give the seconds of the start and of every batch."""
    session = weft.Session(
        checkpoint=task.checkpoint, master=f"local[{task.cores}]", merging=task.merging, adapt="off"
    )
    for name, schema in SCHEMAS.items():
        source = weft.files("parquet", f"{task.data}/{name}", schema=schema, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    session.query(SQL, name="growth", sink=weft.to_count())
    began = time.perf_counter()
    session.start(available_now=True)
    wait_for_weft(session, "growth")
    batches = weft_batches(session)
    told = session.progress["growth"]
    total = time.perf_counter() - began
    seconds = [alone for _, alone, _ in batches]
    debts = [batch.merge_debt for batch in told]
    session.stop()
    return {"seconds": seconds, "total": total, "debts": debts}


def _percentile(seconds: Sequence[float], part: float) -> float:
    return float(np.percentile(np.array(seconds), part))


def rate_at(seconds: Sequence[float], rows: int, stored: float) -> float:
    """Rows a second in the quarter of the batches, eight at least, that lie around a number of stored rows."""
    middle, reach = round(stored / rows), max(8, len(seconds) // 4) // 2
    first = min(max(WARM, middle - reach), max(WARM, len(seconds) - 2 * reach))
    near = seconds[first : first + 2 * reach]
    return rows * len(near) / max(1e-9, sum(near))


def measure(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """The figures of growing, and of starting again."""
    rows = options.auctions + options.bids
    batches = max(WARM + 8, -(-options.rows // rows))
    for name in SCHEMAS:
        (root / f"data/{name}").mkdir(parents=True)
    say(f"writing {batches} batches of {rows:,} rows")
    for number in range(batches):
        write_batch(root / "data", number, options.auctions, options.bids)
    task = GrowthTask(
        f"{root}/data", f"{root}/grown", options.auctions, options.bids, options.cores, options.merging
    )
    grown = run_alone(run_session, task, options.timeout)
    write_batch(root / "data", batches, options.auctions, options.bids)
    again = run_alone(run_session, task, options.timeout)
    for name in SCHEMAS:
        (root / f"one/{name}").mkdir(parents=True)
    write_batch(root / "one", batches, options.auctions, options.bids)
    empty = replace(task, data=f"{root}/one", checkpoint=f"{root}/empty")
    fresh = run_alone(run_session, empty, options.timeout)
    return {**asdict(task), "grown": grown, "again": again["total"], "fresh": fresh["total"], "rows": rows}


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts, and draw the plot."""
    options = _options(arguments)
    console = make_console()
    with working_directory(options) as root:
        figures = measure(options, root)
    rows, seconds = figures["rows"], figures["grown"]["seconds"]
    counted, stored = seconds[WARM:], rows * len(seconds)
    table = make_table(f"{stored:,} rows stored", ["stored", "rows/s", "p50", "p99", "longest"], left=0)
    marks = [mark for mark in (1, 5, 10, 20, 40, 100) if mark * 1_000_000 <= stored]
    for mark in marks or [stored / 1e6]:
        so_far = seconds[WARM : max(WARM + 1, round(mark * 1e6 / rows))]
        times = [f"{_percentile(so_far, part):.3f}" for part in (50, 99, 100)]
        table.add_row(f"{mark:g}M", f"{rate_at(seconds, rows, mark * 1e6):,.0f}", *times)
    console.print(table)
    p50, p95, p99 = (_percentile(counted, part) for part in (50, 95, 99))
    early, late = (rate_at(seconds, rows, at) for at in (1e6, stored))
    pause = figures["again"] - figures["fresh"]
    console.print(f"batches: p50 {p50:.3f} s, p95 {p95:.3f} s, p99 {p99:.3f} s, longest {max(counted):.3f} s")
    console.print(
        f"started again: {figures['again']:.1f} s to its end, with nothing stored {figures['fresh']:.1f} s"
    )
    if options.plot is not None:
        at = [rows * (number + 1) / 1e6 for number in range(WARM, len(seconds))]
        debts = [debt / 1e6 for debt in figures["grown"]["debts"]][WARM : len(seconds)]
        draw(
            options.plot,
            [
                Plot("seconds of a batch", "million rows stored", "s", {"seconds": (at, counted)}),
                Plot(
                    "waiting to be merged", "million rows stored", "MB", {"debt": (at[: len(debts)], debts)}
                ),
            ],
        )
    judged = [
        (f"p99 at most {SMOOTH:g} × p50 ({p99 / p50:.2f} ×)", p99 <= SMOOTH * p50),
        (f"rows/s at the end at least {STEADY:g} × the first ({late / early:.2f} ×)", late >= STEADY * early),
        (f"started again within {RESTART:g} s more ({pause:+.1f} s)", pause <= RESTART),
    ]
    return conclude(console, options, judged, figures=figures)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("growth", __doc__, "cores timeout directory json strict", timeout=1800.0)
    add = parser.add_argument
    add("--rows", type=int, default=40_000_000, help="how many are stored in the end (%(default)s)")
    add("--auctions", type=int, default=30_000, help="in a batch (%(default)s)")
    add("--bids", type=int, default=460_000, help="in a batch (%(default)s)")
    add("--merging", default="100 ms", help="how long a batch may merge (%(default)s)")
    add("--plot", type=Path, help="where the plot is drawn")
    return parser.parse_args(arguments)
