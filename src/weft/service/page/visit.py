"""What a view is given, and what it gives back.

Guarantees: a view builds its elements once; then `load` is called in a thread, so that the page of nobody else waits,
and `show` with what it gave, again and again while somebody looks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft.runtime.observe.metrics import BatchMetrics
from weft.service.demo_controls import DemoControls
from weft.service.figures import BatchFigures
from weft.service.hub.hub import SessionHub
from weft.service.page.plans import PlanVersions
from weft.service.trends import Trend

__all__ = ["Live", "LogRecord", "PageModel", "RecentLog", "Visit"]

LINES = 500  # so many lines of the log are kept


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A line of the log."""

    at: float
    level: str
    text: str


class RecentLog(logging.Handler):
    """The last lines that Weft logged, without the one per batch and query.

    The level of the logger stays as it is: a line for each batch and query, at level INFO, would slow batches down.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[LogRecord] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        text = record.getMessage()
        if not text.startswith("{"):  # the log of batches, as JSON, is for machines
            self._lines.append(LogRecord(record.created, record.levelname.lower(), text))

    def lines(self) -> list[LogRecord]:
        """All that is kept, the newest first."""
        return list(self._lines.copy())[::-1]


@dataclass
class PageModel:
    """What all visitors see together: the hub, and what was kept of its run for charts, the time line and the log."""

    hub: SessionHub
    controls: DemoControls | None = None
    trend: Trend = field(default_factory=Trend)
    log: RecentLog = field(default_factory=RecentLog)
    plans: PlanVersions = field(init=False)

    def __post_init__(self) -> None:
        self.plans = PlanVersions(self.hub.session)

    def follow(self) -> None:
        """Follow the run from now on."""

        def tell(batch: BatchFigures, metrics: BatchMetrics) -> None:  # noqa: ARG001
            self.trend.add(batch)
            self.plans.look()  # the session remembers only the last batches and graphs

        self.hub.follow(tell)
        logging.getLogger("weft").addHandler(self.log)

    def events(self) -> list[LogRecord]:
        """What was logged, and every change of the queries and the plan, the newest first."""
        plans = [
            LogRecord(one.started, "plan", f"batch {one.first}: {one.title}")
            for one in self.plans.beginnings()
        ]
        changes = [
            LogRecord(version.started, "plan", str(change))
            for version in self.plans.look()
            for change in version.changes
        ]
        found = [*self.log.lines(), *plans, *changes]
        return sorted(found, key=lambda one: one.at, reverse=True)[:LINES]


@dataclass(frozen=True, slots=True)
class Visit:
    """A visitor's page: what there is to see, and whether this visitor may change anything.

    ``client`` is by what visitors are told apart. ``themed`` are called with whether the page is dark, once it is there
    and whenever that changes.
    """

    model: PageModel
    may_change: bool
    path: str = "/"
    client: str = ""
    themed: list[Callable[[bool], None]] = field(default_factory=list)

    @property
    def hub(self) -> SessionHub:
        """The door to the session."""
        return self.model.hub


@dataclass(frozen=True, slots=True)
class Live:
    """How a view stays up to date: ``load`` is called every so many seconds, and ``show`` with what it gave."""

    load: Callable[[], Any]
    show: Callable[[Any], None]
    every: float = 1.0
