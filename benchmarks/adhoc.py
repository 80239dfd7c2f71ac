"""Queries that come and go while a session runs: how soon they take effect, and how long batches take meanwhile.

AJoin's scenarios: SC1 creates queries at a rate until so many run; SC2 then also deletes half of them and creates
others, in turns. A file of each stream appears every so many seconds. A request waits from the call until the first
batch that knows of it begins; the batches that begin in this time are counted, that one included. The steady run has as
many queries from the start, and no changes. Every run has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._adhoc_run import BASE, AdhocTask
from benchmarks._ajoin import stream_names, write_streams
from benchmarks._process import ContenderError, run_alone, say
from benchmarks._report import percentile
from benchmarks._schedule import SCENARIOS, Change, schedule
from benchmarks.many import make_queries
from rich.console import Console
from rich.table import Table

__all__ = ["Outcome", "Request", "main", "verdicts"]

TARGET = 2.0  # batches that the median request may wait
START = 60  # seconds of files beyond those measured, for the start of the process and for delays
CALM = 2.0  # seconds a run goes on after the last change


@dataclass(frozen=True, slots=True)
class Request:
    """A request, its time, and the first batch that knew of it; None if no batch did."""

    kind: str
    name: str
    asked: float  # seconds since 1970
    returned: float
    batch: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a run."""

    began: float  # when the run was warm
    batches: list[tuple[int, float, float]]  # number, started, elapsed
    requests: list[Request]

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Outcome:
        """The outcome that the process of a run answered."""
        batches = [(int(number), started, elapsed) for number, started, elapsed in found["batches"]]
        return cls(found["began"], batches, [Request(**one) for one in found["requests"]])

    def seconds(self, kind: str) -> list[float]:
        """How long requests of a kind waited, ascending."""
        started = {number: start for number, start, _ in self.batches}
        known = [one for one in self.requests if one.kind == kind and one.batch in started]
        return sorted(max(0.0, started[one.batch] - one.asked) for one in known if one.batch is not None)

    def waited(self, kind: str) -> list[float]:
        """How many batches began while requests of a kind waited, ascending; 1 means the next batch."""
        return sorted(
            float(sum(start > one.asked and number <= one.batch for number, start, _ in self.batches))
            for one in self.requests
            if one.kind == kind and one.batch is not None
        )

    @property
    def latencies(self) -> list[float]:
        """The seconds of the batches that began between the first change and the last, ascending.

        Without changes, those of all batches since the run was warm.
        """
        first = self.requests[0].asked if self.requests else self.began
        known = [one.batch for one in self.requests if one.batch is not None]
        last = max(known) if known else max((number for number, _, _ in self.batches), default=0)
        return sorted(elapsed for number, start, elapsed in self.batches if start >= first and number <= last)

    @property
    def lost(self) -> int:
        """How many requests no batch knew of."""
        return sum(one.batch is None for one in self.requests)


def measure(root: Path, options: argparse.Namespace) -> tuple[dict[str, Outcome], list[str]]:
    """The outcomes of all scenarios and the steady run, and what went wrong."""
    streams = stream_names(options.streams)
    plans = {
        name: schedule(
            name, rate=options.rate, parallel=options.parallel, turns=options.turns, seed=options.seed
        )
        for name in options.scenarios
    }
    longest = max(changes[-1].moment for changes in plans.values()) + CALM
    files = options.files or int((longest + START) / options.interval)
    say(f"writing {len(streams)} streams of {files} files")
    data_rate = round(options.file_rows / options.interval)
    write_streams(root / "in", streams, files * options.file_rows, options.file_rows, data_rate)
    outcomes, troubles = {}, []
    for name, changes in {**plans, "steady": []}.items():
        task = _task(root, options, changes, longest, data_rate)
        say(f"{name}: {len(changes)} changes")
        try:
            outcomes[name] = Outcome.from_dict(run_alone("benchmarks._adhoc_run", task, options.timeout))
        except ContenderError as error:
            troubles.append(f"{name}: {error}")
        else:
            lost = outcomes[name].lost
            troubles += [f"{name}: no batch was seen of {lost} requests"] if lost else []
    return outcomes, troubles


def _task(
    root: Path, options: argparse.Namespace, changes: Sequence[Change], longest: float, data_rate: int
) -> dict[str, Any]:
    """The task of a run; without changes, all queries run from the start."""
    created = max(options.parallel, sum(change.kind == "create" for change in changes))
    drawn = make_queries(
        created + 1, stream_names(options.streams), options.ways, options.similarity, options.seed
    )
    base, *texts = drawn.values()
    queries = {f"q{i:03}": text for i, text in enumerate(texts)}
    steady = {} if changes else queries
    task = AdhocTask(
        data=str(root / "in"),
        work=tempfile.mkdtemp(dir=root),
        streams=list(stream_names(options.streams)),
        first={BASE: base, **steady},
        changes=[(moment, kind, name) for moment, kind, name in changes],
        queries=queries,
        seconds=changes[-1].moment + CALM if changes else longest,
        warm_up=options.warm_up,
        interval=options.interval,
        files_per_batch=options.files_per_batch,
        rate=data_rate,
        cores=options.cores,
    )
    return asdict(task)


def adhoc_table(outcomes: Mapping[str, Outcome], options: argparse.Namespace) -> Table:
    """The table of figures, with one row per run."""
    table = Table(
        title=f"{options.rate:g} queries/s until {options.parallel} run; {options.streams} streams, "
        f"{options.file_rows:,} rows of each every {options.interval:g} s",
        caption="created, deleted: median and worst wait of a request; measured: batches while queries change",
    )
    for head in (
        "run",
        "changes",
        "created s",
        "batches",
        "deleted s",
        "batches",
        "measured",
        "p50 s",
        "p95 s",
    ):
        table.add_column(head, justify="left" if head == "run" else "right")
    for name, one in outcomes.items():
        waits = [show(kind) for kind in ("create", "delete") for show in (_seconds(one), _batches(one))]
        taken = one.latencies
        shares = [f"{percentile(taken, share):.2f}" if taken else "–" for share in (0.5, 0.95)]
        table.add_row(name, str(len(one.requests)), *waits, str(len(taken)), *shares)
    return table


def _seconds(one: Outcome) -> Any:
    return lambda kind: _pair(one.seconds(kind), "{:.2f}")


def _batches(one: Outcome) -> Any:
    return lambda kind: _pair(one.waited(kind), "{:g}")


def _pair(ascending: list[float], pattern: str) -> str:
    if not ascending:
        return "–"
    return f"{pattern.format(percentile(ascending, 0.5))} / {pattern.format(ascending[-1])}"


def verdicts(outcomes: Mapping[str, Outcome]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    found = []
    for name, one in outcomes.items():
        waited = one.waited("create")
        if waited:
            median = percentile(waited, 0.5)
            what = f"{name}: the median query in force within {TARGET:g} batches ({median:g})"
            found.append((what, median <= TARGET))
    return found


def remarks(outcomes: Mapping[str, Outcome]) -> list[str]:
    """How batches among changes compare with those of the steady run."""
    steady = outcomes.get("steady")
    if steady is None or not steady.latencies:
        return []
    usual = {share: percentile(steady.latencies, share) for share in (0.5, 0.95)}
    return [
        f"{name}: batches take {percentile(one.latencies, 0.5) / usual[0.5]:.2f} × (p50) and "
        f"{percentile(one.latencies, 0.95) / usual[0.95]:.2f} × (p95) those of the steady run"
        for name, one in outcomes.items()
        if one.requests and one.latencies
    ]


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts; 1 if a run fails or, with ``--strict``, the target is missed."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=options.directory) as folder:
        outcomes, troubles = measure(Path(folder), options)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(adhoc_table(outcomes, options))
    for line in [*remarks(outcomes), *troubles]:
        console.print(line, highlight=False, markup=False)
    missed = False
    for target, reached in verdicts(outcomes):
        missed |= not reached
        console.print(f"verdict: {'reached' if reached else 'missed '}  {target}", highlight=False)
    if options.json:
        found = {name: asdict(one) for name, one in outcomes.items()}
        Path(options.json).write_text(json.dumps(found, indent=2), encoding="utf-8")
    return int(bool(troubles) or (options.strict and missed))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="weft bench adhoc", description=__doc__)
    add = parser.add_argument
    add("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="which to run")
    add("--rate", type=float, default=1.0, help="requests a second")
    add("--parallel", type=int, default=20, help="queries that run together")
    add("--turns", type=int, default=1, help="how often SC2 deletes half of the queries")
    add("--ways", type=int, nargs="+", default=[3, 2], help="how many streams a query joins, in turns")
    add("--similarity", type=float, default=50, help="with the pattern of its size, in per cent")
    add("--streams", type=int, default=3, help="how many there are")
    add("--file-rows", type=int, default=500, help="rows of each file")
    add("--interval", type=float, default=1.0, help="seconds until the next file of each stream")
    add("--files-per-batch", type=int, default=4, help="files of each stream in a batch, at most")
    add("--files", type=int, help="of each stream; as many as the longest scenario needs")
    add("--warm-up", type=int, default=3, help="batches before the first change")
    add("--seed", type=int, default=7, help="of queries and schedules")
    add("--cores", type=int, default=2, help="of Spark")
    add("--timeout", type=float, default=600, help="seconds a run may take")
    add("--directory", help="where data and checkpoints go; a temporary directory")
    add("--json", metavar="FILE", help="write the figures there, too")
    add("--strict", action="store_true", help="exit with 1 if the target is missed")
    options = parser.parse_args(arguments)
    if max(options.ways) > options.streams or min(options.ways) < 2:
        parser.error("--ways must be between 2 and --streams")
    if options.rate <= 0 or options.parallel < 1 or options.interval <= 0:
        parser.error("--rate, --parallel and --interval must be positive")
    return options
