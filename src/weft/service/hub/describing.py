"""From what a session holds to what a service says of it.

Guarantees: pure functions; what they say of a query or a stream is what the session and `service/figures.py` say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

from weft.connectors.files.source import FilesSource
from weft.connectors.generate.rate import RateSource
from weft.connectors.memory.recent import RecentSink
from weft.connectors.sink_descriptions import describe_sink, place_of
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule, ResultRule, Rule
from weft.ports.sink import Sink
from weft.runtime.observe.metrics import BatchMetrics, StoreMetrics
from weft.runtime.observe.plan_changes import PlanChange
from weft.runtime.observe.progress import QueryProgress
from weft.service.figures import BatchFigures, percentiles, rate_of, watermark_delay
from weft.service.hub.lifecycle import Seen, moment
from weft.service.hub.values import (
    BatchInfo,
    ColumnInfo,
    EdgeInfo,
    FigureInfo,
    GraphInfo,
    NodeInfo,
    PlanChangeInfo,
    QueryInfo,
    StoreInfo,
    StreamInfo,
)
from weft.session.planned_query import PlannedQuery
from weft.stats.input_figures import InputFigures, StepFigures, TupleCounts
from weft.stats.report import StatisticsRow

__all__ = [
    "batch_info",
    "columns_of",
    "count_records",
    "figure_info",
    "graph_info",
    "plan_change_info",
    "query_info",
    "sink_kind",
    "source_text",
    "store_infos",
    "stream_info",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TREND = 24

Declared = Literal["file", "api"]


def _time(micros: int | None) -> datetime | None:
    """A time in UTC; None also for one that Python's calendar does not have."""
    try:
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def columns_of(query: Query) -> tuple[ColumnInfo, ...]:
    """The columns of a query's results."""
    return tuple(ColumnInfo(output.name, str(output.expr.type)) for output in query.shown)


def source_text(source: object) -> str | None:
    """What a stream is read from, in a few words; None if it is not read."""
    if isinstance(source, FilesSource):
        return f"{source.format} files in {Path(source.path).name}"
    if isinstance(source, RateSource):
        return f"{source.rows_per_second:,} generated rows a second"
    return None if source is None else type(source).__name__.removesuffix("Source").lower()


def sink_kind(sink: Sink | None) -> str | None:
    """The kind of a sink; None if there is none."""
    if sink is None:
        return None
    described = describe_sink(sink)
    return str(described["kind"]) if described else type(sink).__name__.removesuffix("Sink").lower()


def stream_info(
    stream: Stream,
    source: object,
    declared: Declared,
    readers: Sequence[str],
    seen: Seen,
    now: float,
    counts: TupleCounts,
    unfinished: Sequence[str] = (),
) -> StreamInfo:
    """A stream, with what it has brought: ``counts`` are its totals."""
    newest, last = seen.totals.streams.get(stream.name, InputFigures()).newest, seen.recent[-1:]
    mark = last[0].watermarks.get(stream.name) if last else None
    delay, delay_of = watermark_delay(mark, newest, now) if mark is not None else (None, None)

    def rows(batch: BatchFigures) -> int:
        return batch.streams[stream.name].rows if stream.name in batch.streams else 0

    return StreamInfo(
        *astuple(counts),
        name=stream.name,
        columns=tuple(ColumnInfo(field.name, str(field.type)) for field in stream.schema),
        event_time=stream.event_time,
        lateness=stream.lateness.total_seconds(),
        late_tuples=stream.late,
        idle_after=stream.idle_after.total_seconds() if stream.idle_after is not None else None,
        source=source_text(source),
        declared=declared,
        readers=tuple(readers),
        rows_per_second=rate_of(seen.recent, rows, now),
        backlog=last[0].backlog.get(stream.name) if last else None,
        behind=last[0].behind.get(stream.name, 0.0) if last else 0.0,
        watermark=_time(mark),
        newest=_time(newest),
        watermark_delay=delay,
        delay_of=delay_of,
        unfinished=tuple(unfinished),
        ahead=stream.ahead.total_seconds() if stream.ahead is not None and stream.event_time else None,
    )


def query_info(
    planned: PlannedQuery, progress: QueryProgress, declared: Declared, seen: Seen, now: float
) -> QueryInfo:
    """A query, with how it gets on."""
    name = planned.name

    def results(batch: BatchFigures) -> int:
        return batch.results.get(name, 0)

    running = progress.status in ("running", "suspended")
    return QueryInfo(
        name,
        str(planned.query),
        progress.status,
        progress.reason,
        planned.strategy,
        planned.ordering.kind if planned.ordering is not None else "none",
        sink_kind(planned.sink),
        isinstance(planned.sink, RecentSink),
        declared,
        tuple(sorted({input_.stream.name for input_ in planned.query.inputs})),
        columns_of(planned.query),
        progress.created,
        progress.batches,
        progress.results,
        rate_of(seen.recent, results, now) if running else 0.0,
        tuple(one.results[name] for one in seen.recent[-_TREND:] if name in one.results),
        progress.state,
        progress.own_state,
        progress.shared_state,
        progress.closed,
        progress.held,
        progress.complete_from,
        percentiles(progress.latency),
        place_of(planned.sink) if planned.sink is not None else None,
        planned.ordering.precision if planned.ordering is not None else None,
    )


def batch_info(batch: BatchFigures) -> BatchInfo:
    """A batch."""
    return BatchInfo(
        batch.number,
        moment(batch.started),
        batch.elapsed,
        {name: one.rows for name, one in batch.streams.items()},
        batch.results,
        batch.hops,
        batch.backlog,
        sum(store.bytes for store in batch.stores),
    )


def store_infos(graph: PhysicalGraph | None, last: BatchMetrics | None) -> tuple[StoreInfo, ...]:
    """The stores of the graph that runs, with what they hold."""
    held: Mapping[str, StoreMetrics] = last.stores if last is not None else {}
    nothing = StoreMetrics(0, 0, 0)
    return tuple(
        StoreInfo(
            store.name,
            str(store.layout),
            store.users,
            held.get(store.name, nothing).rows,
            held.get(store.name, nothing).bytes,
            store.filling,
        )
        for store in (graph.stores if graph is not None else ())
    )


def graph_info(graph: PhysicalGraph | None, last: BatchMetrics | None) -> GraphInfo:
    """The graph that runs, with what its parts did in the last batch."""
    if graph is None:
        return GraphInfo(last.number if last else None, 0, (), ())
    rules = {rule.edge: rule for rule in graph.rules}
    inputs = last.inputs if last is not None else {}
    sources = [
        NodeInfo(
            f"source:{one.name}",
            "source",
            one.alias,
            tuple(member.name for member in graph.members if one.alias in member.query.aliases),
            graph.input(one.alias).stream.name,
            inputs[one.alias].rows if one.alias in inputs else 0,
        )
        for one in graph.sources
    ]
    stores = [
        NodeInfo(f"store:{one.name}", "store", one.name, one.users, one.layout, one.rows, one.bytes)
        for one in store_infos(graph, last)
    ]
    answers = last.answers if last is not None else {}
    results = [
        NodeInfo(
            f"result:{member.name}", "result", member.name, (member.name,), "", answers.get(member.name, 0)
        )
        for member in graph.members
    ]
    return GraphInfo(
        last.number if last else None,
        graph.hops,
        (*sources, *stores, *results),
        tuple(_edges(graph, rules, last.steps if last is not None else {})),
    )


def _edges(
    graph: PhysicalGraph, rules: Mapping[str, Rule], steps: Mapping[str, StepFigures]
) -> Iterable[EdgeInfo]:
    nodes = {one.name: f"source:{one.name}" for one in graph.sources}
    nodes |= {one.name: f"store:{one.name}" for one in graph.stores}
    for edge in graph.edges:
        rule, step = rules[edge.name], steps.get(edge.name, StepFigures(0, 0))
        start, hop, routing = nodes[edge.source], edge.hop, str(edge)
        if isinstance(rule, ResultRule):
            for user in rule.users:
                end = f"result:{user}"
                yield EdgeInfo(f"{edge.name}:{user}", start, end, hop, routing, "result", (user,))
        else:
            action: Literal["probe", "store"] = "probe" if isinstance(rule, ProbeRule) else "store"
            users, end = rule.users or graph.store(edge.target).users, nodes[edge.target]
            figures = (step.probes, step.matches)
            yield EdgeInfo(edge.name, start, end, hop, routing, action, users, *figures)


def count_records(content: bytes) -> int:
    """How many bad records there are among lines of JSON."""
    return sum(1 for line in content.splitlines() if line)


def plan_change_info(change: PlanChange) -> PlanChangeInfo:
    """A change of the plan."""
    return PlanChangeInfo(
        change.batch,
        change.way,
        change.cause,
        change.reason,
        change.what,
        change.gain,
        change.seconds,
        change.bytes,
        change.observed,
    )


def figure_info(row: StatisticsRow) -> FigureInfo:
    """A figure that is known."""
    return FigureInfo(row.of, row.what, row.value, row.source, row.evidence, row.batches, row.seconds)
