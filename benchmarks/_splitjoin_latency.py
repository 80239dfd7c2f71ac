"""Visiting latency (SplitJoin, section 7.3): `python -m benchmarks._splitjoin_latency TASK ANSWER`, both JSON files.

Guarantees: the windows are full before the clock starts; then a file of each stream appears every so many seconds,
whatever the session does. A tuple arrives when its file does, and its results arrive when the sink's function is called
with them. Values are uniform, so all files may expect equally many results, and all count alike.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from benchmarks._process import say
from benchmarks._splitjoin import SCHEMAS
from benchmarks._splitjoin_run import NAME, WeftTask, make_query, make_session, shares

import weft
from weft.runtime.observe.metrics import BatchMetrics

__all__ = ["PARTS", "LatencyTask", "Visit", "run_latency", "visits"]

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
class Visit:
    """The seconds from the arrival of a file to its results at the sink, and the parts they consist of."""

    stream: str
    file: int
    batch: int
    seconds: float
    parts: tuple[float, ...]


def run_latency(task: LatencyTask) -> dict[str, Any]:
    """Run at the given rate; give every visit that counts, and the numbers of tuples and batches."""
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
    rows = {name: _rows(files[name]) for name in files}
    found = [
        visit
        for visit in visits(batches, rows, arrived, delivered)
        if visit.file >= task.filling + task.warm_up
    ]
    return {"visits": [asdict(visit) for visit in found]}


def visits(
    batches: Sequence[BatchMetrics],
    rows: Mapping[str, Sequence[int]],
    arrived: Mapping[int, float],
    delivered: Mapping[int, float],
) -> Iterator[Visit]:
    """The visit of every file whose arrival is known; files are read in order, so counting rows tells its batch.

    ``rows`` are those of each stream's files, ``arrived`` and ``delivered`` are times by file and by batch.
    """
    for stream, sizes in rows.items():
        ends, file, read = list(accumulate(sizes)), 0, 0
        for batch in batches:
            read += batch.inputs[stream].rows
            while file < len(ends) and ends[file] <= read:
                if file in arrived:
                    yield _visit(stream, file, batch, arrived[file], delivered)
                file += 1


def _visit(
    stream: str, file: int, batch: BatchMetrics, arrived: float, delivered: Mapping[int, float]
) -> Visit:
    end = delivered.get(batch.number, batch.started + batch.elapsed)  # not called without results
    reading, joining = shares(batch.seconds)
    waiting = batch.started - arrived
    collecting = end - batch.started - reading - joining
    return Visit(stream, file, batch.number, end - arrived, (waiting, reading, joining, collecting))


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


def _rows(files: Sequence[Path]) -> list[int]:
    return [pq.ParquetFile(file).metadata.num_rows for file in files]


def main(question: str, answer: str) -> None:
    """Run what the task says."""
    task = LatencyTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    Path(answer).write_text(json.dumps(run_latency(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
