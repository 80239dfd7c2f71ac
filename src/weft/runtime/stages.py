"""A batch as a chain of Spark stages (design, D2).

Guarantees: one `mapInArrow` to read and one for each hop, with a shuffle by partition number before each hop, and
nothing else: one job. Only the public DataFrame API is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from weft.runtime.job import Job
from weft.runtime.messages import Message, read_rows, to_rows
from weft.runtime.worker import hop_task, past_task, read_task, spare_the_collector

__all__ = ["run_boundary", "run_stages"]

_ROW = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("target", StringType()),
        StructField("bucket", BinaryType()),
    ]
)

Batches = Iterator[pa.RecordBatch]


def run_stages(rows: DataFrame, job: Job, hops: int, partitions: int) -> Iterator[Message]:
    """Run a batch over rows of (stream, path, content); what its tasks tell the driver."""
    # As many tasks as partitions; more only cost their start.
    return _hops(rows.coalesce(partitions).mapInArrow(_reader(job), _ROW), job, hops, partitions)


def run_boundary(spark: SparkSession, job: Job, hops: int, partitions: int) -> Iterator[Message]:
    """Run what is stored through the graphs of a batch; what its tasks tell the driver."""
    tasks = spark.range(0, partitions, 1, partitions)
    return _hops(tasks.mapInArrow(_past_reader(job), _ROW), job, hops, partitions)


def _hops(frame: DataFrame, job: Job, hops: int, partitions: int) -> Iterator[Message]:
    for hop in range(1, 1 + hops):
        frame = frame.repartitionById(partitions, F.col("partition"))
        frame = frame.mapInArrow(_hopper(job, hop), _ROW)
    return (message for batch in frame.toArrow().to_batches() for message in read_rows(batch))


def _reader(job: Job) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        files = (
            (stream, path, content)
            for batch in batches
            for stream, path, content in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        return to_rows(read_task(job, _task(), files))

    return read


def _past_reader(job: Job) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        for _ in batches:
            pass
        return to_rows(past_task(job, _task()))

    return read


def _hopper(job: Job, hop: int) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        messages = (message for batch in batches for message in read_rows(batch))
        return to_rows(hop_task(job, hop, _task(), messages))

    return run


def _task() -> int:
    """The number of the partition that this task is for."""
    spare_the_collector()
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs inside a Spark task")
    return int(context.partitionId())
