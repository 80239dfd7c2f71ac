"""Queries that cost too much are refused before they do."""

from __future__ import annotations

import gc
from time import process_time

import pytest

import weft
from weft.errors import ConfigError, SqlError, WeftError
from weft.logical.query.limits import UNLIMITED, Limits

ONE = "SELECT a.k FROM a, b WHERE a.k = b.k AND ({})"


def session(**limits: int) -> weft.Session:
    made = weft.Session(limits=Limits(**limits))
    for name in ("a", "b"):
        made.stream(name, "k long, v long, s string, ts timestamp", event_time="ts")
    return made


def any_of(count: int, text: str) -> str:
    return ONE.format(" OR ".join(text.format(i=i) for i in range(count)))


def test_five_thousand_alternatives_are_accepted() -> None:
    """A list of keys that somebody has generated would be refused, or take long."""
    began = process_time()
    planned = session().query(any_of(5_000, "a.k = {i}"))
    assert len(planned.query.filters) == 1
    assert process_time() - began < 10


def test_conditions_are_planned_in_time_that_grows_with_their_number() -> None:
    """Twice as many bounds would take four times as long."""

    def spent(count: int) -> float:
        """The least time of three, without the collector, whose work grows with what other tests have left."""
        text = ONE.format(" AND ".join(f"a.k + {i} < b.v" for i in range(count)))
        times = []
        gc.disable()
        try:
            for _ in range(3):
                began = process_time()
                session().query(text)
                times.append(process_time() - began)
        finally:
            gc.enable()
        return min(times)

    spent(10)
    assert spent(2_000) < 8 * spent(500)


@pytest.mark.parametrize(
    ("limits", "text", "message"),
    [
        (
            {},
            any_of(5_000, "(a.k > {i} AND b.v < {i})"),
            r"the text has 70,018 words and signs, and the limit is 40,000",
        ),
        ({"words": 50}, any_of(20, "a.k = {i}"), r"the text has 138 words and signs, and the limit is 50"),
        (
            {"characters": 99},
            ONE.format(" " * 100 + "TRUE"),
            r"the text has 147 characters, and the limit is 99",
        ),
        (
            {"terms": 20},
            any_of(10, "a.k + {i} < b.v"),
            r"the expressions of the query have 5\d terms, and the limit is 20",
        ),
        ({"terms": 20}, f"SELECT {' + '.join('a.k' for _ in range(30))} AS x FROM a", "have 59 terms"),
        ({"terms": 8}, "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v + 1", "have 9 terms"),
        ({"depth": 10}, ONE.format("abs(" * 20 + "a.k" + ")" * 20 + " > 1"), "nested more than 10 deep"),
    ],
)
def test_what_is_too_large_is_refused(limits: dict[str, int], text: str, message: str) -> None:
    """One query would keep the session from all others."""
    with pytest.raises(SqlError, match=message) as caught:
        session(**limits).query(text)
    name = next(iter(limits), "words")
    assert caught.value.hint is not None
    assert f"limits=weft.Limits({name}=…)" in caught.value.hint


def test_repetition_counts() -> None:
    """What is written once and meant often would get past the limits of the text."""
    subject = " + ".join("a.v" for _ in range(40))
    whens = " ".join(f"WHEN {i} THEN 1" for i in range(20))
    shown = ", ".join(f"CASE {subject} {whens} END AS c{i}" for i in range(10))
    with pytest.raises(
        SqlError, match=r"the expressions of the query have \d+,\d+ terms, and the limit is 6,000"
    ):
        session(terms=6_000).query(f"SELECT {shown} FROM a")


@pytest.mark.parametrize("many", [150, pytest.param(1_500, marks=pytest.mark.slow)])
def test_limits_can_be_raised(many: int) -> None:
    """Who needs a large query would have no way."""
    text = any_of(many, "(a.k > {i} AND b.v < {i} AND a.s LIKE 'x{i}%')")
    with pytest.raises(SqlError, match="words and signs"):
        session(words=20 * many).query(text)
    assert session(words=40 * many).parse(text).predicates
    assert session(words=40 * many).query(text, order="inner", precision=1).ordering is not None


def test_the_builder_is_limited_too() -> None:
    """A query built call by call would get past the limits of SQL."""
    built = weft.select("a.k").from_("a").where(*(f"a.k <> {i}" for i in range(10)))
    assert session().parse(built).filters
    with pytest.raises(WeftError, match="have 31 terms, and the limit is 30"):
        session(terms=30).parse(built)


def test_limits_that_make_no_sense() -> None:
    """A session that accepts nothing, or runs into Python's own limits."""
    for wrong in ({"words": 0}, {"terms": -1}, {"depth": 151}, {"characters": True}, {"words": 1.5}):
        with pytest.raises(ConfigError):
            Limits(**wrong)
    with pytest.raises(ConfigError, match=r"use weft\.Limits"):
        weft.Session(limits=5)  # type: ignore[arg-type]
    assert UNLIMITED.depth == 150
