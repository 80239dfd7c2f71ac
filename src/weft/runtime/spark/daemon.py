"""The process that forks Spark's Python workers (`spark.python.daemon.module`), in place of `pyspark.daemon`.

Guarantees: it is PySpark's daemon, but loads what tasks need before it forks the first worker: workers have it at once,
and share its memory. A process must have one thread when it forks, so libraries that would start threads are configured
not to, unless the user has configured them otherwise. If there are several threads all the same, this process becomes
PySpark's own daemon, which loads nothing. The protocol with Spark and the authentication of workers are PySpark's code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

__all__ = ["main"]

# Arrow's allocator would clean up in a thread; NumPy's algebra would have one per core. What Arrow frees it would
# return to the system within 10 ms, and every batch would pay for fresh pages: a fifth of its system time.
_SETTINGS = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "MIMALLOC_PURGE_DELAY": "10000",  # milliseconds
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def main() -> None:
    """Load what tasks need, and run PySpark's daemon."""
    with suppress(Exception):  # workers will meet the same error, and report it
        _load()
    if _threads() != 1:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    import pyspark.daemon

    pyspark.daemon.worker = _end_quietly(pyspark.daemon.worker)
    pyspark.daemon.manager()


def _end_quietly(worker: Callable[..., Any]) -> Callable[..., Any]:
    """PySpark's worker, which ends without a word if Spark is gone: it would print where it was when that happened.

    With any other code than that of an error, PySpark would go on using the worker, which would fail again at once,
    for ever.
    """

    def run(*args: Any) -> Any:
        try:
            return worker(*args)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


def _load() -> None:
    sys.path[:] = _without_archives(_working_directory_last(sys.path))
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import pyspark.worker  # noqa: F401

    import weft.runtime.spark.jobs
    import weft.runtime.spark.resident_task  # noqa: F401


def _working_directory_last(path: list[str]) -> list[str]:
    """The path with the working directory at its end: users' modules are found there, and take no library's place."""
    here = os.getcwd()
    return [*(entry for entry in path if entry not in ("", ".", here)), here]


def _without_archives(path: list[str]) -> list[str]:
    """The path without `pyspark.zip`, if the same PySpark is installed besides: it then loads in a quarter of the time.

    Modules in an archive are compiled at every start. If another PySpark is installed, the archive stays in the path.
    """
    archives = [entry for entry in path if entry.endswith("/python/lib/pyspark.zip")]
    rest = [entry for entry in path if entry not in archives]
    homes = {str(Path(archive).parents[2]) for archive in archives}
    installed = PathFinder.find_spec("pyspark", rest)
    is_same = installed is not None and homes == {str(Path(installed.origin or "").parent)}
    return rest if is_same else path


def _threads() -> int:
    """How many threads this process has; 0 if the system does not say."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return 0


if __name__ == "__main__":
    main()
