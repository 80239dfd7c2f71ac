"""An order that cannot be kept is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from weft.errors import ConfigError, QueryError
from weft.logical.query.ordering import Ordering, ordering_of

PAIR = "SELECT w.id, v.id AS vid FROM views AS w, videos AS v WHERE v.id = w.id"


def session_of(**options: Any) -> weft.Session:
    """Two streams; the options are the first one's."""
    session = weft.Session()
    session.stream("videos", "id long, ts timestamp", **{"event_time": "ts", **options})
    session.stream("views", "id long, ts timestamp", event_time="ts")
    return session


@pytest.mark.parametrize(
    ("order", "precision", "message"),
    [
        ("ordered", None, "there is no order 'ordered'"),
        (None, None, "there is no order None"),
        (["outer"], None, "there is no order"),
        ("none", 1, "has no precision"),
        ("event", 5, "has no precision"),
        ("outer", 0, "a precision cannot be 0"),
        ("inner", -1, "a precision cannot be -1"),
        ("outer", True, "a precision cannot be True"),
        ("outer", 1.5, "a precision cannot be 1.5"),
        ("outer", "2", "a precision cannot be '2'"),
    ],
)
def test_what_is_no_order_is_refused(order: Any, precision: Any, message: str) -> None:
    """With what would be one."""
    session = session_of()
    with pytest.raises(ConfigError, match=message) as error:
        session.query(PAIR, name="q", order=order, precision=precision)
    assert error.value.hint
    assert session.queries == ()


def test_orders_that_a_query_cannot_have_are_refused() -> None:
    """Rows that wait for a partner, tuples that come late, and a past whose order nobody knows."""
    left = "SELECT v.id FROM videos AS v LEFT JOIN views AS w ON v.id = w.id"
    for order in ("outer", "inner", "event"):
        with pytest.raises(QueryError, match="outer, semi and anti joins have no order"):
            session_of().query(left, order=order)
    with pytest.raises(QueryError, match="late tuples of videos are joined"):
        session_of(late="join").query(PAIR, order="event")
    for order in ("outer", "inner"):
        session_of(late="join").query(PAIR, order=order)
        with pytest.raises(QueryError, match="lie in the stored past"):
            session_of().query(PAIR, order=order, backfill=True)
    counted = PAIR.replace("views AS w", "views [ROWS 3 PER id] AS w")
    with pytest.raises(QueryError, match="partners of w have no order of arrival"):
        session_of().query(counted, order="inner")
    session_of().query(counted, order="outer")
    session_of().query(PAIR, order="event", backfill=True)
    session_of(event_time=None).query(PAIR, order="event")


def test_inner_order_follows_from() -> None:
    """A query forgets the order of its inputs, but partners are compared by it."""
    session = session_of()
    query = session.query(PAIR, order="inner", precision=4)
    assert query.ordering == Ordering("inner", 4, ("w", "v"))
    built = weft.select("v.id").from_("videos", alias="v").from_("views", alias="w").where("v.id = w.id")
    assert session.query(built, order="inner").ordering == Ordering("inner", 1, ("v", "w"))
    assert session.query(PAIR, order="outer").ordering == Ordering("outer")
    assert session.query(PAIR).ordering is None
    assert ordering_of("none") is None


def test_explain_shows_the_order() -> None:
    """Whoever asks why results come as they do finds it there."""
    session = session_of()
    assert "Results leave in order" not in session.query(PAIR).explain()
    assert (
        "order: outer, by last tuple, in blocks of 64"
        in session.query(PAIR, order="outer", precision=64).explain()
    )
    assert "inner, by last tuple, then by partner (w, v)" in session.query(PAIR, order="inner").explain()
    assert "event, by largest time" in session.query(PAIR, order="event").explain()
