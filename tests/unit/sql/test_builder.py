"""The builder: the same queries as SQL's, call by call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest
from tests.unit.sql.samples import CATALOG

from weft.errors import QueryError, SqlError
from weft.logical.query.query import Query
from weft.logical.query.window import UNBOUNDED, Range, Rows
from weft.sql.bind import parse_query
from weft.sql.builder import Builder, from_, select
from weft.sql.windows import WindowLike


def sql(text: str) -> Query:
    return parse_query(text, CATALOG)


def test_equals_sql() -> None:
    """Two people, one of whom prefers the builder, could not share a running query."""
    built = (
        select("v.vid", "lower(w.name) AS n")
        .from_("videos", alias="v", window="10 minutes")
        .from_("views", alias="w", window=1000)
        .where("v.vid = w.vid")
        .where("v.geo = 'US' AND w.duration > 3", "v.ok")
        .build(CATALOG)
    )
    assert built == sql(
        "SELECT v.vid, lower(w.name) AS n FROM videos [RANGE 10 MINUTES] AS v, views [ROWS 1000] AS w"
        " WHERE v.vid = w.vid AND v.geo = 'US' AND w.duration > 3 AND v.ok"
    )


def test_any_order() -> None:
    """Parts of a query could not be put together in separate functions."""
    calls: list[Callable[[Builder], Builder]] = [
        lambda b: b.select("v.vid"),
        lambda b: b.from_("videos", alias="v"),
        lambda b: b.from_("views", alias="w"),
        lambda b: b.where("v.vid = w.vid"),
        lambda b: b.where("w.duration > 3"),
    ]
    expected = sql("SELECT v.vid FROM videos v, views w WHERE v.vid = w.vid AND w.duration > 3")
    for seed in range(10):
        builder = Builder()
        for call in Random(seed).sample(calls, len(calls)):
            builder = call(builder)
        assert builder.build(CATALOG) == expected


def test_never_changes() -> None:
    """A builder kept for later would remember what was added to its descendants."""
    base = select("v.vid").from_("videos", alias="v")
    base.where("v.ok").from_("views")
    assert base.build(CATALOG) == sql("SELECT v.vid FROM videos v")
    assert repr(base.where("v.ok")) == "<Builder SELECT v.vid FROM v WHERE v.ok>"


def test_joins() -> None:
    """The builder could not say what SQL's JOIN says."""
    built = (
        select("v.vid", "c.text")
        .from_("videos", alias="v")
        .join("views", alias="w", using="vid", window="1 hour", kind="left")
        .join("comments", alias="c", on="w.uid = c.uid", kind="full")
        .build(CATALOG)
    )
    assert built == sql(
        "SELECT v.vid, c.text FROM videos v LEFT JOIN views [RANGE 1 HOUR] w USING (vid)"
        " FULL JOIN comments c ON w.uid = c.uid"
    )
    several = select("v.vid").from_("videos", alias="v").join("views", using=("vid", "ts"))
    assert several.build(CATALOG) == sql("SELECT v.vid FROM videos v JOIN views USING (vid, ts)")


def test_nested_joins() -> None:
    """A join on the right-hand side of an outer join could not be built."""
    inner = from_("views", alias="w").join("comments", alias="c", on="w.uid = c.uid")
    built = (
        select("v.vid").from_("videos", alias="v").join(inner, on="v.vid = w.vid", kind="left").build(CATALOG)
    )
    assert built == sql(
        "SELECT v.vid FROM videos v LEFT JOIN (views w JOIN comments c ON w.uid = c.uid) ON v.vid = w.vid"
    )


def test_cross() -> None:
    """A cross product would happen by accident, or not at all."""
    pairs = select("v.vid").from_("videos", alias="v").from_("views", alias="w")
    with pytest.raises(SqlError, match="cross product"):
        pairs.build(CATALOG)
    with pytest.raises(SqlError) as caught:
        pairs.build(CATALOG)
    assert caught.value.hint == "add a predicate between them, or call .cross() if every pair is wanted"
    expected = sql("SELECT v.vid FROM videos v CROSS JOIN views w")
    assert pairs.cross().build(CATALOG) == expected
    joined = select("v.vid").from_("videos", alias="v").join("views", alias="w", kind="cross")
    assert joined.build(CATALOG) == expected


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ("10 minutes", Range(timedelta(minutes=10))),
        ("1h 30min", Range(timedelta(minutes=90))),
        ("1 week", Range(timedelta(days=7))),
        ("1000 rows", Rows(1000)),
        ("1 ROW", Rows(1)),
        ("Unbounded", UNBOUNDED),
        (timedelta(seconds=5), Range(timedelta(seconds=5))),
        (7, Rows(7)),
        (Rows(3), Rows(3)),
        ("3 rows per geo", Rows(3, ("geo",))),
        ("1 ROW PER vid, Geo , vid", Rows(1, ("geo", "vid"))),
        (Rows(3, ("geo",)), Rows(3, ("geo",))),
        (None, UNBOUNDED),
    ],
)
def test_windows(given: WindowLike | None, window: object) -> None:
    """A window given as a plain value would be another window."""
    (input_,) = select("vid").from_("videos", window=given).build(CATALOG).inputs
    assert input_.window == window


@pytest.mark.parametrize(
    "given",
    [
        "5 bananas",
        "0 rows",
        "1.5 rows",
        "0 seconds",
        "",
        "rows",
        "3 rows per",
        "3 rows per geo,",
        "5 minutes per geo",
    ],
)
def test_window_texts_that_make_no_sense(given: str) -> None:
    """A misspelt window would be no window."""
    with pytest.raises(SqlError) as caught:
        from_("videos", window=given)
    assert str(caught.value).split("\n")[1] == f"1 | {given}"
    assert caught.value.hint == 'write "10 minutes", "1000 rows", "10 rows per symbol" or "unbounded"'


def test_a_column_to_count_per_that_is_not_there() -> None:
    """Tuples would be counted as if they all had one key."""
    with pytest.raises(SqlError, match="videos has no column goe to count per") as caught:
        select("vid").from_("videos", window="3 rows per goe").build(CATALOG)
    assert caught.value.hint
    assert caught.value.hint.startswith("did you mean geo?")


@pytest.mark.parametrize("given", [0, -3, True, 1.5, timedelta(0)])
def test_window_values_that_make_no_sense(given: object) -> None:
    """True would be a window of one row."""
    with pytest.raises(QueryError):
        from_("videos", window=given)  # type: ignore[arg-type]


def test_errors_show_the_fragment() -> None:
    """The user would look for the mistake in the wrong one of many fragments."""
    with pytest.raises(SqlError) as caught:
        select("v.vid").from_("videos", alias="v").where("v.ok").where("v.nosuch = 1").build(CATALOG)
    assert str(caught.value).split("\n")[:3] == [
        "SQL: v has no column nosuch",
        "1 | v.nosuch = 1",
        "      ^^^^^^",
    ]
    with pytest.raises(SqlError) as caught:
        select("v.vid").from_("vidoes", alias="v").build(CATALOG)
    assert str(caught.value).split("\n")[1:3] == ["1 | vidoes", "    ^^^^^^"]
    with pytest.raises(SqlError) as caught:
        select("v.vid").from_("videos", alias="v").join("views", using="nosuch").build(CATALOG)
    assert str(caught.value).split("\n")[:3] == ["SQL: there is no column nosuch", "1 | nosuch", "    ^^^^^^"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is nothing here"),
        ("v.ok; v.ok", "a single expression is wanted here"),
        ("v.vid, v.ok", "cannot make sense of ,"),
        ("v.vid [ROWS 5]", "a window stands right after the name of a stream in FROM"),
        ("(v.vid", "this ( is never closed"),
        ("v.vid +", "something is missing after +"),
        ("IF v.ok", "cannot make sense of ."),
    ],
)
def test_broken_fragments(text: str, message: str) -> None:
    """A broken fragment would be reported only when the query is built, far from where it was written."""
    with pytest.raises(SqlError) as caught:
        Builder().where(text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: select(5),  # type: ignore[arg-type]
        lambda: from_(None),  # type: ignore[arg-type]
        lambda: from_("videos", alias=5),  # type: ignore[arg-type]
        lambda: from_("videos").where(True),  # type: ignore[arg-type]
        lambda: from_("videos").join(None, using="vid"),  # type: ignore[arg-type]
        lambda: from_("videos").join("views", on=5),  # type: ignore[arg-type]
        lambda: from_("videos").join("views", using=5),  # type: ignore[arg-type]
        lambda: from_("videos").join("views", using=(None,)),  # type: ignore[arg-type]
        lambda: from_("videos").join("views", kind=5),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_text(misuse: Callable[[], Builder]) -> None:
    """A number where a text belongs would show a stack trace from deep inside."""
    with pytest.raises(QueryError, match="takes a text, not"):
        misuse()


def test_misuse() -> None:
    """A call that makes no sense would be ignored."""
    with pytest.raises(QueryError, match="selects nothing"):
        from_("videos").build(CATALOG)
    with pytest.raises(QueryError, match="reads no stream"):
        select("1").build(CATALOG)
    with pytest.raises(QueryError, match="nothing to join onto"):
        select("1").join("videos", on="1 = 1")
    with pytest.raises(QueryError, match="no join 'outer'"):
        from_("videos").join("views", kind="outer")
    with pytest.raises(QueryError, match="only from_ and join"):
        from_("videos").join(from_("views").where("ok"))
    with pytest.raises(QueryError, match="no alias and no window"):
        from_("videos").join(from_("views"), alias="x")
    with pytest.raises(SqlError, match="cannot be empty"):
        from_("videos", alias="")
