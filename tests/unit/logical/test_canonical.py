"""Common names: what two authors mean alike must be equal, and each must get his own names back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.shares import examples
from tests.strategies import alias_names, catalogs, queries

from weft.logical.catalog import Catalog
from weft.logical.query.canonical import canonical, joined_on
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

STREAMS = Catalog(
    tuple(Stream(name, Schema.parse("a long, b long, ts timestamp"), "ts") for name in ("r", "s", "t"))
)


def query(sql: str) -> Query:
    return parse_query(sql, STREAMS)


def test_inputs_are_called_after_their_streams() -> None:
    """Else the stores of two authors would have other columns."""
    one = canonical(query("SELECT x.a FROM r [RANGE 5 SECONDS] AS x, s AS y WHERE x.a = y.a"))
    other = canonical(query("SELECT p.a FROM s AS q, r [RANGE 5 SECONDS] AS p WHERE q.a = p.a"))
    assert one.query == other.query
    assert one.query.aliases == ("r", "s")
    assert (dict(one.names), dict(other.names)) == ({"r": "x", "s": "y"}, {"r": "p", "s": "q"})


def test_a_stream_read_again_has_a_number_by_its_place_in_the_join() -> None:
    """Not by its author's name for it: whoever swaps the two means the same."""
    sql = "SELECT {0}.a FROM r AS {0}, r AS {1}, s WHERE {0}.a = {1}.b AND {1}.a = s.a"
    one, other = canonical(query(sql.format("x", "y"))), canonical(query(sql.format("y", "x")))
    assert one.query == other.query
    assert one.query.aliases == ("r", "r$2", "s")
    assert {dict(one.names)[name] for name in ("r", "r$2")} == {"x", "y"}
    assert dict(one.names)["r"] == {"x": "y", "y": "x"}[dict(other.names)["r"]]


def test_counted_inputs_have_names_of_their_own() -> None:
    """Their tuples have numbers; those of others need none, and must not share their store."""
    found = canonical(
        query("SELECT x.a FROM r [ROWS 5] AS x, r AS y, r [ROWS 5] AS z WHERE x.a = y.a AND y.b = z.b")
    )
    assert found.query.aliases == ("r", "r$rows", "r$rows$2")
    assert dict(found.names)["r"] == "y"


@given(st.data())
@examples(50)
def test_names_go_there_and_back(data: st.DataObject) -> None:
    """What an author is shown is what he wrote, and what he called it makes no difference."""
    asked = data.draw(queries(data.draw(catalogs(2)), most=4))
    found = canonical(asked)
    assert found.query.renamed(dict(found.names)) == asked
    assert joins(canonical(found.query).query) == joins(found.query)
    names = data.draw(alias_names(len(asked.inputs)))
    other = asked.renamed(dict(zip(asked.aliases, names, strict=True)))
    assert joins(canonical(other).query) == joins(found.query)


def joins(query: Query) -> tuple[object, ...]:
    """All of a query but what is shown of its results: of two inputs that are alike, either may be the first."""
    return query.inputs, query.keys, query.filters, query.predicates, query.residuals


def test_what_joins_some_inputs_is_what_is_between_them() -> None:
    """Keys that lead through another input join the two all the same; filters and windows do not count."""
    long = query("SELECT r.a FROM r, s, t WHERE r.a = s.a AND s.a = t.a AND r.b < t.b AND r.b > 5")
    short = query("SELECT r.a FROM r [RANGE 5 SECONDS], t WHERE t.a = r.a AND t.b > r.b")
    assert joined_on(long, ("r", "t")) == joined_on(short, ("t", "r"))
    assert joined_on(long, ("r", "s")) != joined_on(short, ("r", "t"))
    assert joined_on(long, ("r",)) == ()
