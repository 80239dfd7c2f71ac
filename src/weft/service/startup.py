"""What happens before the first batch: Java is found, Spark started, the kernels compiled or loaded.

Guarantees: a machine without a fitting Java gets a message that says how to get one. What Spark and its tasks write to
the standard error goes to a file, for as long as Spark lives. The kernels are compiled once, in this process; tasks
find them in Numba's cache.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from weft.runtime.spark.java import find_java
from weft.storage.uris import is_object_uri

__all__ = ["in_background", "prepare", "spark_log"]


def spark_log(checkpoint: Path | str) -> Path:
    """Where Spark's messages go: beside the state if that is in a directory, else into a new folder of this machine."""
    if is_object_uri(checkpoint):
        return Path(tempfile.mkdtemp(prefix="weft-log-")) / "spark.log"
    return Path(checkpoint) / "spark.log"


def prepare(master: str, console: Console, log: Path) -> None:
    """Start Spark and make the kernels ready, both at once, and show how far it is."""
    find_java()
    if not console.is_terminal:
        console.print("Starting Spark; the first time, kernels are compiled, for half a minute …")
        _both(master, log, lambda _: None)
        return
    from weft.kernels.warm_up import STEPS  # loads the compiler, which only running needs

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        spark = progress.add_task("Starting Spark", total=None)
        kernels = progress.add_task("Loading kernels; the first time, they are compiled", total=STEPS)
        _both(
            master,
            log,
            lambda done: progress.update(kernels, completed=done),
            lambda: progress.update(spark, total=1, completed=1),
        )


def warm_up(report: Callable[[int], None]) -> None:
    """Compile the kernels, or load them, and report after each step how many are done."""
    from weft.kernels import warm_up as kernels  # loads the compiler, which only running needs

    kernels.warm_up(report)


def _both(
    master: str, log: Path, report: Callable[[int], None], started: Callable[[], None] = lambda: None
) -> None:
    from weft.runtime.spark.session import create_spark  # only running needs Spark

    compiled = in_background(lambda: warm_up(report))
    log.parent.mkdir(parents=True, exist_ok=True)
    with _errors_to(log):
        create_spark(master)
    started()
    compiled.result()


def in_background(work: Callable[[], None]) -> Future[None]:
    """Do something in a thread that does not keep the process alive; the future tells its end, or its error."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    return done


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Let processes that are started inside write their standard error to a file, for as long as they live."""
    saved = os.dup(2)
    with file.open("ab") as out:
        os.dup2(out.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
