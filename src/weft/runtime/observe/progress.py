"""The progress of each query: its status, and its own figures out of those of the graph that it shares with others.

Guarantees: plain data, under the names that the query's author gave to its inputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from textwrap import shorten
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import ResultError
from weft.logical.html_table import html_table
from weft.logical.query.ordering import Punctuation
from weft.plan.physical.graph import Member, PhysicalGraph
from weft.plan.physical.part import QueryPart, part_of
from weft.runtime.log.totals import QueryTotals, Totals
from weft.runtime.observe.metrics import BatchMetrics, KeyMetrics
from weft.runtime.queries.request import QueryRequest
from weft.stats.histogram import Latency
from weft.stats.sampling.samples import SampleHistory

if TYPE_CHECKING:  # planning imports this module, and must not load the kernels
    from weft.runtime.log.values import Manifest, Suspension
    from weft.runtime.program.executable import ExecutableGraph
    from weft.runtime.queries.active import ActiveQueries

__all__ = [
    "PROGRESS_HEADS",
    "History",
    "OwnProgress",
    "QueryProgress",
    "StateBytes",
    "complete_from",
    "failure_of",
    "own_metrics",
    "progress_cells",
    "progress_html",
    "progress_of",
    "state_of",
    "too_large",
]

KEPT = 999  # so many batches are remembered, besides the last one
GRAPHS = 32  # so many graphs are remembered
SHOWN_BATCHES = 5  # of each query, in a notebook
RECENT = 100  # the latency of a query is that of so many batches
PARTS = 4096  # about so many queries' parts of graphs are remembered; one has some 20 kB

Names = tuple[tuple[str, str], ...]  # the inputs of a query: each one's name in the graph, and its author's


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query whose ``status`` is waiting (for the next batch), running, or suspended or stopped, with a ``reason``.

    One that runs has a ``reason`` if it is too slow: its results are later than its target.

    ``created`` is the first batch it is in, and ``batches`` says in how many it was; these and ``results`` count all
    its batches, also those of earlier runs. Results whose tuples are all of ``complete_from`` or later are complete;
    None if all are. ``state`` are the bytes of its stores, those of shared ones divided among their users:
    ``own_state`` are those that are its alone, ``shared_state`` those of all stores that others use too, undivided. Of
    its results, ``closed`` were not found by probes: outer joins without a partner,
    and all results of semi and anti joins. A query that joins all inputs on one key, without windows, has ``keys``: how
    many are complete, open and dangling. If its results leave in an order, ``punctuation`` says up to where they
    are complete, and ``held`` how many wait for the watermarks. ``latency`` is that of the results of the last `RECENT`
    batches that it was in.
    """

    name: str
    status: str
    created: int | None = None
    batches: int = 0
    results: int = 0
    complete_from: datetime | None = None
    state: float = 0.0
    reason: str = ""
    closed: int = 0
    keys: KeyMetrics | None = None
    punctuation: Punctuation | None = None
    held: int = 0
    latency: Latency = field(default_factory=Latency)
    own_state: int = 0
    shared_state: int = 0

    def __repr__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        counts = f"{self.batches:,} batches, {self.results:,} results, {self.state:,.0f} bytes of state"
        return f"<QueryProgress of {self.name}: {self.status}{why}, {counts}>"

    def _repr_html_(self) -> str:
        return progress_html([self])


PROGRESS_HEADS = ("query", "status", "batches", "results", "state, bytes", "latency p50, s", "latency p95, s")


def progress_cells(progress: QueryProgress) -> tuple[str, ...]:
    """The progress of a query as texts, under `PROGRESS_HEADS`."""
    status = f"{progress.status}: {progress.reason}" if progress.reason else progress.status
    times = progress.latency.processing
    latency = (f"{times.p50:.3g}", f"{times.p95:.3g}") if times.count else ("?", "?")
    counts = (f"{progress.batches:,}", f"{progress.results:,}", f"{progress.state:,.0f}")
    return (progress.name, status, *counts, *latency)


def progress_html(queries: Iterable[QueryProgress]) -> str:
    """The progress of queries as a table, for a notebook."""
    return html_table(PROGRESS_HEADS, [progress_cells(one) for one in queries])


@dataclass(frozen=True, slots=True)
class StateBytes:
    """The bytes of a query's state: its ``own``, those of stores that it has ``shared``, and its ``part`` of all."""

    own: int = 0
    shared: int = 0
    part: float = 0.0


def complete_from(member: Member) -> datetime | None:
    """The time from which on a query's results are complete; None if all of them are.

    They all are if the query has one input and did not ask for results in the past, since it needs no stored tuples.
    """
    times = [visibility.complete for visibility in member.visibilities if visibility.complete is not None]
    if not times or (len(member.query.aliases) == 1 and not member.backfill):
        return None
    return datetime.fromtimestamp(max(times) / 1e6, timezone.utc)


@dataclass
class History:
    """The metrics of the last batches, and the last graphs that they ran by.

    ``batches`` are pairs of a graph's number and the metrics, ``graphs`` are by number. ``committed`` has, by batch,
    when it began and when it was committed, in seconds of `time.perf_counter`. ``samples`` are those of the attributes
    that queries join on, and ``resumed`` is the last batch of an earlier run. ``totals`` are those of all committed
    batches, also of those that are no longer remembered, and ``began`` those that the run began with. One thread adds
    batches and another one notes their commits, while others read: a graph is added before the first batch of it, and
    whole lists are replaced, so that readers never see half a change.
    """

    batches: list[tuple[int, BatchMetrics]] = field(default_factory=list)
    graphs: dict[int, PhysicalGraph] = field(default_factory=dict)
    committed: dict[int, tuple[float, float]] = field(default_factory=dict)
    samples: SampleHistory = field(default_factory=SampleHistory)
    resumed: int = -1
    totals: Totals = field(default_factory=Totals, init=False)
    began: Totals = field(default_factory=Totals, init=False)
    _stopped: dict[str, QueryTotals] = field(
        default_factory=dict
    )  # of queries that have stopped, in this run
    _parts: dict[int, dict[tuple[str, Names], QueryPart]] = field(default_factory=dict)  # by graph
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, graph: PhysicalGraph, metrics: BatchMetrics) -> None:
        """Remember the metrics of one more batch, and the graph that it ran by."""
        with self._lock:
            self._add(graph, metrics)

    def _add(self, graph: PhysicalGraph, metrics: BatchMetrics) -> None:
        last = max(self.graphs, default=-1)
        if last < 0 or self.graphs[last] is not graph:
            last += 1
            self.graphs = {n: g for n, g in self.graphs.items() if n > last - GRAPHS} | {last: graph}
            self._parts = self._kept_parts()
        self.batches = [*self.batches[-KEPT:], (last, metrics)]

    def commit(self, number: int, began: float, done: float, metrics: BatchMetrics | None = None) -> None:
        """Note when a batch began and when it was committed, and its metrics, which then have its latencies."""
        if metrics is not None:
            with self._lock:
                self.batches = [
                    (graph, metrics if one.number == number else one) for graph, one in self.batches
                ]
        self.committed[number] = began, done  # last, so that a batch that is committed has its latencies
        self.committed.pop(number - KEPT - 1, None)

    def count(self, totals: Totals) -> None:
        """Note what all batches up to one that is committed have done."""
        self._stopped.update(self.totals.queries)
        self.totals = totals

    def totals_of(self, name: str, first: int | None) -> QueryTotals:
        """The totals of a query that began with a batch, or, where that is None, of the last one of a name."""
        if first is None:
            return self.totals.queries.get(name) or self._stopped.get(name, QueryTotals())
        return self.totals.of_query(name, first)

    def is_committed(self, number: int) -> bool:
        """Whether a batch that is remembered is committed, so that its latencies are known."""
        return number in self.committed or number <= self.resumed

    def _kept_parts(self) -> dict[int, dict[tuple[str, Names], QueryPart]]:
        """The parts of the last graphs, up to about `PARTS` of them."""
        kept, room = {}, PARTS
        for number in sorted(self.graphs, reverse=True):
            kept[number] = self._parts.get(number, {}) if room > 0 else {}
            room -= len(kept[number])
        return kept

    def batches_of(self, name: str) -> list[BatchMetrics]:
        """The metrics of the batches that a query was in."""
        return [metrics for _, metrics in self.batches if name in metrics.answers]

    @property
    def last(self) -> BatchMetrics | None:
        """The metrics of the last batch; None before the first."""
        return self.batches[-1][1] if self.batches else None

    def part(self, number: int, name: str, names: Names) -> QueryPart | None:
        """A query's part of a graph, under its author's names; None if the graph is no longer remembered."""
        graph = self.graphs.get(number)
        if graph is None:
            return None
        parts = self._parts.get(number, {})
        if (name, names) not in parts:
            parts[name, names] = part_of(graph, name, dict(names))
        return parts[name, names]

    def part_in(self, graph: PhysicalGraph, name: str, names: Names) -> QueryPart | None:
        """A query's part of a graph that batches ran by; None if it is no longer remembered."""
        number = next((number for number, known in self.graphs.items() if known is graph), -1)
        return self.part(number, name, names)

    def since_planned(
        self, requests: Mapping[str, QueryRequest]
    ) -> dict[str, tuple[PhysicalGraph, list[BatchMetrics]]]:
        """By query, its part of the graph that runs, and its own metrics of the batches that ran by this graph."""
        batches = self.batches  # read once: another thread may add a batch of another graph meanwhile
        last = batches[-1][0] if batches else -1
        graph, recent = self.graphs.get(last), [metrics for number, metrics in batches if number == last]
        found = {}
        for member in graph.members if graph else ():
            names = requests[member.name].names if member.name in requests else ()
            part = self.part(last, member.name, names)
            if part is not None:
                found[member.name] = part.graph, [own_metrics(one, member.name, part) for one in recent]
        return found


@dataclass(frozen=True, slots=True)
class OwnProgress(Mapping[str, list[BatchMetrics]]):
    """The own metrics of every query, batch by batch, under its author's names; computed when they are asked for."""

    history: History
    requests: Mapping[str, QueryRequest]

    def __getitem__(self, name: str) -> list[BatchMetrics]:
        names = self.requests[name].names
        mine = [(number, metrics) for number, metrics in self.history.batches if name in metrics.answers]
        return [
            own_metrics(metrics, name, self.history.part(number, name, names)) for number, metrics in mine
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} ({len(self.history.batches_of(name)):,} batches)" for name in self)
        return f"<progress of {shorten(counts, 200, placeholder=' …') or 'no query'}>"

    def _repr_html_(self) -> str:
        rows = [
            (name, str(one.number), f"{one.results:,}", f"{one.elapsed:.3g}")
            for name in self
            for one in self[name][-SHOWN_BATCHES:]
        ]
        title = f"The last {SHOWN_BATCHES} batches of every query"
        return html_table(("query", "batch", "results", "seconds"), rows, title)


def progress_of(
    name: str,
    active_queries: ActiveQueries,
    history: History,
    state_of: Callable[[str], StateBytes],
    suspended: Mapping[str, Suspension],
    slow: Mapping[str, str] = MappingProxyType({}),
) -> QueryProgress:
    """The progress of a query in a session that has been started; ``slow`` says why queries are too slow."""
    batches = history.batches_of(name)
    running = active_queries.program.members.get(name) if active_queries.program else None
    if running is not None:  # another query may have had its name before
        batches = [one for one in batches if one.number >= running.first]
    totals = history.totals_of(name, running.first if running is not None else None)
    keys = batches[-1].keys.get(name) if batches else None
    marks = [one.punctuated[name] for one in batches if name in one.punctuated]
    mark = Punctuation.from_mark(marks[-1]["rows"], marks[-1]["mark"], marks[-1]["timed"]) if marks else None
    latency = Latency.sum(one.latencies[name] for one in batches[-RECENT:] if name in one.latencies)
    more: dict[str, Any] = {"closed": totals.closed, "keys": keys, "punctuation": mark, "latency": latency}
    if name in active_queries.stopped:
        why = active_queries.stopped[name]
        figures = (totals.first, totals.batches, totals.results)
        return QueryProgress(name, "stopped", *figures, reason=why, **more)
    if name not in active_queries.requests or active_queries.program is None:
        return QueryProgress(name, "waiting")
    member = active_queries.program.members[name]
    counts = (member.first, totals.batches, totals.results)
    held = batches[-1].held.get(name, 0) if batches else 0
    state = state_of(name)
    more |= {"own_state": state.own, "shared_state": state.shared, "held": held}
    status = "running"
    if name in slow:
        more["reason"] = f"too slow: {slow[name]}"
    if name in suspended:
        status, more["reason"] = "suspended", suspended[name].text
    return QueryProgress(name, status, *counts, complete_from(member), state.part, **more)


def failure_of(name: str, active_queries: ActiveQueries, last: Manifest) -> ResultError | None:
    """Why the results of a query are not complete and never will be; None unless it failed or reached a limit.

    ``last`` is the manifest of the last batch, in which a query may have failed that is still to be stopped.
    """
    why = active_queries.stopped.get(name) or (f"failed: {last.failed[name]}" if name in last.failed else "")
    kind, _, cause = why.partition(": ")
    if not cause:  # it runs, or whoever stopped it wanted to
        return None
    return ResultError(
        f"query {name} {'has failed' if kind == 'failed' else 'was stopped'}: {cause}",
        hint="its sink has what it gave before; mend the query and register it under another name",
    )


def own_metrics(metrics: BatchMetrics, name: str, part: QueryPart | None) -> BatchMetrics:
    """The metrics of a batch for one query; steps and stores that it shares with others count in full.

    If ``part`` is None, because the graph is no longer remembered, only the results and the times are known.
    """
    if part is None:
        known = replace(
            metrics, inputs={}, steps={}, edges={}, stores={}, answers={}, watermarks={}, tables={}
        )
        return replace(
            known, order=(), results=metrics.answers.get(name, 0), latencies=_own(metrics.latencies, name)
        )
    inputs = {part.aliases[alias]: one for alias, one in metrics.inputs.items() if alias in part.aliases}
    return replace(
        metrics,
        order=tuple(part.aliases[alias] for alias in metrics.order if alias in part.aliases),
        inputs=inputs,
        steps=_renamed(metrics.steps, part.edges),
        edges=_renamed(metrics.edges, part.edges),
        stores=_renamed(metrics.stores, part.stores),
        results=metrics.answers.get(name, 0),
        answers={},
        watermarks=_streams(metrics.watermarks, part),
        tables=_streams(metrics.tables, part),
        closed=_own(metrics.closed, name),
        keys=_own(metrics.keys, name),
        punctuated=_own(metrics.punctuated, name),
        held=_own(metrics.held, name),
        latencies=_own(metrics.latencies, name),
    )


def _own(figures: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: figures[name]} if name in figures else {}


def _renamed(figures: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[old]: one for old, one in figures.items() if old in names}


Figure = TypeVar("Figure", int, str)


def _streams(figures: Mapping[str, Figure], part: QueryPart) -> dict[str, Figure]:
    streams = {input_.stream.name for input_ in part.graph.query.inputs}
    return {name: one for name, one in figures.items() if name in streams}


def state_of(program: ExecutableGraph | None, manifest: Manifest, name: str) -> StateBytes:
    """The bytes of a query's stores, and of its results that are held back, which are its own.

    In its part, the bytes of a shared store are divided among its users. There are none if no query runs.
    """
    if program is None:
        return StateBytes()
    held = sum(run.bytes for run in manifest.held.get(name, ()))
    mine = [store for store in program.stores.values() if name in store.node.users]
    sizes = [(manifest.bytes_of(store.identity), len(store.node.users)) for store in mine]
    own = held + sum(size for size, users in sizes if users == 1)
    shared = sum(size for size, users in sizes if users > 1)
    return StateBytes(own, shared, sum((size / users for size, users in sizes), float(held)))


def too_large(program: ExecutableGraph, manifest: Manifest, limit: int | None) -> dict[str, str]:
    """The queries whose state has more bytes than the limit allows, each with a message that says so."""
    if limit is None:
        return {}
    sizes = {name: state_of(program, manifest, name).part for name in program.members}
    return {
        name: f"its state is {size:,.0f} bytes, more than the limit of {limit:,}"
        for name, size in sizes.items()
        if size > limit
    }
