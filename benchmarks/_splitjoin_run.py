"""The process of Weft over SplitJoin's streams: `python -m benchmarks._splitjoin_run TASK ANSWER`, both JSON files.

Guarantees: Weft is used as a user would use it, from Parquet files to a sink. A batch lasts until the next one begins,
so all that happens between them is in its time; the last one serves only to end the one before it.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._process import say
from benchmarks._splitjoin import SCHEMAS, SPAN, sql

import weft

__all__ = ["NAME", "WeftTask", "can_order", "make_query", "make_session", "run_steady", "shares"]

NAME = "band"


@dataclass(frozen=True, slots=True)
class WeftTask:
    """One run: its window, the settings of Weft, and the sink of the results."""

    data: str
    work: str
    kind: str
    size: int
    domain: int
    cores: int
    partitions: int
    sink: str = "count"  # or parquet
    order: str = "none"
    precision: int | None = None
    launched: float = 0.0


def can_order() -> bool:
    """Whether this version of Weft knows ordered output."""
    return {"order", "precision"} <= inspect.signature(weft.Session.query).parameters.keys()


def make_session(task: WeftTask, data: Path, files_per_batch: int | None = 1) -> weft.Session:
    """A session with the streams and their rates and distinct values."""
    columns = {"r": ("x", "y"), "s": ("a", "b")}
    known = {
        name: weft.StreamStatistics(rate=task.size / SPAN, distinct=dict.fromkeys(both, float(task.domain)))
        for name, both in columns.items()
    }
    session = weft.Session(
        checkpoint=Path(task.work, "checkpoint"),
        master=f"local[{task.cores}]",
        statistics=weft.Statistics(known),
        options=weft.Options(partitions=task.partitions),
    )
    for name, schema in SCHEMAS.items():
        source = weft.files("parquet", str(data / name), schema=schema, max_files_per_batch=files_per_batch)
        session.stream(name, source, event_time="ts" if task.kind == "time" else None)
    return session


def make_query(session: weft.Session, task: WeftTask, sink: Any) -> weft.PlannedQuery:
    """The join, ordered as the task says."""
    ordered: dict[str, Any] = {}
    if task.order != "none":
        ordered = {"order": task.order} | ({} if task.precision is None else {"precision": task.precision})
    return session.query(sql(task.kind, task.size), name=NAME, sink=sink, **ordered)


def run_steady(task: WeftTask) -> dict[str, Any]:
    """Join all input that there is, a file of each stream a batch, and give the figures of every batch."""
    session = make_session(task, Path(task.data))
    out = Path(task.work, "out")
    make_query(session, task, weft.to_count() if task.sink == "count" else weft.to_parquet(out))
    session.start(available_now=True)
    try:
        _wait(session)
        batches = list(session.progress[NAME])
    finally:
        session.stop()
    return {
        "rows": [sum(one.rows for one in batch.inputs.values()) for batch in batches],
        "started": [batch.started for batch in batches],
        "results": [batch.results for batch in batches],
        "orders": [list(batch.order) for batch in batches],
        "seconds": [shares(batch.seconds) for batch in batches],
        "stored": sum(one.rows for one in batches[-1].stores.values()),
        "state": sum(one.bytes for one in batches[-1].stores.values()),
        "plan": session.explain(),
    }


def shares(seconds: Sequence[float]) -> tuple[float, float]:
    """The seconds of reading and routing, and of probing and storing; a hop takes as long as its slowest task."""
    return sum(seconds[:1]), sum(seconds[1:])


def _wait(session: weft.Session) -> None:
    told = 0
    while not session.await_termination(2):
        done = session.progress[NAME]
        if len(done) > told:
            told = len(done)
            rows = sum(one.rows for one in done[-1].inputs.values())
            say(f"{told} batches done, the last of {rows:,} tuples in {done[-1].elapsed:.1f} s")


def main(question: str, answer: str) -> None:
    """Run what the task says."""
    task = WeftTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    Path(answer).write_text(json.dumps(run_steady(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
