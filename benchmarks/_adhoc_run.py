"""The process of one scenario: `python -m benchmarks._adhoc_run TASK ANSWER`, both JSON files.

Guarantees: a file of each stream appears every so many seconds, whatever the session does. Every change is requested at
its moment or, if an earlier request took longer than that, as soon as that has ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._ajoin_run import make_session, make_sink
from benchmarks._process import say

import weft
from weft.runtime.observe.metrics import BatchMetrics

__all__ = ["BASE", "AdhocTask", "run_adhoc"]

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


def main(question: str, answer: str) -> None:
    """Run the scenario that the task describes."""
    task = AdhocTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    Path(answer).write_text(json.dumps(run_adhoc(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
