"""What samples of the streams tell, how far that is from the truth, and what sampling costs.

Selectivities of equalities, comparisons and bands, and distinct counts, are estimated from samples of several sizes,
over many draws of two streams whose keys are uniform, follow Zipf's law, or are correlated. Errors are relative to the
truth, which is counted; "within" is how many of the estimates are at most two of their own standard errors off.

The cost is that of the join of two streams (`weft bench pair`): the seconds that both read tasks take to sample, on
average over sampled batches and others, as a part of the seconds of a batch on Spark; and the bytes of a report.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._estimates import BANDS, KEYS, Trial, comparisons, trials
from benchmarks._harness import conclude, make_console, make_parser, make_table, say
from benchmarks._pair_run import STREAMS, run_pair
from benchmarks._plot import Plot, draw
from benchmarks._race import percentile
from rich.table import Table

import weft
from weft.runtime.hop.admission import EVERY, admit, sample_values
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.wire.reports import ReadReport

KEPT = (64, 256, 1024)
MOST_TIME = 0.02  # the part of a batch's time that sampling may take
MOST_BYTES = 8_192  # of a report
SHARES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Cost:
    """What sampling costs batches with so many rows of each stream.

    ``seconds`` are those of both read tasks in a sampled batch, ``batch`` those of a batch, and ``bytes`` those of the
    largest report of an attribute.
    """

    rows: int
    seconds: float
    batch: float
    bytes: int

    @property
    def part(self) -> float:
        """The part of the time of all batches that sampling takes."""
        return self.seconds / EVERY / self.batch


def measure_cost(root: Path, rows: int, batches: int, cores: int) -> Cost:
    """Run the join of two streams on Spark, and sample the same files in this process."""
    shape = Shape(batches * rows, rows, max(1, rows // 4), 1_000_000)
    write_streams(root / "in", STREAMS, shape)
    run = run_pair(root / "in", root / "work", shape, window=5, cores=cores)
    taken, largest = [], 0
    program = _program()
    tables = {name: [pq.read_table(f) for f in sorted((root / "in" / name).iterdir())] for name in STREAMS}
    for number in range(min(batches, 40)):
        seconds = 0.0
        for alias in program.graph.aliases:
            table: pa.Table = tables[program.graph.input(alias).stream.name][number]
            batch = admit(program, alias, table, now=0, watermark=None).batch
            began = time.perf_counter()
            samples = tuple(sample_values(program, alias, batch, 0))
            message = ReadReport(0, samples=samples).to_message()
            seconds += time.perf_counter() - began
            largest = max(largest, message.data.size + len(message.target))
        taken.append(seconds)
    drop = max(1, batches // 5)
    return Cost(rows, median(taken[1:]), median(run.seconds[drop:]), largest)


def _program() -> ExecutableGraph:
    session = weft.Session()
    for name in STREAMS:
        session.stream(name, SCHEMA, event_time="ts")
    window = ", ".join(f"{name} [RANGE 5 SECONDS]" for name in STREAMS)
    return ExecutableGraph(session.query(f"SELECT v.n FROM {window} WHERE v.vid = w.vid").graph)


def estimates_table(found: Sequence[Trial]) -> Table:
    """The errors of estimates: a line for each shape, and columns for each size of samples."""
    table = make_table(
        "Errors of estimates (p50 / p95, relative), and how many are within two standard errors",
        ("estimated", "values", *(f"{head} {kept}" for kept in KEPT for head in ("K =", "within"))),
        2,
    )
    for (what, shape), group in groupby(found, key=lambda one: (one.what, one.shape)):
        some = list(group)
        cells = []
        for kept in KEPT:
            mine = [one for one in some if one.kept == kept]
            off = sorted(one.off for one in mine)
            cells.append(" / ".join(f"{100 * percentile(off, share):.1f} %" for share in SHARES))
            cells.append(f"{100 * _within(mine):.0f} %")
        table.add_row(what, shape, *cells)
    return table


def _within(found: Sequence[Trial]) -> float:
    """The part of estimates that are at most two of their own standard errors off."""
    return sum(one.off <= 2 * one.error + 1e-9 for one in found) / len(found)


def costs_table(costs: Sequence[Cost]) -> Table:
    """The cost of sampling, by the size of batches."""
    table = make_table(
        f"Cost of sampling the join of two streams, one of {EVERY} batches sampled",
        ("rows a stream", "batch, ms", "sampled batch, ms more", "of the time", "bytes a report"),
        0,
    )
    for cost in costs:
        times = (f"{1000 * cost.batch:.1f}", f"{1000 * cost.seconds:.2f}", f"{100 * cost.part:.2f} %")
        table.add_row(f"{cost.rows:,}", *times, f"{cost.bytes:,}")
    return table


def plotted(found: Sequence[Trial]) -> Plot:
    """The p95 of the errors of equalities by the size of samples, a line for each shape of keys."""
    lines = {}
    for shape in KEYS:
        mine = [one for one in found if one.what == "selectivity" and one.shape == shape]
        offs = [sorted(one.off for one in mine if one.kept == kept) for kept in KEPT]
        lines[shape] = KEPT, [max(0.1, 100 * percentile(off, 0.95)) for off in offs]
    title = "Selectivity of an equality, estimated from samples"
    return Plot(title, "sampled values K", "error, p95 (%; 0.1 stands for less)", lines, log_y=True)


def _estimates(options: argparse.Namespace) -> list[Trial]:
    found: list[Trial] = []
    for shape in KEYS:
        say(f"{options.trials} draws of 2 × {options.rows:,} rows: {shape}")
        for seed in range(options.trials):
            found += trials(shape, options.rows, options.keys, KEPT, options.seed + seed)
    for name in BANDS:
        for seed in range(options.trials):
            found += comparisons(name, options.rows, KEPT, options.seed + seed)
    order = [*KEYS, *BANDS]
    return sorted(found, key=lambda one: (one.what != "selectivity", order.index(one.shape)))


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("statistics", __doc__, "cores json strict")
    add = parser.add_argument
    add("--trials", type=int, default=100, help="draws of every shape")
    add("--rows", type=int, default=100_000, help="of each stream in a draw")
    add("--keys", type=int, default=20_000, help="different ones")
    add("--seed", type=int, default=1, help="of the first draw")
    add(
        "--batch-rows",
        default="1000,20000,400000",
        help="sizes of batches whose cost is measured; empty: none",
    )
    add("--batches", type=int, default=40, help="batches of each size")
    add("--png", metavar="FILE", help="draw the errors there")
    return parser


def main(arguments: list[str]) -> int:
    """Print the tables and a verdict on each target; 1 if one is missed and ``--strict`` given."""
    options = _parser().parse_args(arguments)
    found = _estimates(options)
    console = make_console(160)
    console.print(estimates_table(found))
    costs = []
    for rows in (int(part) for part in options.batch_rows.split(",") if part):
        say(f"{options.batches} batches of 2 × {rows:,} rows")
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            costs.append(measure_cost(Path(folder), rows, options.batches, options.cores))
    if costs:
        console.print(costs_table(costs))
    if options.png:
        draw(Path(options.png), [plotted(found)])
    figures = {"trials": list(map(asdict, found)), "costs": list(map(asdict, costs))}
    return conclude(console, options, verdicts(found, costs), figures=figures)


def verdicts(found: Sequence[Trial], costs: Sequence[Cost]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    mine = [one for one in found if one.kept == 256]
    groups = groupby(mine, key=lambda one: (one.what, one.shape))
    parts = {" of ".join(name): _within(list(group)) for name, group in groups}
    worst = min(parts, key=lambda name: parts[name])
    what = f"nine of ten estimates within two standard errors (at least {100 * parts[worst]:.0f} %: {worst})"
    judged = [(what, parts[worst] >= 0.9)]
    if costs:
        part, size = max(cost.part for cost in costs), max(cost.bytes for cost in costs)
        what = f"at most {100 * MOST_TIME:g} % of a batch's time ({100 * part:.2f} %)"
        judged.append((what, part <= MOST_TIME))
        what = f"at most {MOST_BYTES:,} bytes per attribute and task ({size:,})"
        judged.append((what, size <= MOST_BYTES))
    return judged
