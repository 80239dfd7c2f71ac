"""Runs the contenders over one join, compares their results and shows the figures of each.

Guarantees: the contenders run one after the other, each in a fresh process; results that differ are reported and give
the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._data import Shape, link_streams, write_streams
from benchmarks._digest import Digest, digest
from benchmarks._joins import JOINS, KEYS, RATE, Join, Task
from benchmarks._process import ContenderError, run_alone, say
from benchmarks._report import Figures, figures_table, verdicts
from rich.console import Console

__all__ = ["race"]

CONTENDERS = ("weft", "hdfs", "rocksdb", "batch")


SETTING = """\
Streams of 100,000 tuples a second of event time, five columns, keys uniform over a million values, in Parquet files;
all tuples of a result lie within 5 s. Every contender runs in a process of its own, on as many cores, in batches of
the same files, and writes Parquet; Spark's streaming joins get a prefix of the streams (`--spark-rows`), since they
are slow. Results are compared by count and checksum: a difference gives the exit code 1.

Spark's joins have what suits them: time bounds on every join, so that state is dropped, as many shuffle
partitions as cores for streams and two per core with adaptive execution for the batch, no batches without data, 6 GB
of heap, and with RocksDB changelog checkpoints and state format 4 of the join (`--join-state-format`). Weft has the
settings it makes for itself, and is told the streams' rates and numbers of keys.
"""


def race(name: str, description: str, arguments: list[str]) -> int:
    """Run the benchmark of a join, and print its table and verdicts."""
    options = _options(name, description, arguments)
    join = JOINS[name]
    # Rich assumes that a file or pipe is 80 columns wide, and cuts what does not fit.
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=options.directory) as folder:
        track = Track.prepare(Path(folder), join, options)
        outcomes = {contender: track.run(contender) for contender in options.only}
    figures = {one: outcome.figures for one, outcome in outcomes.items() if outcome.figures is not None}
    console.print(figures_table(join, options.rows, figures))
    failed = False
    for contender, outcome in outcomes.items():
        if outcome.trouble:
            failed = True
            console.print(f"{contender}: {outcome.trouble}", highlight=False, markup=False)
        elif outcome.results is not None:
            console.print(f"{contender}: {outcome.results[0]:,} results", highlight=False)
    missed = False
    for target, reached in verdicts(join, figures):
        missed |= not reached
        console.print(f"verdict: {'reached' if reached else 'missed '}  {target}", highlight=False)
    if options.json:
        found = {one: figure.to_dict() for one, figure in figures.items()}
        Path(options.json).write_text(json.dumps(found, indent=2), encoding="utf-8")
    return int(failed or (options.strict and missed))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a contender's run."""

    figures: Figures | None
    results: Digest | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Track:
    """The data, and where contenders work."""

    root: Path
    join: Join
    shape: Shape
    prefix: int  # how many rows of a stream the slow contenders get
    options: Any

    @classmethod
    def prepare(cls, root: Path, join: Join, options: Any) -> Track:
        """Write the data, and link the files of the prefix."""
        shape = Shape(options.rows, options.file_rows, options.rate, options.keys)
        files = min(shape.files, max(1, options.spark_rows // shape.file_rows))
        say(f"{join.name}: writing {len(join.streams)} streams of {shape.rows:,} rows in {shape.files} files")
        write_streams(root / "all", join.streams, shape)
        link_streams(root / "all", root / "prefix", join.streams, files)
        return cls(root, join, shape, min(shape.rows, files * shape.file_rows), options)

    def run(self, contender: str) -> Outcome:
        """Run a contender and check its results against Weft's."""
        slow = contender in ("hdfs", "rocksdb")
        rows = self.prefix if slow else self.shape.rows
        say(f"{self.join.name}: {contender} over {rows:,} rows of each stream")
        began = time.perf_counter()
        task = self._task(contender, rows, self.root / ("prefix" if slow else "all"))
        try:
            found = run_alone(
                "benchmarks._contender", {name: getattr(task, name) for name in task.__slots__}, self.timeout
            )
        except ContenderError as error:
            return Outcome(None, None, str(error))
        say(f"{self.join.name}: {contender} done in {time.perf_counter() - began:.0f} s")
        figures = Figures(rows_per_stream=rows, **found)
        return self._judged(figures, digest(task.out, self.join.streams, rows), rows)

    @property
    def timeout(self) -> float:
        """How many seconds a contender may take."""
        return float(self.options.timeout)

    def _judged(self, figures: Figures, results: Digest, rows: int) -> Outcome:
        """The outcome, with the contender's results compared with those of Weft, which runs first."""
        reference = self.root / "weft" / "out"
        expected = digest(str(reference), self.join.streams, rows) if reference.exists() else results
        if results == expected:
            return Outcome(figures, results)
        trouble = f"its results differ from Weft's: {results} instead of {expected}"
        return Outcome(figures, results, trouble)

    def _task(self, contender: str, rows: int, data: Path) -> Task:
        work = self.root / contender
        work.mkdir()
        return Task(
            join=self.join.name,
            contender=contender,
            data=str(data),
            work=str(work),
            rows=rows,
            files_per_batch=self.options.files_per_batch,
            cores=self.options.cores,
            memory=self.options.memory,
            join_state_format=self.options.join_state_format,
            keys=self.options.keys,
            rate=self.options.rate,
        )


def _contenders(text: str) -> list[str]:
    """Contenders from the command line, Weft first."""
    names = text.split(",")
    unknown = sorted(set(names) - set(CONTENDERS))
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(CONTENDERS)}")
    return [name for name in CONTENDERS if name in names]


def _options(name: str, description: str, arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"weft bench {name}",
        description=f"{description}\n{SETTING}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", type=int, default=2_000_000, help="rows of each stream")
    add("--spark-rows", type=int, default=1_200_000, help="rows of each stream for Spark's streaming joins")
    add("--file-rows", type=int, default=100_000, help="rows of each file")
    add("--files-per-batch", type=int, default=4, help="files of each stream in a batch")
    add("--rate", type=int, default=RATE, help="rows a second of event time of each stream")
    add("--keys", type=int, default=KEYS, help="values of a key")
    add("--only", type=_contenders, default=list(CONTENDERS), help=f"some of {','.join(CONTENDERS)}")
    add("--cores", type=int, default=2, help="of Spark, for all contenders")
    add("--memory", default="6g", help="heap of the Spark that Weft is compared with")
    add("--join-state-format", type=int, default=4, choices=(2, 3, 4), help="of Spark's RocksDB state")
    add("--timeout", type=float, default=1_800, help="seconds a contender may take")
    add("--directory", help="where data, results and checkpoints go; a temporary directory")
    add("--json", metavar="FILE", help="write the figures there, too")
    add("--strict", action="store_true", help="exit with 1 if a target is missed")
    return parser.parse_args(arguments)
