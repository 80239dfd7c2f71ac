"""The cost of an input row as windows grow while the output stays equal: Weft's join of two streams.

The number of keys grows with the window, so that a tuple has one match whatever the window's length; measuring begins
when the window is full. Runs are merged in tiers, so the cost should hardly grow. Outputs that differ by more than a
tenth give the exit code 1.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks._data import Shape, write_streams
from benchmarks._harness import conclude, make_console, make_parser, make_table, say
from benchmarks._pair_run import STREAMS, run_pair
from rich.table import Table

WINDOWS = (1, 2, 4, 8, 16, 32)
TARGET = 2.0  # how much dearer a row may be in the longest window than in the shortest
DIFFER = 0.1  # how far the outputs may be apart


@dataclass(frozen=True, slots=True)
class Cost:
    """The figures of one window."""

    window: int
    stored: int
    rows: int
    results: int
    seconds: float

    @property
    def micros(self) -> float:
        """Microseconds per input row."""
        return 1e6 * self.seconds / self.rows

    @property
    def matches(self) -> float:
        """Results per input row."""
        return self.results / self.rows


def measure(root: Path, window: int, options: argparse.Namespace) -> Cost:
    """Fill the window, then measure so many rows."""
    # One batch more than fill it: the first to forget something is still to come.
    filling = -(-window * options.rate // options.batch_rows) + 1
    measured = -(-options.rows // options.batch_rows)
    shape = Shape(
        rows=(filling + measured) * options.batch_rows,
        file_rows=options.batch_rows,
        rate=options.rate,
        keys=window * options.rate,
    )
    say(f"{window} s: {filling} batches of 2 × {options.batch_rows:,} rows to fill it, {measured} to measure")
    write_streams(root / "in", STREAMS, shape)
    found = run_pair(root / "in", root, shape, window=window, cores=options.cores)
    seconds = sum(found.seconds[filling:])
    return Cost(window, found.stored, found.rows(filling), found.results(filling), seconds)


def cost_table(costs: list[Cost]) -> Table:
    """The table of costs, with one row per window."""
    table = make_table(
        f"Cost of an input row at equal output ({costs[0].rows:,} rows measured each)",
        ("window", "stored rows", "results a row", "µs a row", "÷ first"),
        0,
    )
    for cost in costs:
        table.add_row(
            f"{cost.window} s",
            f"{cost.stored:,}",
            f"{cost.matches:.3f}",
            f"{cost.micros:.3f}",
            f"{cost.micros / costs[0].micros:.2f} ×",
        )
    return table


def main(arguments: list[str]) -> int:
    """Print the table and the verdict; 1 if outputs differ or, with ``--strict``, the target is missed."""
    parser = make_parser("window", __doc__, "cores strict")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="seconds")
    parser.add_argument("--rate", type=int, default=100_000, help="rows a second of each stream")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each stream to measure")
    parser.add_argument("--batch-rows", type=int, default=200_000, help="rows of each stream in a batch")
    options = parser.parse_args(arguments)
    costs = []
    for window in options.windows:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            costs.append(measure(Path(folder), window, options))
    console = make_console()
    console.print(cost_table(costs))
    ratio = costs[-1].micros / costs[0].micros
    what = f"a row at most {TARGET:g} × as dear in {costs[-1].window} s as in {costs[0].window} s ({ratio:.2f} ×)"
    outputs = sorted(cost.matches for cost in costs)
    unequal = outputs[0] == 0 or outputs[-1] / outputs[0] > 1 + DIFFER
    troubles = ["the outputs are not equal, so the costs cannot be compared"] if unequal else []
    return conclude(console, options, [(what, ratio <= TARGET)], troubles)
