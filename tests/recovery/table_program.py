"""A life of a story with tables: `python -m tests.recovery.table_program ROOT SEED HOW FATAL MASTER`.

It tells what is left to be told, runs to the end of the input, and ends with 0; on any error with another code. With
FATAL "17" it kills itself (as `kill -9` does) before or after the 17th step of what it writes, with "0.25s" after that
time, with "-" not at all.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import weft.session.run
from tests.recovery.moments import last_batch
from tests.recovery.records import Recorded, RecordedLoop, record_stop
from tests.recovery.table_story import Event, TableStory, random_table_story
from weft.connectors.derived.sink import DerivedSink
from weft.connectors.derived.source import DerivedCursor
from weft.connectors.files.parquet_sink import ParquetSink
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.user_requests import UserRequests
from weft.runtime.loop.intake.tables import Tables

STEPS: tuple[tuple[type, str], ...] = (
    (Recorded, "write_plan"),
    (Checkpoint, "write_plan"),
    (Checkpoint, "write_blueprint"),
    (Checkpoint, "write_migrated"),
    (UserRequests, "write_stop"),
    (Checkpoint, "commit"),
    (Checkpoint, "tidy"),
    (Checkpoint, "put"),
    (DerivedSink, "commit_parts"),
    (ParquetSink, "commit_parts"),
    (DerivedCursor, "release"),
    (Tables, "_read"),
)


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _doom(rng: random.Random, fatal: str) -> None:
    """Have this process die at a step, or some time from now."""
    if fatal.endswith("s"):
        timer = threading.Timer(float(fatal[:-1]), die)
        timer.daemon = True
        timer.start()
    elif fatal != "-":
        left = [int(fatal)]
        for kind, name in STEPS:
            setattr(kind, name, _fatal(rng, kind.__dict__[name], left))


def _fatal(rng: random.Random, plain: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def step(*args: Any, **named: Any) -> Any:
        left[0] -= 1
        last = left[0] == 0
        if last and rng.random() < 0.5:
            die()
        found = plain(*args, **named)
        if last:
            die()
        return found

    return step


def tell(session: weft.Session, story: TableStory, root: Path) -> None:
    """Let happen what has not happened."""
    (root / "told").mkdir(exist_ok=True)
    for number, event in enumerate(story.events):
        mark = root / "told" / str(number)
        if mark.exists():
            continue
        _wait(event, root)
        _happen(session, story, root, event)
        if event.kind in (
            "file",
            "version",
            "damage",
        ):  # what was asked for may have got lost with its session
            mark.touch()


def _wait(event: Event, root: Path) -> None:
    """Wait for a batch, unless there is nothing that could make one, and for some time."""
    before, deadline = last_batch(root), time.monotonic() + 1.0
    while event.waits and last_batch(root) == before and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(event.pause)


def _happen(session: weft.Session, story: TableStory, root: Path, event: Event) -> None:
    name = event.name
    if event.kind == "file":
        story.write_file(root, name, event.number)
    elif event.kind == "version":
        story.put_version(root, event.number)
    elif event.kind == "damage" and last_batch(root) >= 0:  # before, it would be an error at the start
        (root / "dim" / "t.parquet").write_bytes(b"no table")
    elif event.kind == "add" and not _is_known(session, name):
        story.ask(session, root, name, event.sql)
    elif event.kind == "stop" and _runs(session, name):
        session.stop_query(name)
        record_stop(root, name)


def _is_known(session: weft.Session, name: str) -> bool:
    """Whether there is such a query, be it asked for before a kill, or was one that has been stopped."""
    known = name in {query.name for query in session.queries}
    return known or session.query_progress(name).status == "stopped"


def _runs(session: weft.Session, name: str) -> bool:
    """Whether there is such a query, which has not been stopped."""
    known = name in {query.name for query in session.queries}
    return known and session.query_progress(name).status != "stopped"


def main(root: str, seed: str, how: str, fatal: str, master: str) -> None:
    """Live, from wherever the checkpoint stands, until all input is processed."""
    setattr(weft.session.run, "Checkpoint", Recorded)  # noqa: B010
    setattr(weft.session.run, "Loop", RecordedLoop)  # noqa: B010
    story, place = random_table_story(int(seed)), Path(root)
    _doom(random.Random(f"{seed} {fatal}"), fatal)
    session = story.session(place, execution=how, master=master)
    session.start(ends=True)
    try:
        tell(session, story, place)
        session.end()
    finally:
        session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
