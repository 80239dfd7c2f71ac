"""The time of a small batch: Weft's join of two streams compared with a streaming query of Spark's that does nothing.

Both read the same small files, one of each stream a batch, in the same Spark, in turns. The time of Weft's batch is
from the look for files until its results are in the Parquet sink and its manifest is in the log. Its files appear when
the batch before is committed or, for "batch upon batch", are all there from the start, so that batches overlap; then
the time is from the commit of the batch before. The time of Spark's batch is what Spark reports as the execution of its
trigger: of an empty `foreachBatch`, and of one that counts its rows. The first batches of every run are left out. A
second table says where the time goes in Weft's batches that come one by one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path

from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._harness import conclude, make_console, make_parser, make_table, say
from benchmarks._pair_run import STREAMS, run_pair
from benchmarks._phases import Phases
from benchmarks._progress import batch_seconds, wait_for
from benchmarks._race import percentile
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

MOST = 0.020  # seconds that the median batch may take
SPREAD = 2.0  # how many times the median the 95th percentile may be
PART = 0.15  # the part of an empty foreachBatch's time that Weft's median batch may take
KEYS = 10_000
WINDOW = 5  # seconds; a file is one


def foreach_batch(data: Path, work: Path, do: Callable[[DataFrame], object]) -> list[float]:
    """The seconds of every batch of a streaming query of Spark's that calls ``do`` with the batch."""
    spark = SparkSession.builder.getOrCreate()  # the session that Weft made
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = reduce(DataFrame.union, [reader.parquet(str(data / name)) for name in STREAMS])

    def process(batch: DataFrame, number: int) -> None:  # noqa: ARG001
        do(batch)

    writer = rows.writeStream.foreachBatch(process).option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    wait_for(query, work.name)
    return batch_seconds(query)


def measure(root: Path, options: argparse.Namespace, phases: Phases) -> dict[str, list[float]]:
    """The seconds of the batches of each contender, ascending."""
    shape = Shape(options.batches * options.rows, options.rows, options.rows, KEYS)
    write_streams(root / "in", STREAMS, shape)
    kinds = ("Weft's join", "Weft's join, batch upon batch", "empty foreachBatch", "counting foreachBatch")
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: {options.batches} batches of 2 × {options.rows:,} rows")
        place = {"window": WINDOW, "cores": options.cores}
        with phases:
            found = run_pair(root / "in", root / f"one{number}", shape, one_by_one=True, **place)
        taken["Weft's join"] += found.latencies[options.drop :]
        found = run_pair(root / "in", root / f"weft{number}", shape, **place)
        taken["Weft's join, batch upon batch"] += found.seconds[options.drop :]
        for name, do in (("empty", lambda _: None), ("counting", lambda batch: batch.count())):
            seconds = foreach_batch(root / "in", root / f"{name}{number}", do)
            taken[f"{name} foreachBatch"] += seconds[options.drop :]
    return {name: sorted(seconds) for name, seconds in taken.items()}


def latency_table(taken: dict[str, list[float]], rows: int) -> Table:
    """The table of times, with one row for each contender."""
    table = make_table(f"Batches of 2 × {rows:,} rows (ms)", ("query", "batches", "p50", "p95"))
    for name, seconds in taken.items():
        figures = (percentile(seconds, share) for share in (0.5, 0.95))
        table.add_row(name, str(len(seconds)), *(f"{1000 * figure:.1f}" for figure in figures))
    return table


def phases_table(phases: Phases, drop: int) -> Table:
    """The table of the phases of a batch and their times."""
    table = make_table(
        "Where a batch's time goes (ms, medians; what is indented is part of what stands above it)",
        ("phase", "p50", "p95"),
    )
    for name, seconds in phases.rows(drop):
        table.add_row(name, *(f"{1000 * percentile(sorted(seconds), share):.2f}" for share in (0.5, 0.95)))
    return table


def main(arguments: list[str]) -> int:
    """Print the tables and the verdicts; 1 if a target is missed and ``--strict`` given."""
    parser = make_parser("latency", __doc__, "cores strict")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of a file")
    parser.add_argument("--batches", type=int, default=200, help="files of each stream, one a batch")
    parser.add_argument("--drop", type=int, default=20, help="batches left out at the beginning of a run")
    parser.add_argument("--rounds", type=int, default=2, help="how often all run")
    options = parser.parse_args(arguments)
    if not 0 <= options.drop < options.batches:
        parser.error("--drop must be less than --batches")
    phases = Phases()
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        taken = measure(Path(folder), options, phases)
    console = make_console()
    console.print(latency_table(taken, options.rows))
    console.print(phases_table(phases, options.drop))
    join, empty = (percentile(taken[name], 0.5) for name in ("Weft's join", "empty foreachBatch"))
    slow = percentile(taken["Weft's join"], 0.95)
    targets = (
        (f"half of the batches within {MOST * 1000:g} ms ({join * 1000:.1f} ms)", join <= MOST),
        (f"95 of 100 within {SPREAD:g} × that ({slow / join:.2f} ×)", slow <= SPREAD * join),
        (f"at most {PART:g} × an empty foreachBatch ({join / empty:.3f} ×)", join <= PART * empty),
    )
    return conclude(console, options, targets, ratios={"empty foreachBatch ÷ a small batch": empty / join})
