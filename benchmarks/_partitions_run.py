"""The process of one number of partitions: `python -m benchmarks._partitions_run TASK ANSWER`, both JSON files."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._data import SCHEMA
from benchmarks._joins import JOINS, WINDOW
from benchmarks._process import say
from benchmarks._progress import wait_for_weft, weft_batches

import weft
from weft.runtime.local import LocalExecutor
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.loop import Loop
from weft.runtime.wire.messages import Message

__all__ = ["PartitionsTask", "run_partitions"]


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


def main(question: str, answer: str) -> None:
    """Run what the task says."""
    task = PartitionsTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    say(f"{task.partitions} partitions, {task.execution}: started")
    Path(answer).write_text(json.dumps(run_partitions(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
