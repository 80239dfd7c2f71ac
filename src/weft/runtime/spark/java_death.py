"""The death of Java, on which Spark runs, told as what it is.

Guarantees: an error that is met while Java is dead becomes a `SparkError` that says so, where Java's own words are, and
what to do; another attempt is of no use then. Errors that are met while Java lives stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from weft.errors import SparkError, WeftError

__all__ = ["naming_java_death"]

_OF_A_DEAD_ONE = ("Py4JNetworkError", "ConnectionRefusedError")


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
