"""The process that makes an archive of Spark's classes: `python -m weft.runtime.spark.class_archive_maker FOLDER KEY`.

Guarantees: of several makers one works and the others end at once. An archive appears under its name complete or not at
all. The process has the lowest priority, and leaves an archive or a mark that it was tried.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.runtime.spark.class_archive import ROOM, ArchivePlace

__all__ = ["main", "make_archive"]

LIMIT = 1800.0  # seconds that a maker may take, which has the lowest priority
_UNUSED = 90 * 24 * 3600.0  # seconds without use after which an archive for another Java or Spark is deleted
# It loads what tasks of Weft and simple jobs of users load: a session, stages in Python, a shuffle, columns as Arrow.
_REHEARSAL = """
import sys
from weft.runtime.spark.session import create_spark
spark = create_spark("local[2]", java_options=f"-XX:ArchiveClassesAtExit={sys.argv[1]} -Xlog:disable")
def same(batches):
    yield from batches
rows = spark.range(0, 4, 1, 2)
rows.mapInArrow(same, "id long", barrier=True).collect()
rows.repartition(2, "id").mapInArrow(same, "id long").toArrow()
rows.selectExpr("id", "id % 2 AS k").groupBy("k").count().collect()
spark.stop()
"""


def make_archive(place: ArchivePlace, limit: float = LIMIT) -> Path | None:
    """Make the archive, unless there is one, another process makes it, or the disk is full; then None."""
    place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(place.lock) as mine:
        if not mine or not place.is_wanted or shutil.disk_usage(place.folder).free < ROOM:
            return None
        place.tried.touch()  # it is deleted on success, so that it stays also if this process crashes
        with tempfile.TemporaryDirectory(prefix="making-", dir=place.folder) as folder:
            made = Path(folder) / "classes.jsa"
            _rehearse(made, folder, limit)
            size = _store(made)
            final = place.complete(size)
            made.replace(final)
        place.tried.unlink(missing_ok=True)
        _remove_unused(place, final)
        return final


def _rehearse(target: Path, folder: str, limit: float) -> None:
    """Run Spark once, with a Java that writes the classes it has loaded to an archive when it ends, and wait for it.

    The Java process outlives the Python that started it; when it has ended, the pipe is closed that both write to.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _REHEARSAL, str(target)],
        cwd=folder,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        process.communicate(timeout=limit)
    finally:
        process.kill()


def _environment(folder: str) -> dict[str, str]:
    """This process's environment without the variables that would connect to a Spark that runs already."""
    running = ("PYSPARK_GATEWAY_", "SPARK_REMOTE", "SPARK_CONNECT_", "_PYSPARK_DRIVER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(running)}
    return {**kept, "WEFT_CLASS_ARCHIVE": "0", "SPARK_LOCAL_DIRS": folder}


def _store(file: Path) -> int:
    """Flush an archive to the disk, and return its size."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        return os.fstat(opened.fileno()).st_size


def _remove_unused(place: ArchivePlace, final: Path) -> None:
    """Delete what killed makers left, and archives of other versions of Java or Spark that were not used for long."""
    for file in place.folder.glob("*"):
        with suppress(OSError):
            age = time.time() - max(file.stat().st_mtime, file.stat().st_atime)
            if file.name.startswith("making-") and age > LIMIT:
                shutil.rmtree(file, ignore_errors=True)
            elif file.suffix == ".jsa" and file != final and age > _UNUSED:
                file.unlink()


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Hold a lock, which ends with the process; False if another process has it."""
    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _step_back() -> None:
    """Give this process the lowest priority."""
    with suppress(OSError, AttributeError):
        os.nice(19)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main(arguments: list[str]) -> int:
    """Make the archive for the folder and the key that are given; errors are ignored."""
    _step_back()
    with suppress(Exception):
        folder, key = arguments
        make_archive(ArchivePlace(Path(folder), key))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
