"""The process of Weft over SplitJoin's streams: `python -m benchmarks._splitjoin_run TASK ANSWER`, both JSON files.

Guarantees: Weft is used as a user would use it, from Parquet files to a sink. A batch lasts until the next one begins,
so all that happens between them is in its time; the last one serves only to end the one before it.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._harness import say
from benchmarks._splitjoin import SCHEMAS, SPAN, sql

import weft
from weft.logical.codec import encode
from weft.runtime.observe.metrics import BatchMetrics

PARTS = ("waiting", "reading and routing", "probing and storing", "scheduling and collecting")


@dataclass(frozen=True, slots=True)
class LatencyTask:
    """A run of Weft whose input comes in two ways: the first files at once, the others one by one."""

    weft: dict[str, Any]  # a WeftTask
    filling: int  # files of each stream that are there at first
    warm_up: int  # files that come after them and are not counted
    interval: float  # seconds between files
    launched: float = 0.0


@dataclass(frozen=True, slots=True)
class Visits:
    """The latencies of a batch's results, as a histogram, and the mean seconds of the parts that they consist of."""

    batch: int
    latency: list[Any]  # a Histogram as plain data
    parts: tuple[float, ...]


def run_latency(task: LatencyTask) -> dict[str, Any]:
    """Run at the given rate; give the visits of every batch that counts."""
    one = WeftTask(**task.weft)
    incoming = Path(one.work, "in")
    files = {name: sorted(Path(one.data, name).iterdir()) for name in SCHEMAS}
    for name in files:
        (incoming / name).mkdir(parents=True)
        for file in files[name][: task.filling]:
            os.link(file, incoming / name / file.name)
    delivered: dict[int, float] = {}
    session = make_session(one, incoming, files_per_batch=None)

    def take(_: Any, batch: int) -> None:
        delivered[batch] = time.time()

    make_query(session, one, weft.foreach_batch(take, arrow=True))
    session.start()
    try:
        session.process_all_available()
        say("the windows are full")
        arrived = _feed(files, incoming, task)
        session.process_all_available()
        batches = list(session.progress[NAME])
    finally:
        session.stop()
    since = arrived[task.filling + task.warm_up]
    return {"visits": [asdict(one) for one in visits(batches, since, delivered)]}


def visits(batches: Sequence[BatchMetrics], since: float, delivered: Mapping[int, float]) -> Iterator[Visits]:
    """The visits of every batch with results that began after a time; ``delivered`` is when its results were."""
    for batch in batches:
        found = batch.latency.processing
        if batch.started >= since and found.count:
            reading, joining = shares(batch.seconds)
            running = delivered[batch.number] - batch.started
            parts = (found.mean - running, reading, joining, running - reading - joining)
            yield Visits(batch.number, encode(found), parts)


def _feed(files: Mapping[str, Sequence[Path]], incoming: Path, task: LatencyTask) -> dict[int, float]:
    """Let the other files appear, one of each stream at every interval, and return when each came."""
    arrived: dict[int, float] = {}
    last = min(len(one) for one in files.values())
    began = time.time()
    for place, number in enumerate(range(task.filling, last)):
        time.sleep(max(0.0, began + place * task.interval - time.time()))
        for name, one in files.items():
            os.link(one[number], incoming / name / one[number].name)
        arrived[number] = time.time()
        if place % max(1, round(5 / task.interval)) == 0:
            say(f"{place} of {last - task.filling} files of each stream have come")
    return arrived


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
