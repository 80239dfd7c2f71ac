"""What a service says of its session: plain, frozen values.

Guarantees: every value is a frozen dataclass of numbers, texts, times in UTC and tuples or mappings of these, so that
it can be shown, compared and written as JSON as it is. Nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from weft.stats.input_figures import TupleCounts

__all__ = [
    "Asked",
    "BatchInfo",
    "ColumnInfo",
    "ColumnSource",
    "DatasetInfo",
    "DeadLetterInfo",
    "EdgeInfo",
    "FigureInfo",
    "GraphInfo",
    "Health",
    "NewQuery",
    "NewStream",
    "NodeInfo",
    "Overview",
    "PlanChangeInfo",
    "PlanInfo",
    "QueryInfo",
    "QueryLineage",
    "SampleRows",
    "StoreInfo",
    "StreamInfo",
]

State = Literal["starting", "running", "stopping", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the session runs; if it failed, ``error`` and ``hint`` say why."""

    state: State
    ready: bool
    since: datetime
    batch: int | None = None
    error: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a stream or of results, with its type as Spark SQL names it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo(TupleCounts):
    """A stream: what it is, who reads it, and what it has brought since the checkpoint began.

    Its counts are those of `TupleCounts`. ``backlog`` parts wait, None before the first batch, the first of them for
    ``behind`` seconds. ``declared`` says where it comes from: the operator's file or the API. The ``watermark`` is
    ``watermark_delay`` seconds behind the clock or, of old data, behind the ``newest`` event time, as ``delay_of``
    says. ``unfinished`` is what cannot be read yet, and why. A record further ``ahead`` of the clock is set aside;
    None: no record is. Durations are in seconds.
    """

    name: str
    columns: tuple[ColumnInfo, ...]
    event_time: str | None
    lateness: float
    late_tuples: str
    idle_after: float | None
    source: str | None
    declared: Literal["file", "api"]
    readers: tuple[str, ...] = ()
    rows_per_second: float = 0.0
    backlog: int | None = None
    behind: float = 0.0
    watermark: datetime | None = None
    newest: datetime | None = None
    watermark_delay: float | None = None
    delay_of: Literal["clock", "data"] | None = None
    unfinished: tuple[str, ...] = ()
    ahead: float | None = None


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A query: its text in normal form, how it gets on, and where its results go.

    ``status`` is planned, waiting (for the next batch), running, suspended or stopped (``reason`` says why). ``sink``
    is the kind of its sink, and ``readable`` says whether the service keeps its last results. ``trend`` is how many
    results each of the last batches gave, oldest first. Results whose tuples are all of ``complete_from`` or later are
    complete; None: all are. ``state_bytes`` are those of its stores, of shared ones its part; ``own_bytes`` are those
    that are its alone, ``shared_bytes`` those of all stores that others use too, undivided. ``results`` and ``batches``
    count all since it began, in all runs. ``latency`` are percentiles (p50, p95, p99, max) of the seconds from a
    tuple's arrival to its results, in the last batches. ``place`` is where its sink writes to, if that is a place, and
    ``precision`` that of its order, if it has one.
    """

    name: str
    sql: str
    status: str
    reason: str
    strategy: str
    order: str
    sink: str | None
    readable: bool
    declared: Literal["file", "api"]
    streams: tuple[str, ...]
    columns: tuple[ColumnInfo, ...]
    first_batch: int | None = None
    batches: int = 0
    results: int = 0
    results_per_second: float = 0.0
    trend: tuple[int, ...] = ()
    state_bytes: float = 0.0
    own_bytes: int = 0
    shared_bytes: int = 0
    closed: int = 0
    held: int = 0
    complete_from: datetime | None = None
    latency: Mapping[str, float] = field(default_factory=dict)
    place: str | None = None
    precision: int | None = None


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store of the graph that runs: what it holds after the last batch, and the queries that use it."""

    name: str
    layout: str
    users: tuple[str, ...]
    rows: int = 0
    bytes: int = 0
    filling: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch: when it began, how long it took, what came in and what went out.

    ``hops`` are the seconds of the slowest task: for reading, then for each hop.
    """

    number: int
    started: datetime
    seconds: float
    rows: Mapping[str, int]
    results: Mapping[str, int]
    hops: tuple[float, ...]
    backlog: Mapping[str, int]
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Overview:
    """A session at a moment.

    ``batches``, ``rows`` and ``results`` count those since the checkpoint began, in all runs; times of batches are in
    seconds, and the mean is over the last of them. ``latency`` are percentiles of the time from a tuple's arrival to
    its results, in seconds, where known.
    """

    now: datetime
    health: Health
    batches: int
    last_seconds: float
    mean_seconds: float
    rows: int
    rows_per_second: float
    results: int
    results_per_second: float
    state_bytes: int
    streams: tuple[StreamInfo, ...]
    queries: tuple[QueryInfo, ...]
    stores: tuple[StoreInfo, ...]
    plan_changes: int
    latency: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of the running graph: a ``kind`` of source, store or result, and the queries that use it.

    ``rows`` and ``bytes`` are what a store holds, or what a source or a query had in the last batch.
    """

    id: str
    kind: Literal["source", "store", "result"]
    label: str
    users: tuple[str, ...] = ()
    detail: str = ""
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class EdgeInfo:
    """An edge of the running graph, which tuples go along in a ``hop``, routed as ``routing`` says.

    ``action`` is what happens at its end: store, probe or result. ``probes`` and ``matches`` are of the last batch.
    """

    id: str
    source: str
    target: str
    hop: int
    routing: str
    action: Literal["store", "probe", "result"]
    users: tuple[str, ...] = ()
    probes: int = 0
    matches: int = 0


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """The graph that all queries run by together, after a batch; empty if none runs."""

    batch: int | None
    hops: int
    nodes: tuple[NodeInfo, ...]
    edges: tuple[EdgeInfo, ...]


@dataclass(frozen=True, slots=True)
class NewQuery:
    """A query that is asked for, as `Session.query` takes it; ``sink`` is as in pipeline files; None: memory."""

    sql: str
    name: str | None = None
    sink: str | Mapping[str, Any] | None = None
    strategy: str | None = None
    cross: bool = False
    backfill: bool = False
    emit_unmatched_after: str | None = None
    order: str = "none"
    precision: int | None = None
    latency: str | None = None


@dataclass(frozen=True, slots=True)
class NewStream:
    """A stream that is asked for; ``source`` is as in pipeline files, and durations are texts such as "5 seconds"."""

    name: str
    source: Mapping[str, Any]
    schema: str | None = None
    event_time: str | None = None
    lateness: str | None = None
    late: str | None = None
    idle_after: str | None = None
    ahead: str | None = None
    shed: str | None = None


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """The plan that a query would get, without running it.

    ``explain`` is the text and ``graph`` the same as data. ``shares`` are stores that run already and that it would
    use too, ``adds`` those that would be new, under the names of the shared graph.
    """

    sql: str
    strategy: str
    explain: str
    graph: Mapping[str, Any]
    columns: tuple[ColumnInfo, ...]
    shares: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanChangeInfo:
    """A change of the running plan because the data changed: when, how, why, what it promised and what it brought.

    ``gain`` and ``observed`` are parts of the work, ``seconds`` and ``bytes`` what the migration was expected to take.
    """

    batch: int
    way: str
    cause: str
    reason: str
    what: str
    gain: float
    seconds: float
    bytes: int
    observed: float | None


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Some rows of a stream: the names of its columns, and the rows as texts, newest last; NULL is None."""

    names: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that a visitor or a client asked a service for: when, what, and the error if it was refused."""

    at: datetime
    what: str
    name: str
    sql: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Data outside of Weft, or results that it keeps, by the names that OpenLineage gives it, with its columns."""

    namespace: str
    name: str
    columns: tuple[ColumnInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """A column of a dataset that a result depends on: ``how`` is IDENTITY, TRANSFORMATION, JOIN or FILTER."""

    namespace: str
    name: str
    field: str
    how: str


@dataclass(frozen=True, slots=True)
class QueryLineage:
    """Where the results of a query come from and go to.

    ``columns`` are, by the name of a column of the results, the columns that it is made of; ``rows`` are the columns
    that decide which results there are.
    """

    query: str
    sql: str
    inputs: tuple[DatasetInfo, ...]
    output: DatasetInfo
    columns: Mapping[str, tuple[ColumnSource, ...]]
    rows: tuple[ColumnSource, ...]


@dataclass(frozen=True, slots=True)
class FigureInfo:
    """A figure that queries are planned by: what is known of which thing, from which source, how old and how sure."""

    of: str
    what: str
    value: float
    source: str
    evidence: float
    batches_ago: int | None
    seconds_ago: float | None


@dataclass(frozen=True, slots=True)
class DeadLetterInfo:
    """The bad records of a batch: how many, and how many bytes their file has."""

    batch: int
    records: int
    bytes: int
