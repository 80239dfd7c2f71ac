"""How many tasks Spark has room for on several machines, where executors are lost and others come.

Guarantees: waiting for room takes no slot. Room is found when there are so many free slots at the same moment; by then
Python runs on the executors that have them, with Weft loaded.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

__all__ = ["Room", "tasks_on_cluster"]

PAUSE = 1.0  # seconds after Spark has refused to wait any longer


def tasks_on_cluster(spark: SparkSession, limit: int) -> int:
    """One task per core of the executors that Spark has now, but no more than a limit."""
    return min(limit, int(spark.sparkContext.defaultParallelism))


class Room:
    """Waits in a thread until Spark has so many more slots free: it has a barrier job of tasks that end at once."""

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        self.is_found = False
        self._spark, self._tasks = spark, tasks
        self._over = threading.Event()
        self._group = f"weft-room-{secrets.token_hex(8)}"
        threading.Thread(target=self._wait, name="weft-room", daemon=True).start()

    def _wait(self) -> None:
        while not self._over.is_set():
            try:
                what = f"weft: wait for room for {self._tasks} more resident tasks"
                self._spark.sparkContext.setJobGroup(self._group, what)
                rows = self._spark.range(0, self._tasks, 1, self._tasks)
                rows.mapInArrow(_load, "id long", barrier=True).toArrow()
                self.is_found = True
                return
            except Exception:  # Spark has given up, or the job was cancelled
                self._over.wait(PAUSE)

    def close(self) -> None:
        """Wait no more."""
        self._over.set()
        if not self.is_found:
            with contextlib.suppress(Exception):
                self._spark.sparkContext.cancelJobGroup(self._group)


def _load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that loads what resident tasks need, and ends."""
    import weft.runtime.spark.resident_task  # noqa: F401

    yield from batches
