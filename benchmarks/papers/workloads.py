"""Workloads of the papers as tables in memory, and how one is run: the same session for every contender.

Guarantees: the same arguments give the same rows. A run joins all batches of a workload in this process (the local
executor), one after the other, and tells what its batches counted. Throughput is in rows per second of processor time,
which others on the machine change little; all partitions' work is done in turn, so it is that of all cores together.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import weft
from weft.connectors.memory.source import TableSource
from weft.logical.query.canonical import canonical
from weft.optimizer.single.strategies import optimise
from weft.plan.join_plan import Cost
from weft.runtime.observe.metrics import BatchMetrics
from weft.stats.histogram import Latency

# How figures differ from the papers' where `run` measures them.
LOCAL = (
    "in one process that does the work of all partitions in turn, where the thesis has tasks on"
    " EC2 machines; rows per second "
    "of processor time"
)
HORIZON = 100.0  # seconds in which all rows of a workload come, where it has no event times


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries over streams whose rows are in ``tables``, which are joined in so many batches.

    With ``event_time``, that column has the times of the tuples, which come in their order. ``selectivities`` are
    true ones of conditions, where distinct values do not tell them, and ``given`` is what is told of the data
    instead of what is true. ``asked`` are further keywords of the queries. If the input ``ends``, rows of outer
    joins are closed then.
    """

    queries: Mapping[str, str]
    tables: Mapping[str, pa.Table]
    batches: int
    event_time: str | None = None
    selectivities: Mapping[str, float] = field(default_factory=dict)
    given: weft.Statistics | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    ends: bool = False

    @property
    def rows(self) -> int:
        """How many rows all streams have."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def timed_rows(self) -> int:
        """How many rows come after the first batch, in which queries are planned; all, if there is no other."""
        return sum(
            self.portion(name, number).num_rows
            for name in self.tables
            for number in range(min(1, self.batches - 1), self.batches)
        )

    def only(self, *names: str) -> Workload:
        """The workload of some of the queries, over the streams that they read."""
        queries = {name: self.queries[name] for name in names}
        text = " ".join(queries.values())
        tables = {name: table for name, table in self.tables.items() if f" {name} " in text}
        return replace(self, queries=queries, tables=tables)

    def portion(self, name: str, number: int) -> pa.Table:
        """The rows of a stream that come with a batch."""
        table = self.tables[name]
        first, last = (table.num_rows * at // self.batches for at in (number, number + 1))
        return table.slice(first, last - first)

    def statistics(self) -> weft.Statistics:
        """What is true of the data: rates and distinct values, as CLASH measured them offline (5.5.7)."""
        if self.given is not None:
            return self.given
        known = {}
        for name, table in self.tables.items():
            seconds = HORIZON
            if self.event_time is not None:
                times = pc.min_max(table.column(self.event_time)).as_py()
                seconds = max(1e-3, (times["max"] - times["min"]).total_seconds())
            distinct = {
                column: float(pc.count_distinct(table.column(column)).as_py())
                for column in table.column_names
                if column != self.event_time
            }
            known[name] = weft.StreamStatistics(rate=table.num_rows / seconds, distinct=distinct)
        return weft.Statistics(known, horizon=timedelta(seconds=HORIZON))


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did; counts are of the whole run, ``stored`` those of its end.

    Throughput is that of the ``rows`` after the first batch, in which queries are planned, in so many ``seconds``.
    """

    rows: int
    results: int
    seconds: float
    sent: int
    sent_bytes: int
    probed: int
    stored: int
    stored_bytes: int
    most_stored: int
    latency: float  # in the median, in seconds
    latency_p95: float
    busiest: float
    expected_probes: float
    expected_stored: float
    hops: int
    batch_seconds: tuple[float, ...]
    stages: Mapping[str, float]
    task_seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Rows per second of processor time."""
        return self.rows / max(1e-9, self.seconds)

    def row(self, **keys: str | float) -> dict[str, str | float]:
        """The run as a row of a figure."""
        return {
            **keys,
            "rows/s": self.rate,
            "sent": float(self.sent),
            "sent bytes": float(self.sent_bytes),
            "probed": float(self.probed),
            "stored": float(self.stored),
            "latency ms": 1e3 * self.latency,
            "latency p95 ms": 1e3 * self.latency_p95,
            "results": float(self.results),
        }


def run(
    workload: Workload,
    *,
    strategy: str = "auto",
    partitions: int = 4,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    arriving: Mapping[str, int] | None = None,
    warm: bool = True,
) -> Ran:
    """Run all queries of a workload; those of ``arriving`` are added before the batch of that number.

    What has to be compiled is compiled by a run of its first tenth before.
    """
    if warm:
        few = {name: table.slice(0, max(1, table.num_rows // 10)) for name, table in workload.tables.items()}
        tenth = replace(workload, tables=few, batches=2)
        run(
            tenth,
            strategy=strategy,
            partitions=partitions,
            options=options,
            settings=settings,
            arriving={name: min(1, at) for name, at in (arriving or {}).items()},
            warm=False,
        )
    chosen = weft.Options(strategy=strategy, partitions=partitions, **(options or {}))
    with tempfile.TemporaryDirectory(prefix="weft-paper-") as folder:
        session = weft.Session(
            checkpoint=folder,
            execution="local",
            options=chosen,
            statistics=workload.statistics(),
            **{"adapt": "off", **(settings or {})},
        )
        try:
            return _joined(workload, session, arriving or {})
        finally:
            session.stop()


def _joined(workload: Workload, session: weft.Session, arriving: Mapping[str, int]) -> Ran:
    sources = {name: TableSource(_schema(table)) for name, table in workload.tables.items()}
    for name, source in sources.items():
        session.stream(name, source, event_time=workload.event_time)
    for condition, part in workload.selectivities.items():
        session.selectivity(condition, part)
    for name, text in workload.queries.items():
        if name not in arriving:
            session.query(text, name=name, sink=weft.to_count(), **workload.asked)
    session.start(ends=workload.ends)
    taken = list[float]()
    for number in range(workload.batches):
        for name, at in arriving.items():
            if at == number:
                session.query(workload.queries[name], name=name, sink=weft.to_count(), **workload.asked)
        for name, source in sources.items():
            source.offer(workload.portion(name, number))
        began = time.process_time()
        session.process_all_available()
        taken.append(time.process_time() - began)
    if workload.ends:
        began = time.process_time()
        session.end()
        taken.append(time.process_time() - began)
    return _figures(workload, session, taken)


def _figures(workload: Workload, session: weft.Session, taken: Sequence[float]) -> Ran:
    running: Any = session._last_run
    batches = [metrics for _, metrics in running.loop.history.batches]
    graph = running.loop.active_queries.program.graph
    latency = Latency.sum(batch.latency for batch in batches).processing
    held = [sum(one.rows for one in batch.stores.values()) for batch in batches]
    busy: dict[int, float] = {}
    for batch in batches:
        for partition, seconds in batch.busy.items():
            busy[partition] = busy.get(partition, 0.0) + seconds
    cost = _expected(workload, session) if len(workload.queries) == 1 else None
    return Ran(
        rows=workload.timed_rows,
        results=sum(batch.results for batch in batches),
        seconds=sum(taken[min(1, len(taken) - 1) :]),
        sent=sum(batch.sent.tuples for batch in batches),
        sent_bytes=sum(batch.sent.bytes for batch in batches),
        probed=sum(step.probes for batch in batches for step in batch.steps.values()),
        stored=held[-1] if held else 0,
        stored_bytes=sum(one.bytes for one in batches[-1].stores.values()) if batches else 0,
        most_stored=max(held, default=0),
        latency=latency.p50 if latency.count else 0.0,
        latency_p95=latency.p95 if latency.count else 0.0,
        busiest=max(busy.values(), default=0.0) * len(busy) / max(1e-12, sum(busy.values())),
        expected_probes=cost.probes * HORIZON if cost else 0.0,
        expected_stored=cost.storage if cost else 0.0,
        hops=graph.hops,
        batch_seconds=tuple(taken),
        stages=_stages(batches),
        task_seconds=tuple(
            sum(batch.seconds) for batch in batches if any(one.rows for one in batch.inputs.values())
        ),
    )


def _stages(batches: Sequence[BatchMetrics]) -> dict[str, float]:
    """The seconds of all batches by what they were spent on: reading, hops, and all the rest of a batch."""
    read = sum(batch.seconds[0] for batch in batches if batch.seconds)
    hops = sum(sum(batch.seconds[1:]) for batch in batches)
    whole = sum(batch.elapsed for batch in batches)
    return {"read": read, "join": hops, "rest": max(0.0, whole - read - hops)}


def _expected(workload: Workload, session: weft.Session) -> Cost | None:
    """What the plan of the only query is expected to cost."""
    (text,) = workload.queries.values()
    return optimise(canonical(session.parse(text)).query, session.statistics, session.options).cost


def _schema(table: pa.Table) -> str:
    kinds = {pa.int64(): "long", pa.int32(): "int", pa.string(): "string", pa.float64(): "double"}
    return ", ".join(f"{one.name} {kinds.get(one.type, 'timestamp')}" for one in table.schema)


# -- CLASH's data: TPC-H and linear joins of given selectivities ------------------------------------------------------

Q2 = (
    "SELECT p.partkey FROM part AS p, partsupp AS ps, supplier AS s, nation AS n, region AS r WHERE "
    "{part_partsupp} AND {supplier_partsupp} AND {supplier_nation} AND {nation_region}"
)
Q3 = (
    "SELECT l.orderkey FROM customer AS c, orders AS o, lineitem AS l WHERE "
    "{customer_orders} AND {lineitem_orders}"
)
Q5 = (
    "SELECT l.orderkey FROM customer AS c, orders AS o, lineitem AS l, supplier AS s, nation AS"
    " n, region AS r "
    "WHERE {customer_orders} AND {lineitem_orders} AND {lineitem_supplier} AND {customer_supplier} "
    "AND {supplier_nation} AND {nation_region}"
)
# The joins of these queries, each as its two sides.
JOINS = {
    "part_partsupp": ("p.partkey", "ps.partkey"),
    "supplier_partsupp": ("s.suppkey", "ps.suppkey"),
    "supplier_nation": ("s.nationkey", "n.nationkey"),
    "nation_region": ("n.regionkey", "r.regionkey"),
    "customer_orders": ("c.custkey", "o.custkey"),
    "lineitem_orders": ("l.orderkey", "o.orderkey"),
    "lineitem_supplier": ("l.suppkey", "s.suppkey"),
    "customer_supplier": ("c.nationkey", "s.nationkey"),
}
QUERIES = {"Q2": Q2, "Q3": Q3, "Q5": Q5}


def written(text: str, theta: Sequence[str] = ()) -> str:
    """A query with its joins as equalities, or, those of ``theta``, as two comparisons: a range of one value."""
    terms = {
        name: f"{one} >= {other} AND {one} <= {other}" if name in theta else f"{one} = {other}"
        for name, (one, other) in JOINS.items()
    }
    return text.format(**terms)


def with_windows(text: str, window: str) -> str:
    """A query in which every input has a window, given as in SQL."""
    head, _, rest = text.partition(" FROM ")
    inputs, _, where = rest.partition(" WHERE ")
    named = (one.strip().partition(" AS ") for one in inputs.split(","))
    return f"{head} FROM {', '.join(f'{stream} {window} AS {alias}' for stream, _, alias in named)} WHERE {where}"


def tpch(scale: float, seed: int = 7, seconds: float | None = None) -> dict[str, pa.Table]:
    """The tables of TPC-H with the columns that Q2, Q3 and Q5 join on, in random order; as in CLASH, without filters.

    With ``seconds``, rows have event times that are spread evenly over so many seconds.
    """
    rng = np.random.default_rng(seed)
    suppliers, customers, parts, orders = (
        max(2, round(scale * count)) for count in (10_000, 150_000, 200_000, 1_500_000)
    )
    keys = {
        "region": {"regionkey": np.arange(5)},
        "nation": {"nationkey": np.arange(25), "regionkey": np.arange(25) % 5},
        "supplier": {"suppkey": np.arange(suppliers), "nationkey": rng.integers(0, 25, suppliers)},
        "customer": {"custkey": np.arange(customers), "nationkey": rng.integers(0, 25, customers)},
        "part": {"partkey": np.arange(parts), "size": rng.integers(1, 51, parts)},
        "partsupp": {
            "partkey": np.repeat(np.arange(parts), 4),
            "suppkey": rng.integers(0, suppliers, 4 * parts),
        },
        "orders": {
            "orderkey": np.arange(orders),
            "custkey": rng.integers(0, max(1, 2 * customers // 3), orders),
        },
    }
    items = np.repeat(np.arange(orders), rng.integers(1, 8, orders))
    keys["lineitem"] = {
        "orderkey": items,
        "partkey": rng.integers(0, parts, items.size),
        "suppkey": rng.integers(0, suppliers, items.size),
    }
    return {name: _shuffled(rng, columns, seconds) for name, columns in keys.items()}


BEGAN = 1_700_000_000_000_000  # in microseconds since 1970


def _shuffled(rng: Any, columns: Mapping[str, Any], seconds: float | None) -> pa.Table:
    size = len(next(iter(columns.values())))
    order = rng.permutation(size)
    found = {name: pa.array(values[order].astype(np.int64)) for name, values in columns.items()}
    if seconds is not None:
        times = BEGAN + (np.arange(size) * (1e6 * seconds / size)).astype(np.int64)
        found["ts"] = pa.array(times, pa.timestamp("us", "UTC"))
    return pa.table(found)


CHAIN = "SELECT r1.a FROM r1 AS r1, r2 AS r2, r3 AS r3, r4 AS r4 WHERE r1.a = r2.a AND r2.b = r3.b AND r3.c = r4.c"
LEVELS = {
    "L": 10.0,
    "M": 1.0,
    "H": 0.1,
}  # values of a key, as a part of the rows: a tuple has 0.1, 1 or 10 partners


def linear(levels: str, rows: int, seed: int = 7) -> dict[str, pa.Table]:
    """Four streams joined in a line, with low, medium or high selectivities, as in "MHM"."""
    rng = np.random.default_rng(seed)
    first, second, third = (max(1, round(LEVELS[level] * rows)) for level in levels)
    drawn = {
        "r1": {"a": first},
        "r2": {"a": first, "b": second},
        "r3": {"b": second, "c": third},
        "r4": {"c": third},
    }
    return {
        name: pa.table({column: rng.integers(0, domain, rows) for column, domain in columns.items()})
        for name, columns in drawn.items()
    }


def linear_selectivities(levels: str, rows: int) -> dict[str, float]:
    """What part of the pairs of tuples the joins of `linear` let through."""
    domains = (max(1, round(LEVELS[level] * rows)) for level in levels)
    return dict(zip(("r1.a = r2.a", "r2.b = r3.b", "r3.c = r4.c"), (1 / one for one in domains), strict=True))
