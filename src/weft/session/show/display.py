"""What a session shows of itself while it runs: a bar on the terminal, a live table, a cell of a notebook.

Guarantees: showing only reads. The bar of a run over bounded input is shown only on a terminal; it counts the files of
the batches that are done, and its total is the number of files that were there at the beginning. If a source does not
know that, no total is shown. A live view ends with the session.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from weft.logical.html_table import html_table
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.show.figures import table
from weft.plan.show.svg import picture
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.runtime.observe.progress import PROGRESS_HEADS, progress_cells, progress_html
from weft.session.planned_query import PlannedQuery

__all__ = ["Watch", "progress_bar", "session_html", "watch_session"]

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


class Shown(Protocol):
    """What a session shows of itself."""

    @property
    def is_active(self) -> bool:
        """Whether it runs."""

    def backlog(self) -> Mapping[str, Backlog]:
        """What of every stream waits to be read."""

    @property
    def queries(self) -> tuple[PlannedQuery, ...]:
        """All planned queries, oldest first."""

    @property
    def shared_graph(self) -> PhysicalGraph | None:
        """The graph that they run by together, or will run by."""


def session_html(session: Shown) -> str:
    """A session in a notebook: its queries, how they are getting on, and the plan that they share."""
    queries, graph = [query.progress for query in session.queries], session.shared_graph
    listed = progress_html(queries) if queries else ""
    backlog = _backlog_cells(session)
    waiting = html_table(_BACKLOG_HEADS, backlog) if backlog else ""
    plan = picture(graph) if graph is not None else ""
    return f"<p>{escape(repr(session))}</p>{listed}{waiting}{plan}"


_BACKLOG_HEADS = ("stream", "rows waiting", "behind, s")


def session_text(session: Shown) -> str:
    """How the queries of a session are getting on, and what waits to be read, as text."""
    backlog = _backlog_cells(session)
    lines = [
        repr(session),
        *table(PROGRESS_HEADS, [progress_cells(query.progress) for query in session.queries]),
    ]
    return "\n".join([*lines, *(table(_BACKLOG_HEADS, backlog) if backlog else [])])


def _backlog_cells(session: Shown) -> list[tuple[str, ...]]:
    waiting = session.backlog().items()
    return [(stream, f"{one.rows:,}", f"{one.seconds:.1f}") for stream, one in waiting]


@dataclass
class Watch:
    """A live view of a session, which ends with the session or by `stop`."""

    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def stop(self) -> None:
        """Show what there is for the last time."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def __repr__(self) -> str:
        return "<Watch: over>" if self._stopped.is_set() else "<Watch: live; stop() ends it>"

    def follow(self, session: Shown, show: Callable[[], None], every: float, seconds: float | None) -> None:
        """Show a session again and again until it ends, or for so many seconds."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        while session.is_active and time.monotonic() < until and not self._stopped.is_set():
            show()
            self._stopped.wait(min(every, max(0.0, until - time.monotonic())))
        self._stopped.set()
        show()

    def follow_in_background(
        self, session: Shown, show: Callable[[], None], every: float, seconds: float | None
    ) -> None:
        """As `follow`, beside whatever the caller goes on with."""
        given = (session, show, every, seconds)
        self._thread = threading.Thread(target=self.follow, args=given, name="weft-watch", daemon=True)
        self._thread.start()


def watch_session(
    session: Shown, every: float, seconds: float | None = None, console: Console | None = None
) -> Watch:
    """Show a session live: as a cell of a notebook, which goes on beside others, or on the terminal until it ends.

    Where there is neither, as in a file that output goes to, what is shown is written down each time.
    """
    watch, shell = Watch(), running_notebook()
    if shell is not None:
        display = import_module("IPython.display")
        handle = display.display(display.HTML(session_html(session)), display_id=True)
        watch.follow_in_background(
            session, lambda: handle.update(display.HTML(session_html(session))), every, seconds
        )
        return watch
    out = console or Console()
    if not out.is_terminal:
        watch.follow(
            session, lambda: out.print(session_text(session), markup=False, highlight=False), every, seconds
        )
        return watch
    with Live(console=out, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        watch.follow(session, lambda: live.update(Text(session_text(session)), refresh=True), every, seconds)
    return watch


def running_notebook() -> Any:
    """The shell of the notebook that this process runs for; None if there is none, or IPython is on a terminal."""
    ipython = sys.modules.get("IPython")  # who runs in a notebook has loaded it
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if shell is not None and getattr(shell, "kernel", None) is not None else None
