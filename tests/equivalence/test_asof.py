"""Joins with the latest version give what the definition says, and what DuckDB's ASOF JOIN says."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

import weft
from tests.equivalence.asof import SCHEMA, random_asof, rows_of
from tests.shares import quick, seeds
from weft.errors import QueryError, SqlError
from weft.optimizer.space import Options
from weft.testing import LocalRun

NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize("seed", quick(seeds(15), 5))
def test_that_rows_get_the_latest_version(seed: int) -> None:
    story = random_asof(seed)
    given, expected = story.given(), story.expected()
    for name, text in story.queries.items():
        missing, surplus = expected[name] - given[name], given[name] - expected[name]
        shown = f"lacks {missing.most_common(5)}, has besides {surplus.most_common(5)}"
        assert (missing, surplus) == (Counter(), Counter()), f"{text}: {shown}"


@pytest.mark.parametrize("seed", quick(seeds(8, block=1), 3))
def test_that_duckdb_says_the_same(seed: int) -> None:
    story = random_asof(seed, ties=False)
    side = "LEFT" if seed % 2 else ""
    story.queries = {
        "q": f"SELECT o.id, o.k, r.id AS version FROM o ASOF {side} JOIN r ON o.k = r.k AND o.ts >= r.ts"
    }
    tables = story.tables()
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(f"{name}_given", table)
    text = f"SELECT o.id, o.k, r.id AS version FROM o_given o ASOF {side} JOIN r_given r ON o.k = r.k AND o.ts >= r.ts"
    assert story.given()["q"] == rows_of(connection.sql(text).to_arrow_table())


def test_that_superseded_versions_are_forgotten() -> None:
    session = weft.Session(options=Options(partitions=1))
    session.stream("o", SCHEMA, event_time="ts")
    session.stream("r", SCHEMA, event_time="ts")
    text = "SELECT o.id, r.id AS version FROM o ASOF JOIN r ON o.k = r.k AND o.ts >= r.ts"
    planned = session.query(text, name="q", sink=weft.to_memory())
    assert "the latest of each key" in planned.explain()
    run, given = LocalRun(session), 0
    for number in range(150):
        now = NOON + timedelta(seconds=number)
        versions = [{"id": number, "k": key, "v": "", "ts": now} for key in range(5)]
        orders = [{"id": number, "k": number % 5, "v": "", "ts": now}]
        given += run.batch({"r": versions, "o": orders})["q"].num_rows
    last = run._loop.history.last
    assert last is not None
    assert last.stores["r"].rows < 200  # of 750
    assert given + run.end()["q"].num_rows == 150
    rows = run.results("q").to_pylist()
    assert all(row["id"] == row["version"] for row in rows)


def test_that_versions_another_query_needs_are_kept() -> None:
    session = weft.Session(options=Options(partitions=1))
    session.stream("o", SCHEMA, event_time="ts")
    session.stream("r", SCHEMA, event_time="ts")
    text = "SELECT o.id, r.id AS version FROM o ASOF JOIN r ON o.k = r.k AND o.ts >= r.ts"
    session.query(text, name="latest", sink=weft.to_memory())
    session.query("SELECT o.id, r.id AS other FROM o, r WHERE o.k = r.k", name="all", sink=weft.to_memory())
    run = LocalRun(session)
    for number in range(40):
        now = NOON + timedelta(seconds=number)
        run.batch({"r": [{"id": number, "k": 1, "v": "", "ts": now}]})
    found = run.batch({"o": [{"id": 1, "k": 1, "v": "", "ts": NOON + timedelta(minutes=1)}]})
    assert found["all"].num_rows == 40


def test_that_a_query_that_comes_later_sees_the_versions_that_another_kept() -> None:
    session = weft.Session(options=Options(partitions=2))
    session.stream("o", SCHEMA, event_time="ts")
    session.stream("r", SCHEMA, event_time="ts")
    text = "SELECT o.id, r.id AS version FROM o ASOF JOIN r ON o.k = r.k AND o.ts >= r.ts"
    session.query(text, name="first", sink=weft.to_memory())
    run = LocalRun(session)
    for number in range(30):
        now = NOON + timedelta(seconds=number)
        run.batch(
            {
                "r": [{"id": number, "k": 1 if number else 2, "v": "", "ts": now}],
                "o": [{"id": number, "k": 1, "v": "", "ts": now}],
            }
        )
    session.query(text, name="second", sink=weft.to_memory())
    later = NOON + timedelta(minutes=1)
    run.batch({"o": [{"id": 100, "k": 2, "v": "", "ts": later}, {"id": 101, "k": 1, "v": "", "ts": later}]})
    run.end()
    assert rows_of(run.results("second")) == Counter({(100, 0): 1, (101, 29): 1})


def test_that_results_wait_for_the_watermark_of_the_versions() -> None:
    session = weft.Session(options=Options(partitions=2))
    session.stream("o", SCHEMA, event_time="ts")
    session.stream("r", SCHEMA, event_time="ts", lateness="10 seconds")
    text = "SELECT o.id, r.id AS version FROM o ASOF LEFT JOIN r ON o.k = r.k AND o.ts >= r.ts"
    session.query(text, name="q", sink=weft.to_memory())
    run = LocalRun(session)

    def row(number: int, seconds: int) -> dict[str, object]:
        return {"id": number, "k": 1, "v": "", "ts": NOON + timedelta(seconds=seconds)}

    assert run.batch({"r": [row(1, 0)], "o": [row(7, 5), row(8, 60)]})["q"].num_rows == 0
    assert run.batch({"r": [row(2, 14)]})["q"].num_rows == 0  # one of 4 seconds could still come
    assert run.batch({"r": [row(3, 5)]})["q"].num_rows == 0
    assert run.batch({"r": [row(4, 20)]})["q"].to_pylist() == [{"id": 7, "version": 3}]


REFUSED = {
    "SELECT o.id FROM o ASOF JOIN r ON o.k = r.k": "no comparison by order",
    "SELECT o.id FROM o ASOF JOIN r ON o.k = r.k AND o.k > r.k AND o.id < r.id": "several comparisons by order",
    "SELECT o.id FROM o ASOF JOIN t ON o.k = t.k": "no comparison by order",
    "SELECT o.id FROM o JOIN t FOR SYSTEM_TIME AS OF o.ts ON o.k = t.k": "has no event time",
    "SELECT o.id FROM o FULL JOIN r FOR SYSTEM_TIME AS OF o.ts ON o.k = r.k": "not supported",
    "SELECT o.id FROM o ASOF JOIN r": "needs a condition",
    "SELECT t.k FROM o ASOF RIGHT JOIN t ON o.k >= t.k": "is a table",
    "SELECT r.id FROM r FOR SYSTEM_TIME AS OF o.ts": "older version",
    "SELECT o.id FROM o ASOF JOIN (r JOIN c ON r.k = c.k) ON o.k = r.k AND o.ts >= r.ts": "one stream of versions",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    session = weft.Session()
    for name in ("o", "r", "c"):
        session.stream(name, SCHEMA, event_time="ts")
    session.table("t", "k long, v string")
    with pytest.raises(SqlError, match=REFUSED[text]) as caught:
        session.parse(text)
    assert "^" in str(caught.value)


def test_that_the_builder_says_the_same() -> None:
    session = weft.Session()
    for name in ("o", "r"):
        session.stream(name, SCHEMA, event_time="ts")
    built = weft.select("o.id").from_("o").join("r", on="o.k = r.k AND o.ts >= r.ts", kind="asof left")
    query = session.parse("SELECT o.id FROM o ASOF LEFT JOIN r ON o.k = r.k AND o.ts >= r.ts")
    assert session.parse(built) == query
    assert session.parse(str(query)) == query


SPELLINGS = {
    "SELECT o.id FROM o ASOF JOIN r USING (k, ts)": "SELECT o.id FROM o ASOF JOIN r ON o.k = r.k AND o.ts >= r.ts",
    "SELECT o.id FROM o ASOF LEFT JOIN r MATCH_CONDITION (o.ts >= r.ts) ON o.k = r.k": (
        "SELECT o.id FROM o ASOF LEFT JOIN r ON o.k = r.k AND o.ts >= r.ts"
    ),
    "SELECT o.id FROM o ASOF JOIN r MATCH_CONDITION (o.ts < r.ts) USING (k)": (
        "SELECT o.id FROM o ASOF JOIN r ON o.k = r.k AND o.ts < r.ts"
    ),
    "SELECT o.id FROM o ASOF SEMI JOIN r USING (k, ts)": "SELECT o.id FROM o SEMI JOIN r ON o.k = r.k AND o.ts >= r.ts",
    "SELECT o.id FROM o ASOF ANTI JOIN r ON o.id > r.id": "SELECT o.id FROM o ANTI JOIN r ON o.id > r.id",
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_that_spellings_of_other_databases_say_the_same(text: str) -> None:
    session = weft.Session()
    for name in ("o", "r"):
        session.stream(name, SCHEMA, event_time="ts")
    assert session.parse(text) == session.parse(SPELLINGS[text])


def test_that_a_query_whose_rows_would_never_leave_is_refused() -> None:
    session = weft.Session()
    for name in ("o", "r"):
        session.stream(name, SCHEMA, event_time="ts")
    text = "SELECT o.id, r.id AS version FROM o ASOF JOIN r ON o.k = r.k AND o.id >= r.id"
    session.query(text, name="q", sink=weft.to_memory())
    with pytest.raises(QueryError, match="would never give the rows of o") as caught:
        session.start()
    assert "run_available" in (caught.value.hint or "")


def test_that_versions_of_a_table_are_joined_at_once() -> None:
    session = weft.Session()
    session.stream("o", SCHEMA, event_time="ts")
    prices = pa.table({"k": [1, 1, 1], "since": [5, 10, 20], "v": ["a", "b", "c"]})
    session.table("t", prices)
    text = "SELECT o.id, t.v FROM o ASOF LEFT JOIN t ON o.k = t.k AND o.id >= t.since"
    session.query(text, name="q", sink=weft.to_memory())
    rows = [{"id": number, "k": 1, "v": "", "ts": NOON} for number in (1, 7, 10, 30)]
    given = LocalRun(session).batch({"o": rows})["q"]
    assert rows_of(given) == Counter({(1, None): 1, (7, "a"): 1, (10, "b"): 1, (30, "c"): 1})
