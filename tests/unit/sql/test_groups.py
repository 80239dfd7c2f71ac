"""GROUP BY and aggregates as they are read: what is refused, with a remedy that works, and what is read alike."""

from __future__ import annotations

import pytest

import weft
from weft.errors import QueryError, SqlError
from weft.logical.catalog import Catalog
from weft.logical.outer.group_closing import check_groups, group_ends, with_mode
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

SCHEMA = Schema.parse("k long, x int, d decimal(10,2), s string, till timestamp, ts timestamp")
CATALOG = Catalog((Stream("a", SCHEMA, "ts"), Stream("b", SCHEMA, "ts")))

# What is refused, what the error says, and what the hint suggests instead.
REFUSED = (
    (
        "SELECT a.x, sum(a.k) FROM a GROUP BY a.k",
        "a.x is neither",
        "SELECT max(a.x), sum(a.k) FROM a GROUP BY a.k",
    ),
    ("SELECT k FROM a WHERE sum(x) > 3", "cannot stand here", "SELECT k FROM a GROUP BY k HAVING sum(x) > 3"),
    ("SELECT sum(max(x)) FROM a", "cannot stand here", "SELECT max(x) FROM a"),
    ("SELECT count(*) FROM a GROUP BY 3", "SELECT has no column 3", "SELECT k, count(*) FROM a GROUP BY 1"),
    ("SELECT sum(s) FROM a", "sum of a string", "SELECT sum(CAST(s AS INT)) FROM a"),
    ("SELECT sum() FROM a", "sum needs an argument", "SELECT sum(x) FROM a"),
    ("SELECT sum(DISTINCT x) FROM a", "sum(DISTINCT …)", "SELECT count(DISTINCT x) FROM a"),
    ("SELECT sum(x, k) FROM a", "sum of 2 values", "SELECT sum(x) FROM a"),
    (
        "SELECT approx_count_distinct(x, 7) FROM a",
        "may be off",
        "SELECT approx_count_distinct(x, 0.05) FROM a",
    ),
    ("SELECT count(*) FROM a GROUP BY count(*)", "an aggregate cannot be a key", "SELECT count(*) FROM a"),
    (
        "SELECT count(*) FROM a GROUP BY window(x, '1 minute')",
        "window is over a timestamp",
        "SELECT count(*) FROM a GROUP BY window(ts, '1 minute')",
    ),
    (
        "SELECT count(*) FROM a GROUP BY window(ts, k)",
        "a constant",
        "SELECT count(*) FROM a GROUP BY window(ts, '10 minutes')",
    ),
    (
        "SELECT count(*) FROM a GROUP BY window(ts)",
        "window takes a time",
        "SELECT count(*) FROM a GROUP BY window(ts, '10 minutes', '5 minutes')",
    ),
    (
        "SELECT count(*) FROM a GROUP BY window(ts, '1 minute', '2 minutes')",
        "leave times out",
        "SELECT count(*) FROM a GROUP BY window(ts, '2 minutes', '1 minute')",
    ),
    (
        "SELECT tumble_start(ts, INTERVAL '1' MINUTE) FROM a GROUP BY tumble(ts, INTERVAL '2' MINUTE)",
        "GROUP BY has no such tumble",
        "SELECT tumble_start(ts, INTERVAL '2' MINUTE) FROM a GROUP BY tumble(ts, INTERVAL '2' MINUTE)",
    ),
    (
        "SELECT count(*) FROM a GROUP BY window(ts, '1 minute'), window(ts, '2 minutes')",
        "two windows",
        "SELECT count(*) FROM a GROUP BY window(ts, '1 minute')",
    ),
    (
        "SELECT DISTINCT k, count(*) FROM a GROUP BY k",
        "DISTINCT of groups",
        "SELECT k, count(*) FROM a GROUP BY k",
    ),
)


@pytest.mark.parametrize(("text", "message", "instead"), REFUSED, ids=[case[1] for case in REFUSED])
def test_what_is_refused_has_a_remedy(text: str, message: str, instead: str) -> None:
    """Whoever errs would be told nothing, or something that does not help."""
    with pytest.raises(SqlError) as caught:
        parse_query(text, CATALOG)
    assert message in caught.value.message
    assert parse_query(instead, CATALOG).grouping is not None


ALIKE = (
    ("SELECT k AS kk, count(*) AS n FROM a GROUP BY kk", "SELECT k AS kk, count(1) AS n FROM a GROUP BY 1"),
    ("SELECT count(*) FILTER (WHERE x > 1) AS n FROM a", "SELECT count_if(x > 1) AS n FROM a"),
    ("SELECT stddev(x) AS n FROM a", "SELECT stddev_samp(x) AS n FROM a"),
    (
        "SELECT count(*) AS n FROM a GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE)",
        "SELECT count(*) AS n FROM a GROUP BY window(ts, '10 minutes')",
    ),
    (
        "SELECT count(*) AS n FROM a GROUP BY HOP(ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)",
        "SELECT count(*) AS n FROM a GROUP BY window(ts, '10 minutes', '5 minutes')",
    ),
)


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_spellings_are_one_query(one: str, other: str) -> None:
    """What is written in Flink's words would be another query than in Spark's, and share nothing."""
    query = parse_query(one, CATALOG)
    assert query == parse_query(other, CATALOG)
    assert parse_query(str(query), CATALOG) == query


def test_the_builder_says_the_same() -> None:
    """What SQL can say of groups could not be built."""
    built = (
        weft.select("a.k", "count(*) AS n").from_("a").group_by("a.k").having("count(*) > 1", "max(x) > 2")
    )
    text = "SELECT a.k, count(*) AS n FROM a GROUP BY a.k HAVING count(*) > 1 AND max(x) > 2"
    assert built.build(CATALOG) == parse_query(text, CATALOG)
    assert (
        repr(built)
        == "<Builder SELECT a.k, count(*) AS n FROM a GROUP BY a.k HAVING count(*) > 1, max(x) > 2>"
    )
    once = weft.select("a.k").from_("a").distinct()
    assert once.build(CATALOG) == parse_query("SELECT DISTINCT a.k FROM a", CATALOG)


def test_when_groups_are_complete_is_inferred() -> None:
    """A group would leave while rows of it can still come, or never."""
    window = "GROUP BY window({}, '10 minutes')"
    joined = "SELECT count(*) FROM a [RANGE 1 MINUTE], b [RANGE 5 MINUTES] WHERE a.k = b.k "
    unbounded = "SELECT count(*) FROM a, b WHERE a.k = b.k "
    until = "SELECT count(*) FROM a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.till GROUP BY "
    ends = {
        "SELECT count(*) FROM a " + window.format("ts"): [{"w": 0}],
        joined + window.format("a.ts"): [{"w": 60}],
        joined + window.format("b.ts"): [{"w": 300}],
        joined + window.format("greatest(a.ts, b.ts)"): [{"w": 0}],
        joined + window.format("a.ts + INTERVAL '20' SECOND"): [{"w": 40}],
        joined + "GROUP BY a.ts, b.ts": [{"k0": 0, "k1": 300}, {"k0": 60, "k1": 0}],
        until + "a.k, a.till": [{"k1": 0}],
        until + "a.till - INTERVAL '5' SECOND": [{"k0": 5}],
        until + "a.k, b.ts": [{"k1": 0}],
        until + "b.ts, a.till": [{"k0": 0, "k1": 0}],
        until + "a.ts": None,
        until + "window(a.till, '10 minutes')": [{"w": 0}],
        unbounded + "GROUP BY a.ts, b.ts": [{"k0": 0}, {"k1": 0}],
        unbounded + window.format("a.ts"): None,
        "SELECT count(*) FROM a": None,
        "SELECT count(*) FROM a GROUP BY k, ts": [{"k1": 0}],
    }
    for text, expected in ends.items():
        found = group_ends(parse_query(text, CATALOG), None)
        known = found and [{end.column: end.after.total_seconds() for end in some} for some in found]
        assert known == expected, text


def test_a_key_that_may_be_missing_closes_no_group() -> None:
    """Groups of padded rows would be kept for ever, and nobody told."""
    joined = "SELECT count(*) FROM a [RANGE 1 MINUTE] LEFT JOIN b [RANGE 1 MINUTE] ON a.k = b.k GROUP BY "
    check_groups(parse_query(joined + "a.ts", CATALOG), "q")
    with pytest.raises(QueryError, match="would never be complete"):
        check_groups(parse_query(joined + "b.ts", CATALOG), "q")


def test_groups_that_never_close_are_refused_and_may_be_updated() -> None:
    """A query would keep groups for ever and never give one."""
    query = parse_query("SELECT k, count(*) FROM a GROUP BY k", CATALOG)
    with pytest.raises(QueryError, match="would never be complete"):
        check_groups(query, "q")
    check_groups(with_mode(query, "update"), "q")
    check_groups(parse_query("SELECT count(*) FROM a GROUP BY window(ts, '10 minutes')", CATALOG), "q")


def test_sinks_that_only_add_rows_refuse_updates(tmp_path: object) -> None:
    """A file would have every state that a group ever had."""
    session = weft.Session()
    session.stream("a", str(SCHEMA), event_time="ts")
    text = "SELECT k, count(*) AS n FROM a GROUP BY k"
    with pytest.raises(QueryError, match="ParquetSink only adds rows"):
        session.query(text, sink=weft.to_parquet(f"{tmp_path}/out"), mode="update")
    with pytest.raises(QueryError, match="is not selected"):
        session.query("SELECT count(*) AS n FROM a GROUP BY k", sink=weft.to_memory(), mode="update")
    with pytest.raises(QueryError, match="nothing to update"):
        session.query("SELECT k FROM a", sink=weft.to_memory(), mode="update")
    with pytest.raises(QueryError, match="there is no mode"):
        session.query(text, sink=weft.to_memory(), mode="complete")
    session.query(text, sink=weft.to_memory(), mode="update")
