"""Random queries with aggregates, over random joins of three streams."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

import weft

__all__ = ["BEGINNING", "SCHEMA", "STREAMS", "random_session", "random_tables", "random_text", "rounded"]

BEGINNING = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "k int, x long, d decimal(6,2), f double, s string, till timestamp, ts timestamp"
STREAMS = ("a", "b", "c")
_ARROW = pa.schema(
    [
        ("k", pa.int32()),
        ("x", pa.int64()),
        ("d", pa.decimal128(6, 2)),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("till", pa.timestamp("us", tz="UTC")),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
_JOINS = (
    "a",
    "a [RANGE 5 SECONDS], b [RANGE 8 SECONDS] WHERE a.k = b.k",
    "a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '6' SECOND",
    "a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.till",
    "a, b, c WHERE a.k = b.k AND b.ts <= a.till AND c.x = b.x AND c.ts <= b.till AND b.till <= a.till",
    "a [RANGE 5 SECONDS], b [RANGE 5 SECONDS], c [RANGE 9 SECONDS] WHERE a.k = b.k AND b.x = c.x",
    "a [RANGE 4 SECONDS], b [RANGE 4 SECONDS], c [RANGE 4 SECONDS] WHERE a.k = b.k AND b.k = c.k",
    "a [RANGE 5 SECONDS] LEFT JOIN b [RANGE 5 SECONDS] ON a.k = b.k AND a.x < b.x",
    "a [RANGE 5 SECONDS] FULL JOIN b [RANGE 3 SECONDS] ON a.k = b.k",
    "a [RANGE 5 SECONDS] SEMI JOIN b [RANGE 5 SECONDS] ON a.k = b.k",
    "a [RANGE 5 SECONDS] ANTI JOIN b [RANGE 5 SECONDS] ON a.k = b.k",
    "a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.x < b.x",
)
_AGGREGATES = (
    *("count(*)", "count({v})", "sum({v}.x)", "sum({v}.d)", "sum({v}.f)", "avg({v}.x)", "avg({v}.d)"),
    *("avg({v}.f)", "min({v}.s)", "max({v}.s)", "min({v}.f)", "max({v}.f)", "max({v}.d)", "max({v}.ts)"),
    *("count(DISTINCT {v}.s)", "approx_count_distinct({v}.x)", "stddev({v}.x)", "var_pop({v}.x)"),
    *("sum({v}.x) FILTER (WHERE {v}.f > 0)", "count(*) FILTER (WHERE {v}.k = 1)", "count_if({v}.x > 2)"),
    *("bool_or({v}.x > 3)", "sum({v}.x) + count(*) * 2", "max({v}.k) - min({v}.k)"),
)
_WINDOWS = (
    *(
        "window({t}, '10 seconds')",
        "window({t}, '10 seconds', '4 seconds')",
        "window({t}, '6 seconds', '2 seconds')",
    ),
    *("session_window({t}, '1 second')", "TUMBLE({t}, INTERVAL '7' SECOND)", ""),
)


def random_text(rng: random.Random) -> str:
    """A query with aggregates."""
    join = rng.choice(_JOINS)
    only_left = "SEMI" in join or "ANTI" in join
    names = [name for name in STREAMS if f"{name}." in join or join == name] or ["a"]
    names = ["a"] if only_left or join == "a" else names
    one = rng.choice(names)
    if rng.random() < 0.1:
        return f"SELECT DISTINCT {one}.k, {one}.x % 2 AS p FROM {join}"
    keys = rng.sample([f"{one}.k", f"{one}.s", f"{names[-1]}.x % 3", f"{one}.f", "'all'"], rng.randint(0, 2))
    keys += [f"{rng.choice(names)}.{name}" for name in ("till", "ts") if rng.random() < 0.3]
    window = rng.choice(_WINDOWS).format(t=f"{rng.choice(names)}.ts")
    chosen = rng.sample(_AGGREGATES, rng.randint(1, 5))
    shown = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    if window:
        kind = "session_window" if window.startswith("session") else "window"
        shown += [f"{kind}.start AS w0", f"{kind}.end AS w1"]
    for place, text in enumerate(chosen):
        value = rng.choice(names)
        shown.append(f"{text.replace('count({v})', 'count({v}.s)').format(v=value)} AS a{place}")
    by = [*keys, *([window] if window else [])]
    group = f" GROUP BY {', '.join(by)}" if by else ""
    having = " HAVING count(*) > 1" if by and rng.random() < 0.3 else ""
    return f"SELECT {', '.join(shown)} FROM {join}{group}{having}"


def random_session(rng: random.Random, **queries: tuple[str, str]) -> weft.Session:
    """A session with queries, given by their texts and modes."""
    session = weft.Session(options=weft.Options(partitions=rng.choice((1, 2, 3))), adapt="off")
    for name in STREAMS:
        session.stream(name, SCHEMA, event_time="ts", lateness="2 seconds")
    for name, (text, mode) in queries.items():
        session.query(text, name=name, sink=weft.to_memory(), mode=mode)
    return session


def random_tables(rng: random.Random, rows: int) -> dict[str, pa.Table]:
    """Tables whose times rise but for as much as tuples may be late, with NULL and NaN among the values."""
    found = {}
    for name in STREAMS:
        times = sorted(rng.uniform(0, 40) for _ in range(rows))
        data = [
            _row(rng, BEGINNING + timedelta(seconds=round(time + rng.uniform(0, 1.9), 1))) for time in times
        ]
        found[name] = pa.Table.from_pylist(data, schema=_ARROW)
    return found


def _row(rng: random.Random, time: datetime) -> dict[str, Any]:
    values = {
        "k": rng.randint(0, 2),
        "x": rng.randint(-2, 5),
        "d": Decimal(rng.randint(-500, 500)).scaleb(-2),
        "f": rng.choice((0.0, -0.0, 0.1, 1e5, -1e5, 2.5, float("nan")))
        if rng.random() < 0.5
        else rng.random(),
        "s": rng.choice("pqr"),
        "till": time + timedelta(seconds=rng.randint(0, 9)),
    }
    return {name: None if rng.random() < 0.08 else value for name, value in values.items()} | {"ts": time}


def rounded(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset, in which floats are as exact as sums in any order are."""
    return Counter(tuple(map(_rounded, row.values())) for row in table.to_pylist())


def _rounded(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if not isinstance(value, float | Decimal):
        return value
    if value != value:
        return "NaN"
    return 0.0 if value == 0 else float(f"{float(value):.8e}")
