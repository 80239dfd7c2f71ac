"""What a run does, in figures: from the metrics of its batches to what people ask for.

Guarantees: pure; the clock is passed in. A stream's figures are counted once, however many queries read it. What is
"per second" is over the last seconds before ``now``, or over the two last batches where these take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.log.totals import QueryTotals, Totals
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.session.planned_query import PlannedQuery
from weft.stats.histogram import Latency
from weft.stats.input_figures import InputFigures, TupleCounts
from weft.storage.cache import CacheCounts

__all__ = [
    "BatchFigures",
    "Figures",
    "Progress",
    "QueryFigures",
    "RunTotals",
    "StoreFigures",
    "StreamFigures",
    "batch_figures",
    "batches_after",
    "figures",
    "latency_of",
    "percentiles",
    "rate_of",
    "watermark_delay",
]

Progress: TypeAlias = Mapping[str, Sequence[BatchMetrics]]

_RECENT = 5.0
_TREND = 24
_LIVE = 3600.0  # seconds that event times of live data may be away from the clock
_MEASURED = 100  # so many batches' latencies are shown while a run goes on


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """What came in from a stream, and how many tuples a second of it took part; ``backlog`` is what waits."""

    name: str
    counts: TupleCounts
    per_second: float = 0.0
    backlog: Backlog | None = None


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """What came out of a query.

    ``hops`` are the seconds of the last batch: for reading, then for each hop. ``trend`` is how many results each of
    the last batches gave, oldest first. ``latency`` is that of the last results, or, where there is no moment, of all
    batches that are remembered.
    """

    name: str
    results: int
    per_second: float
    trend: tuple[int, ...]
    hops: tuple[float, ...]
    latency: Latency = Latency()  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """What a store of a query holds, and how many queries use it."""

    query: str
    name: str
    rows: int
    bytes: int
    users: int = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """A run at a moment; ``batch`` is the last one's number, None before the first is done."""

    streams: tuple[StreamFigures, ...]
    queries: tuple[QueryFigures, ...]
    stores: tuple[StoreFigures, ...]
    batch: int | None
    batches: int
    last_seconds: float
    mean_seconds: float


def batches_after(progress: Progress, number: int) -> dict[str, list[BatchMetrics]]:
    """The batches of each query after one: those of this run, not of the one it continues."""
    return {name: [one for one in batches if one.number > number] for name, batches in progress.items()}


def figures(
    planned: Sequence[PlannedQuery], progress: Progress, totals: Totals, now: float | None = None
) -> Figures:
    """The figures at a moment; without one, rates are those of all batches that are remembered.

    ``progress`` has the last batches, and ``totals`` count all of them.
    """
    longest = max((progress.get(query.name, ()) for query in planned), key=len, default=())
    elapsed = [batch.elapsed for batch in longest]
    return Figures(
        tuple(_stream(name, uses, progress, totals, now) for name, uses in _uses(planned).items()),
        tuple(_query(query, progress.get(query.name, ()), totals, now) for query in planned),
        tuple(store for query in planned for store in _stores(query.name, progress.get(query.name, ()))),
        longest[-1].number if longest else None,
        totals.batches,
        elapsed[-1] if elapsed else 0.0,
        totals.seconds / totals.batches if totals.batches else 0.0,
    )


def _uses(planned: Sequence[PlannedQuery]) -> dict[str, list[tuple[str, str]]]:
    """The (query, alias) pairs that read each stream."""
    found: dict[str, list[tuple[str, str]]] = {}
    for query in planned:
        for input_ in query.query.inputs:
            found.setdefault(input_.stream.name, []).append((query.name, input_.alias))
    return dict(sorted(found.items()))


def _stream(
    name: str, uses: Sequence[tuple[str, str]], progress: Progress, totals: Totals, now: float | None
) -> StreamFigures:
    rates = [_rate(progress.get(query, ()), partial(_rows, alias=alias), now) for query, alias in uses]
    last = [batches[-1].backlog for query, _ in uses if (batches := progress.get(query))]
    waiting = [one[name] for one in last if name in one]
    backlog = max(waiting, key=lambda one: (one.parts, one.seconds), default=None)
    return StreamFigures(name, totals.streams.get(name, TupleCounts()), max(rates), backlog)


def _rows(batch: BatchMetrics, alias: str) -> int:
    return _input(batch, alias).rows


def _input(batch: BatchMetrics, alias: str) -> InputFigures:
    return batch.inputs.get(alias) or InputFigures()


def _query(
    planned: PlannedQuery, batches: Sequence[BatchMetrics], totals: Totals, now: float | None
) -> QueryFigures:
    hops = batches[-1].seconds[: 1 + planned.graph.hops] if batches else ()
    return QueryFigures(
        planned.name,
        totals.queries.get(planned.name, QueryTotals()).results,
        _rate(batches, lambda batch: batch.results, now),
        tuple(batch.results for batch in batches[-_TREND:]),
        hops,
        Latency.sum(batch.latency for batch in (batches if now is None else batches[-_MEASURED:])),
    )


def _stores(query: str, batches: Sequence[BatchMetrics]) -> list[StoreFigures]:
    held = batches[-1].stores if batches else {}
    by_size = sorted(held, key=lambda name: (name.count("⋈"), name))
    return [
        StoreFigures(query, name, held[name].rows, held[name].bytes, held[name].users) for name in by_size
    ]


Timed = TypeVar("Timed", BatchMetrics, "BatchFigures")


def _rate(batches: Sequence[Timed], count: Callable[[Timed], int], now: float | None) -> float:
    """How many a second, among the batches that ended lately or, without a moment, among all."""
    if not batches:
        return 0.0
    end = _end(batches[-1]) if now is None else now
    recent = batches if now is None else _recent(batches, now)
    span = end - recent[0].started if recent else 0.0
    return sum(map(count, recent)) / span if span > 0 else 0.0


def _recent(batches: Sequence[Timed], now: float) -> Sequence[Timed]:
    length = max(_RECENT, 2 * batches[-1].elapsed)
    return [batch for batch in batches if now - _end(batch) <= length]


def _end(batch: BatchMetrics | BatchFigures) -> float:
    return batch.started + batch.elapsed


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What one batch did for all queries together: by stream, by query and by store.

    ``hops`` are the seconds of the slowest task, for reading and then for each hop; ``backlog`` are parts that wait,
    and ``behind`` is how many seconds the first of them has waited. ``latency`` is that of each query's results.
    """

    number: int
    started: float
    elapsed: float
    streams: Mapping[str, InputFigures] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    stores: tuple[StoreFigures, ...] = ()
    hops: tuple[float, ...] = ()
    backlog: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    behind: Mapping[str, float] = field(default_factory=dict)
    latency: Mapping[str, Latency] = field(default_factory=dict)
    cache: CacheCounts = CacheCounts()  # noqa: RUF009

    @property
    def rows(self) -> int:
        """The tuples that took part, each counted once."""
        return sum(one.rows for one in self.streams.values())


def batch_figures(graph: PhysicalGraph | None, metrics: BatchMetrics) -> BatchFigures:
    """The figures of a batch; of one whose graph is forgotten, those by stream are not known."""
    streams: dict[str, InputFigures] = {}
    for alias, one in metrics.inputs.items() if graph is not None else ():
        if graph is not None and alias in graph.aliases:
            name = graph.input(alias).stream.name
            streams[name] = max(streams.get(name, one), one, key=lambda figures: figures.rows)
    by_size = sorted(metrics.stores, key=lambda name: (name.count("⋈"), name))
    return BatchFigures(
        metrics.number,
        metrics.started,
        metrics.elapsed,
        dict(sorted(streams.items())),
        dict(metrics.answers),
        tuple(
            StoreFigures("", name, one.rows, one.bytes, one.users)
            for name, one in ((name, metrics.stores[name]) for name in by_size)
        ),
        metrics.seconds,
        {name: one.parts for name, one in metrics.backlog.items()},
        dict(metrics.watermarks),
        {name: one.seconds for name, one in metrics.backlog.items()},
        metrics.latencies,
        metrics.cache,
    )


def watermark_delay(watermark: int, newest: int | None, now: float) -> tuple[float, Literal["clock", "data"]]:
    """How many seconds a watermark is behind, and behind what: the clock, or the newest event time of old data.

    Data is old, a file of last year for instance, if its newest event time is more than an hour away from the clock.

    >>> watermark_delay(97_000_000, 99_000_000, 100.0)
    (3.0, 'clock')
    >>> watermark_delay(97_000_000, 99_000_000, 1_700_000_000.0)
    (2.0, 'data')
    """
    clock = now * 1e6
    last = watermark if newest is None else newest
    live = abs(clock - last) <= _LIVE * 1e6
    return max(0.0, ((clock if live else last) - watermark) / 1e6), "clock" if live else "data"


def rate_of(
    batches: Sequence[BatchFigures], count: Callable[[BatchFigures], int], now: float | None = None
) -> float:
    """How many a second, among the batches that ended lately or, without a moment, among all."""
    return _rate(batches, count, now)


def latency_of(batches: Iterable[BatchFigures], query: str | None = None) -> Latency:
    """The latencies of the results of a query, or of all, in some batches."""
    return Latency.sum(
        one for batch in batches for name, one in batch.latency.items() if query in (None, name)
    )


def percentiles(latency: Latency) -> dict[str, float]:
    """The percentiles of latencies from arrival to commit, in seconds; empty if there are no results."""
    if not latency.count:
        return {}
    found = latency.processing
    return {"p50": found.p50, "p95": found.p95, "p99": found.p99, "max": found.max}


@dataclass(frozen=True, slots=True)
class RunTotals:
    """All that a run has done so far, summed up batch by batch: it never goes down, however long the run.

    ``elapsed`` are the seconds of all batches together, and ``last`` is the number of the last one.
    """

    streams: Mapping[str, InputFigures] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    batches: int = 0
    elapsed: float = 0.0
    last: int = -1
    cache: CacheCounts = CacheCounts()  # noqa: RUF009

    def plus(self, batch: BatchFigures) -> RunTotals:
        """With one batch more."""
        streams = {name: self.streams.get(name, InputFigures()) + one for name, one in batch.streams.items()}
        results = {name: self.results.get(name, 0) + count for name, count in batch.results.items()}
        return RunTotals(
            {**self.streams, **streams},
            {**self.results, **results},
            self.batches + 1,
            self.elapsed + batch.elapsed,
            batch.number,
            self.cache + batch.cache,
        )
