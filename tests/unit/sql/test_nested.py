"""Sub-selects, WITH, names of queries and UNION ALL in FROM."""

from __future__ import annotations

import pytest
from tests.unit.sql.samples import CATALOG

import weft
from weft.errors import SqlError
from weft.logical.query.horizon import retention
from weft.logical.schema import Schema, Stream
from weft.sql.bind import bind, input_order, parse_query
from weft.sql.builder import select
from weft.sql.read import read_statement
from weft.testing import LocalRun

A, B, C = (Stream(name, Schema.parse("k long, x long, s string, ts timestamp"), "ts") for name in "abc")
STREAMS = CATALOG.add(A).add(B).add(C).add(Stream("u", A.schema))


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        (
            "SELECT d.x, c.k FROM (SELECT a.x, a.k + 1 AS k FROM a WHERE a.x > 1) AS d, c WHERE d.k = c.k",
            "SELECT d.x, c.k FROM a AS d, c WHERE d.k + 1 = c.k AND d.x > 1",
        ),
        (
            "WITH p AS (SELECT a.k, a.ts FROM a) "
            "SELECT p.k, q.k AS l FROM p [RANGE 1 MINUTE] JOIN p [ROWS 5] AS q USING (k)",
            "SELECT p.k, q.k AS l FROM a [RANGE 1 MINUTE] AS p JOIN a [ROWS 5] AS q USING (k)",
        ),
        (
            "WITH p AS (SELECT k FROM a), q AS (SELECT p.k AS l FROM p WHERE k > 1) SELECT l FROM q",
            "SELECT k AS l FROM a WHERE k > 1",
        ),
        (
            "SELECT d.k, c.x FROM (SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 2 MINUTES] WHERE a.k = b.k) AS d, "
            "c [RANGE 5 MINUTES] WHERE d.k = c.k",
            "SELECT d_a.k, c.x FROM a AS d_a, b AS d_b, c [RANGE 5 MINUTES] WHERE d_a.k = d_b.k AND d_a.k = c.k "
            "AND d_b.ts <= d_a.ts + INTERVAL 1 MINUTE AND d_a.ts <= d_b.ts + INTERVAL 2 MINUTES",
        ),
        (
            "SELECT d.k FROM (SELECT a.k, b.x FROM a [RANGE 1 MINUTE] LEFT JOIN b ON a.k = b.k) AS d WHERE d.x IS NULL",
            "SELECT a.k FROM a [RANGE 1 MINUTE] LEFT JOIN b ON a.k = b.k WHERE b.x IS NULL",
        ),
        (
            "SELECT c.k, d.x FROM c LEFT JOIN (SELECT k, x FROM a WHERE x > 3) d ON c.k = d.k",
            "SELECT c.k, d.x FROM c LEFT JOIN a AS d ON c.k = d.k AND d.x > 3",
        ),
        (
            "SELECT d.k, c.x FROM (SELECT k, x FROM a WHERE x > 3) d LEFT JOIN c ON c.k = d.k",
            "SELECT d.k, c.x FROM a AS d LEFT JOIN c ON c.k = d.k WHERE d.x > 3",
        ),
        ("SELECT * FROM (SELECT k FROM a)", "SELECT k AS subquery_k FROM a"),
        ("SELECT d.k FROM ((SELECT k FROM a)) [RANGE 1 MINUTE] d", "SELECT k FROM a"),
        (
            "SELECT _time, k FROM (SELECT a.k FROM a, b WHERE a.k = b.k) d",
            "SELECT greatest(a.ts, b.ts) AS _time, a.k FROM a, b WHERE a.k = b.k",
        ),
    ],
)
def test_flattened(nested: str, flat: str) -> None:
    """A sub-select would be an optimisation barrier, or mean something else than its inputs joined."""
    assert parse_query(nested, STREAMS) == parse_query(flat, STREAMS)


def test_window_on_several_streams_bounds_their_state() -> None:
    """A window on a sub-select of several streams would be checked, but their state would grow for ever."""
    query = parse_query(
        "SELECT d.k FROM (SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 2 MINUTES] WHERE a.k = b.k) [RANGE 10 MINUTES] "
        "AS d, c [RANGE 5 MINUTES] WHERE d.k = c.k",
        STREAMS,
    )
    kept = {alias: retention(query, alias) for alias in query.aliases}
    assert {alias: span.total_seconds() / 60 for alias, span in kept.items() if span is not None} == {
        "c": 5,
        "d_a": 11,
        "d_b": 12,
    }


@pytest.mark.parametrize(
    ("sub_select", "reason"),
    [
        ("(SELECT a.k FROM a [ROWS 5], b WHERE a.k = b.k) AS d, c", "a window counts rows"),
        (
            "(SELECT a.k FROM a WHERE a.x > 1) [ROWS 5] AS d, c",
            "a window counts its rows, and it has a condition",
        ),
        ("(SELECT a.k + 1 AS k FROM a) [ROWS 5 PER k] AS d, c", "a window counts per an expression"),
        (
            "(SELECT a.k FROM a [RANGE 1 MINUTE] ANTI JOIN b ON a.k = b.k) AS d, c",
            "an outer, semi or anti join is below another join",
        ),
        (
            "(SELECT a.k FROM a [RANGE 1 MINUTE], u WHERE a.k = u.k) AS d, c",
            "a window is about arrival times",
        ),
        (
            "(SELECT a.k FROM a, b WHERE a.k = b.k) [RANGE 1 MINUTE] AS d, c",
            "it has a window, and its streams have none that would bound what must be stored",
        ),
        (
            "(SELECT a.k FROM a, b [RANGE 1 MINUTE] WHERE a.k = b.k) AS d SEMI JOIN c ON TRUE, c AS e",
            "a window is below an outer, semi or anti join",
        ),
    ],
)
def test_stream_of_its_own(sub_select: str, reason: str) -> None:
    """What cannot be flattened would be, and the answer be wrong; or nobody would be told why it is not."""
    last = sub_select.rsplit(" ", 1)[1]
    query, notes = bind(
        read_statement(f"SELECT d.k FROM {sub_select} WHERE d.k = {last}.k"), STREAMS, cross=True
    )
    assert [str(note) for note in notes] == [f"d is a stream of its own: {reason}"]
    assert query.input("d").stream.is_derived
    assert parse_query(str(query), STREAMS, cross=True) == query


def test_equal_definitions_are_one_stream() -> None:
    """Two queries would each run a sub-select that they have in common."""
    texts = (
        "(SELECT p.k FROM a [ROWS 5] AS p, b AS q WHERE p.k = q.k) AS d",
        "(SELECT x.k FROM b AS y, a [ROWS 5] AS x WHERE y.k = x.k) AS e",
    )
    names = {
        parse_query(f"SELECT 1 AS one FROM {text}, c WHERE {text[-1]}.k = c.k", STREAMS)
        .input(text[-1])
        .stream.name
        for text in texts
    }
    assert len(names) == 1


def test_union() -> None:
    """The time of a union would be unknown although all branches select it."""
    query = parse_query(
        "SELECT v.k FROM (SELECT k, ts FROM a WHERE x > 1 UNION ALL SELECT k + 1, ts FROM b UNION ALL "
        "SELECT d.k, d.ts FROM (SELECT k, ts FROM c UNION ALL SELECT k, ts FROM a) AS d) [RANGE 1 MINUTE] AS v",
        STREAMS,
    )
    stream = query.input("v").stream
    assert stream.is_union
    assert (stream.event_time, stream.hidden) == ("ts", None)
    assert [str(branch) for branch in stream.definition] == [
        "SELECT a.k AS k, a.ts AS ts FROM a",
        "SELECT a.k AS k, a.ts AS ts FROM a WHERE a.x > 1",
        "SELECT b.k + 1 AS k, b.ts AS ts FROM b",
        "SELECT c.k AS k, c.ts AS ts FROM c",
    ]
    assert parse_query(str(query), STREAMS) == query


def test_names_of_queries() -> None:
    """A query written once could not be used by another."""
    trolls = parse_query("SELECT a.k, b.x FROM a, b WHERE a.k = b.k", STREAMS)
    named = STREAMS.with_queries({"trolls": trolls})
    written = parse_query("SELECT t.x, c.k FROM trolls AS t, c WHERE t.k = c.k", named)
    assert written == parse_query(f"SELECT t.x, c.k FROM ({trolls}) AS t, c WHERE t.k = c.k", STREAMS)
    built = select("t.x", "c.k").from_("trolls", alias="t").from_("c").where("t.k = c.k")
    assert built.build(named) == written


def test_builder() -> None:
    """The builder could not say what SQL says."""
    inner = select("a.k").from_("a", window="1 minute").from_("b", window="1 minute").where("a.k = b.k")
    built = select("d.k").from_(inner, alias="d", window="5 minutes").join("c", on="c.k = d.k")
    text = (
        "SELECT d.k FROM (SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k) "
        "[RANGE 5 MINUTES] AS d JOIN c ON c.k = d.k"
    )
    assert built.build(STREAMS) == parse_query(text, STREAMS)
    both = select("k").from_("a").union_all(select("k").from_("b"))
    joined = select("c.x").from_("c").join(both, alias="u", using="k", kind="left")
    again = "SELECT c.x FROM c LEFT JOIN (SELECT k FROM a UNION ALL SELECT k FROM b) AS u USING (k)"
    assert joined.build(STREAMS) == parse_query(again, STREAMS)
    assert both.build(STREAMS) == parse_query("SELECT k FROM a UNION ALL (SELECT k FROM b)", STREAMS)


def test_deep_and_wide() -> None:
    """A few words would make a query that nobody can plan, or take for ever to read."""
    steps = ["WITH q0 AS (SELECT a.k, a.k AS l FROM a)"]
    steps += [f"q{i} AS (SELECT l.k, r.l FROM q{i - 1} l, q{i - 1} r WHERE l.k = r.k)" for i in range(1, 30)]
    with pytest.raises(SqlError, match="the query joins 128 streams"):
        parse_query(", ".join(steps) + " SELECT k FROM q29", STREAMS)
    sums = [
        "WITH q0 AS (SELECT a.k FROM a)",
        *(f"q{i} AS (SELECT k + k AS k FROM q{i - 1})" for i in range(1, 40)),
    ]
    assert parse_query(", ".join(sums) + " SELECT k FROM q13", STREAMS).inputs[0].stream.is_derived


def test_no_order_of_inputs() -> None:
    """The order of inputs would be that of names that FROM does not have."""
    with pytest.raises(SqlError, match="cannot be in the order of the inputs"):
        input_order(read_statement("SELECT d.k FROM (SELECT a.k FROM a) AS d, c WHERE c.k = d.k"), STREAMS)


@pytest.mark.parametrize(
    ("sql", "message", "culprit", "hint"),
    [
        ("SELECT d.k FROM (SELECT k, nope FROM a) d", "there is no column nope", "nope", "there are"),
        ("SELECT d.nope FROM (SELECT k FROM a) d", "d has no column nope", "nope", "there are: k"),
        ("SELECT d.x FROM d", "there is no stream d", "d", "there are: a, b"),
        (
            "SELECT v.k FROM (SELECT k FROM a UNION ALL SELECT s FROM b) v",
            "column s is a string, but k, in its place in the first SELECT, is a long",
            "s",
            "CAST(s AS long)",
        ),
        (
            "SELECT v.k FROM (SELECT k FROM a UNION ALL SELECT k, x FROM b) v",
            "one SELECT gives 1 columns, and another 2",
            "SELECT k FROM a UNION ALL SELECT k, x FROM b",
            "as many columns as the first: k",
        ),
        (
            "SELECT v.k FROM (SELECT k FROM a UNION SELECT k FROM b) v",
            "groups can be an input once they are complete, and these never are: a row may come at any time for each",
            "SELECT k FROM a UNION SELECT k FROM b",
            "group by a window",
        ),
        (
            "SELECT v.k FROM (SELECT k FROM a EXCEPT ALL SELECT k FROM b) v",
            "EXCEPT ALL is not supported",
            None,
            "every row once",
        ),
        (
            "SELECT k FROM a INTERSECT SELECT k, x FROM b",
            "one SELECT gives 1 columns, and another 2",
            None,
            "as many columns as the first: k",
        ),
        (
            "SELECT v.k FROM (SELECT k FROM a [RANGE 1 MINUTE]) v",
            "the window of a says nothing here: it is the only input of the sub-select",
            "a",
            "(SELECT …) [RANGE 1 MINUTE] AS d",
        ),
        (
            "SELECT v.k FROM (SELECT DISTINCT k FROM a) v",
            "groups can be an input once they are complete, and these never are: a row may come at any time for each",
            "SELECT DISTINCT k FROM a",
            "among their columns",
        ),
        (
            "SELECT collect_list(k) FROM a",
            "there is no aggregate collect_list yet",
            "collect_list(k)",
            "groupBy",
        ),
        (
            "WITH RECURSIVE d AS (SELECT k FROM a) SELECT k FROM d",
            "WITH RECURSIVE is not supported",
            None,
            "stream",
        ),
        (
            "WITH d AS (SELECT k FROM a), D AS (SELECT k FROM a) SELECT k FROM d",
            "WITH names D twice",
            "D",
            "another",
        ),
        (
            "WITH d(l, m) AS (SELECT k FROM a) SELECT l FROM d",
            "d has 1 columns, and 2 names are listed",
            "m",
            "list a name for each",
        ),
        (
            "SELECT d.k FROM (SELECT a.k FROM a, b) d",
            "cross product: nothing joins b with a",
            "b",
            "CROSS JOIN",
        ),
        (
            "SELECT d.k FROM (SELECT k FROM a) d, (SELECT k FROM b) d",
            "two streams go by the name d",
            "d",
            "AS",
        ),
        (
            "SELECT d.k FROM (SELECT k, x AS _time FROM u) d",
            None,
            "SELECT k, x AS _time FROM u",
            "another name",
        ),
        (
            "SELECT d.k FROM (SELECT k FROM a) [ROWS 5 PER x] d",
            "d has no column x to count per",
            "x",
            "there are: k",
        ),
        (
            "SELECT d.k FROM (SELECT 1) d",
            "FROM is missing here, after the columns",
            ")",
            "go on with the streams",
        ),
        (
            "SELECT d.k FROM (SELECT k FROM a ORDER BY k) d",
            "ORDER BY in a sub-select is not supported",
            None,
            "whole",
        ),
        (
            "SELECT a.k FROM a WHERE (SELECT k FROM b) = k",
            "a sub-select as a value is not supported",
            None,
            "LEFT JOIN b ON b.k = a.k",
        ),
    ],
)
def test_errors(sql: str, message: str | None, culprit: str | None, hint: str | None) -> None:
    """What is wrong inside a sub-select would be reported somewhere else, or without a way out."""
    with pytest.raises(SqlError) as caught:
        parse_query(sql, STREAMS)
    assert message is None or caught.value.message == message
    assert culprit is None or sql[caught.value.start : caught.value.end] == culprit
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "joined",
    [
        "LATERAL (SELECT 1 AS p) AS t LEFT JOIN a ON t.p = a.k",
        "LATERAL (SELECT 1 AS p) AS t RIGHT JOIN a ON t.p = a.k",
        "LATERAL (SELECT 1 AS p) AS t FULL JOIN a ON t.p = a.k",
    ],
)
def test_a_side_that_reads_nothing_is_refused_where_rows_without_a_partner_stay(joined: str) -> None:
    """The condition of the join would be dropped, and every row be a partner."""
    session = weft.Session()
    session.stream("a", "k long")
    with pytest.raises(SqlError, match="t reads nothing") as caught:
        session.parse(f"SELECT t.p, a.k FROM {joined}")
    said = str(caught.value.hint).split("as in ")[1].split(", or")[0]
    session.query(f"SELECT a.k AS k, t.p AS p FROM {said}", name="q", sink=weft.to_memory())
    run = LocalRun(session)
    run.batch({"a": [{"k": 1}, {"k": 2}]})
    run.end()
    found = run.results("q").to_pylist()
    assert sorted(found, key=lambda row: row["k"]) == [{"k": 1, "p": 1}, {"k": 2, "p": None}]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT t.P, a.k FROM a, LATERAL (SELECT 1 AS p) AS t", ["p", "k"]),
        ("SELECT t.B FROM a AS t(b, c, d, e)", ["b"]),
        ("SELECT d.b FROM (SELECT t.b FROM a AS t(b, c, d, e)) AS d", ["b"]),
        ("SELECT provenance, K FROM a FULL JOIN b USING (k)", ["provenance", "k"]),
    ],
)
def test_a_column_has_the_name_that_from_gives_it(sql: str, names: list[str]) -> None:
    """Whoever reads results would look for p, and find col_1 or the name that the stream has for it."""
    assert [output.name for output in parse_query(sql, STREAMS, cross=True).projection] == names
