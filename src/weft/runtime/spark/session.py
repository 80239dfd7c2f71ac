"""Spark sessions with the settings that suit Weft's tasks (`docs/spark.md` says why each).

Guarantees: a session made here has as many slots for users' own tasks as its master says, and besides them slots for
tasks that stay. Java options that users have set for Spark take precedence over those set here.

An error that is met while Java, on which Spark runs, is dead becomes a `SparkError` that says so, where Java's own
words are, and what to do (`naming_java_death`): another attempt is of no use then. Errors that are met while Java lives
stay as they are.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

from weft.errors import SparkError, WeftError
from weft.runtime.spark.class_archive import archive_options, archive_place, make_archive_later
from weft.runtime.spark.java import use_own_java

__all__ = [
    "START",
    "create_spark",
    "describe_job",
    "is_on_one_machine",
    "naming_java_death",
    "own_session",
    "room_of",
    "slots_of",
    "tasks_on_cluster",
]


START = logging.getLogger(
    "weft.start"
)  # a word per phase of a start, at DEBUG, when the phase before has ended

_QUERIES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # With more than 32 files in a batch, Spark would start a job to list them, which takes a second or more.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Checkpoints are on a mounted file system under Weft's lock; the default manager would start a process per file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_OWN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Over TCP, a task's small writes to its worker wait 40 ms for each other's acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
}
# Where Java shares its cores with the workers: it has little to do itself, so the quick compiler is enough. That comes
# with room for 48 MB of compiled code, which users' own statements fill; then Java would compile nothing more.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# On a cluster, tasks do not wait for an executor that has more of their input, since a batch is short. Drivers
# schedule and executors move bytes, and do little else, so the quick compiler is enough for them, too.
_CLUSTER = {
    "spark.locality.wait": "0s",
    # Tasks that stay are begun as soon as a lost executor is replaced, and not at the next quarter of a minute.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.driver.defaultJavaOptions": _JAVA,
    "spark.executor.defaultJavaOptions": _JAVA,
}
MOST_TASKS = 1024  # where Spark may have as many executors as it likes
_DESCRIPTION = "spark.job.description"
_LOCAL = re.compile(r"local(?:\[\s*(?P<count>\d+|\*)\s*(?:,\s*(?P<failures>\d+)\s*)?\])?")


def create_spark(
    master: str, slots: int | None = None, *, java_options: str = "", preload: bool = True
) -> SparkSession:
    """A Spark session for a master; on this machine, with ``slots`` besides those of the master for tasks that stay.

    By default these are as many as the master has. With ``preload``, workers have Weft loaded when they are forked,
    which must be installed wherever they run.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks need the environment Weft is installed in
    use_own_java()
    settings = {**_OWN, **_QUERIES}
    local = _LOCAL.fullmatch(master.strip())
    place = archive_place() if local is not None else None
    if local is not None:
        slots = _count(local) if slots is None else slots
        settings |= _local_settings(local, slots, f"{archive_options(place)} {java_options}")
        master = _with_slots(local, slots)
    else:
        settings |= _CLUSTER
    if preload and find_spec("weft") is not None and (local is None or _is_own_python()):
        settings["spark.python.daemon.module"] = "weft.runtime.spark.daemon"
        settings["spark.executorEnv.PYTHONSAFEPATH"] = "1"  # the daemon puts the working directory last
    builder = SparkSession.builder.master(master).appName("weft")
    for name, value in settings.items():
        builder = builder.config(name, value)
    START.debug("java")
    spark = builder.getOrCreate()
    START.debug("spark")
    make_archive_later(place)
    return spark


def _local_settings(local: re.Match[str], slots: int, java_options: str) -> dict[str, str]:
    """The settings for Spark on this machine alone.

    Java options go to ``defaultJavaOptions``, which Spark puts before those that users have set, so that these win.
    """
    settings = {
        "spark.shuffle.compress": "false",
        "spark.driver.defaultJavaOptions": f"{_JAVA} {java_options}".strip(),
    }
    if slots:
        settings["spark.default.parallelism"] = str(_count(local))
    return settings


def _is_own_python() -> bool:
    """Whether workers run by this very Python, which has Weft."""
    return os.environ["PYSPARK_PYTHON"] == sys.executable


def _count(local: re.Match[str]) -> int:
    """How many tasks a local master runs at once."""
    count = local["count"] or "1"
    return (os.cpu_count() or 1) if count == "*" else int(count)


def _with_slots(local: re.Match[str], slots: int) -> str:
    """A local master with so many more slots; with none, it stays as it was written."""
    if not slots:
        return local[0]
    failures = f",{local['failures']}" if local["failures"] else ""
    return f"local[{_count(local) + slots}{failures}]"


def slots_of(spark: SparkSession) -> int | None:
    """How many tasks can run at once on a local master; None on a cluster, where it may change."""
    local = _LOCAL.fullmatch(str(spark.sparkContext.master).strip())
    return None if local is None else _count(local)


@contextmanager
def describe_job(spark: SparkSession, text: str) -> Iterator[None]:
    """A context in which jobs that this thread starts have a description in Spark's web pages and event logs."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it


def own_session(spark: SparkSession) -> SparkSession:
    """A new session beside a user's, with Weft's settings; those of the user's session stay as they are."""
    session = spark.newSession()
    for name, value in _QUERIES.items():
        session.conf.set(name, value)
    return session


def is_on_one_machine(spark: SparkSession) -> bool:
    """Whether all tasks see the same local files."""
    return str(spark.sparkContext.master).startswith("local")


_OF_A_DEAD_ONE = ("Py4JNetworkError", "ConnectionRefusedError")


def tasks_on_cluster(spark: SparkSession, limit: int) -> int:
    """One task per core of the executors that Spark has now, or can get, but no more than a limit."""
    return min(limit, room_of(spark))


def room_of(spark: SparkSession) -> int:
    """How many tasks can run at once: in the slots there are or, where executors come as they are needed, at most.

    With `spark.dynamicAllocation.enabled`, Spark asks for executors when tasks wait for slots, and lets those go that
    are idle; what it has at the moment says nothing then.
    """
    slots = slots_of(spark)
    if slots is not None:
        return slots
    with naming_java_death(spark):
        settings = spark.sparkContext.getConf()
        now = int(spark.sparkContext.defaultParallelism)
    if (settings.get("spark.dynamicAllocation.enabled") or "false").lower() != "true":
        return now
    executors = settings.get("spark.dynamicAllocation.maxExecutors") or ""
    if not executors.isdigit():
        return max(now, MOST_TASKS)
    return max(now, int(executors) * int(settings.get("spark.executor.cores") or 1))


@contextmanager
def naming_java_death(spark: SparkSession | None) -> Iterator[None]:
    """A context in which errors that come of Java's death say so; without a session yet, as far as they tell."""
    try:
        yield
    except WeftError:
        raise
    except Exception as error:
        if _is_dead(spark, error):
            raise _death() from error
        raise


def _is_dead(spark: SparkSession | None, error: BaseException) -> bool:
    if spark is None:
        return type(error).__name__ in _OF_A_DEAD_ONE
    try:
        spark.conf.get("spark.app.id", "")
    except Exception as other:
        return type(other).__name__ in _OF_A_DEAD_ONE or isinstance(other, OSError)
    return False


def _death() -> SparkError:
    here = Path(os.environ.get("SPARK_HOME") or ".").absolute()
    logs = sorted({*Path.cwd().glob("hs_err_pid*.log"), *here.glob("hs_err_pid*.log")}, key=_written)
    place = (
        f"it left {logs[-1]}"
        if logs
        else f"if it crashed, it left hs_err_pid….log in {Path.cwd()}; what it printed is on this program's stderr"
    )
    return SparkError(
        f"Java, on which Spark runs, has died: {place}",
        hint="if the system ended it for want of memory (dmesg says so), give tasks less by Session(memory=…) or Java "
        "more; then start the program again, which goes on where it was",
    )


def _written(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except OSError:
        return 0.0
