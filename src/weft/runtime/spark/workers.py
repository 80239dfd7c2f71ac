"""Spark's Python workers, started before they are needed, and checked before they are used.

Guarantees: starting them does not block the caller: it is a job of its own, in a thread of its own, once per
application of Spark. A worker takes seconds to start and to load what it needs; meanwhile queries can be planned. If
workers cannot run Weft's tasks (no Weft, another version of it, another Python), a `ConfigError` says what to install
or set.
"""

from __future__ import annotations

import atexit
import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Thread

import pyarrow as pa
from pyspark.sql import SparkSession

from weft.errors import ConfigError
from weft.runtime.spark.executor_setup import NEEDED
from weft.runtime.spark.session import START, describe_job, is_on_one_machine
from weft.version import __version__

__all__ = ["check_workers", "start_workers"]

PATIENCE = 30.0  # seconds that a process which ends waits for workers that are just starting
_STARTED: dict[str, Future[list[str]]] = {}  # what workers report, by application
_SET = "or set PYSPARK_PYTHON to a Python that has it before Spark is started"


def start_workers(spark: SparkSession) -> None:
    """Have Spark start a worker per core, unless this was done before for its application."""
    application = str(spark.sparkContext.applicationId)
    if application not in _STARTED:
        reports = _STARTED[application] = Future()
        starting = Thread(target=_start, args=(spark, reports), daemon=True)
        starting.start()
        atexit.register(starting.join, PATIENCE)  # Python aborts if it ends while a thread reads from Spark


def check_workers(spark: SparkSession, shipped: str = "") -> None:
    """Refuse workers that cannot run Weft's tasks; ``shipped`` is the name of the Weft that was sent to them.

    It starts them, if they have not been started, and waits for their reports; on a cluster that has no free slot, this
    takes until there is one. Workers on this machine with this very Python are not waited for.
    """
    if is_on_one_machine(spark) and spark.sparkContext.pythonExec == sys.executable:
        return
    start_workers(spark)
    try:
        reports = _STARTED[str(spark.sparkContext.applicationId)].result()
    except Exception as error:
        raise ConfigError(
            f"Spark's Python workers do not start{_place(error)}: {_reason(error)}",
            hint=f"install {_what(shipped)}, with Python {_python()}, on every machine of the cluster, {_SET}",
        ) from error
    for report in reports:
        _check(json.loads(report), shipped)


def _what(shipped: str) -> str:
    """What executors need; to send Weft spares its installation."""
    needed = f"{', '.join(NEEDED[:-1])} and {NEEDED[-1]}"
    return needed if shipped else f"Weft (or {needed}, with Session(ship=True))"


def _check(report: dict[str, str], shipped: str = "") -> None:
    """Refuse a worker by what it reports."""
    where = f"({report['python']} on {report['host']})"
    if "error" in report:
        missing = f" There is no {report['missing']}." if report.get("missing") else ""
        raise ConfigError(
            f"Spark's Python workers cannot load Weft: {report['error']} {where}.{missing}",
            hint=f"install {_what(shipped)} there, {_SET}",
        )
    if report["version"] != __version__:
        raise ConfigError(
            f"Spark's Python workers have Weft {report['version']}, and this is {__version__} {where}",
            hint=f"install Weft {__version__} there, {_SET}; or send it with Session(ship=True)",
        )
    if shipped and report["shipped"] != shipped:
        raise ConfigError(
            f"Spark's Python workers had loaded another Weft before this one was sent {where}",
            hint="start another session of Spark, without spark.python.daemon.module=weft.runtime.spark.daemon",
        )


def _start(spark: SparkSession, reports: Future[list[str]]) -> None:
    """Run a task per core, and keep what each reports."""
    try:
        count = spark.sparkContext.defaultParallelism
        tasks = spark.range(0, count, 1, count).mapInArrow(_reporter(), "report string")
        with describe_job(spark, "Weft: start of the Python workers"):
            found = tasks.toArrow().column("report").to_pylist()
    except Exception as error:
        reports.set_exception(error)
    else:
        START.debug("workers")
        reports.set_result(found)


def _reporter() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that loads what Weft's tasks need, and reports the outcome as JSON.

    It refers to nothing of Weft, so that Spark sends all of it and it runs also where Weft is not installed.
    """
    needed = NEEDED

    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json
        import sys
        from importlib.util import find_spec
        from socket import gethostname

        import pyarrow

        report = {"python": sys.executable, "host": gethostname()}
        report["missing"] = ", ".join(name for name in needed if find_spec(name) is None)
        try:
            import weft.runtime.spark.jobs
            import weft.version

            report["version"], report["shipped"] = weft.version.__version__, getattr(weft, "SHIPPED", "")
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {error}"
        for _ in batches:
            yield pyarrow.record_batch({"report": [json.dumps(report)]})

    return report


def _reason(error: Exception) -> str:
    """The line of Spark's message that names the cause, such as an error in the worker; else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = ("Error: ", "MISMATCH", "No module named", "Cannot run program")
    telling = [line for line in lines if any(mark in line for mark in causes)]
    return (telling or lines or [type(error).__name__])[0]


def _place(error: Exception) -> str:
    """Where Spark says that a task failed, as in " on 10.0.0.5"; "" if it does not."""
    found = re.search(r"\(([^\s()]+) executor [^\s()]+\)", str(error))
    return "" if found is None else f" on {found[1]}"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
