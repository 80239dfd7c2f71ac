"""What executors on other machines need for a run: this Weft (`Session(ship=True)`), and a way to the object stores.

Guarantees: what is sent is Python alone; executors must have the libraries that its tasks load (`NEEDED`), of which
`weft.runtime.spark.workers` names those that are missing, and where. The same sources give the same archive.

What an executor lacks to reach an object store (the library, credentials, a way to the endpoint, the bucket) is found
out before the run starts, and is a `ConfigError` that names its host. Credentials are those of the executors'
environment: Weft sends none, and a report has none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pyarrow as pa
from pyspark.sql import SparkSession

from weft.errors import ConfigError
from weft.runtime.spark import executor_init
from weft.runtime.spark.session import describe_job, is_on_one_machine
from weft.version import __version__

__all__ = [
    "NEEDED",
    "check_stores",
    "make_archive",
    "ship_weft",
]


_LOG = logging.getLogger("weft")

NEEDED = ("numba", "numpy", "pyarrow")  # what Weft's tasks load besides Spark's own
_KINDS = (".py", ".yaml", ".json", ".typed")
_LEFT_OUT = ("benchmarks", "service", "testing", "__pycache__")  # what no task loads


def ship_weft(spark: SparkSession) -> str:
    """Send Weft to the executors of a Spark session, those that come later among them; its name, "" if none is sent."""
    if is_on_one_machine(spark):
        _LOG.info("Weft is not sent to executors: all tasks run on this machine")
        return ""
    archive = make_archive(Path(tempfile.mkdtemp(prefix="weft-")))
    spark.addArtifacts(str(archive), pyfile=True)
    return archive.stem


def make_archive(folder: Path) -> Path:
    """An archive of this Weft in a folder, named after its version and content."""
    package = Path(executor_init.__file__).parents[2]
    entries = {"weft/__init__.py": Path(executor_init.__file__).read_bytes()}
    for file in sorted(package.rglob("*")):
        inner = file.relative_to(package)
        if file.suffix in _KINDS and not set(inner.parts) & set(_LEFT_OUT):
            entries[f"{executor_init.CONTENT}/weft/{inner.as_posix()}"] = file.read_bytes()
    digest = hashlib.sha256()
    for name, data in entries.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    archive = folder / f"weft-{__version__}-{digest.hexdigest()[:16]}.zip"
    with ZipFile(archive, "w", ZIP_DEFLATED) as file_:
        for name, data in entries.items():
            file_.writestr(ZipInfo(name), data)  # whose time is always the same
    return archive


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

    def try_stores(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from socket import gethostname

        from weft.errors import WeftError
        from weft.storage.objects import ObjectStorage

        report = {"host": gethostname()}
        try:
            for place in places:
                ObjectStorage(place).check()
        except WeftError as error:
            report |= {"error": error.message, "hint": error.hint or ""}
        for _ in batches:
            yield pa.record_batch({"report": [json.dumps(report)]})

    return try_stores
