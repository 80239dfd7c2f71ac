"""What measuring latency costs: the part of the processor's time of a join that goes into it.

The joins are those of `weft bench pair` and `weft bench chain3`, in this process (`execution="local"`). Every function
that does nothing but measure latency is timed while the session runs, by the time its thread had the processor; the sum
is compared with what the whole process used meanwhile. So other processes disturb it little. The first batch, in which
kernels are loaded, counts as well.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._calls import timing
from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._harness import make_console, make_parser, make_table
from benchmarks._joins import JOINS, KEYS, RATE, Join
from benchmarks._progress import wait_for_weft

import weft
from weft.runtime.hop.latency import LatencyCounts, found_ages, product_ages, tuple_ages
from weft.runtime.loop.batch.finished_batch import with_latencies
from weft.runtime.task.tuple_ages import ages_of_inputs, ages_of_rows, batch_ages

# The functions that do nothing but measure latency.
_MEASURING: tuple[Callable[..., Any], ...] = (
    found_ages,
    tuple_ages,
    product_ages,
    LatencyCounts.add,
    LatencyCounts.add_repeated,
    LatencyCounts.add_counted,
    LatencyCounts.add_closed,
    LatencyCounts.add_shared,
    LatencyCounts.latencies,
    ages_of_rows,
    batch_ages,
    ages_of_inputs,
    with_latencies,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds of the processor that measuring took, by function, and that the process took in all."""

    measuring: Mapping[str, float]
    whole: float

    @property
    def part(self) -> float:
        """The part of measuring."""
        return sum(self.measuring.values()) / self.whole


def run(join: Join, folder: Path, rows: int, batch: int) -> tuple[Cost, int]:
    """What a join costs, and how many results it has."""
    write_streams(folder / "in", join.streams, Shape(rows, batch, RATE, KEYS))
    known = weft.StreamStatistics(rate=RATE, distinct={"vid": KEYS, "uid": KEYS})
    session = weft.Session(
        checkpoint=folder / "checkpoint",
        execution="local",
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        adapt="off",
    )
    for name in join.streams:
        source = weft.files("parquet", str(folder / "in" / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(folder / "out"))
    began = time.process_time()
    with timing({function.__qualname__: function for function in _MEASURING}) as calls:
        session.start(available_now=True)
        wait_for_weft(session, join.name)
    whole = time.process_time() - began
    results = sum(one.results for one in session.progress[join.name])
    session.stop()
    return Cost(dict(calls.seconds), whole), results


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = make_parser("measuring", __doc__)
    add = parser.add_argument
    add("--rows", type=int, default=4_000_000, help="rows of each stream (%(default)s)")
    add("--batch", type=int, default=400_000, help="rows of each stream in a batch (%(default)s)")
    add("--joins", default="pair,chain3", type=lambda text: text.split(","), help="some of pair,chain3,star3")
    options = parser.parse_args(arguments)
    table = make_table(
        "what measuring latency costs, seconds of the processor",
        ("join", "results", "in all", "measuring", "of it"),
        0,
    )
    for name in options.joins:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            cost, results = run(JOINS[name], Path(folder), options.rows, options.batch)
        spent = sum(cost.measuring.values())
        table.add_row(name, f"{results:,}", f"{cost.whole:.2f}", f"{spent:.3f}", f"{100 * cost.part:.2f} %")
    make_console().print(table)
    return 0
