"""What outer joins cost compared with inner ones: `weft bench closing`.

Guarantees: everything runs in one process without Spark, so that only the work of the join is measured, in processor
time. Figures are medians of batches that come when windows are full. The join is that of two streams on a key, within
10 seconds either way, with partners for some of the rows. A second table has the full join of three inputs that end,
for which all rows are looked at once more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
from benchmarks._harness import conclude, make_console, make_parser, make_table
from tests.local_runner import LocalRunner

import weft

KINDS = ("inner", "left", "full", "semi", "anti")
TARGETS = {"left": 2.0, "semi": 1.5, "anti": 1.5}  # times the work of the inner join
WINDOW = 10  # seconds
SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of a batch, its results and those of them that were closed, and the rows stored after it."""

    milliseconds: float
    results: int
    closed: int
    stored: int


def measure(kind: str, rows: int, keys: int, batches: int, seed: int) -> Cost:
    """The cost of a join of one kind; a batch is a second of both streams."""
    session = weft.Session(options=weft.Options(partitions=2))
    for name in "ab":
        session.stream(name, "k long, x long, ts timestamp", event_time="ts")
    shown = "a.x" if kind in ("semi", "anti") else "a.x, b.x AS y"
    window = f"[RANGE {WINDOW} SECONDS]"
    query = session.query(f"SELECT {shown} FROM a {window} {kind} JOIN b {window} ON a.k = b.k")
    runner, random = LocalRunner(query.graph), np.random.default_rng(seed)
    seconds = []
    for second in range(2 * WINDOW + 3 + batches):  # partners of closed rows are kept for two windows
        data = {name: _batch(random, rows, second, keys) for name in "ab"}
        began = time.process_time()
        runner.process(data)
        seconds.append(time.process_time() - began)
    last = runner.metrics[-1]
    stored = sum(store.rows for store in last.stores.values())
    return Cost(1000 * statistics.median(seconds[-batches:]), last.results, sum(last.closed.values()), stored)


def _batch(random: np.random.Generator, rows: int, second: int, keys: int) -> pa.Table:
    times = np.sort(random.integers(0, SECOND, rows)) + second * SECOND
    return pa.table(
        {
            "k": random.integers(0, keys, rows),
            "x": random.integers(0, 1_000, rows),
            "ts": pa.array(times, pa.timestamp("us")),
        }
    )


def end_seconds(rows: int, seed: int) -> tuple[float, int]:
    """How long the end of the input takes for a full join of three inputs with most keys in common, and its results."""
    session = weft.Session(options=weft.Options(partitions=2))
    for name in "abc":
        session.stream(name, "k long, x long")
    query = session.query(
        "SELECT k, a.x AS x, b.x AS y, c.x AS z, provenance FROM a FULL JOIN b USING (k) FULL JOIN c USING (k)"
    )
    runner, random = LocalRunner(query.graph), np.random.default_rng(seed)
    for name in "abc":
        keys = random.permutation(rows + rows // 50)[:rows]
        runner.process({name: pa.table({"k": keys, "x": random.integers(0, 1_000, rows)})})
    began = time.process_time()
    runner.end()
    return time.process_time() - began, runner.metrics[-1].results


def main(arguments: Sequence[str]) -> int:
    """Measure all kinds and print the tables."""
    parser = make_parser("closing", __doc__, "json strict")
    parser.add_argument("--rows", type=int, default=50_000, help="of each stream in a batch")
    parser.add_argument("--keys", type=int, default=1_000_000, help="different ones")
    parser.add_argument("--batches", type=int, default=20, help="that are measured")
    parser.add_argument("--end-rows", type=int, default=1_000_000, help="of each input that ends")
    parser.add_argument("--seed", type=int, default=1, help="of the data")
    given = parser.parse_args(arguments)
    costs = {
        kind: measure(kind, given.rows, given.keys, given.batches, given.seed) for kind in ("inner", *KINDS)
    }  # the first is measured twice, so that its compiling and loading is not counted
    table = make_table(
        f"two streams, {given.rows:,} rows of each a second, {WINDOW} s either way",
        ("join", "ms a batch", "of inner", "results", "closed", "stored"),
    )
    for kind, cost in costs.items():
        ratio = cost.milliseconds / costs["inner"].milliseconds
        counts = (f"{cost.results:,}", f"{cost.closed:,}", f"{cost.stored:,}")
        table.add_row(kind, f"{cost.milliseconds:.1f}", f"{ratio:.2f}×", *counts)
    console = make_console()
    console.print(table)
    end_seconds(min(10_000, given.end_rows), given.seed)
    seconds, results = end_seconds(given.end_rows, given.seed)
    console.print(
        f"the end of three inputs of {given.end_rows:,} rows, full joins on one key: {seconds:.2f} s, "
        f"{results:,} rows without all partners"
    )
    work = {kind: cost.milliseconds / costs["inner"].milliseconds for kind, cost in costs.items()}
    judged = [
        (f"{kind}: at most {most:g} × the inner join's work ({work[kind]:.2f} ×)", work[kind] <= most)
        for kind, most in TARGETS.items()
    ]
    figures = {kind: asdict(cost) for kind, cost in costs.items()}
    ratios = {f"inner ÷ {kind}": 1 / times for kind, times in work.items() if kind != "inner"}
    return conclude(console, given, judged, figures=figures, ratios=ratios)
