"""What "sustainable" means, apart from who sustains it (AJoin, section 7, after Karimov et al., ICDE 2018).

Guarantees: input comes by the clock, whatever a contender does with it. All contenders are measured from outside and
alike: a result is there when its sink has made it visible, and its last tuple came when its file did. A rate is
sustained if 95 of 100 results come within the bound, if results do not come later and later, and if nothing is left to
be read soon after the input has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq
from benchmarks._data import Shape, write_streams
from benchmarks._flink import STATES, Flink, write_csv
from benchmarks._harness import say
from benchmarks._joins import JOINS, Join, Task
from benchmarks._spark_peers import plain_spark, streaming_query, streaming_settings
from benchmarks._weft_run import make_session
from numpy.typing import NDArray
from pyarrow import csv

import weft
from weft.stats.histogram import Latency

Batch = tuple[float, Sequence[Path]]  # when results became visible, and their files

READY = 120.0  # seconds that a contender may take to read the first files
KEYS_PER_RATE = 10  # so a tuple has half a partner within five seconds


@dataclass(frozen=True, slots=True)
class SustainableTask:
    """What a contender is tried with."""

    join: str
    contender: str
    work: str
    first: int  # the rate to begin with, rows a second of every stream
    most: int
    steps: int
    seconds: float
    warm_up: float
    interval: float
    bound: float
    cores: int
    memory: str
    flink: str | None = None  # the interpreter that has Flink's package
    launched: float = 0.0


class Run(Protocol):
    """A join under way."""

    def rows(self) -> int:
        """How many input rows have been processed."""
        ...

    def visible(self) -> list[Batch]:
        """When which files of results became visible."""
        ...

    def own(self, since: float) -> dict[str, float]:
        """What the contender itself says of its latency since a time."""
        ...

    def stop(self) -> None: ...


class WeftRun:
    """The join in a session of Weft's."""

    def __init__(self, join: Join, task: Task) -> None:
        self._session, self._out, self._name = make_session(join, task), Path(task.out), join.name
        self._session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(task.out))
        self._session.start()

    def rows(self) -> int:
        batches = self._session.batches_after(-1)
        return sum(one.rows for _, batch in batches for one in batch.inputs.values())

    def visible(self) -> list[Batch]:
        folders = self._out.glob("batch=*")  # each is renamed when its batch is committed
        return sorted((one.stat().st_ctime, sorted(one.glob("*.parquet"))) for one in folders)

    def own(self, since: float) -> dict[str, float]:
        batches = [batch for batch in self._session.progress[self._name] if batch.started >= since]
        found = Latency.sum(batch.latency for batch in batches).processing
        return {"p50": found.p50, "p95": found.p95}

    def stop(self) -> None:
        self._session.stop()


class SparkRun:
    """The join as a streaming query of Spark's."""

    def __init__(self, join: Join, task: Task) -> None:
        settings = {**streaming_settings(task), "spark.sql.streaming.numRecentProgressUpdates": "100000"}
        spark = plain_spark(task.contender, task.cores, task.memory, settings)
        self._out, self._query = Path(task.out), streaming_query(spark, join, task)

    def rows(self) -> int:
        return sum(entry.numInputRows for entry in self._query.recentProgress)

    def visible(self) -> list[Batch]:
        logs, seen, found = (self._out / "_spark_metadata").glob("[0-9]*"), set[Path](), list[Batch]()
        for log in sorted(logs, key=lambda path: int(path.name.partition(".")[0])):
            lines = log.read_text(encoding="utf-8").splitlines()[1:]
            files = {Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines}
            found.append((log.stat().st_mtime, sorted(files - seen)))
            seen |= files
        return found

    def own(self, since: float) -> dict[str, float]:  # noqa: ARG002
        return {}

    def stop(self) -> None:
        self._query.stop()


@dataclass
class Trials:
    """The trials of a contender, with their judgements so far."""

    task: SustainableTask
    start: Callable[[Join, Task], Run]
    done: list[dict[str, Any]] = field(default_factory=list)

    def sustains(self, rate: int) -> bool:
        """Try a rate."""
        found, own = self.attempt(rate, self.task.seconds, self.task.warm_up)
        self.done.append({**asdict(found), "own": own})
        verdict = "sustained" if found.sustained else "not sustained"
        say(
            f"{self.task.join}, {self.task.contender}: {rate:,} rows/s per stream {verdict}: p95 {found.p95:.2f} s, "
            f"{found.slope:+.3f} s later every second, {found.left:,} rows left"
        )
        return found.sustained

    def attempt(self, rate: int, seconds: float, warm_up: float) -> tuple[Judgement, dict[str, float]]:
        """Run the join at a rate for so many seconds after the warm-up."""
        task, join = self.task, JOINS[self.task.join]
        work = Path(task.work, f"rate-{rate}-{len(self.done)}")
        shutil.rmtree(work, ignore_errors=True)
        file_rows = max(1, round(rate * task.interval))
        files = 1 + round((warm_up + seconds) / task.interval)
        shape = Shape(files * file_rows, file_rows, rate, KEYS_PER_RATE * rate)
        write_streams(work / "data", join.streams, shape)
        if task.contender in STATES:
            write_csv(work / "data")
        for name in join.streams:
            (work / "in" / name).mkdir(parents=True)  # there must be a folder when a contender begins
        run = self.start(join, self._for_contender(work, shape))
        try:
            feed = Feed(work / "data", work / "in", join.streams, task.interval)
            feed.give_first()
            _drain(run, file_rows * len(join.streams), READY)
            feed.start()
            feed.wait()
            left = _drain(run, shape.rows * len(join.streams), task.bound + 5.0)
            came, took = latencies(run.visible(), join.streams, file_rows, feed.arrived)
            own = run.own(feed.began + warm_up)
        finally:
            run.stop()
            shutil.rmtree(work, ignore_errors=True)
        return judge(rate, came, took, Window(feed.began + warm_up, task.bound), left), own

    def _for_contender(self, work: Path, shape: Shape) -> Task:
        task = self.task
        return Task(
            task.join,
            task.contender,
            str(work / "in"),
            str(work),
            shape.rows,
            1000,
            task.cores,
            task.memory,
            4,
            shape.keys,
            shape.rate,
        )


def run_trials(task: SustainableTask) -> dict[str, Any]:
    """Find the highest rate that the contender sustains."""
    start = _starter(task)
    # Loads and compiles all there is.
    Trials(replace(task, bound=30.0), start).attempt(task.first, task.warm_up, 0.0)
    say(f"{task.join}: {task.contender} is warm")
    trials = Trials(task, start)
    best = find_highest(trials.sustains, task.first, task.steps, task.most)
    return {"best": best, "trials": trials.done}


def _starter(task: SustainableTask) -> Callable[[Join, Task], Run]:
    """What starts a join by the contender, again and again."""
    if task.flink is not None:
        return Flink(task.flink, task.contender, task.cores, task.memory, task.bound).start
    return WeftRun if task.contender == "weft" else SparkRun


def _drain(run: Run, rows: int, seconds: float) -> int:
    """Wait until all rows are processed, so many seconds at most; gives how many are left."""
    until = time.monotonic() + seconds
    while (left := rows - run.rows()) > 0 and time.monotonic() < until:
        time.sleep(0.05)
    return max(0, left)


SLOPE = 0.02  # seconds by which results may come later, every second
Floats = NDArray[np.float64]


@dataclass
class Feed:
    """Lets files appear at their times, in a thread; ``arrived`` is when each did, in seconds since 1970.

    The first file of each stream comes at once, so that it can be waited for: whoever has read it is ready. The others
    come from `start` on.
    """

    data: Path
    incoming: Path
    streams: Sequence[str]
    interval: float
    arrived: list[float] = field(default_factory=list)
    began: float = 0.0
    _thread: threading.Thread | None = None

    def give_first(self) -> None:
        """Let the first file of each stream appear."""
        for name in self.streams:
            (self.incoming / name).mkdir(parents=True, exist_ok=True)
        self._give({name: sorted((self.data / name).iterdir())[0] for name in self.streams})

    def start(self) -> None:
        """Begin with the others now."""
        self.began = time.time()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        files = {name: sorted((self.data / name).iterdir()) for name in self.streams}
        for number in range(1, min(map(len, files.values()))):
            time.sleep(max(0.0, self.began + number * self.interval - time.time()))
            self._give({name: some[number] for name, some in files.items()})

    def _give(self, files: Mapping[str, Path]) -> None:
        for name, file in files.items():
            os.link(file, self.incoming / name / file.name)
        self.arrived.append(time.time())

    def wait(self) -> None:
        """Wait until all files have come."""
        if self._thread is not None:
            self._thread.join()


@dataclass(frozen=True, slots=True)
class Window:
    """What of a trial counts: arrivals ``since`` a time; and the most seconds that 95 of 100 results may take."""

    since: float
    bound: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a rate: latencies in seconds, how much later results came every second, and the verdict."""

    rate: int
    results: int
    p50: float
    p95: float
    p99: float
    max: float
    slope: float
    left: int
    sustained: bool


def latencies(
    visible: Iterable[tuple[float, Sequence[Path]]],
    streams: Sequence[str],
    file_rows: int,
    arrived: Sequence[float],
) -> tuple[Floats, Floats]:
    """When the last tuple of every result came, and how long it then took, given when which files became visible."""
    times, came, took = np.array(arrived), [np.empty(0)], [np.empty(0)]
    for moment, files in visible:
        for file in files:
            numbers = [each // file_rows for each in _row_numbers(file, streams)]
            last = np.maximum.reduce(numbers)
            came.append(times[last])
            took.append(moment - times[last])
    return np.concatenate(came), np.concatenate(took)


def _row_numbers(file: Path, streams: Sequence[str]) -> list[NDArray[np.int64]]:
    """The numbers of the rows that results are made of, for every stream; what is not Parquet is CSV."""
    names = [f"{name}_n" for name in streams]
    if file.suffix == ".parquet":
        table = pq.read_table(file, columns=names, partitioning=None)
    else:
        table = csv.read_csv(file, csv.ReadOptions(column_names=[*names, "price"]))
    return [table.column(name).to_numpy() for name in names]


def judge(rate: int, came: Floats, took: Floats, window: Window, left: int = 0) -> Judgement:
    """Judge a rate by its results; ``left`` is how many rows had not been read when time was up."""
    counts = came >= window.since
    came, took = came[counts], took[counts]
    if not came.size:
        return Judgement(rate, 0, np.inf, np.inf, np.inf, np.inf, np.inf, left, sustained=False)
    p50, p95, p99, most = (float(one) for one in np.quantile(took, (0.5, 0.95, 0.99, 1)))
    slope = _slope(came, took)
    grows = slope > SLOPE and slope * float(np.ptp(came)) > window.bound / 10
    sustained = p95 <= window.bound and not grows and not left
    return Judgement(rate, int(came.size), p50, p95, p99, most, slope, left, sustained)


def _slope(came: Floats, took: Floats) -> float:
    """By how many seconds results come later every second: a line through the medians of arrivals."""
    moments, places = np.unique(came, return_inverse=True)
    if moments.size < 3:
        return 0.0
    order = np.argsort(places, kind="stable")
    cuts = np.searchsorted(places[order], np.arange(moments.size))
    medians = [float(np.median(part)) for part in np.split(took[order], cuts[1:])]
    return float(np.polyfit(moments - moments[0], medians, 1)[0])


def find_highest(sustains: Callable[[int], bool], first: int, steps: int, most: int) -> int:
    """The highest rate that is sustained: doubled while it is, halved until it is, then by bisection; 0 if none is.

    >>> find_highest(lambda rate: rate <= 300, 100, 4, 10_000)
    295
    """
    low, high, rate = 0, None, first
    while high is None and rate <= most:
        if sustains(rate):
            low, rate = rate, 2 * rate
        else:
            high = rate
    while high is not None and not low and high > 1:
        rate = high // 2
        if sustains(rate):
            low = rate
        else:
            high = rate
    for _ in range(steps if high is not None and low else 0):
        rate = round((low * (high or low)) ** 0.5)
        if rate in (low, high):
            break
        if sustains(rate):
            low = rate
        else:
            high = rate
    return low
