"""Runs the contenders over one join, compares their results and shows the figures of each.

Guarantees: the contenders run one after the other, each in a fresh process; results that differ are reported and give
the exit code 1.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._data import Shape, link_streams, write_streams
from benchmarks._digest import Digest, digest
from benchmarks._harness import ContenderError, conclude, make_console, run_alone, say
from benchmarks._joins import JOINS, KEYS, RATE, WINDOW, Join, Task
from benchmarks._spark_peers import run_batch, run_streaming
from benchmarks._weft_run import run_weft
from rich.table import Table

RUNS = {"weft": run_weft, "hdfs": run_streaming, "rocksdb": run_streaming, "batch": run_batch}


def run_contender(task: Task) -> dict[str, Any]:
    """Run the contender that the task names."""
    return RUNS[task.contender](JOINS[task.join], task)


TITLES = {
    "weft": "Weft",
    "hdfs": "Spark streams, HDFS-backed",
    "rocksdb": "Spark streams, RocksDB",
    "batch": "Spark batch",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a contender."""

    rows_per_stream: int
    total: float  # seconds from the launch of its process to the last result
    rows: list[int]  # per batch
    seconds: list[float]  # per batch
    jobs: float  # per batch
    stages: float
    hops: list[float] | None = None  # mean seconds of reading and of each hop
    state_rows: float | None = None
    state: float | None = None  # bytes per stored row
    state_on_disk: float | None = None
    state_to_arrow: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, with the rates."""
        return {**asdict(self), "cold_rate": self.cold_rate, "steady_rate": self.steady_rate}

    @property
    def cold_rate(self) -> float:
        """Input rows per second, the start of the process included."""
        return sum(self.rows) / self.total

    @property
    def steady_rate(self) -> float | None:
        """Input rows per second from the second batch on; for a batch job, which was warmed up before, of all rows."""
        if len(self.rows) == 1 and self.state is None:
            return self.rows[0] / self.seconds[0]
        return sum(self.rows[1:]) / sum(self.seconds[1:]) if len(self.rows) > 1 else None

    @property
    def steady_seconds(self) -> list[float]:
        """The latencies of the batches that count, ascending."""
        return sorted(self.seconds[1:] or self.seconds)


def percentile(ascending: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


Show = Callable[[Figures], str]


def figures_table(join: Join, rows: int, figures: Mapping[str, Figures]) -> Table:
    """The table of figures, with one column per contender."""
    table = Table(
        title=f"{join.name}: {len(join.streams)} streams of {rows:,} rows",
        caption="without start-up: from the second batch on; the batch join in a session warmed by a small one",
    )
    table.add_column("")
    for contender in figures:
        table.add_column(TITLES[contender], justify="right")
    for head, show in _lines(figures.get("weft")).items():
        table.add_row(head, *(show(one) for one in figures.values()))
    return table


def _lines(weft: Figures | None) -> dict[str, Show]:
    """The lines of the table, by heading: functions that show a figure of a contender."""

    def ratio(one: Figures) -> str:
        return _shown(_ratio(weft, one), "{:.2f} ×") if weft is not None and one is not weft else "–"

    def latency(share: float) -> Show:
        return lambda one: f"{percentile(one.steady_seconds, share):.2f} s"

    return {
        "rows of each stream": lambda one: f"{one.rows_per_stream:,}",
        "batches": lambda one: str(len(one.rows)),
        "input rows/s with start-up": lambda one: f"{one.cold_rate:,.0f}",
        "input rows/s without": lambda one: _shown(one.steady_rate, "{:,.0f}"),
        "Weft is faster by": ratio,
        "batch p50": latency(0.5),
        "batch p95": latency(0.95),
        "jobs a batch": lambda one: f"{one.jobs:.1f}",
        "stages a batch": lambda one: f"{one.stages:.1f}",
        "stored rows": lambda one: _shown(one.state_rows, "{:,.0f}"),
        "state, bytes a row": lambda one: _shown(one.state, "{:.0f}"),
        "… in SST files": lambda one: _shown(one.state_on_disk or None, "{:.0f}"),
        "state ÷ Arrow": lambda one: _shown(one.state_to_arrow, "{:.2f} ×"),
        "read, then each hop": lambda one: ", ".join(f"{s:.2f}" for s in one.hops or ()) or "–",
    }


def _shown(value: float | None, pattern: str) -> str:
    return "–" if value is None else pattern.format(value)


def _ratio(weft: Figures, peer: Figures) -> float | None:
    mine, theirs = weft.steady_rate, peer.steady_rate
    return mine / theirs if mine and theirs else None


def verdicts(join: Join, figures: Mapping[str, Figures]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    weft = figures.get("weft")
    if weft is None:
        return []
    ratios = {name: _ratio(weft, one) for name, one in figures.items() if name != "weft"}
    stores = [ratio for name in ("hdfs", "rocksdb") if (ratio := ratios.get(name)) is not None]
    found = [(f"at most one job a batch ({weft.jobs:.1f})", weft.jobs <= 1)]
    if weft.state_to_arrow is not None:
        held = weft.state_to_arrow
        found.append((f"state at most 1.5 × its columns in Arrow ({held:.2f} ×)", held <= 1.5))
    if join.state_target and stores:
        least = min(stores)
        what = f"at least {join.state_target:g} × Spark's faster state store ({least:.1f} ×)"
        found.append((what, least >= join.state_target))
    batch = ratios.get("batch")
    if join.batch_target and batch is not None:
        what = f"at least {join.batch_target:g} × Spark's batch join ({batch:.2f} ×)"
        found.append((what, batch >= join.batch_target))
    return found


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
    options = race_options(name, description, arguments)
    join = JOINS[name]
    console = make_console()
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=options.directory) as folder:
        track = Track.prepare(Path(folder), join, options)
        outcomes = {contender: track.run(contender) for contender in options.only}
    figures = {one: outcome.figures for one, outcome in outcomes.items() if outcome.figures is not None}
    console.print(figures_table(join, options.rows, figures))
    for contender, outcome in outcomes.items():
        if not outcome.trouble and outcome.results is not None:
            console.print(f"{contender}: {outcome.results[0]:,} results", highlight=False)
    troubles = [
        f"{contender}: {outcome.trouble}" for contender, outcome in outcomes.items() if outcome.trouble
    ]
    plain = {contender: one.to_dict() for contender, one in figures.items()}
    weft = figures.get("weft")
    peers = {peer: one for peer, one in figures.items() if weft is not None and one is not weft}
    found = {f"{name} ÷ {peer}": _ratio(weft, one) for peer, one in peers.items() if weft is not None}
    ratios = {what: ratio for what, ratio in found.items() if ratio is not None}
    return conclude(console, options, verdicts(join, figures), troubles, plain, ratios)


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
            found = run_alone(run_contender, task, self.timeout)
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


def race_options(name: str, description: str, arguments: list[str]) -> argparse.Namespace:
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
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--keys", type=int, default=KEYS, help="values of a key")
    keys.add_argument("--matches", type=int, help="partners that a tuple has in each other stream's window")
    add("--only", type=_contenders, default=list(CONTENDERS), help=f"some of {','.join(CONTENDERS)}")
    add("--cores", type=int, default=2, help="of Spark, for all contenders")
    add("--memory", default="6g", help="heap of the Spark that Weft is compared with")
    add("--join-state-format", type=int, default=4, choices=(2, 3, 4), help="of Spark's RocksDB state")
    add("--timeout", type=float, default=1_800, help="seconds a contender may take")
    add("--directory", help="where data, results and checkpoints go; a temporary directory")
    add("--json", metavar="FILE", help="write the figures there, too")
    add("--strict", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    if options.matches is not None:
        if options.matches < 1:
            parser.error("--matches must be 1 or more")
        options.keys = max(1, options.rate * WINDOW // options.matches)
    return options
