"""CLASH's random queries: over simulated relations (7.3.3) and over TPC-H (7.3.1).

Guarantees: the same arguments give the same queries. No two queries of a workload are the same join, whatever their
spelling; every query is connected, and no relation is in it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from random import Random

from weft.logical.catalog import Catalog
from weft.logical.expr.expression import Expr
from weft.logical.expr.functions import call
from weft.logical.query.canonical import signature
from weft.logical.query.query import Input, Query, make_query, star
from weft.logical.query.window import UNBOUNDED, Window
from weft.logical.schema import Schema, Stream
from weft.stats.statistics import Statistics, StreamStatistics

Column = tuple[str, str]  # a relation and one of its columns
Edge = tuple[Column, Column]

TRIES = 1_000  # how often in a row the same query may be drawn again


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries, with the statistics they are planned by."""

    queries: tuple[Query, ...]
    statistics: Statistics
    catalog: Catalog


def random_queries(
    seed: int,
    *,
    count: int,
    relations: int = 10,
    span: int = 3,
    attributes: int = 3,
    rate: float = 100.0,
    window: Window = UNBOUNDED,
    horizon: timedelta = timedelta(seconds=1),
) -> Workload:
    """Queries that each join ``span`` of the relations along a random tree of equalities (7.3.3).

    All relations have the same rate, and every attribute has so many values that an equality's selectivity is 1 / rate.
    With unbounded windows and a horizon of one second, a relation holds as many tuples as arrive in a second, so that a
    tuple finds one partner; with a longer horizon it finds more.
    """
    columns = tuple(f"a{i}" for i in range(attributes))
    schema = Schema.parse(", ".join(f"{name} long" for name in columns))
    names = tuple(f"r{i:0{len(str(relations - 1))}}" for i in range(relations))
    catalog = Catalog(tuple(Stream(name, schema) for name in names))

    def edges(rng: Random) -> Iterator[Edge]:
        chosen = rng.sample(names, span)
        for i, name in enumerate(chosen[1:], 1):
            yield (rng.choice(chosen[:i]), rng.choice(columns)), (name, rng.choice(columns))

    known = StreamStatistics(rate=rate, distinct=dict.fromkeys(columns, rate))
    statistics = Statistics(dict.fromkeys(names, known), horizon=horizon, origin="given")
    return Workload(_distinct(seed, count, catalog, window, edges), statistics, catalog)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of TPC-H: its rows at scale factor 1, and the domain and distinct values of each column that can join."""

    rows: int
    columns: dict[str, tuple[str, int]]


# Columns of one domain have values in common. All keys count from 0 or 1, so any two of them have.
TABLES = {
    "region": Table(5, {"regionkey": ("key", 5)}),
    "nation": Table(25, {"nationkey": ("key", 25), "regionkey": ("key", 5)}),
    "supplier": Table(10_000, {"suppkey": ("key", 10_000), "nationkey": ("key", 25)}),
    "customer": Table(150_000, {"custkey": ("key", 150_000), "nationkey": ("key", 25)}),
    "part": Table(200_000, {"partkey": ("key", 200_000), "size": ("number", 50)}),
    "partsupp": Table(
        800_000, {"partkey": ("key", 200_000), "suppkey": ("key", 10_000), "availqty": ("number", 9_999)}
    ),
    "orders": Table(
        1_500_000,
        {
            "orderkey": ("key", 1_500_000),
            "custkey": ("key", 100_000),
            "orderstatus": ("status", 3),
            "orderdate": ("date", 2_406),
        },
    ),
    "lineitem": Table(
        6_000_000,
        {
            "orderkey": ("key", 1_500_000),
            "partkey": ("key", 200_000),
            "suppkey": ("key", 10_000),
            "linenumber": ("number", 7),
            "quantity": ("number", 50),
            "linestatus": ("status", 2),
            "shipdate": ("date", 2_526),
            "commitdate": ("date", 2_466),
            "receiptdate": ("date", 2_555),
        },
    ),
}
_TYPES = {"key": "long", "number": "long", "status": "string", "date": "date"}


def tpch_joins() -> tuple[Edge, ...]:
    """All pairs of columns of different tables that contain equal values, sorted."""
    columns = [
        ((name, column), domain)
        for name, table in TABLES.items()
        for column, (domain, _) in table.columns.items()
    ]
    return tuple(
        (one, other) for (one, a), (other, b) in combinations(columns, 2) if a == b and one[0] != other[0]
    )


def tpch_queries(
    seed: int,
    *,
    count: int,
    span: int = 3,
    scale: float = 1.0,
    window: Window = UNBOUNDED,
    horizon: timedelta = timedelta(hours=1),
) -> Workload:
    """Queries that begin with a random table and add random joins until they span so many tables (7.3.1).

    Rates are such that all rows of the scale factor arrive within the horizon.
    """
    catalog = Catalog(tuple(Stream(name, _schema(table)) for name, table in TABLES.items()))
    joins = tpch_joins()

    def edges(rng: Random) -> Iterator[Edge]:
        joined = {rng.choice(tuple(TABLES))}
        while len(joined) < span:
            reachable = [edge for edge in joins if (edge[0][0] in joined) != (edge[1][0] in joined)]
            edge = rng.choice(reachable)
            joined |= {edge[0][0], edge[1][0]}
            yield edge

    statistics = Statistics(
        {name: _known(table, scale, horizon) for name, table in TABLES.items()},
        horizon=horizon,
        origin="given",
    )
    return Workload(_distinct(seed, count, catalog, window, edges), statistics, catalog)


def _schema(table: Table) -> Schema:
    return Schema.parse(", ".join(f"{name} {_TYPES[domain]}" for name, (domain, _) in table.columns.items()))


def _known(table: Table, scale: float, horizon: timedelta) -> StreamStatistics:
    """The statistics of a table: rows and keys grow with the scale, except in tables of fixed size."""
    grows = table.rows > 25  # the numbers of regions and nations are fixed
    distinct = {
        name: float(count * scale if domain == "key" and count > 25 else count)
        for name, (domain, count) in table.columns.items()
    }
    rows = table.rows * (scale if grows else 1)
    return StreamStatistics(rows / horizon.total_seconds(), {k: max(1.0, v) for k, v in distinct.items()})


def _distinct(
    seed: int, count: int, catalog: Catalog, window: Window, edges: Callable[[Random], Iterator[Edge]]
) -> tuple[Query, ...]:
    """So many queries, no two of which are the same join."""
    rng = Random(seed)
    found: dict[str, Query] = {}
    tries = 0
    while len(found) < count:
        query = _query(catalog, window, tuple(edges(rng)))
        text = signature(query).text
        tries = tries + 1 if text in found else 0
        if tries > TRIES:
            raise ValueError(
                f"there are hardly more than {len(found)} such queries, and {count} are asked for"
            )
        found.setdefault(text, query)
    return tuple(found.values())


def _query(catalog: Catalog, window: Window, edges: tuple[Edge, ...]) -> Query:
    """The join along the edges, with all columns."""
    names = sorted({name for edge in edges for name, _ in edge})
    inputs = {name: Input(name, catalog.stream(name), window) for name in names}

    def equality(edge: Edge) -> Expr:
        (one, left), (other, right) = edge
        return call("=", inputs[one].column(left), inputs[other].column(right))

    shown = star(column for input_ in inputs.values() for column in input_.columns)
    return make_query(inputs.values(), map(equality, edges), shown)
