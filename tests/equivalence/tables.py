"""Random queries over streams and tables whose versions are others from batch to batch, and what they must give.

Every tuple is on time, so the definition needs no watermarks. Queries that come later read of the streams what the
first query reads, so that they see all of the stored past.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

import weft
from weft.optimizer.cost import Weights
from weft.optimizer.single.strategies import STRATEGIES
from weft.optimizer.space import Options
from weft.runtime.loop.driver_order import POLICIES
from weft.sql.bind import parse_query
from weft.testing import BATCH, FROM, UNTIL, LocalRun
from weft.testing.reference import join_within_times, row_column

START = datetime(2026, 1, 1)
KEYS = (0, 1, 1, 2, 3, None)
TEXTS = ("a", "b", "B", "", None)
WINDOWS = ("", "[RANGE 5 SECONDS]", "[RANGE 20 SECONDS]")
LOOKUPS = (
    *("{s}.k = {t}.k",) * 4,
    *("{s}.k = {t}.k AND {s}.v = {t}.v", "{s}.v = {t}.v", "{s}.k < {t}.k AND {s}.v = {t}.v"),
    *("{s}.k BETWEEN {t}.k - 1 AND {t}.k", "COALESCE({s}.v, 'a') = {t}.v", "{s}.k <> {t}.k"),
)
FILTERS = ("{t}.k > 0", "{t}.v IS NOT NULL", "{t}.v = 'a'", "{t}.k IS NULL OR {t}.k < 3")

Rows = Counter[tuple[Any, ...]]


@dataclass
class Story:
    """Batches of tuples by stream, versions of tables by batch, and the queries with the batch they begin with."""

    streams: tuple[str, ...]
    tables: tuple[str, ...]
    batches: list[dict[str, list[dict[str, Any]]]]
    versions: list[dict[str, list[dict[str, Any]]]]
    queries: dict[str, tuple[str, int]]
    stops: dict[str, int] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    driver: str = "initial_output_size"

    def session(self, **more: Any) -> weft.Session:
        """A session with the streams and tables."""
        session = weft.Session(options=self.options, driver=self.driver, **more)
        for name in self.streams:
            session.stream(name, "id long, k long, v string, ts timestamp", event_time="ts", lateness="1 day")
        for name in self.tables:
            session.table(name, "k long, v string, x long")
        return session

    def given(self) -> dict[str, Rows]:
        """What the queries give."""
        session = self.session()
        run, begun = None, set[str]()
        found: dict[str, Rows] = {name: Counter() for name in self.queries}
        for number, batch in enumerate(self.batches):
            for name, (text, first) in self.queries.items():
                if first == number:
                    session.query(text, name=name, sink=weft.to_memory())
                    begun.add(name)
            run = run or LocalRun(session)
            for name, last in self.stops.items():
                if last == number:
                    run.stop_query(name)
            for name, table in run.batch({**batch, **self.versions[number]}).items():
                found[name] += rows_of(table)
        assert run is not None
        for name, table in run.end().items():
            found[name] += rows_of(table)
        return found

    def expected(self) -> dict[str, Rows]:
        """What the queries must give, by the definition."""
        catalog = self.session().catalog
        found = {}
        for name, (text, first) in self.queries.items():
            query = parse_query(text, catalog, cross=True)
            named = {input_.alias: self._table(input_.stream.name) for input_ in query.inputs}
            joined = join_within_times(query, named)
            batches = [
                named[alias][BATCH].to_numpy()[joined[row_column(alias)].to_numpy()]
                for alias in query.driving
            ]
            last = np.max(batches, axis=0) if joined.num_rows else np.array([], np.int64)
            inside = (last >= first) & (last < self.stops.get(name, len(self.batches)))
            kept = joined.filter(pa.array(inside))
            found[name] = rows_of(kept.select([output.name for output in query.projection]))
        return found

    def _table(self, name: str) -> pa.Table:
        if name in self.streams:
            rows = [
                {**row, BATCH: number} for number, one in enumerate(self.batches) for row in one.get(name, [])
            ]
            return pa.Table.from_pylist(rows, schema=_STREAM)
        changes = [number for number, one in enumerate(self.versions) if name in one]
        ends = [*changes, len(self.batches)][1:]
        rows = [
            {**row, FROM: first, UNTIL: until}
            for first, until in zip(changes, ends, strict=True)
            for row in self.versions[first][name]
        ]
        return pa.Table.from_pylist(rows, schema=_TABLE)


_STREAM = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("v", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        (BATCH, pa.int64()),
    ]
)
_TABLE = pa.schema(
    [("k", pa.int64()), ("v", pa.string()), ("x", pa.int64()), (FROM, pa.int64()), (UNTIL, pa.int64())]
)


def rows_of(table: pa.Table) -> Rows:
    """The rows of a table as a multiset."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def random_story(seed: int) -> Story:
    """Streams and tables, queries of all kinds over them, and how all of it comes in batches."""
    rng = random.Random(seed)
    streams = tuple(f"s{i}" for i in range(rng.choice((1, 1, 2, 2, 3))))
    tables = tuple(f"t{i}" for i in range(rng.choice((1, 1, 2, 3))))
    count = rng.choice((2, 4, 6, 9))
    batches = [
        {name: _tuples(rng, number) for name in streams if rng.random() < 0.8} for number in range(count)
    ]
    versions = [
        {name: _rows(rng) for name in tables if rng.random() < rng.choice((0.2, 0.6))} for _ in range(count)
    ]
    windows = {name: rng.choice(WINDOWS) for name in streams}
    joins = [f"{streams[0]}.k = {other}.k" for other in streams[1:]]
    queries = {"q0": (_inner(rng, streams, tables, windows, joins), 0)}
    for number in range(1, rng.choice((1, 2, 4))):
        text = _any(rng, streams, tables, windows, joins)
        sees_past = (
            len(streams) == 1 or " JOIN " not in text
        )  # which rows to close may depend on more than is kept
        first = rng.choice((0, rng.randrange(count))) if sees_past else 0
        queries[f"q{number}"] = text, first
    stops = {
        name: rng.randrange(first + 1, count)
        for name, (_, first) in queries.items()
        if name != "q0" and first + 1 < count and rng.random() < 0.3
    }
    weights = rng.choice((Weights(), Weights(ship=50.0), Weights(keep=1.0), Weights(ship=0.0)))
    strategy = rng.choice(("auto", *(name for name in STRATEGIES if name != "exhaustive")))
    options = Options(strategy=strategy, partitions=rng.choice((1, 2, 3, 5)), weights=weights)
    return Story(streams, tables, batches, versions, queries, stops, options, rng.choice(sorted(POLICIES)))


def _tuples(rng: random.Random, batch: int) -> list[dict[str, Any]]:
    return [
        {
            "id": rng.randrange(1000),
            "k": rng.choice(KEYS),
            "v": rng.choice(TEXTS),
            "ts": START + timedelta(seconds=3 * batch + rng.randrange(-9, 9)),
        }
        for _ in range(rng.choice((0, 1, 3, 8)))
    ]


def _rows(rng: random.Random) -> list[dict[str, Any]]:
    return [
        {"k": rng.choice(KEYS), "v": rng.choice(TEXTS), "x": rng.randrange(9)}
        for _ in range(rng.choice((0, 1, 3, 8)))
    ]


def _shown(streams: tuple[str, ...]) -> list[str]:
    return [f"{name}.{column} AS {name}_{column}" for name in streams for column in ("id", "k", "v")]


def _inner(
    rng: random.Random,
    streams: tuple[str, ...],
    tables: tuple[str, ...],
    windows: dict[str, str],
    joins: list[str],
) -> str:
    chosen = rng.sample(tables, rng.randint(1, len(tables)))
    where, seen = list(joins), list(streams)
    for table in chosen:
        where.append(rng.choice(LOOKUPS).format(s=rng.choice(seen), t=table))
        if rng.random() < 0.3:
            where.append(rng.choice(FILTERS).format(t=table))
        seen.append(table)
    shown = [*_shown(streams), *(f"{table}.x AS {table}_x" for table in chosen if rng.random() < 0.8)]
    origin = ", ".join([*(f"{name} {windows[name]}" for name in streams), *chosen])
    return f"SELECT {', '.join(shown)} FROM {origin} WHERE {' AND '.join(f'({term})' for term in where)}"


def _any(
    rng: random.Random,
    streams: tuple[str, ...],
    tables: tuple[str, ...],
    windows: dict[str, str],
    joins: list[str],
) -> str:
    """An inner join or, with tables in a row after the streams, left, semi, anti and inner joins of them."""
    if rng.random() < 0.4:
        return _inner(rng, streams, tables, windows, joins)
    first, *more = streams
    origin = f"{first} {windows[first]}"
    for other, on in zip(more, joins, strict=True):
        origin += f" JOIN {other} {windows[other]} ON {on}"
    seen, shown = list(streams), _shown(streams)
    for table in rng.sample(tables, rng.randint(1, len(tables))):
        kind = rng.choice(("LEFT", "LEFT", "SEMI", "ANTI", "INNER"))
        on = rng.choice(LOOKUPS).format(s=rng.choice(streams), t=table)
        if rng.random() < 0.3:
            on = f"({on}) AND ({rng.choice(FILTERS).format(t=table)})"
        origin += f" {kind} JOIN {table} ON {on}"
        if kind in ("LEFT", "INNER"):
            seen.append(table)
            shown.append(f"{table}.x AS {table}_x")
    return f"SELECT {', '.join(shown)} FROM {origin}"
