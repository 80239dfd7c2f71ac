"""How far a run over bounded input is, as a bar on the terminal.

Guarantees: the bar only reads, and is shown only on a terminal. It counts the files of the batches that are done; its
total is the number of files that were there at the beginning. If a source does not know that, no total is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from weft.runtime.observe.metrics import BatchMetrics

__all__ = ["progress_bar"]

PAUSE = 0.2  # seconds between two looks


class Batches(Protocol):
    """Where batches are recorded as they are done."""

    batches: list[tuple[int, BatchMetrics]]


@runtime_checkable
class CountedSource(Protocol):
    """A source that knows how many files it has."""

    def count(self) -> int | None:
        """How many files there are; None: that cannot be told."""


@contextmanager
def progress_bar(
    history: Batches, sources: Iterable[object], console: Console | None = None
) -> Iterator[None]:
    """A bar while something else goes on in this thread."""
    out = console or Console(stderr=True)
    if not out.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=out) as bar:
        task = bar.add_task(text(history.batches), total=total_files(sources))
        done = threading.Event()
        watch = threading.Thread(target=_watch, args=(bar, task, history, done), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()


def _watch(bar: Progress, task: TaskID, history: Batches, done: threading.Event) -> None:
    last = False
    while not last:
        last = done.wait(PAUSE)
        batches = list(history.batches)
        files = sum(metrics.files for _, metrics in batches)
        bar.update(task, completed=files, description=text(batches))


def text(batches: list[tuple[int, BatchMetrics]]) -> str:
    """How many results batches gave so far.

    >>> text([(0, BatchMetrics(0, (), {}, {}, {}, 1200, closed={"q": 200}))])
    '1,200 results, 200 of them without a partner'
    """
    results = sum(metrics.results for _, metrics in batches)
    closed = sum(sum(metrics.closed.values()) for _, metrics in batches)
    return f"{results:,} results" + (f", {closed:,} of them without a partner" if closed else "")


def total_files(sources: Iterable[object]) -> int | None:
    """How many files there are to read; None if that is not known."""
    counts = [source.count() if isinstance(source, CountedSource) else None for source in sources]
    return None if None in counts else sum(count for count in counts if count is not None)
