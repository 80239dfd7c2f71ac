"""A contender that is tried at one rate after the other: `python -m benchmarks._sustainable_run TASK ANSWER`.

Guarantees: every trial has streams, checkpoint and results of its own, in the same Spark, which has been warmed up.
Keys grow with the rate, so that a tuple has as many partners at any rate. A trial writes its files before its clock
starts.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from benchmarks._data import Shape, write_streams
from benchmarks._flink import STATES, Flink, write_csv
from benchmarks._joins import JOINS, Join, Task
from benchmarks._process import say
from benchmarks._spark_peers import plain_spark, streaming_query, streaming_settings
from benchmarks._sustainable import Feed, Judgement, Window, find_highest, judge, latencies
from benchmarks._weft_run import make_session

import weft
from weft.stats.histogram import Latency

__all__ = ["SustainableTask"]

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


def main(question: str, answer: str) -> None:
    """Find the highest rate that the contender sustains."""
    task = SustainableTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    start = _starter(task)
    # Loads and compiles all there is.
    Trials(replace(task, bound=30.0), start).attempt(task.first, task.warm_up, 0.0)
    say(f"{task.join}: {task.contender} is warm")
    trials = Trials(task, start)
    best = find_highest(trials.sustains, task.first, task.steps, task.most)
    found = {"best": best, "trials": trials.done}
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
