"""What a partition costs: the same join of the same rows on 2 to 512 partitions.

A chain of three streams is joined, a file of each a batch; the data are the same for every number of partitions, so
whatever grows is the price of partitions. Of each batch but the first ones are taken: its seconds from the look for
input to the commit; the processor time of the driver's process (Python; with `--execution local` without the tasks,
which are in it); the files that it made; the messages that the driver got, and their bytes; and the bytes of the
driver's own entries in the log, which are the batch's plan and manifest. Figures per partition are what the largest
number of partitions has more than the smallest, divided by the difference. With `--durability process machine`, every
number runs both ways, which shows what it costs to survive the death of the machine. All runs must find the same
number of results.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._harness import conclude, make_console, make_parser, run_alone, working_directory
from benchmarks._joins import JOINS, WINDOW
from benchmarks._progress import wait_for_weft, weft_batches
from rich.table import Table

import weft
from weft.runtime.local import LocalExecutor
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.loop import Loop
from weft.runtime.wire.messages import Message


@dataclass(frozen=True, slots=True)
class PartitionsTask:
    """A join to run on so many partitions."""

    data: str
    work: str
    join: str
    partitions: int
    execution: str
    durability: str
    cores: int
    rate: int
    keys: int
    drop: int  # batches that are left out at the beginning
    launched: float = 0.0


@dataclass
class Watched:
    """What is seen of a run from outside, batch by batch: functions of the loop are replaced while it runs.

    ``driver`` are the seconds of processor time that the driver's process used, without those of tasks in it;
    ``messages`` and ``message_bytes`` are what executors gave the driver; ``files`` are new files below the
    checkpoint, and ``log_bytes`` the sizes of the driver's own entries.
    """

    root: Path
    driver: list[float] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    message_bytes: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    log_bytes: list[int] = field(default_factory=list)
    _in_tasks: float = 0.0
    _began: float = 0.0
    _seen: set[int] = field(default_factory=set)

    def install(self, executor: type) -> None:
        """Watch the loops and executors that run from now on in this process."""
        _replace(Loop, "run_next", self._watch_batch)
        _replace(executor, "run", self._watch_run)
        if executor is LocalExecutor:
            _replace(executor, "run", self._watch_tasks)
        _replace(Checkpoint, "tidy", self._watch_tidy)

    def _watch_batch(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        began, self._in_tasks = time.process_time(), 0.0
        done = original(*given, **named)
        if done:
            given[0].committer.wait()  # so that a batch's commit counts as its own
            self.driver.append(time.process_time() - began - self._in_tasks)
        return done

    def _watch_tasks(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        began = time.process_time()
        found = original(*given, **named)
        self._in_tasks += time.process_time() - began
        return found

    def _watch_run(self, original: Callable[..., Any], *given: Any, **named: Any) -> list[Message]:
        found: list[Message] = original(*given, **named)
        self.messages.append(len(found))
        self.message_bytes.append(sum(len(one.target) + _size(one.data) for one in found))
        return found

    def _watch_tidy(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Count files before those that are old are deleted; the driver's entries of the batch are there by then."""
        number, found = given[1].number, {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                entry = os.stat(f"{folder}/{name}")
                found[entry.st_ino, entry.st_ctime_ns] = entry.st_size
        self.files.append(len(found.keys() - self._seen))
        self._seen = set(found)  # type: ignore[arg-type]
        entries = (self.root / kind / f"{number}.json" for kind in ("plan", "state"))
        self.log_bytes.append(sum(entry.stat().st_size for entry in entries))
        return original(*given, **named)


def _size(data: Any) -> int:
    return int(getattr(data, "size", 0) or 0)


def _replace(owner: type, name: str, watch: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    def watched(*given: Any, **named: Any) -> Any:
        return watch(original, *given, **named)

    setattr(owner, name, watched)


def run_partitions(task: PartitionsTask) -> dict[str, Any]:
    """Join all input that there is, and give the figures of every batch but the first."""
    watched = Watched(Path(task.work, "checkpoint"))
    watched.install(_executor(task.execution))
    session = _session(task)
    session.query(JOINS[task.join].weft_sql(), name="q", sink=weft.to_count())
    session.start(available_now=True)
    wait_for_weft(session, f"{task.partitions} partitions")
    done, results = weft_batches(session), sum(batch.results for batch in session.progress["q"])
    progress = session.progress["q"]
    session.stop()
    first = task.drop
    return {
        "seconds": [whole for _, _, whole in done][first:],
        "results": results,
        "rows": [sum(one.rows for one in batch.inputs.values()) for batch in progress][first:],
        "driver": watched.driver[first : len(done)],
        "messages": watched.messages[first : len(done)],
        "message_bytes": watched.message_bytes[first : len(done)],
        "files": watched.files[first : len(done)],
        "log_bytes": watched.log_bytes[first : len(done)],
    }


def _executor(execution: str) -> type:
    if execution == "local":
        return LocalExecutor
    from weft.runtime.spark.jobs import JobsExecutor
    from weft.runtime.spark.resident import ResidentExecutor

    return JobsExecutor if execution == "jobs" else ResidentExecutor


def _session(task: PartitionsTask) -> weft.Session:
    join = JOINS[task.join]
    known = weft.StreamStatistics(rate=task.rate, distinct={"vid": task.keys, "uid": task.keys})
    settings: dict[str, Any] = {"durability": task.durability} if task.durability else {}
    session = weft.Session(
        checkpoint=f"{task.work}/checkpoint",
        master=f"local[{task.cores + 1}]",
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        options=weft.Options(partitions=task.partitions, tasks=task.cores),
        execution=task.execution,
        adapt="off",
        **settings,
    )
    for name in join.streams:
        source = weft.files("parquet", f"{task.data}/{name}", schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts", lateness=f"{WINDOW} seconds")
    return session


SECONDS = 1.5  # that a batch may take on so many partitions
MANY = 128
DRIVER = 0.0001  # seconds of the driver per partition and batch
BYTES = 200  # of the driver's entries per partition and batch

Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]  # by durability and number of partitions


def measure(root: Path, options: argparse.Namespace) -> dict[str, dict[int, dict[str, Any]]]:
    """The figures of every run."""
    shape = Shape(options.batches * options.rows, options.rows, options.rows, options.keys)
    names = JOINS[options.join].streams
    write_streams(root / "in", names, shape)
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for durability in options.durability:
        for partitions in options.partitions:
            task = PartitionsTask(
                data=str(root / "in"),
                work=str(root / f"{durability or 'default'}{partitions}"),
                join=options.join,
                partitions=partitions,
                execution=options.execution,
                durability=durability,
                cores=options.cores,
                rate=shape.rate,
                keys=shape.keys,
                drop=options.drop,
            )
            answer = run_alone(run_partitions, task, options.timeout)
            found.setdefault(durability, {})[partitions] = answer
    return found


def per_partition(runs: Mapping[int, Mapping[str, Any]], figure: str) -> float | None:
    """How much a figure's median grows with a partition; None if there is but one number of partitions."""
    few, many = min(runs), max(runs)
    if few == many:
        return None
    return float(median(runs[many][figure]) - median(runs[few][figure])) / (many - few)


def partitions_table(runs: Mapping[int, Mapping[str, Any]], title: str) -> Table:
    """The table of figures (medians of batches), with one row for each number of partitions."""
    table = Table(title=title, caption="medians of batches; ÷ P: per partition")
    heads = ("partitions", "batch ms", "driver ms", "÷ P", "files", "÷ P", "messages", "÷ P", "their kB")
    for head in (*heads, "log bytes", "÷ P"):
        table.add_column(head, justify="right")
    for partitions, run in runs.items():
        middle = {name: median(run[name]) for name in run if isinstance(run[name], list) and run[name]}
        table.add_row(
            str(partitions),
            f"{1000 * middle['seconds']:,.0f}",
            f"{1000 * middle['driver']:,.1f}",
            f"{1000 * middle['driver'] / partitions:.3f}",
            *(f"{middle['files']:,.0f}", f"{middle['files'] / partitions:.1f}"),
            *(f"{middle['messages']:,.0f}", f"{middle['messages'] / partitions:.1f}"),
            f"{middle['message_bytes'] / 1000:,.0f}",
            *(f"{middle['log_bytes']:,.0f}", f"{middle['log_bytes'] / partitions:,.0f}"),
        )
    return table


def verdicts(runs: Mapping[int, Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    found = []
    driver, size = per_partition(runs, "driver"), per_partition(runs, "log_bytes")
    if driver is not None and size is not None:
        what = f"the driver's time at most {DRIVER * 1000:g} ms per partition ({driver * 1000:.3f} ms)"
        found.append((what, driver <= DRIVER))
        found.append((f"its log at most {BYTES} bytes per partition ({size:.0f} bytes)", size <= BYTES))
    if MANY in runs:
        taken = median(runs[MANY]["seconds"])
        found.append((f"a batch on {MANY} partitions within {SECONDS:g} s ({taken:.2f} s)", taken <= SECONDS))
    return found


def main(arguments: list[str]) -> int:
    """Print the tables and the verdicts; 1 if results differ or, with ``--strict``, a target is missed."""
    options = _options(arguments)
    with working_directory(options) as folder:
        found = measure(folder, options)
    console = make_console(130)
    judged = []
    for durability, runs in found.items():
        rows = f"{options.join}, {len(JOINS[options.join].streams)} × {options.rows:,} rows a batch"
        kind = ", ".join(filter(None, (rows, options.execution, durability)))
        console.print(partitions_table(runs, kind))
        judged += [(f"{kind}: {target}", reached) for target, reached in verdicts(runs)]
    results = {run["results"] for runs in found.values() for run in runs.values()}
    differ = f"the runs found different numbers of results: {sorted(results)}"
    return conclude(console, options, judged, [differ] if len(results) > 1 else [], found)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("partitions", __doc__, "cores timeout directory json strict")
    add = parser.add_argument
    add("--partitions", type=int, nargs="+", default=[2, 8, 32, 128, 512], help="how many, one after another")
    add("--join", choices=sorted(JOINS), default="chain3", help="what is joined")
    add("--execution", choices=("resident", "jobs", "local"), default="resident", help="who runs the tasks")
    add("--durability", nargs="+", default=[""], help="process, machine or both; the default of a session")
    add("--rows", type=int, default=8_000, help="rows of a file; a batch is a file of each stream")
    add("--batches", type=int, default=12, help="files of each stream")
    add("--drop", type=int, default=4, help="batches left out at the beginning")
    add("--keys", type=int, default=10_000, help="of either column")
    options = parser.parse_args(arguments)
    if not 0 <= options.drop < options.batches:
        parser.error("--drop must be less than --batches")
    if min(options.partitions) < 1:
        parser.error("--partitions must be 1 or more")
    return options
