"""Weft's join of two streams within this process, for the benchmarks that compare Weft with itself.

Guarantees: Spark is started by the first run and kept for the next, so that only the first one pays for it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._data import SCHEMA, Shape
from benchmarks._harness import say
from benchmarks._progress import wait_for_weft, weft_batches

import weft
from weft.runtime.observe.metrics import BatchMetrics

STREAMS = ("v", "w")


@dataclass(frozen=True, slots=True)
class PairRun:
    """The figures of every batch of a run, and how long it took."""

    batches: Sequence[BatchMetrics]
    seconds: Sequence[float]  # since the commit of the batch before
    latencies: Sequence[float]  # from looking for input to the commit

    def rows(self, first: int) -> int:
        """How many input rows there were from a batch on."""
        return sum(one.rows for batch in self.batches[first:] for one in batch.inputs.values())

    def results(self, first: int) -> int:
        """How many results there were from a batch on."""
        return sum(batch.results for batch in self.batches[first:])

    @property
    def stored(self) -> int:
        """How many rows were stored at the end."""
        return sum(store.rows for store in self.batches[-1].stores.values())


def run_pair(
    data: Path, work: Path, shape: Shape, *, window: int, cores: int, one_by_one: bool = False
) -> PairRun:
    """Join V.vid = W.vid within so many seconds, a file of each stream a batch.

    All files are there from the start, so that batches follow each other at once and overlap. With ``one_by_one``, the
    files of a batch appear when the batch before is committed.
    """
    known = weft.StreamStatistics(rate=shape.rate, distinct={"vid": shape.keys})
    session = weft.Session(
        checkpoint=work / "checkpoint",
        master=f"local[{cores}]",
        statistics=weft.Statistics(dict.fromkeys(STREAMS, known)),
        options=weft.Options(partitions=cores),
    )
    read = work / "in" if one_by_one else data
    for name in STREAMS:
        (read / name).mkdir(parents=True, exist_ok=True)
        source = weft.files("parquet", str(read / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    inputs = ", ".join(f"{name} [RANGE {window} SECONDS]" for name in STREAMS)
    sql = f"SELECT v.n AS v_n, w.n AS w_n, v.price FROM {inputs} WHERE v.vid = w.vid"
    session.query(sql, name="pair", sink=weft.to_parquet(work / "out"))
    if one_by_one:
        session.start()
        _feed(session, data, read)
    else:
        session.start(available_now=True)
        wait_for_weft(session, f"Weft, {window} s")
    done = weft_batches(session)
    by_number = {batch.number: batch for batch in session.progress["pair"]}
    session.stop()
    batches = [by_number[number] for number, _, _ in done]
    return PairRun(batches, [alone for _, alone, _ in done], [whole for _, _, whole in done])


def _feed(session: weft.Session, data: Path, read: Path) -> None:
    """Put the files into the read directory, batch by batch, each by a rename."""
    running: Any = session._last_run
    files = {name: sorted((data / name).iterdir()) for name in STREAMS}
    for batch, several in enumerate(zip(*files.values(), strict=True)):
        for name, file in zip(STREAMS, several, strict=True):
            os.link(file, read / f".{name}")
        for name, file in zip(
            STREAMS, several, strict=True
        ):  # so that one look nearly always sees both files
            os.rename(read / f".{name}", read / name / file.name)
        session.process_all_available()
        if batch % 50 == 49:
            say(f"Weft: {batch + 1} batches, {len(running.loop.history.committed)} committed")
