"""The session: the public face of planning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CatalogError, ConfigError, PlanError, QueryError, SqlError, StatisticsError, WeftError


@pytest.fixture
def session() -> weft.Session:
    """Two streams."""
    found = weft.Session()
    found.stream("videos", "vid long, geo string, ts timestamp", event_time="ts", lateness="5 seconds")
    found.stream("views", "vid long, user long, ts timestamp", event_time="ts")
    return found


SQL = """SELECT v.vid, w.user FROM videos [RANGE 10 MINUTES] AS v, views [RANGE 1 MINUTE] AS w
         WHERE v.vid = w.vid AND v.geo = 'US'"""


def test_sql_and_builder_plan_alike(session: weft.Session) -> None:
    """One query, however it is written."""
    built = (
        weft.select("v.vid", "w.user")
        .from_("videos", alias="v", window="10 minutes")
        .from_("views", alias="w", window="1 minute")
        .where("v.vid = w.vid")
        .where("v.geo = 'US'")
    )
    one, other = session.query(SQL, name="a"), session.query(built, name="b")
    assert one.query == other.query
    assert one.graph.cost == other.graph.cost
    assert one.graph.edges == other.graph.edges


def test_a_refused_query_leaves_no_trace(session: weft.Session) -> None:
    """The running queries stay as they were."""
    session.query(SQL, name="good")
    with pytest.raises(SqlError):
        session.query("SELECT nope FROM videos", name="bad")
    with pytest.raises(QueryError, match="already a query"):
        session.query(SQL, name="good")
    with pytest.raises(ConfigError):
        session.query(SQL, name="other", strategy="fat")
    assert [planned.name for planned in session.queries] == ["good"]
    assert "Plan of good" in session.explain()


def test_a_cross_product_must_be_asked_for(session: weft.Session) -> None:
    """It is almost always a forgotten predicate."""
    text = "SELECT v.vid FROM videos v, views w"
    with pytest.raises(SqlError, match="cross product"):
        session.query(text)
    planned = session.query(text, cross=True)
    assert planned.query.cross
    assert "this is a cross product" in planned.explain()


def test_outer_joins_are_planned_as_such(session: weft.Session) -> None:
    """Not as an inner join in disguise."""
    planned = session.query("SELECT v.vid FROM videos v LEFT JOIN views w ON v.vid = w.vid")
    assert planned.query.outer is not None
    assert [sweep.query for sweep in planned.graph.sweeps] == [planned.name]


def test_streams_are_checked_when_registered(session: weft.Session) -> None:
    """Not when the first query fails."""
    with pytest.raises(CatalogError, match="already a stream"):
        session.stream("VIDEOS", "x long")
    with pytest.raises(CatalogError, match="not a timestamp"):
        session.stream("other", "x long", event_time="x")


def test_an_empty_session_explains_itself() -> None:
    """Nothing is no reason to fail."""
    assert weft.Session().explain() == "No queries yet.\n"


def test_selectivities_may_be_spelled_in_any_way(session: weft.Session) -> None:
    """Under a name that no query asks for, a figure would be ignored without a word."""
    before = session.query(SQL, name="before").graph.cost
    session.selectivity("views.VID=videos.vid", 1)
    assert session.statistics.selectivities == {"videos.vid = views.vid": 1}
    assert session.statistics.origin == "given"
    after = session.query(SQL, name="after").graph.cost
    assert before is not None
    assert after is not None
    assert after != before
    with pytest.raises(StatisticsError, match="not between 0 and 1"):
        session.selectivity("videos.vid = views.vid", 2)
    with pytest.raises(SqlError, match="no column"):
        session.selectivity("videos.vid = views.v", 0.5)


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda s: s.query(None), QueryError),
        (lambda s: s.query(SQL, name=5), QueryError),
        (lambda s: s.query(SQL, strategy=5), ConfigError),
        (lambda s: s.query(SQL, strategy=["flat"]), ConfigError),
        (lambda s: s.query(SQL, strategy=""), ConfigError),
        (lambda s: s.parse(b"SELECT"), QueryError),
        (lambda s: s.compare(SQL), QueryError),
        (lambda s: s.stream("x", 5), CatalogError),
        (lambda s: s.stream(5, "k long"), CatalogError),
        (lambda s: s.stream("x", "k long", lateness=5), CatalogError),
        (lambda s: s.stream("x", "k long", lateness=None), CatalogError),
        (lambda s: s.stream("x", "k long", event_time=5), CatalogError),
        (lambda s: s.selectivity(5, 0.5), StatisticsError),
        (lambda s: s.selectivity("videos.vid = views.vid", "half"), StatisticsError),
        (lambda s: s.selectivity("videos.vid = views.vid", True), StatisticsError),
        (lambda _: weft.Session(statistics={}), ConfigError),  # type: ignore[arg-type]
        (lambda _: weft.Session(options={"partitions": 4}), ConfigError),  # type: ignore[arg-type]
    ],
)
def test_misuse_gets_a_message(
    misuse: Callable[[Any], object], error: type[WeftError], session: weft.Session
) -> None:
    """Not an exception from somewhere inside."""
    with pytest.raises(error) as caught:
        misuse(session)
    assert caught.value.hint
    assert session.queries == ()


def test_a_query_of_very_many_inputs_is_refused_at_once() -> None:
    """A self join of 64 inputs would be planned for ever; the error says how to allow it."""
    many = weft.Session()
    many.stream("a", "k long")
    inputs = ", ".join(f"a AS x{i}" for i in range(64))
    where = " AND ".join(f"x0.k = x{i}.k" for i in range(1, 64))
    with pytest.raises(PlanError, match="64 inputs, more than most_inputs=32"):
        many.query(f"SELECT x0.k FROM {inputs} WHERE {where}")


class _ConnectSession:
    """What a session of Spark Connect is known by, which needs packages that are not installed here."""

    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize("arguments", [{"master": "sc://host:15002"}, {"spark": _ConnectSession()}])
def test_spark_connect_is_refused_at_once(arguments: dict[str, Any]) -> None:
    """The first batch would fail with an error of Spark's about an attribute that users have never used."""
    with pytest.raises(ConfigError, match=r"Weft does not run on Spark Connect: .* no SparkContext"):
        weft.Session(**arguments)


def test_ship_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="ship cannot be 'yes'"):
        weft.Session(ship="yes")  # type: ignore[arg-type]
