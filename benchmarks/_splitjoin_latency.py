"""Visiting latency (SplitJoin, section 7.3): `python -m benchmarks._splitjoin_latency TASK ANSWER`, both JSON files.

Guarantees: the windows are full before the clock starts; then a file of each stream appears every so many seconds,
whatever the session does. What is measured is Weft's own processing latency: from the arrival of a result's last tuple,
which is that of its file, to the commit of the result in the sink.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._process import say
from benchmarks._splitjoin import SCHEMAS
from benchmarks._splitjoin_run import NAME, WeftTask, make_query, make_session, shares

import weft
from weft.logical.codec import encode
from weft.runtime.observe.metrics import BatchMetrics

__all__ = ["PARTS", "LatencyTask", "Visits", "run_latency", "visits"]

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


def main(question: str, answer: str) -> None:
    """Run what the task says."""
    task = LatencyTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    Path(answer).write_text(json.dumps(run_latency(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
