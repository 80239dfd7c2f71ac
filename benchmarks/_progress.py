"""The times of batches: Spark's from its records of a streaming query, Weft's from those of a session.

Guarantees: both are measured alike, from when a batch begins to look for input until it is committed; where Weft's
batches overlap, each counts from the commit of the one before, so that their sum is the time that all took. Jobs are
those of the query's run. The query may have ended, but its Spark session must still exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks._harness import say

import weft


def weft_batches(session: weft.Session) -> list[tuple[int, float, float]]:
    """Each committed batch with input: its number, its seconds since the commit before, and those since its look."""
    running: Any = session._last_run
    history, found, last = running.loop.history, [], 0.0
    brought = {m.number for _, m in history.batches if any(one.rows for one in m.inputs.values())}
    for number, (began, done) in sorted(history.committed.items()):
        if number in brought:
            found.append((number, done - max(last, began), done - began))
        last = done
    return found


def weft_seconds(session: weft.Session) -> list[float]:
    """How long every batch with input took, oldest first; where they overlap, from the commit of the one before."""
    return [alone for _, alone, _ in weft_batches(session)]


def wait_for_weft(session: weft.Session, name: str) -> None:
    """Wait until a session has joined all input that there is, and print its progress."""
    told = 0
    while not session.await_termination(2):
        seconds = weft_seconds(session)
        if len(seconds) > told:
            say(f"{name}: {len(seconds)} batches done, the last in {seconds[-1]:.2f} s")
            told = len(seconds)


def batch_seconds(query: Any) -> list[float]:
    """How long every batch of Spark's streaming query took, oldest first; triggers without a batch do not count."""
    done = [entry for entry in query.recentProgress if "addBatch" in entry.durationMs]
    return [entry.durationMs["triggerExecution"] / 1000 for entry in done]


def jobs_and_stages(spark: Any, group: object, batches: int = 1) -> tuple[float, float]:
    """Jobs and stages per batch; a streaming query's jobs are in the group of its run, Weft's are in none."""
    tracker = spark.sparkContext.statusTracker()
    jobs: Sequence[int] = tracker.getJobIdsForGroup(None if group is None else str(group))
    found = [tracker.getJobInfo(job) for job in jobs]
    stages = sum(len(info.stageIds) for info in found if info is not None)
    return len(jobs) / max(1, batches), stages / max(1, batches)


def wait_for(query: Any, name: str) -> None:
    """Wait for the end of a query, and print its progress; raise its error, if it has one."""
    told = 0
    while not query.awaitTermination(2):
        done = len(batch_seconds(query))
        if done > told:
            say(f"{name}: {done} batches done, the last in {batch_seconds(query)[-1]:.1f} s")
            told = done
