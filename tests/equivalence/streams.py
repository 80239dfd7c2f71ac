"""Random joins over random streams: queries, tuples, and how they come in batches.

Values are few, so that they meet; NULL, NaN, -0.0, the empty text and texts that differ in case are among them. Event
times rise, in disorder, and some are NULL; some tuples come late, and some streams fall silent for some batches.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from weft.logical.catalog import Catalog
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

SCHEMA = Schema.parse(
    "id long, k long, n int, s string, d double, f float, m decimal(12,2), b boolean, dt date, ts timestamp"
)
_VALUES: dict[str, Sequence[Any]] = {
    "k": (0, 1, 1, 2, None),
    "n": (0, 1, 1, 2, None),
    "s": ("a", "a", "A", "b", "", None),
    "d": (0.0, -0.0, 1.0, 1.0, 2.5, float("nan"), None),
    "f": (0.0, 1.0, 2.5, float("nan"), None),
    "b": (True, False, None),
}
SPAN = 60  # seconds
IDLE = (None, timedelta(seconds=5), timedelta(seconds=20))

PAIRS = (
    *("{a}.k = {b}.k",) * 6,
    *("{a}.k = {b}.k AND {a}.s = {b}.s", "{a}.k = {b}.n", "{a}.s = {b}.s", "{a}.d = {b}.d", "{a}.d = {b}.f"),
    *("{a}.m = {b}.m", "{a}.dt = {b}.dt", "{a}.b = {b}.b AND {a}.n = {b}.n", "LOWER({a}.s) = {b}.s"),
    *("{a}.k + 1 = {b}.k", "{a}.d = {b}.n", "COALESCE({a}.s, 'a') = {b}.s", "{a}.m = {b}.k"),
)
THETAS = (
    *(
        "{a}.k < {b}.k",
        "{a}.k >= {b}.n",
        "{a}.d <= {b}.d",
        "{a}.s < {b}.s",
        "{a}.k <> {b}.k",
        "{a}.m < {b}.m",
    ),
    *("{a}.k = {b}.k OR {a}.s = {b}.s", "{a}.d BETWEEN {b}.d - 1 AND {b}.d + 1", "{a}.dt < {b}.dt"),
    *("{a}.k BETWEEN {b}.n - 1 AND {b}.n", "ABS({a}.k - {b}.k) <= 1", "CONTAINS({a}.s, {b}.s)"),
    *("{a}.f < {b}.d", "{a}.k < {b}.k + 2 AND {a}.k = {b}.n", "{a}.s LIKE CONCAT({b}.s, '%')"),
    *("{a}.ts BETWEEN {b}.ts - INTERVAL '5' SECOND AND {b}.ts + INTERVAL '10' SECOND",) * 3,
    "{a}.k = {b}.k AND {a}.ts BETWEEN {b}.ts AND {b}.ts + INTERVAL '7' SECOND",
    "{a}.k = {b}.k AND {a}.ts - INTERVAL '3' SECOND < {b}.ts AND {b}.ts <= {a}.ts + INTERVAL '8' SECOND",
    "{a}.ts - {b}.ts <= INTERVAL '9' SECOND",
)
TRIPLES = (
    *("{a}.k + {b}.k = {c}.k", "{a}.d < {b}.d + {c}.d", "{a}.n + {b}.n + {c}.n < 6"),
    *(
        "CONCAT({a}.s, {b}.s) = {c}.s",
        "GREATEST({a}.k, {b}.k) = {c}.n",
        "{a}.ts + ({b}.ts - {c}.ts) <= {c}.ts",
    ),
)
FILTERS = (
    "{a}.k < 3",
    "{a}.s IS NOT NULL",
    "{a}.s IN ('a', 'b', 'A')",
    "{a}.d <> 1",
    "NOT {a}.b",
    "{a}.k = 1",
)
SHOWN = ("{a}.id", "{a}.id", "{a}.k + {b}.n", "UPPER({a}.s)", "{a}.ts", "{a}.d", "{a}.m", "1", "{a}.s")
WINDOWS = (
    "",
    "",
    "[RANGE 5 SECONDS]",
    "[RANGE 20 SECONDS]",
    "[RANGE 1 MINUTE]",
    "[ROWS 1]",
    "[ROWS 4]",
    "[ROWS 15]",
)
SHAPES = ("chain", "star", "clique", "cycle", "tree")


@dataclass(frozen=True)
class Join:
    """A query, its streams' tuples by stream, and how many rows of each come in each batch."""

    query: Query
    catalog: Catalog
    tables: dict[str, pa.Table]
    batches: tuple[dict[str, tuple[int, int]], ...]  # stream ↦ first row and the one after the last
    functions: dict[str, Any] = field(default_factory=dict)  # that the query calls


def random_join(
    seed: int,
    *,
    prefix: str = "s",
    windows: Sequence[str] = WINDOWS,
    batches: Sequence[int] = (1, 2, 2, 3, 3, 3, 6, 12),
    mixed: bool = True,
) -> Join:
    """A random join over random streams; unless mixed, all of them or none have event times."""
    rng = random.Random(seed)
    streams = random_streams(rng, prefix, ("join", "drop"), mixed)
    catalog = Catalog(tuple(dict.fromkeys(streams)))
    query = parse_query(_query_text(rng, streams, windows), catalog)
    tables = random_tables(rng, catalog, (8, 15, 40) if len(streams) < 4 else (8, 12, 18))
    return Join(query, catalog, tables, random_batches(rng, tables, rng.choice(batches)))


def random_streams(
    rng: random.Random,
    prefix: str,
    late: Sequence[str],
    mixed: bool,
    schema: Schema = SCHEMA,
    weights: Sequence[int] = (4, 5, 3, 1),
) -> list[Stream]:
    """Two to five streams, now and then one of them twice; some have late tuples treated in one of these ways."""
    count = rng.choices((2, 3, 4, 5), weights=weights)[0]
    treated, idle = rng.choice((("drop",), ("drop",), late)), rng.choice((IDLE, IDLE[:1]))
    streams = [
        replace(random_stream(rng, f"{prefix}{i}", rng.choice(treated), rng.choice(idle)), schema=schema)
        for i in range(count)
    ]
    if rng.random() < 0.15:
        streams[1] = streams[0]
    return streams if mixed else [of_time(stream, streams[0].event_time) for stream in streams]


def random_tables(rng: random.Random, catalog: Catalog, sizes: tuple[int, ...]) -> dict[str, pa.Table]:
    """Tuples of all streams, of about one of these numbers, often out of order."""
    rows, shuffled = rng.choice(sizes), rng.random() < 0.6
    return {
        stream.name: random_table(
            rng, rng.randint(rows // 2, rows), rng.choice((1, 8, SPAN)) if shuffled else 0
        )
        for stream in catalog.streams
    }


def random_stream(rng: random.Random, name: str, late: str, idle_after: timedelta | None) -> Stream:
    """A stream, now and then without event time."""
    timed = rng.random() < 0.85
    lateness = timedelta(seconds=rng.choice((0, 5, 20, 1000)))
    time, lateness = ("ts", lateness) if timed else (None, timedelta(0))
    return Stream(name, SCHEMA, time, lateness, late, idle_after)


def of_time(stream: Stream, event_time: str | None) -> Stream:
    """A stream with this event time, or with none."""
    return replace(stream, event_time=event_time, lateness=stream.lateness if event_time else timedelta(0))


def edges(rng: random.Random, count: int) -> list[tuple[int, int]]:
    """Which of so many inputs are joined with which."""
    path = [(i, i + 1) for i in range(count - 1)]
    match rng.choice(SHAPES):
        case "chain":
            return path
        case "star":
            return [(0, i) for i in range(1, count)]
        case "clique":
            return [(i, j) for i in range(count) for j in range(i + 1, count)]
        case "cycle":
            return [*path, (0, count - 1)]
    return [(rng.randrange(i), i) for i in range(1, count)]


def _query_text(rng: random.Random, streams: Sequence[Stream], windows: Sequence[str]) -> str:
    count = len(streams)
    names = [f"r{i}" for i in range(count)]
    theta = rng.choice((0.0, 0.0, 0.2, 1.0)) if count < 5 else 0.1
    where = [_pair(rng, names[i], names[j], theta) for i, j in edges(rng, count)]
    if count > 2 and rng.random() < 0.3:
        a, b, c = rng.sample(names, 3)
        where.append(rng.choice(TRIPLES).format(a=a, b=b, c=c))
    if rng.random() < 0.25:
        where.append(rng.choice(FILTERS).format(a=rng.choice(names)))
    windows = rng.choice((windows, windows, ("",), WINDOWS[2:5]))
    inputs = [f"{s.name} {rng.choice(windows)} AS {n}" for s, n in zip(streams, names, strict=True)]
    shown = [f"{name}.id AS {name}" for name in names] if rng.random() < 0.6 else []
    shown += [
        f"{rng.choice(SHOWN).format(a=rng.choice(names), b=rng.choice(names))} AS x{i}"
        for i in range(rng.randint(0 if shown else 1, 2))
    ]
    return f"SELECT {', '.join(shown)} FROM {', '.join(inputs)} WHERE {' AND '.join(f'({w})' for w in where)}"


def _pair(rng: random.Random, a: str, b: str, theta: float) -> str:
    if rng.random() < 0.5:
        a, b = b, a
    return rng.choice(THETAS if rng.random() < theta else PAIRS).format(a=a, b=b)


def random_table(rng: random.Random, rows: int, disorder: int) -> pa.Table:
    """Tuples in order of arrival; event times rise, up to so many seconds of disorder."""
    columns: dict[str, Any] = {"id": pa.array(range(rows), pa.int64())}
    kinds = {
        "k": pa.int64(),
        "n": pa.int32(),
        "s": pa.string(),
        "d": pa.float64(),
        "f": pa.float32(),
        "b": pa.bool_(),
    }
    for name, values in _VALUES.items():
        columns[name] = pa.array([rng.choice(values) for _ in range(rows)], kinds[name], from_pandas=False)
    halves = [rng.choice((0, 0, 1, 2, None)) for _ in range(rows)]
    columns["m"] = pa.array(halves, pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2))
    columns["dt"] = pa.array([rng.choice((0, 1, 2, None)) for _ in range(rows)], pa.int32()).cast(pa.date32())
    untimed = rng.choice((0.0, 0.0, 0.1))
    steady = sorted(rng.uniform(0, SPAN) for _ in range(rows))
    times = [
        int(rng.choice((1_000_000, 250_000)) * round(t + rng.uniform(-disorder, disorder))) for t in steady
    ]
    missing = np.array([rng.random() < untimed for _ in times])
    columns["ts"] = pa.array(np.array(times, np.int64), mask=missing).cast(pa.timestamp("us", "UTC"))
    return pa.table(columns).select(list(SCHEMA.names))


def random_batches(
    rng: random.Random, tables: dict[str, pa.Table], count: int
) -> tuple[dict[str, tuple[int, int]], ...]:
    """How the tuples of streams come in so many batches."""
    cuts = {
        name: [0, *_cuts(rng, table.num_rows, count - 1), table.num_rows] for name, table in tables.items()
    }
    return tuple({name: (c[i], c[i + 1]) for name, c in cuts.items()} for i in range(count))


def _cuts(rng: random.Random, rows: int, count: int) -> list[int]:
    """Where a stream is cut; now and then in few places only, so that it is silent in most batches."""
    places = [rng.randint(0, rows) for _ in range(count)]
    return sorted(rng.choices(places[:2], k=count) if count and rng.random() < 0.4 else places)
