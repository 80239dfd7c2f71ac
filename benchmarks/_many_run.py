"""The process of one number of queries: `python -m benchmarks._many_run TASK ANSWER`, both JSON files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._ajoin_run import input_rows, make_session, make_sink, state_bytes
from benchmarks._process import say
from benchmarks._progress import wait_for_weft, weft_seconds

__all__ = ["ManyTask", "run_many", "run_separately"]


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


def run_separately(task: ManyTask) -> dict[str, Any]:
    """Run each query in a session of its own, one after the other; only state and results can be compared."""
    found = []
    for name, sql in task.queries.items():
        found.append(run_many(task, {name: sql}, name))
    return {
        "state": sum(one["state"] for one in found),
        "results": {name: count for one in found for name, count in one["results"].items()},
    }


def main(question: str, answer: str) -> None:
    """Run what the task says."""
    task = ManyTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    say(f"{len(task.queries)} queries, {task.sink}: started")
    together = task.together
    found = run_many(task, task.queries, f"{len(task.queries)} queries") if together else run_separately(task)
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
