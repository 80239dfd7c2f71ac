"""Whether Spark's executors reach the object stores that a run uses, found out before it starts.

Guarantees: what an executor lacks (the library, credentials, a way to the endpoint, the bucket) is a `ConfigError` that
names its host. Credentials are those of the executors' environment: Weft sends none, and a report has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from weft.errors import ConfigError
from weft.runtime.spark.session import describe_job

__all__ = ["check_stores"]

_REACH = (
    "executors take credentials and endpoint from their own environment: docs/storage.md says how to set it"
)


def check_stores(spark: SparkSession, places: Iterable[str]) -> None:
    """Have a task per core try every store among these places; refuse the first that one of them cannot use."""
    stores = {"/".join(place.split("/")[:3]): place for place in places}  # of every bucket, one of its places
    if not stores:
        return
    count = spark.sparkContext.defaultParallelism
    tasks = spark.range(0, count, 1, count).mapInArrow(_trial(tuple(stores.values())), "report string")
    with describe_job(spark, "Weft: whether executors reach the object stores"):
        reports = [json.loads(one) for one in tasks.toArrow().column("report").to_pylist()]
    for report in reports:
        if "error" in report:
            hint = "; ".join(one for one in (report["hint"], _REACH) if one)
            raise ConfigError(f"{report['error']} (from {report['host']})", hint=hint)


def _trial(places: tuple[str, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that tries stores, and reports the outcome as JSON."""

    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from socket import gethostname

        from weft.errors import WeftError
        from weft.storage.objects import ObjectStorage

        found = {"host": gethostname()}
        try:
            for place in places:
                ObjectStorage(place).check()
        except WeftError as error:
            found |= {"error": error.message, "hint": error.hint or ""}
        for _ in batches:
            yield pa.record_batch({"report": [json.dumps(found)]})

    return report
