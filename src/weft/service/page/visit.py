"""What a view is given, and what it gives back; and what is kept of a run for all visitors together.

Guarantees: a view builds its elements once; then `load` is called in a thread, so that the page of nobody else waits,
and `show` with what it gave, again and again while somebody looks. The plans that a session has run by are kept, each
from the batch it began with and with why there was another: looking at them costs what the batches since the last look
cost. All that is kept is bounded, and safe to read from any thread.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from weft.plan.physical.graph import PhysicalGraph
from weft.plan.show.observation import Observation
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.observations import observed
from weft.runtime.observe.plan_changes import PlanChange
from weft.service.demo_controls import DemoControls
from weft.service.figures import BatchFigures
from weft.service.hub.hub import SessionHub
from weft.service.page.charts import Trend
from weft.session.session import Session

__all__ = [
    "Live",
    "LogRecord",
    "PageModel",
    "PlanBeginning",
    "PlanVersion",
    "PlanVersions",
    "RecentLog",
    "Visit",
    "query_link",
    "what_happened",
]


VERSIONS = 60  # so many graphs are kept
BEGINNINGS = 500  # and of so many, when they began and why
BATCHES = 40  # so many batches of each


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """A graph that batches ran by, from batch ``first`` to ``last``; ``batches`` are the last of them.

    ``title`` says in a few words why it took the place of the one before, and ``changes`` are those that the data
    caused. ``scalings`` are the changes of tasks while it ran.
    """

    number: int
    first: int
    last: int
    started: float
    graph: PhysicalGraph
    title: str
    changes: tuple[PlanChange, ...] = ()
    batches: tuple[BatchMetrics, ...] = ()
    scalings: tuple[PlanChange, ...] = ()

    def observation(self) -> Observation | None:
        """What its last batches did; None before the first is done."""
        return observed(self.graph, self.batches) if self.batches else None

    @property
    def reason(self) -> str:
        """Why, in all words."""
        return "\n".join(f"{one.cause}: {one.reason}" for one in (*self.changes, *self.scalings))


@dataclass(frozen=True, slots=True)
class PlanBeginning:
    """When a graph, or other tasks, began to run, with which batch, and what was new about it."""

    started: float
    first: int
    title: str


class PlanVersions:
    """The graphs that a session has run by; whoever has them looks at every batch, so that none is missed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._versions: tuple[PlanVersion, ...] = ()
        self._beginnings: deque[PlanBeginning] = deque(maxlen=BEGINNINGS)
        self._seen, self._lock = -1, threading.Lock()

    def beginnings(self) -> list[PlanBeginning]:
        """What began when, oldest first, also of graphs that are no longer kept."""
        self.look()
        with self._lock:
            return list(self._beginnings)

    def look(self) -> tuple[PlanVersion, ...]:
        """All versions that are kept, oldest first, with the batches up to now."""
        with self._lock:
            newer = self._session.batches_after(self._seen)
            changes = self._session.plan_history  # after the batches, so that theirs are among them
            for graph, metrics in newer:
                self._seen = metrics.number
                if graph is not None:
                    self._take(graph, metrics)
                self._take_scalings(metrics, changes)
            self._versions = tuple(
                _explained(self._versions, place, changes) for place in range(len(self._versions))
            )
            return self._versions

    def _take_scalings(self, metrics: BatchMetrics, changes: Sequence[PlanChange]) -> None:
        for one in changes:
            if one.batch == metrics.number and one.tasks is not None:
                title = f"{one.way}, {one.what} · {one.cause} · {one.reason}"
                self._beginnings.append(PlanBeginning(metrics.started, metrics.number, title))

    def _take(self, graph: PhysicalGraph, metrics: BatchMetrics) -> None:
        last = self._versions[-1] if self._versions else None
        if last is not None and last.graph is graph:
            batches = (*last.batches[1 - BATCHES :], metrics)
            self._versions = (*self._versions[:-1], replace(last, last=metrics.number, batches=batches))
            return
        title = what_happened(last.graph if last else None, graph)
        number = last.number + 1 if last else 0
        self._beginnings.append(PlanBeginning(metrics.started, metrics.number, title))
        new = PlanVersion(
            number, metrics.number, metrics.number, metrics.started, graph, title, (), (metrics,)
        )
        self._versions = (*self._versions[1 - VERSIONS :], new)


def _explained(versions: tuple[PlanVersion, ...], place: int, changes: Sequence[PlanChange]) -> PlanVersion:
    """A version with the changes that took effect with it, and those of tasks while it ran."""
    version = versions[place]
    before = versions[place - 1].first if place else -1
    own = (
        [one for one in changes if one.tasks is None and before < one.batch <= version.first] if place else []
    )
    tasks = [one for one in changes if one.tasks is not None and version.first <= one.batch <= version.last]
    return replace(version, changes=tuple(own), scalings=tuple(tasks))


def what_happened(before: PhysicalGraph | None, after: PhysicalGraph) -> str:
    """What is different between two graphs, in a few words."""
    if before is None:
        names = sorted(member.name for member in after.members)
        return f"the first plan, for {', '.join(names) if len(names) <= 4 else f'{len(names)} queries'}"
    old, new = ({member.name for member in graph.members} for graph in (before, after))
    parts = [f"+ {name}" for name in sorted(new - old)] + [f"− {name}" for name in sorted(old - new)]
    if parts:
        return (
            ", ".join(parts)
            if len(parts) <= 4
            else f"{len(new - old)} queries began, {len(old - new)} stopped"
        )
    filling = any(store.filling for store in after.stores)
    if filling and not any(store.filling for store in before.stores):
        return "new stores begin to be filled"
    layouts = [{store.identity for store in graph.stores} for graph in (before, after)]
    return "other stores" if layouts[0] != layouts[1] else "another order of probes"


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
            if record.exc_info is not None and record.exc_info[1] is not None:
                text = f"{text}\n{''.join(traceback.format_exception(record.exc_info[1])).rstrip()}"
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

    ``client`` tells visitors apart, ``asked`` is what the address says beside the path. ``themed`` are called
    with whether the page is dark, once it is there and whenever that changes.
    """

    model: PageModel
    may_change: bool
    path: str = "/"
    client: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)
    themed: list[Callable[[bool], None]] = field(default_factory=list)

    @property
    def hub(self) -> SessionHub:
        """The door to the session."""
        return self.model.hub


def query_link(sql: str, name: str = "") -> str:
    """The address of the view of queries, with a text in its editor: for others to open."""
    parts = {"sql": sql, **({"name": name} if name else {})}
    return f"/query?{urlencode(parts)}"


@dataclass(frozen=True, slots=True)
class Live:
    """How a view stays up to date: ``load`` is called every so many seconds, and ``show`` with what it gave."""

    load: Callable[[], Any]
    show: Callable[[Any], None]
    every: float = 1.0
