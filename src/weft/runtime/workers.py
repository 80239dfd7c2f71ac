"""Spark's Python workers, started before they are needed.

Guarantees: it costs the caller nothing: a job of its own, in a thread of its own, once per application of Spark. Each
worker takes seconds to start and to load what it needs; meanwhile plans are made and the streaming query starts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

__all__ = ["start_workers"]

_STARTED: set[str] = set()  # applications


def start_workers(spark: SparkSession) -> None:
    """Have Spark start a worker per core, unless that was done before."""
    application = str(spark.sparkContext.applicationId)
    if application not in _STARTED:
        _STARTED.add(application)
        threading.Thread(target=_start, args=(spark,), daemon=True).start()


def _start(spark: SparkSession) -> None:
    with suppress(Exception):  # whatever it is, the first batch will tell
        count = spark.sparkContext.defaultParallelism
        spark.range(0, count, 1, count).mapInArrow(_load, "id long").count()


def _load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import weft.runtime.spark.jobs  # noqa: F401

    yield from batches
