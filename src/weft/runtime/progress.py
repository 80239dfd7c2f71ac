"""How a query is getting on: its state, and its own figures out of those of the graph it shares.

Guarantees: plain data; under the names that the query's author gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from weft.plan.graph import Member, PhysicalGraph
from weft.plan.part import Part
from weft.runtime.metrics import BatchMetrics

__all__ = ["History", "OwnProgress", "QueryProgress", "complete_from", "own_metrics"]


KEPT = 999  # batches, beside the last one
GRAPHS = 32


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query that waits for the next batch, runs, or has stopped (then ``reason`` says why).

    ``created`` is the first batch it is in, ``batches`` in how many it was. Results whose tuples are all of
    ``complete_from`` or later are complete; None: all are. ``state`` are the bytes of its stores, those of shared ones
    divided among their users.
    """

    name: str
    status: str
    created: int | None = None
    batches: int = 0
    results: int = 0
    complete_from: datetime | None = None
    state: float = 0.0
    reason: str = ""


def complete_from(member: Member, backfill: bool = False) -> datetime | None:
    """The time from which on a query's results are complete; None: they all are.

    A query of one input needs nothing of the past, unless it asked for results that lie there.
    """
    times = [sight.complete for sight in member.sights if sight.complete is not None]
    if not times or (len(member.query.aliases) == 1 and not backfill):
        return None
    return datetime.fromtimestamp(max(times) / 1e6, timezone.utc)


@dataclass
class History:
    """What batches did, the last ones, and the graphs they ran by, as far as these are few."""

    batches: list[tuple[int, BatchMetrics]] = field(
        default_factory=list
    )  # the graph's number, and the figures
    graphs: dict[int, PhysicalGraph] = field(default_factory=dict)

    def add(self, graph: PhysicalGraph, metrics: BatchMetrics) -> None:
        """One batch more."""
        last = max(self.graphs, default=-1)
        if last < 0 or self.graphs[last] is not graph:
            last += 1
            self.graphs = {n: g for n, g in self.graphs.items() if n > last - GRAPHS} | {last: graph}
        self.batches = [*self.batches[-KEPT:], (last, metrics)]

    def of(self, name: str) -> list[BatchMetrics]:
        """The batches that a query was in."""
        return [metrics for _, metrics in self.batches if name in metrics.answers]

    @property
    def last(self) -> BatchMetrics | None:
        """The last batch."""
        return self.batches[-1][1] if self.batches else None

    @property
    def current(self) -> tuple[PhysicalGraph | None, list[BatchMetrics]]:
        """The last graph, and the batches it ran."""
        if not self.batches:
            return None, []
        last = self.batches[-1][0]
        return self.graphs[last], [metrics for number, metrics in self.batches if number == last]


@dataclass(frozen=True, slots=True)
class OwnProgress(Mapping[str, list[BatchMetrics]]):
    """The batches of every query, under its author's names, worked out when they are asked for."""

    history: History
    names: tuple[str, ...]
    part: Callable[[int, str], Part | None]

    def __getitem__(self, name: str) -> list[BatchMetrics]:
        if name not in self.names:
            raise KeyError(name)
        mine = [(number, metrics) for number, metrics in self.history.batches if name in metrics.answers]
        return [own_metrics(metrics, name, self.part(number, name)) for number, metrics in mine]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def own_metrics(metrics: BatchMetrics, name: str, part: Part | None) -> BatchMetrics:
    """What a batch did for one query; steps and stores that it shares count in full.

    Of a batch whose graph is forgotten, only the results and the times are known.
    """
    if part is None:
        known = replace(metrics, inputs={}, steps={}, stores={}, answers={}, watermarks={})
        return replace(known, order=(), results=metrics.answers.get(name, 0))
    inputs = {part.aliases[alias]: one for alias, one in metrics.inputs.items() if alias in part.aliases}
    return replace(
        metrics,
        order=tuple(part.aliases[alias] for alias in metrics.order if alias in part.aliases),
        inputs=inputs,
        steps=_renamed(metrics.steps, part.edges),
        stores=_renamed(metrics.stores, part.stores),
        results=metrics.answers.get(name, 0),
        answers={},
        watermarks=_streams(metrics, part),
    )


def _renamed(figures: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[old]: one for old, one in figures.items() if old in names}


def _streams(metrics: BatchMetrics, part: Part) -> dict[str, int]:
    streams = {input_.stream.name for input_ in part.graph.query.inputs}
    return {name: mark for name, mark in metrics.watermarks.items() if name in streams}
