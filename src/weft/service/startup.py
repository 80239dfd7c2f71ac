"""What happens before the first batch: Java is found, Spark started, the kernels compiled or loaded.

Guarantees: a machine without a fitting Java gets a message that says how to get one. What Spark and its tasks write to
the standard error goes to a file, for as long as Spark lives. The kernels that queries need are compiled once, before
tasks start, which find them in Numba's cache.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from weft.logical.query.query import Query
from weft.runtime.spark.java import find_java
from weft.storage.uris import is_object_uri

__all__ = ["in_background", "prepare", "prepare_kernels", "spark_log"]

_LONG = 3.0  # seconds after which it is shown how far the kernels are


def spark_log(checkpoint: Path | str) -> Path:
    """Where Spark's messages go: beside the state if that is in a directory, else into a new folder of this machine."""
    if is_object_uri(checkpoint):
        return Path(tempfile.mkdtemp(prefix="weft-log-")) / "spark.log"
    return Path(checkpoint) / "spark.log"


def prepare(master: str, console: Console, log: Path, queries: Iterable[Query] | None = None) -> None:
    """Start Spark and make the kernels of some queries ready, or all, both at once, and show how far it is."""
    find_java()
    if not console.is_terminal:
        console.print("Starting Spark; the first time, kernels are compiled, for a quarter of a minute …")
        _both(master, log, queries, lambda *_: None)
        return
    with _bars(console) as progress:
        spark = progress.add_task("Starting Spark", total=None)
        _both(master, log, queries, _bar(progress), lambda: progress.update(spark, total=1, completed=1))


def prepare_kernels(console: Console, queries: Iterable[Query] | None) -> None:
    """Make the kernels of some queries ready, or all that are usual, and show how far it is if that takes long."""
    shown: list[Callable[[int, int], None]] = []

    def report(done: int, total: int) -> None:
        for show in shown:
            show(done, total)

    compiled = in_background(lambda: warm_up(report, queries))
    if wait([compiled], _LONG).not_done and not console.is_terminal:
        console.print("Compiling kernels, once on a machine …")
    elif not compiled.done():
        with _bars(console) as progress:
            shown.append(_bar(progress))
            wait([compiled])
    compiled.result()


def _bars(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _bar(progress: Progress) -> Callable[[int, int], None]:
    kernels = progress.add_task("Loading kernels; the first time, they are compiled", total=None)
    return lambda done, total: progress.update(kernels, completed=done, total=total)


def warm_up(report: Callable[[int, int], None], queries: Iterable[Query] | None) -> None:
    """Compile the kernels of some queries, or all, or load them; report after each step how many are done."""
    from weft.kernels import warm_up as kernels  # loads the compiler, which only running needs

    kernels.warm_up(report, None if queries is None else kernels.needs_of(queries))


def _both(
    master: str,
    log: Path,
    queries: Iterable[Query] | None,
    report: Callable[[int, int], None],
    started: Callable[[], None] = lambda: None,
) -> None:
    from weft.runtime.spark.session import create_spark  # only running needs Spark

    compiled = in_background(lambda: warm_up(report, queries))
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
