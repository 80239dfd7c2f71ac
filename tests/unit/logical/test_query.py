"""Queries as values: normal form, decomposition and composition (CLASH 8.2.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shares import examples
from tests.strategies import catalogs, outer_queries, queries

from weft.errors import PlanError, QueryError
from weft.logical.catalog import Catalog
from weft.logical.codec import LOGICAL, Codec
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Expr, aliases
from weft.logical.expr.functions import call
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Input, Key, Output, Query, make_query, star
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_predicate, parse_query

RST = Catalog(
    (
        Stream("r", Schema.parse("a long, b long, ts timestamp"), "ts"),
        Stream("s", Schema.parse("a long, b long, c string"), None),
        Stream("t", Schema.parse("b long, c string"), None),
    )
)
CHAIN = "SELECT r.a, t.c FROM r [ROWS 9], s, t WHERE r.a = s.a AND s.b = t.b AND r.b > 1 AND s.b < t.b"


def parse(sql: str) -> Query:
    return parse_query(sql, RST)


# Keys


def test_keys_are_transitive() -> None:
    """A partitioning that serves three streams at once would not be found."""
    spellings = ["x.a = y.a AND y.a = z.a", "x.a = y.a AND x.a = z.a", "z.a = y.a AND z.a = x.a"]
    found = {parse(f"SELECT x.a FROM r x, r y, r z WHERE {where}") for where in spellings}
    assert len(found) == 1
    assert [str(key) for key in found.pop().keys] == ["x.a = y.a = z.a"]


def test_equalities_within_an_input_join_its_class() -> None:
    """x.a = x.b AND x.b = y.a would leave the optimiser with a weaker key."""
    query = parse("SELECT x.a FROM r x, r y WHERE x.a = x.b AND x.b = y.a")
    assert [str(key) for key in query.keys] == ["x.a = y.a"]
    assert list(map(str, query.filters)) == ["x.a = x.b"]


def test_constants_reach_the_whole_class() -> None:
    """A filter on one side of a join would not spare the other side's tuples."""
    one = parse("SELECT x.a FROM r x, s y, s z WHERE x.a = y.a AND y.a = z.a AND x.a = 5")
    two = parse("SELECT x.a FROM r x, s y, s z WHERE x.a = y.a AND y.a = z.a AND z.a = 5")
    assert one == two
    assert list(map(str, one.filters)) == ["x.a = 5", "y.a = 5", "z.a = 5"]


def test_key_checks_itself() -> None:
    """A key with two members of one input would be joined wrongly."""
    x, y = Input("x", RST.stream("r")), Input("y", RST.stream("r"))
    with pytest.raises(QueryError, match="not a join key"):
        Key((x.column("a"), x.column("b")))
    with pytest.raises(QueryError, match="not a join key"):
        Key((y.column("a"), x.column("a")))
    assert Key((x.column("a"), y.column("b"))).aliases == ("x", "y")


# Decomposition and composition


def test_subquery() -> None:
    """A stored intermediate result would lack a column, or a predicate, that the rest needs."""
    part = parse(CHAIN).subquery(["r", "s"])
    assert str(part) == ("SELECT r.a AS r_a, s.b AS s_b FROM r [ROWS 9], s WHERE r.a = s.a AND r.b > 1")
    assert str(parse(CHAIN).subquery(["t"])) == "SELECT t.b AS t_b, t.c AS t_c FROM t"


def test_subquery_of_what_is_not_joined() -> None:
    """The optimiser could not speak of two streams that only a third connects."""
    assert parse(CHAIN).subquery(["r", "t"]).cross


def test_subquery_names_stay_apart() -> None:
    """Two columns of an intermediate result would have one name."""
    catalog = Catalog((Stream("u", Schema.parse("b_c long, c long")),))
    query = parse_query("SELECT a.b_c AS x, a_b.c AS y FROM u a, u a_b WHERE a.c = a_b.b_c", catalog)
    part = query.subquery(["a", "a_b"])
    assert len({output.name for output in part.projection}) == len(part.projection)
    assert [output.name for output in star([*query.inputs[0].columns, *query.inputs[1].columns])] == [
        *("a_b_c", "a_c", "a_b_b_c", "a_b_c_2"),
    ]


def test_subquery_of_strangers() -> None:
    """A wrong alias would be overlooked, and the part be another than asked for."""
    with pytest.raises(QueryError, match="no input 'x'"):
        parse(CHAIN).subquery(["r", "x"])


@given(st.data())
@examples(20)
def test_subqueries_cover_the_query(data: st.DataObject) -> None:
    """Joining the parts of a query would not give the query back."""
    query = data.draw(queries(data.draw(catalogs(2)), most=4))
    kept = data.draw(st.sets(st.sampled_from(query.aliases), min_size=1))
    rest = set(query.aliases) - kept
    part = query.subquery(kept)
    assert set(part.aliases) == kept
    assert all(aliases(expr) <= kept for expr in part.conditions)
    if rest:
        joined = part.join(query.subquery(rest), _terms(query)) if not query.cross else None
        assert joined is None or joined.keys == query.keys


def _terms(query: Query) -> list[Expr]:
    return [*(equality for key in query.keys for equality in key.equalities()), *query.conditions]


def test_join() -> None:
    """A query could not be built from two."""
    left = parse("SELECT r.a FROM r [ROWS 9], s WHERE r.a = s.a AND r.b > 1")
    right = parse("SELECT t.c FROM s, t WHERE s.b = t.b AND s.b < t.b")
    assert left.join(right) == parse(CHAIN)


def test_join_with_a_predicate_between() -> None:
    """Two queries without a common input could not be joined."""
    left, right = parse("SELECT r.a FROM r"), parse("SELECT t.c FROM t")
    with pytest.raises(QueryError, match="cross product"):
        left.join(right)
    on = parse_predicate("r.b = t.b", [*left.inputs, *right.inputs])
    assert left.join(right, [on]) == parse("SELECT r.a, t.c FROM r, t WHERE r.b = t.b")


def test_join_refuses_to_guess() -> None:
    """One of two inputs, or of two columns, of the same name would disappear."""
    with pytest.raises(QueryError, match="both queries have an input 'r', and they differ"):
        parse("SELECT r.a FROM r").join(parse("SELECT r.b FROM r [ROWS 5]"))
    with pytest.raises(QueryError, match="two columns of the result are called 'x'"):
        parse("SELECT r.a AS x FROM r").join(parse("SELECT r.b AS x FROM r"))


def test_outer_joins_are_not_taken_apart() -> None:
    """Half of an outer join would be taken for a query of its own."""
    outer = parse("SELECT r.a FROM r LEFT JOIN s ON r.a = s.a")
    with pytest.raises(QueryError, match="outer joins"):
        outer.subquery(["r"])
    with pytest.raises(QueryError, match="outer joins"):
        outer.join(parse("SELECT t.c FROM t"))


# Validity


def test_columns_of_an_outer_join() -> None:
    """A column that only ON reads would not be read from the stream."""
    query = parse("SELECT r.a FROM r LEFT JOIN s ON r.b = s.b AND s.c = 'x'")
    assert [column.name for column in query.columns_of("s")] == ["b", "c"]
    assert [column.name for column in query.columns_of("r")] == ["a", "b"]


def test_queries_check_themselves() -> None:
    """A wrong query could exist, and fail much later."""
    r, s = Input("r", RST.stream("r")), Input("s", RST.stream("s"))
    shown = [Output("a", r.column("a"))]
    link = parse_predicate("r.a = s.a", [r, s])
    with pytest.raises(QueryError, match="at least one stream"):
        make_query([], [], [])
    with pytest.raises(QueryError, match="at least one column"):
        make_query([r], [], [])
    with pytest.raises(QueryError, match="distinct names"):
        make_query([r, Input("R", r.stream)], [], shown, cross=True)
    with pytest.raises(QueryError, match="which is no input"):
        make_query([r], [link], shown)
    with pytest.raises(QueryError, match="do not cover"):
        make_query([r], [], shown, outer=Join("left", "r", "s", (link,)))
    with pytest.raises(QueryError, match="not to be seen there"):
        Join("left", "r", "t", (link,))
    with pytest.raises(QueryError, match="cross product: nothing joins s with r"):
        make_query([r, s], [], shown, outer=Join("left", "r", "s", ()))
    with pytest.raises(QueryError, match="unknown join"):
        Join("outer", "r", "s", (link,))
    with pytest.raises(QueryError, match="has no name"):
        Output("", r.column("a"))
    with pytest.raises(QueryError, match="never true, so the query gives no results"):
        make_query([r], [call("=", literal(1), literal(2))], shown)
    with pytest.raises(QueryError, match="mentions no stream"):
        make_query([r], [call("=", call("lower", literal("A")), literal("a"))], shown)
    assert make_query([r], [call("=", literal(1), literal(1))], shown) == make_query([r], [], shown)


# JSON

CODEC = Codec(LOGICAL)


@given(st.data())
@examples(35)
def test_codec_round_trip(data: st.DataObject) -> None:
    """A restarted session would run another query than the one it had stored."""
    catalog = data.draw(catalogs())
    query = data.draw(queries(catalog) | outer_queries(catalog))
    text = CODEC.dumps(query)
    assert CODEC.loads(text) == query
    assert CODEC.dumps(CODEC.loads(text)) == text


@pytest.mark.parametrize(
    "text", ["", "{", "[]]", '{"is": "Nonsense"}', '{"a": 1}', '{"is": "timedelta", "us": 1e300}']
)
def test_codec_refuses(text: str) -> None:
    """A damaged checkpoint would end in a stack trace."""
    with pytest.raises(PlanError):
        CODEC.loads(text)
