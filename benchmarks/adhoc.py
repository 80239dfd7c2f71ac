"""Queries that come and go while a session runs: how soon they take effect, and how long batches take meanwhile.

AJoin's scenarios: SC1 creates queries at a rate until so many run; SC2 then also deletes half of them and creates
others, in turns. A file of each stream appears every so many seconds. A request waits from the call until the first
batch that knows of it begins; the batches that begin in this time are counted, that one included. The steady run has as
many queries from the start, and no changes. Every run has a process of its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._ajoin import stream_names, write_streams
from benchmarks._ajoin_run import make_session, make_sink
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
from benchmarks._race import percentile
from benchmarks._schedule import SCENARIOS, Change, schedule
from benchmarks.many import make_queries
from rich.table import Table

import weft
from weft.runtime.observe.metrics import BatchMetrics

BASE = "base"  # the query that always runs, whose batches are counted
POLL = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class AdhocTask:
    """A scenario: the queries that run from the start, and the changes with their moments."""

    data: str  # files that are ready to appear
    work: str
    streams: list[str]
    first: dict[str, str]
    changes: list[tuple[float, str, str]]  # moment, create or delete, name
    queries: dict[str, str]
    seconds: float  # how long the scenario runs once it is warm
    warm_up: int  # how many batches warm it up
    interval: float  # seconds between files
    files_per_batch: int
    rate: float
    cores: int
    launched: float = 0.0


def run_adhoc(task: AdhocTask) -> dict[str, Any]:
    """Run the scenario; give its batches, and for each request its time and the first batch that knew of it."""
    incoming = Path(task.work, "in")
    for name in task.streams:
        (incoming / name).mkdir(parents=True)
    session = make_session(
        str(incoming),
        str(Path(task.work, "checkpoint")),
        task.streams,
        rate=task.rate,
        cores=task.cores,
        files_per_batch=task.files_per_batch,
    )
    for name, sql in task.first.items():
        session.query(sql, name=name, sink=make_sink("count", ""))
    session.start()
    say("Weft is there")
    try:
        with _feeding(task, incoming):
            return _scenario(session, task)
    finally:
        session.stop()


def _scenario(session: weft.Session, task: AdhocTask) -> dict[str, Any]:
    _wait(session, lambda: _warm(session.progress[BASE], task.warm_up))
    say("it is warm")
    began = time.time()
    requests, handles = _change(session, task, began)
    _wait(session, lambda: time.time() - began >= task.seconds and _settled(session, requests, handles))
    _fill_in(session, requests, handles)
    batches = [(one.number, one.started, one.elapsed) for one in session.progress[BASE]]
    return {"began": began, "batches": batches, "requests": requests}


def _warm(batches: Sequence[BatchMetrics], least: int) -> bool:
    """Whether ``least`` batches are done and no input waits; a session that cannot keep up needs ten times as many."""
    if len(batches) < least:
        return False
    return not any(one.parts for one in batches[-1].backlog.values()) or len(batches) >= 10 * least


def _change(
    session: weft.Session, task: AdhocTask, began: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Request all changes, each at its moment."""
    requests: list[dict[str, Any]] = []
    handles: dict[str, Any] = {}
    for moment, kind, name in task.changes:
        time.sleep(max(0.0, began + moment - time.time()))
        _check(session)
        asked = time.time()
        if kind == "create":
            handles[name] = session.query(task.queries[name], name=name, sink=make_sink("count", ""))
        else:
            handles[name].stop()
        requests.append({"kind": kind, "name": name, "asked": asked, "returned": time.time(), "batch": None})
        say(f"{kind} {name} at {asked - began:.1f} s, in {time.time() - asked:.2f} s")
    return requests, handles


def _settled(session: weft.Session, requests: list[dict[str, Any]], handles: dict[str, Any]) -> bool:
    """Whether a batch has been done since the last change, and every query that was created has been in one."""
    last = requests[-1]["asked"] if requests else 0.0
    done = any(one.started > last for one in session.progress[BASE])
    return done and all(_created(handle) is not None for handle in handles.values())


def _created(handle: Any) -> int | None:
    """The first batch that a query was in."""
    number: int | None = handle.progress.created
    return number


def _fill_in(session: weft.Session, requests: list[dict[str, Any]], handles: dict[str, Any]) -> None:
    """For each request, the first batch with the new query or without the old one."""
    for request in requests:
        name = request["name"]
        if request["kind"] == "create":
            request["batch"] = _created(handles[name])
        elif session.progress.get(name):
            request["batch"] = session.progress[name][-1].number + 1


@contextmanager
def _feeding(task: AdhocTask, incoming: Path) -> Iterator[None]:
    """Let files appear while the block runs."""
    enough = threading.Event()
    files = {name: sorted(Path(task.data, name).iterdir()) for name in task.streams}

    def feed() -> None:
        for together in zip(*files.values(), strict=True):
            for name, file in zip(files, together, strict=True):
                os.link(file, incoming / name / file.name)
            if enough.wait(task.interval):
                return
        say("there are no more files: --files is too small")

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def _wait(session: weft.Session, done: Callable[[], bool]) -> None:
    while not done():
        _check(session)
        time.sleep(POLL)


def _check(session: weft.Session) -> None:
    """Raise what ended the session, if it has ended."""
    if session.await_termination(0):
        raise SystemExit("the session has ended by itself")


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
            outcomes[name] = Outcome.from_dict(run_alone(run_adhoc, task, options.timeout))
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
    table = make_table(
        f"{options.rate:g} queries/s until {options.parallel} run; {options.streams} streams, "
        f"{options.file_rows:,} rows of each every {options.interval:g} s",
        ("run", "changes", "created s", "batches", "deleted s", "batches", "measured", "p50 s", "p95 s"),
        caption="created, deleted: median and worst wait of a request; measured: batches while queries change",
    )
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
    with working_directory(options) as folder:
        outcomes, troubles = measure(folder, options)
    console = make_console()
    console.print(adhoc_table(outcomes, options))
    for remark in remarks(outcomes):
        console.print(remark, highlight=False, markup=False)
    return conclude(
        console, options, verdicts(outcomes), troubles, {name: asdict(one) for name, one in outcomes.items()}
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("adhoc", __doc__, "cores timeout directory json strict", timeout=600.0)
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
    options = parser.parse_args(arguments)
    if max(options.ways) > options.streams or min(options.ways) < 2:
        parser.error("--ways must be between 2 and --streams")
    if options.rate <= 0 or options.parallel < 1 or options.interval <= 0:
        parser.error("--rate, --parallel and --interval must be positive")
    return options
