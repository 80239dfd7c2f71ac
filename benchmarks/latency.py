"""What a small batch costs: Weft's join of two streams against a streaming query that only counts its rows.

Both read the same small files, one of each stream a batch, in the same Spark, in turns; a batch takes what Spark
reports as its trigger's execution. The first batches of every run are left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import reduce
from pathlib import Path

from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._pair_run import STREAMS, run_pair
from benchmarks._process import say
from benchmarks._progress import batch_seconds, wait_for
from benchmarks._report import percentile
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

__all__ = ["main"]

TARGET = 2.0  # how much longer than the count a batch of the join may take
KEYS = 10_000
WINDOW = 5  # seconds; a file is one


def count_rows(data: Path, work: Path) -> list[float]:
    """The seconds of every batch of a query that counts."""
    spark = SparkSession.builder.getOrCreate()  # the one that Weft made
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = reduce(DataFrame.union, [reader.parquet(str(data / name)) for name in STREAMS])
    counts: list[int] = []

    def count(batch: DataFrame, number: int) -> None:  # noqa: ARG001
        counts.append(batch.count())

    writer = rows.writeStream.foreachBatch(count).option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    wait_for(query, "count")
    return batch_seconds(query)


def measure(root: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """The seconds of the batches of either, ascending."""
    shape = Shape(options.batches * options.rows, options.rows, options.rows, KEYS)
    write_streams(root / "in", STREAMS, shape)
    taken: dict[str, list[float]] = {"Weft's join": [], "count": []}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: {options.batches} batches of 2 × {options.rows:,} rows")
        found = run_pair(root / "in", root / f"weft{number}", shape, window=WINDOW, cores=options.cores)
        taken["Weft's join"] += found.seconds[options.drop :]
        taken["count"] += count_rows(root / "in", root / f"count{number}")[options.drop :]
    return {name: sorted(seconds) for name, seconds in taken.items()}


def latency_table(taken: dict[str, list[float]], rows: int) -> Table:
    """One row for each."""
    table = Table(title=f"Batches of 2 × {rows:,} rows (ms)")
    for head in ("query", "batches", "p50", "p95"):
        table.add_column(head, justify="left" if head == "query" else "right")
    for name, seconds in taken.items():
        figures = (percentile(seconds, share) for share in (0.5, 0.95))
        table.add_row(name, str(len(seconds)), *(f"{1000 * figure:.0f}" for figure in figures))
    return table


def main(arguments: list[str]) -> int:
    """Print the table and the verdict; 1 if the target is missed and ``--strict`` given."""
    parser = argparse.ArgumentParser(prog="weft bench latency", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000, help="rows of a file")
    parser.add_argument("--batches", type=int, default=30, help="files of each stream, one a batch")
    parser.add_argument("--drop", type=int, default=5, help="batches left out at the beginning of a run")
    parser.add_argument("--rounds", type=int, default=2, help="how often both run")
    parser.add_argument("--cores", type=int, default=2, help="of Spark")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if the target is missed")
    options = parser.parse_args(arguments)
    if not 0 <= options.drop < options.batches:
        parser.error("--drop must be less than --batches")
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        taken = measure(Path(folder), options)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(latency_table(taken, options.rows))
    join, count = (percentile(seconds, 0.5) for seconds in taken.values())
    reached = join <= TARGET * count
    what = f"a small batch at most {TARGET:g} × a count's ({join / count:.2f} ×)"
    console.print(f"verdict: {'reached' if reached else 'missed '}  {what}", highlight=False)
    return int(options.strict and not reached)
