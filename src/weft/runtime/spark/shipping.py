"""Sends this Weft to the executors, so that it need not be installed there (`Session(ship=True)`).

Guarantees: what is sent is Python alone; executors must have the libraries that its tasks load (`NEEDED`), of which
`weft.runtime.spark.workers` names those that are missing, and where. The same sources give the same archive.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyspark.sql import SparkSession

from weft.runtime.spark import shipped
from weft.runtime.spark.session import is_on_one_machine
from weft.version import __version__

__all__ = ["NEEDED", "make_archive", "ship_weft"]

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
    package = Path(shipped.__file__).parents[2]
    entries = {"weft/__init__.py": Path(shipped.__file__).read_bytes()}
    for file in sorted(package.rglob("*")):
        inner = file.relative_to(package)
        if file.suffix in _KINDS and not set(inner.parts) & set(_LEFT_OUT):
            entries[f"{shipped.CONTENT}/weft/{inner.as_posix()}"] = file.read_bytes()
    digest = hashlib.sha256()
    for name, data in entries.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    archive = folder / f"weft-{__version__}-{digest.hexdigest()[:16]}.zip"
    with ZipFile(archive, "w", ZIP_DEFLATED) as file_:
        for name, data in entries.items():
            file_.writestr(ZipInfo(name), data)  # whose time is always the same
    return archive
