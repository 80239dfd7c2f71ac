"""How long tuples must be kept, from windows and from predicates on event times."""

from __future__ import annotations

from datetime import timedelta

import pytest

from weft.errors import SqlError
from weft.logical.catalog import Catalog
from weft.logical.query.horizon import is_time_bound, retention, time_bounds
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

SCHEMA = Schema.parse("k long, ts timestamp, other timestamp")
CATALOG = Catalog((Stream("r", SCHEMA, "ts"), Stream("n", SCHEMA)))


def parse(rest: str) -> Query:
    return parse_query(f"SELECT a.k FROM {rest}", CATALOG)


def seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def kept(query: Query) -> dict[str, float | None]:
    return {alias: seconds(retention(query, alias)) for alias in query.aliases}


def test_windows() -> None:
    """A tuple would be evicted before its last partner comes, or never."""
    query = parse("r [RANGE 10 SECONDS] a, r [RANGE 1 MINUTE] b WHERE a.k = b.k")
    assert kept(query) == {"a": 10, "b": 60}
    assert kept(parse("r [RANGE 10 SECONDS] a, r [ROWS 5] b WHERE a.k = b.k")) == {"a": 10, "b": None}


def test_nothing_bounds() -> None:
    """A query whose state grows for ever would claim to be bounded."""
    assert kept(parse("r a, r b WHERE a.k = b.k")) == {"a": None, "b": None}
    assert kept(parse("r a, r b WHERE a.k = b.k AND a.other = b.other")) == {"a": None, "b": None}
    assert kept(parse("n a, n b WHERE a.k = b.k AND a.ts = b.ts")) == {"a": None, "b": None}


@pytest.mark.parametrize(
    "predicate",
    [
        "b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts + INTERVAL '9' SECOND",
        "b.ts >= a.ts - INTERVAL '5' SECOND AND b.ts - a.ts <= INTERVAL '9' SECOND",
        "a.ts - b.ts <= INTERVAL '5' SECOND AND b.ts - INTERVAL '9' SECOND <= a.ts",
        "NOT (a.ts - b.ts > INTERVAL '5' SECOND OR INTERVAL '9' SECOND + a.ts < b.ts)",
        "a.ts + INTERVAL '1' SECOND - b.ts < INTERVAL '6' SECOND AND b.ts - a.ts < INTERVAL '9' SECOND",
    ],
)
def test_bands(predicate: str) -> None:
    """A band join would keep its state for ever, because of how the band is written."""
    query = parse(f"r a, r b WHERE a.k = b.k AND {predicate}")
    assert kept(query) == {"a": 9, "b": 5}
    assert all(is_time_bound(query, expr) for expr in query.predicates)


def test_equal_times() -> None:
    """Tuples that match only at the same moment would be kept."""
    assert kept(parse("r a, r b WHERE a.ts = b.ts")) == {"a": 0, "b": 0}
    query = parse("r a, r b WHERE a.ts + INTERVAL '3' SECOND = b.ts")
    assert kept(query) == {"a": 3, "b": 0}


def test_bounds_add_up() -> None:
    """A chain of bands would be unbounded, because no band connects its ends."""
    query = parse(
        "r a, r b, r c WHERE b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"
        " AND c.ts BETWEEN b.ts AND b.ts + INTERVAL '7' SECOND"
    )
    assert kept(query) == {"a": 12, "b": 7, "c": 0}
    assert time_bounds(query)["c", "a"] == timedelta(seconds=12)
    assert time_bounds(query)["a", "c"] == timedelta(0)


def test_tighter_of_two() -> None:
    """A window would hide the tighter bound of a predicate."""
    query = parse(
        "r [RANGE 1 HOUR] a, r [RANGE 1 HOUR] b WHERE a.k = b.k AND b.ts <= a.ts + INTERVAL '5' SECOND"
    )
    assert kept(query) == {"a": 5, "b": 3600}


@pytest.mark.parametrize(
    "rest",
    [
        "r a, r b WHERE a.ts > b.ts + INTERVAL '10' SECOND AND b.ts > a.ts",
        "r a, r b WHERE a.ts - b.ts > INTERVAL '1' SECOND AND a.ts = b.ts",
        "r a, r [RANGE 5 SECONDS] b WHERE a.ts > b.ts + INTERVAL '10' SECOND",
        "r a, r b WHERE abs(a.ts - b.ts) <= INTERVAL '-1' SECOND",
        "r a, r b, r c WHERE a.ts < b.ts AND b.ts < c.ts AND c.ts < a.ts - INTERVAL '1' MICROSECOND",
        # so far apart that the bounds, added up again and again, would leave the range of intervals
        "r a, r b, r c, r d, r e WHERE "
        + " AND ".join(f"{x}.ts < {y}.ts - INTERVAL '99999' DAY" for x in "abcde" for y in "abcde" if x != y),
    ],
)
def test_contradictions(rest: str) -> None:
    """A query that can have no results would run for ever."""
    with pytest.raises(SqlError, match="no tuples can satisfy"):
        parse(rest)


@pytest.mark.parametrize(
    "rest",
    [
        "r a, r b WHERE a.ts >= b.ts + INTERVAL '10' SECOND AND a.ts <= b.ts + INTERVAL '10' SECOND",
        "r a, r b WHERE a.ts = b.ts AND a.ts <= b.ts AND b.ts <= a.ts",
        "r a, r [RANGE 10 SECONDS] b WHERE a.ts >= b.ts + INTERVAL '10' SECOND",
        "n a, n b WHERE a.ts > b.ts + INTERVAL '10' SECOND AND b.ts > a.ts AND a.k = b.k",
        "r a LEFT JOIN r b ON a.ts > b.ts + INTERVAL '10' SECOND AND b.ts > a.ts",
    ],
)
def test_bounds_that_touch(rest: str) -> None:
    """A query that has results would be refused."""
    assert parse(rest)


def test_what_is_no_time_bound() -> None:
    """A predicate that says more than a distance in time would be skipped at run time."""
    query = parse("r a, r b WHERE a.k < b.k AND a.ts < b.other AND a.k = b.k")
    assert not any(is_time_bound(query, expr) for expr in query.predicates)
