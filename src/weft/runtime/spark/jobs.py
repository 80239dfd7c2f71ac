"""The executor `jobs`, which runs every batch as a job of Spark (design, D2).

Guarantees: a batch is one job: one `mapInArrow` to read and one for each hop, with a shuffle by partition number before
each hop, and nothing else; where there are many ordered results, a second job of one `mapInArrow` merges them. Only the
public DataFrame API is used. On several machines there are as many tasks as cores, also when executors were lost or
added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from weft.runtime.loop.executor import Pieces
from weft.runtime.output.merge_task import Merge, collect_task
from weft.runtime.spark.session import naming_java_death, room_of, slots_of, tasks_on_cluster
from weft.runtime.task.worker import hop_task, past_task, read_task, spare_the_collector
from weft.runtime.wire.messages import Message, read_rows, to_rows
from weft.runtime.wire.task_input import Job, Setup

__all__ = ["JobsExecutor"]

_ROW = StructType(
    [
        StructField("task", IntegerType()),
        StructField("target", StringType()),
        StructField("bucket", BinaryType()),
    ]
)

Batches = Iterator[pa.RecordBatch]


@dataclass
class JobsExecutor:
    """Runs every batch as a job of its own; with a ``limit``, it has up to so many tasks, one per core of a cluster.

    A job of more tasks than there are slots makes Spark ask for more executors, where it allocates them as it needs
    them, and give them back when they have been idle for a while.
    """

    spark: SparkSession
    tasks: int
    limit: int | None = None
    name: str = field(default="jobs", init=False)
    stays: bool = field(default=False, init=False)

    @property
    def room(self) -> int:
        """As many tasks as can run at once, now or once Spark has got more executors."""
        return room_of(self.spark)

    @property
    def hands(self) -> int:
        """The same, but no more than this machine has cores where it has all the tasks."""
        return self.room if self.spread else min(self.room, os.cpu_count() or 1)

    @property
    def spread(self) -> bool:
        """Whether tasks run on several machines."""
        return slots_of(self.spark) is None

    def scale(self, tasks: int) -> int:
        """Have so many tasks from the next job on, but no more than there is room for."""
        self.tasks = min(tasks, self.room)
        if self.limit is not None:
            self.limit = tasks
        return self.tasks

    @property
    def readers(self) -> int:
        """As many read tasks as there are of hops, since each further task would cost its start."""
        return self.tasks

    @property
    def is_outgrown(self) -> bool:
        """Whether the cluster has got other cores than it had."""
        return self.limit is not None and tasks_on_cluster(self.spark, self.limit) != self.tasks

    def start(self, setup: Setup) -> None:  # noqa: ARG002
        """Count the cores; every job carries what it needs."""
        if self.limit is not None:
            with naming_java_death(self.spark):
                self.tasks = tasks_on_cluster(self.spark, self.limit)

    def run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        """Run one batch as one job."""
        with naming_java_death(self.spark):
            return self._run(job, pieces, hops)

    def _run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        lean = job.for_task()
        tasks = self.spark.range(0, self.readers, 1, self.readers)
        frame = tasks.mapInArrow(_past_reader(lean) if job.boundary else _reader(lean, pieces), _ROW)
        for hop in range(1, 1 + hops):
            frame = frame.repartitionById(self.tasks, F.col("task"))
            frame = frame.mapInArrow(_hopper(lean, hop), _ROW)
        return self._collect(frame, job)

    def collect(self, job: Job, merges: Sequence[Sequence[Merge]]) -> list[Message]:
        """Merge ranges of ordered results, as one job."""
        with naming_java_death(self.spark):
            tasks = self.spark.range(0, len(merges), 1, len(merges))
            frame = tasks.mapInArrow(_collector(job.for_task(), merges), _ROW)
            return self._collect(frame, job, "order of batch")

    def _collect(self, frame: DataFrame, job: Job, what: str = "batch") -> list[Message]:
        what = "boundary before batch" if job.boundary else what
        self.spark.sparkContext.setJobDescription(f"weft: {what} {job.number}")
        try:
            return [message for batch in frame.toArrow().to_batches() for message in read_rows(batch)]
        finally:
            with suppress(Exception):  # where Java is dead, the error above says more
                self.spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]

    def close(self) -> None:
        """Do nothing: nothing stays between two jobs."""


def _reader(job: Job, pieces: Pieces) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        _drain(batches)
        task = _task()
        return to_rows(read_task(job, task, pieces[task]))

    return read


def _past_reader(job: Job) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        _drain(batches)
        return to_rows(past_task(job, _task()))

    return read


def _hopper(job: Job, hop: int) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        messages = (message for batch in batches for message in read_rows(batch))
        return to_rows(hop_task(job, hop, _task(), messages))

    return run


def _collector(job: Job, merges: Sequence[Sequence[Merge]]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        _drain(batches)
        return to_rows(collect_task(job, merges[_task()]))

    return run


def _drain(batches: Batches) -> None:
    for _ in batches:
        pass


def _task() -> int:
    """The number of this task of Spark."""
    spare_the_collector()
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs inside a Spark task")
    return int(context.partitionId())
