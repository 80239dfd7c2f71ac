"""Spark's classes as an archive that Java maps at its start, instead of reading and checking them one by one.

Guarantees: it changes nothing but how long Java takes to start. An archive is used only if it is complete, was made for
the Java and the Spark in use, and only this user or the administrator can have written it; else Java starts without
one. It is made once per machine, Java and Spark, by a process of its own of lowest priority, some time after a
session's start or at its end. Whatever goes wrong there (no room, no permission, another maker) is ignored silently.

    ~/.cache/weft/classes-<key>-<bytes>.jsa     complete, if it has as many bytes as its name says
    ~/.cache/weft/classes-<key>.lock            held by the process that makes it
    ~/.cache/weft/classes-<key>.tried           an attempt to make it did not work

Its size is checked because Java does not check it, and crashes if an archive was cut off. `WEFT_CLASS_ARCHIVE=0` in the
environment turns all of this off.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weft.storage.paths import own_python

__all__ = ["ArchivePlace", "archive_options", "archive_place", "make_archive_later"]

DELAY = 20.0  # seconds after the start of a session until it is made, so that it does not slow the start down
RETRY = 7 * 24 * 3600.0  # seconds after which it is tried again where it did not work
ROOM = 1 << 30  # bytes that must be free on the disk
_FORMAT = 1
_QUIET = (
    "-Xshare:auto -Xlog:cds*=off -Xlog:class+path*=off"  # an archive that does not fit is ignored in silence
)

_planned: set[str] = set()  # the keys of archives for which this process has started a maker, or will
_makers: list[subprocess.Popen[bytes]] = []  # kept, since Python warns of processes that nobody waits for


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """Where the archive for one Java and one Spark belongs."""

    folder: Path
    key: str

    @property
    def lock(self) -> Path:
        """The file whose lock the maker holds."""
        return self.folder / f"classes-{self.key}.lock"

    @property
    def tried(self) -> Path:
        """The mark of an attempt that did not work."""
        return self.folder / f"classes-{self.key}.tried"

    def complete(self, size: int) -> Path:
        """The name of a complete archive of so many bytes."""
        return self.folder / f"classes-{self.key}-{size}.jsa"

    def find(self) -> Path | None:
        """The archive, if it is there, complete, and written by nobody but this user or the administrator."""
        with suppress(OSError):
            if not _is_safe(self.folder.stat()):
                return None
            for file in sorted(self.folder.glob(f"classes-{self.key}-*.jsa")):
                found = file.stat()
                if _is_safe(found) and file == self.complete(found.st_size):
                    return file
        return None

    @property
    def is_wanted(self) -> bool:
        """Whether there is no archive, and no attempt to make it has failed in the last `RETRY` seconds."""
        if self.find() is not None:
            return False
        try:
            return time.time() - self.tried.stat().st_mtime > RETRY
        except OSError:
            return True


def archive_place() -> ArchivePlace | None:
    """Where the archive of this machine's Java and Spark belongs; None if it is turned off, or of no use here.

    It is of no use if `spark-submit` has started Java already, or if Java or Spark are not found.
    """
    if os.environ.get("WEFT_CLASS_ARCHIVE", "1") == "0" or not hasattr(os, "getuid"):
        return None
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    java, jars = _java(), _jars()
    if java is None or jars is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
    described = [str(_FORMAT)]
    for file in (java, java.parent.parent / "lib" / "modules", jars):
        with suppress(OSError):
            described.append(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}")
    return ArchivePlace(cache, hashlib.sha256("\n".join(described).encode()).hexdigest()[:16])


def archive_options(place: ArchivePlace | None) -> str:
    """The options by which Java uses the archive; empty if there is none."""
    found = None if place is None else place.find()
    if found is None or any(char.isspace() or char in "\"'\\" for char in str(found)):
        return ""
    return f"-XX:SharedArchiveFile={found} {_QUIET}"


def make_archive_later(place: ArchivePlace | None) -> None:
    """Have the archive made if there is none: after a while, or when this process ends, whichever is first."""
    if place is None or place.key in _planned or not place.is_wanted:
        return
    _planned.add(place.key)
    once = threading.Lock()

    def begin() -> None:
        if once.acquire(blocking=False):
            _begin(place)

    timer = threading.Timer(DELAY, begin)
    timer.daemon = True
    timer.start()
    atexit.register(begin)


def _begin(place: ArchivePlace) -> None:
    """Start the maker, which may outlive this process and prints nothing."""
    with suppress(Exception):
        _makers.append(
            subprocess.Popen(
                own_python("weft.runtime.spark.class_archive_maker", str(place.folder), place.key),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )


def _is_safe(found: os.stat_result) -> bool:
    """Whether only this user or the administrator can have written a file, since the classes in it will be run."""
    return found.st_uid in (0, os.getuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _java() -> Path | None:
    """The Java that Spark's scripts will start."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    return Path(found).resolve() if found else None


def _jars() -> Path | None:
    """The folder of Spark's classes."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        import pyspark

        home = str(Path(pyspark.__file__).parent)
    jars = Path(home) / "jars"
    return jars if jars.is_dir() else None
