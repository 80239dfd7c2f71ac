"""The queries of CLASH's chapter 8, in all the spellings it gives."""

from __future__ import annotations

from datetime import timedelta

import weft.sql.builder as weft
from weft.logical.catalog import Catalog
from weft.logical.expr.expression import to_sql
from weft.logical.query.query import Input, Output, make_query
from weft.logical.query.window import Range
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_predicate, parse_query

RST = Catalog(
    (
        Stream("r", Schema.parse("a long")),
        Stream("s", Schema.parse("a long, b long")),
        Stream("t", Schema.parse("b long, c string")),
    )
)
TWEETS = Catalog((Stream("tweets", Schema.parse("user_id long, text string, ts timestamp"), "ts"),))


def test_figure_8_2() -> None:
    """The order in which a query is written would decide how it runs."""
    spellings = [
        parse_query("SELECT r.a, t.c FROM r, s, t WHERE r.a = s.a AND s.b = t.b", RST),
        parse_query("SELECT r.a, t.c FROM t, s, r WHERE s.b = t.b AND r.a = s.a", RST),
        weft.Builder()
        .from_("R")
        .from_("S")
        .from_("T")
        .where("r.a = s.a")
        .where("s.b = t.b")
        .select("r.a", "t.c")
        .build(RST),
        weft.from_("S")
        .from_("T")
        .where("s.b = t.b")
        .from_("R")
        .where("r.a = s.a")
        .select("r.a", "t.c")
        .build(RST),
    ]
    assert len(set(spellings)) == 1


def test_figure_8_3() -> None:
    """The front end and the value it makes would drift apart."""
    r, s, t = (Input(stream.name, stream) for stream in RST.streams)
    predicates = [parse_predicate("r.a = s.a", [r, s]), parse_predicate("s.b = t.b", {"s": s, "t": t})]
    outputs = [Output("a", r.column("a")), Output("c", t.column("c"))]
    built = make_query([r, s, t], predicates, outputs)
    assert built == parse_query("SELECT r.a, t.c FROM r JOIN s USING (a) JOIN t USING (b)", RST)


def test_figure_8_5() -> None:
    """A stream could not be joined with an older stretch of itself."""
    built = (
        weft.from_("tweets", alias="newer", window="1 minute")
        .from_("tweets", alias="older", window=timedelta(hours=1))
        .where("older.user_id = newer.user_id")
        .select("*")
        .build(TWEETS)
    )
    written = parse_query(
        "SELECT * FROM tweets [RANGE 1 MINUTE] newer, tweets [RANGE 1 HOUR] older"
        " WHERE newer.user_id = older.user_id",
        TWEETS,
    )
    assert built == written
    assert [input_.window for input_ in built.inputs] == [
        Range(timedelta(minutes=1)),
        Range(timedelta(hours=1)),
    ]
    assert [output.name for output in built.projection] == [
        *("newer_user_id", "newer_text", "newer_ts"),
        *("older_user_id", "older_text", "older_ts"),
    ]
    assert [to_sql(member) for member in built.keys[0].members] == ["newer.user_id", "older.user_id"]


def test_figure_8_6() -> None:
    """A window that is no window would be taken for a stream."""
    query = parse_query("SELECT * FROM r [RANGE 1 MINUTE], s [RANGE 2 MINUTES] WHERE r.a = s.a", RST)
    assert [str(input_.window) for input_ in query.inputs] == ["RANGE 1 MINUTE", "RANGE 2 MINUTES"]
