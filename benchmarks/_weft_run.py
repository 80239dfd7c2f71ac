"""Weft as a contender."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks._data import SCHEMA
from benchmarks._harness import say
from benchmarks._joins import Join, Task
from benchmarks._progress import jobs_and_stages, wait_for_weft, weft_batches
from pyspark.sql import SparkSession

import weft


def run_weft(join: Join, task: Task) -> dict[str, Any]:
    """Join all input that there is, and give the figures of the run."""
    session = make_session(join, task)
    planned = session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(task.out))
    session.start(available_now=True)
    say("weft: Spark is there")
    wait_for_weft(session, "weft")
    total = time.time() - task.launched
    timed = weft_batches(session)
    by_number = {batch.number: batch for batch in session.progress[join.name]}
    done, seconds = [by_number[number] for number, _, _ in timed], [alone for _, alone, _ in timed]
    jobs, stages = jobs_and_stages(SparkSession.getActiveSession(), None, len(done))
    session.stop()
    return {
        "total": total,
        "rows": [sum(one.rows for one in batch.inputs.values()) for batch in done],
        "seconds": seconds,
        "jobs": jobs,
        "stages": stages,
        "hops": _mean_hops([batch.seconds[: planned.graph.hops + 1] for batch in done[1:] or done]),
        **_state(planned, done),
    }


def make_session(join: Join, task: Task) -> weft.Session:
    """A session with the streams and their rates and distinct values."""
    known = weft.StreamStatistics(rate=task.rate, distinct={"vid": task.keys, "uid": task.keys})
    session = weft.Session(
        checkpoint=task.checkpoint,
        master=f"local[{task.cores}]",
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        options=weft.Options(partitions=task.cores),
    )
    for name in join.streams:
        path = f"{task.data}/{name}"
        source = weft.files("parquet", path, schema=SCHEMA, max_files_per_batch=task.files_per_batch)
        session.stream(name, source, event_time="ts")
    return session


def _mean_hops(batches: Sequence[Sequence[float]]) -> list[float]:
    """The mean seconds of reading and of every hop."""
    return [sum(times) / len(times) for times in zip(*batches, strict=True)]


def _state(planned: weft.PlannedQuery, done: Sequence[Any]) -> dict[str, float]:
    """The bytes per stored row after the batch with the most of them, and those Arrow needs for the same columns."""
    stores = max((batch.stores for batch in done), key=lambda held: sum(one.rows for one in held.values()))
    widths = {  # every column has 8 bytes, and the window needs the time
        source.alias: 8 * len({"ts", *(column.name for column in source.columns)})
        for source in planned.graph.sources
    }
    rows = sum(one.rows for one in stores.values())
    arrow = sum(
        one.rows * sum(widths[alias] for alias in planned.graph.store(name).aliases)
        for name, one in stores.items()
    )
    held = sum(one.bytes for one in stores.values())
    return {"state_rows": rows, "state": held / max(1, rows), "state_to_arrow": held / max(1, arrow)}
