"""What a streaming query did, from Spark's own records.

Guarantees: Weft and Spark's joins are measured alike: a batch takes what Spark reports as its trigger's execution, and
jobs are those of the query's run. The query may have ended, but its Spark session must still be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks._process import say

import weft

__all__ = ["batch_seconds", "jobs_and_stages", "streaming_query", "wait_for"]


def streaming_query(session: weft.Session) -> Any:
    """The one streaming query of a session that was started."""
    running: Any = session._running
    return running.query


def batch_seconds(query: Any) -> list[float]:
    """How long every batch with input took, oldest first."""
    done = [entry for entry in query.recentProgress if entry.numInputRows]
    return [entry.durationMs["triggerExecution"] / 1000 for entry in done]


def jobs_and_stages(spark: Any, group: object, batches: int = 1) -> tuple[float, float]:
    """Jobs and stages per batch; a streaming query's jobs are in the group of its run."""
    tracker = spark.sparkContext.statusTracker()
    jobs: Sequence[int] = tracker.getJobIdsForGroup(str(group))
    found = [tracker.getJobInfo(job) for job in jobs]
    stages = sum(len(info.stageIds) for info in found if info is not None)
    return len(jobs) / max(1, batches), stages / max(1, batches)


def wait_for(query: Any, name: str) -> None:
    """Wait for the end of a query, saying how far it is; its error is raised."""
    told = 0
    while not query.awaitTermination(2):
        done = len(batch_seconds(query))
        if done > told:
            say(f"{name}: {done} batches done, the last in {batch_seconds(query)[-1]:.1f} s")
            told = done
