"""The cost of queries that run together: 1 to 500 joins of two and three streams, each filtered, in one session.

Queries follow AJoin's template over the same few streams, with a given similarity to a pattern (Equation 3), selections
of half the tuples, and windows of 1 to 3 s. The first joins all the streams, so that every number of queries reads the
same rows. Results are counted in one run and materialised in another; counts that differ give the exit code 1. Every
number of queries runs in a process of its own. For the state, some queries run together and in sessions of their own,
without selections, as the thesis measures it (CLASH 7.3.1); --keep sets what a stored tuple costs, in both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks._ajoin import Selections, draw, similar, stream_names, write_streams
from benchmarks._ajoin_run import input_rows, make_session, make_sink, state_bytes
from benchmarks._harness import (
    ContenderError,
    conclude,
    make_console,
    make_parser,
    make_table,
    run_alone,
    say,
    working_directory,
)
from benchmarks._progress import wait_for_weft, weft_seconds
from rich.table import Table

import weft


@dataclass(frozen=True, slots=True)
class ManyTask:
    """Queries to run, together in one session or each in its own."""

    data: str
    work: str
    streams: list[str]
    queries: dict[str, str]
    sink: str  # count, memory, parquet
    together: bool
    files_per_batch: int
    rate: float
    cores: int
    keep: float
    launched: float = 0.0


def run_many(task: ManyTask, queries: Mapping[str, str], label: str) -> dict[str, Any]:
    """Join all input that there is, and give the figures of the run."""
    work = Path(task.work, label)
    session = make_session(
        task.data,
        str(work / "checkpoint"),
        task.streams,
        rate=task.rate,
        cores=task.cores,
        files_per_batch=task.files_per_batch,
        keep=task.keep,
    )
    sinks = {name: make_sink(task.sink, str(work / name)) for name in queries}
    began = time.perf_counter()
    for name, sql in queries.items():
        session.query(sql, name=name, sink=sinks[name])
    planning = time.perf_counter() - began
    session.start(available_now=True)
    wait_for_weft(session, label)
    progress = {name: list(batches) for name, batches in session.progress.items()}
    seconds = weft_seconds(session)
    session.stop()
    return {
        "planning": planning,
        "rows": input_rows(progress),
        "seconds": seconds,
        "state": state_bytes(progress),
        "results": {name: _results(task, sinks[name], progress[name]) for name in queries},
    }


def _results(task: ManyTask, sink: Any, batches: list[Any]) -> int:
    if task.sink == "count":
        return int(sink.count())
    return int(sink.results().num_rows) if task.sink == "memory" else sum(one.results for one in batches)


def run_task(task: ManyTask) -> dict[str, Any]:
    """Run the queries together, or each in a session of its own."""
    say(f"{len(task.queries)} queries, {task.sink}: started")
    together = task.together
    return run_many(task, task.queries, f"{len(task.queries)} queries") if together else run_separately(task)


def run_separately(task: ManyTask) -> dict[str, Any]:
    """Run each query in a session of its own, one after the other; only state and results can be compared."""
    found = []
    for name, sql in task.queries.items():
        found.append(run_many(task, {name: sql}, name))
    return {
        "state": sum(one["state"] for one in found),
        "results": {name: count for one in found for name, count in one["results"].items()},
    }


COST_TARGET = 4.0  # what a row may cost with MANY queries, relative to one query
MANY = 100
STATE_TARGET = 0.25  # the state of some queries together, relative to that of each for itself


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one number of queries."""

    rows: list[int]  # per batch
    seconds: list[float]
    state: int  # bytes
    planning: float  # seconds
    results: dict[str, int]

    @property
    def rate(self) -> float:
        """Input rows per second from the second batch on."""
        rows, seconds = (self.rows[1:], self.seconds[1:]) if len(self.rows) > 1 else (self.rows, self.seconds)
        return sum(rows) / sum(seconds)


@dataclass(frozen=True, slots=True)
class Found:
    """All runs, by number of queries."""

    counted: dict[int, Run] = field(default_factory=dict)
    kept: dict[int, Run] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)  # state and results of the sample, together
    separate: dict[str, Any] = field(default_factory=dict)  # the same, each query in its own session
    troubles: list[str] = field(default_factory=list)


def make_queries(
    count: int, streams: tuple[str, ...], ways: list[int], percent: float, seed: int, filtered: bool = True
) -> dict[str, str]:
    """So many queries, with the given numbers of streams in turn, each as similar to the pattern of its size as asked.

    A smaller count gives the first of the same queries.
    """
    rng = Random(seed)
    half = Selections(selectivity=0.5) if filtered else None
    patterns = {n_way: draw(rng, n_way, streams=streams) for n_way in sorted(set(ways))}
    found = {}
    for i in range(count):
        pattern = patterns[ways[i % len(ways)]]
        found[f"q{i:03}"] = str(similar(rng, pattern, percent, streams=streams, selections=half))
    return found


def measure(root: Path, options: argparse.Namespace) -> Found:
    """Run all numbers of queries, and the sample together and separately."""
    streams = stream_names(options.streams)
    say(f"writing {len(streams)} streams of {options.rows:,} rows")
    write_streams(root / "in", streams, options.rows, options.file_rows, options.rate)
    numbers = sorted(set(options.queries))
    kind = (streams, options.ways, options.similarity, options.seed)
    queries = make_queries(numbers[-1], *kind)
    found = Found()
    for number in numbers:
        some = dict(list(queries.items())[:number])
        _try(found, root, options, some, "count", found.counted)
        if number <= options.materialise_up_to and number in options.queries:
            _try(found, root, options, some, options.materialise, found.kept)
    try:
        sample = make_queries(options.sample, *kind, filtered=False)
        found.shared.update(_run(root, options, sample, "count", together=True, keep=options.keep))
        found.separate.update(_run(root, options, sample, "count", together=False, keep=options.keep))
    except ContenderError as error:
        found.troubles.append(f"{options.sample} separate queries: {error}")
    found.troubles.extend(differences(found))
    return found


def _try(
    found: Found,
    root: Path,
    options: argparse.Namespace,
    queries: Mapping[str, str],
    sink: str,
    into: dict[int, Run],
) -> None:
    try:
        into[len(queries)] = Run(**_run(root, options, queries, sink, together=True))
    except ContenderError as error:
        found.troubles.append(f"{len(queries)} queries, {sink}: {error}")


def _run(
    root: Path,
    options: argparse.Namespace,
    queries: Mapping[str, str],
    sink: str,
    *,
    together: bool,
    keep: float = weft.Weights().keep,
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=root) as work:
        task = ManyTask(
            data=str(root / "in"),
            work=work,
            streams=list(stream_names(options.streams)),
            queries=dict(queries),
            sink=sink,
            together=together,
            files_per_batch=1,
            rate=options.rate,
            cores=options.cores,
            keep=keep,
        )
        return run_alone(run_task, task, options.timeout)


def differences(found: Found) -> list[str]:
    """The queries that do not have equally many results in all runs."""
    runs = [*found.counted.values(), *found.kept.values()]
    sample = [found.shared.get("results", {}), found.separate.get("results", {})]
    return [*_unequal([run.results for run in runs]), *_unequal(sample)]


def _unequal(found: list[dict[str, int]]) -> list[str]:
    counts: dict[str, set[int]] = {}
    for results in found:
        for name, count in results.items():
            counts.setdefault(name, set()).add(count)
    return [f"{name} has {sorted(seen)} results" for name, seen in sorted(counts.items()) if len(seen) > 1]


def many_table(found: Found, options: argparse.Namespace) -> Table:
    """The table of figures, with one row per number of queries."""
    table = make_table(
        f"Queries in one session: {options.streams} streams of {options.rows:,} rows",
        (
            "queries",
            "plan s",
            "rows/s counted",
            "overall",
            "cost",
            "rows/s kept",
            "cost",
            "state kB",
            "results",
        ),
        0,
        caption="from the second batch on; overall: rows/s × queries; cost: of an input row, relative to one query",
    )
    for number, run in found.counted.items():
        kept = found.kept.get(number)
        table.add_row(
            str(number),
            f"{run.planning:.2f}",
            f"{run.rate:,.0f}",
            f"{run.rate * number:,.0f}",
            _times(_cost(found.counted, number)),
            f"{kept.rate:,.0f}" if kept else "–",
            _times(_cost(found.kept, number)),
            f"{run.state / 1000:,.0f}",
            f"{sum(run.results.values()):,}",
        )
    return table


def _cost(runs: Mapping[int, Run], number: int) -> float | None:
    """What an input row costs relative to one query."""
    return runs[1].rate / runs[number].rate if 1 in runs and number in runs else None


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f} ×"


def verdicts(found: Found, sample: int) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    reached = []
    cost = _cost(found.counted, MANY)
    if cost is not None:
        what = f"{MANY} queries, counted, at most {COST_TARGET:g} × the cost of one ({cost:.2f} ×)"
        reached.append((what, cost <= COST_TARGET))
    apart = found.separate.get("state")
    if apart and found.shared:
        share = found.shared["state"] / apart
        what = f"state of {sample} queries at most {STATE_TARGET:g} × that of separate runs ({share:.2f} ×)"
        reached.append((what, share <= STATE_TARGET))
    return reached


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts; 1 if results differ or, with ``--strict``, a target is missed."""
    options = _options(arguments)
    with working_directory(options) as folder:
        found = measure(folder, options)
    console = make_console()
    console.print(many_table(found, options))
    return conclude(console, options, verdicts(found, options.sample), found.troubles, asdict(found))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("many", __doc__, "cores timeout directory json strict")
    add = parser.add_argument
    add("--queries", type=int, nargs="+", default=[1, 10, 50, 100, 500], help="how many run together")
    add("--ways", type=int, nargs="+", default=[3, 2], help="how many streams a query joins, in turns")
    add("--similarity", type=float, default=50, help="with the pattern of its size, in per cent")
    add("--sample", type=int, default=10, help="queries whose state is compared with separate sessions'")
    add("--materialise", choices=("memory", "parquet"), default="memory", help="where results are kept")
    add("--materialise-up-to", type=int, default=100, help="queries; more are only counted")
    add("--streams", type=int, default=3, help="how many there are")
    add(
        "--keep",
        type=float,
        default=weft.Weights().keep,
        help="weight of a stored tuple, for the sample's state",
    )
    add("--rows", type=int, default=100_000, help="rows of each stream")
    add("--file-rows", type=int, default=20_000, help="rows of each file; a batch is a file of each stream")
    add("--rate", type=int, default=500, help="rows a second of event time of each stream")
    add("--seed", type=int, default=7, help="of the queries")
    options = parser.parse_args(arguments)
    if max(options.ways) > options.streams or min(options.ways) < 2:
        parser.error("--ways must be between 2 and --streams")
    if min(options.queries) < 1 or options.sample < 1:
        parser.error("--queries and --sample must be 1 or more")
    return options
