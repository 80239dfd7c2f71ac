"""Signatures: equal exactly for equal joins."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.shares import examples
from tests.strategies import alias_names, catalogs, conditions, outer_queries, queries, windows

from weft.logical.catalog import Catalog
from weft.logical.query.canonical import signature
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Input, Output, Query, make_query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

RST = Catalog(
    (
        Stream("r", Schema.parse("a long, b long, s string, ts timestamp"), "ts"),
        Stream("t", Schema.parse("a long, b long, s string, ts timestamp"), "ts"),
    )
)


def text(sql: str) -> str:
    return signature(parse_query(sql, RST)).text


def renamed(query: Query, names: list[str]) -> Query:
    return query.renamed(dict(zip(query.aliases, names, strict=True)))


@given(st.data())
@examples(50)
def test_renaming(data: st.DataObject) -> None:
    """Two users who name the streams differently would not share state."""
    catalog = data.draw(catalogs(2))
    query = data.draw(queries(catalog, most=4) | outer_queries(catalog, most=3))
    other = renamed(query, data.draw(alias_names(len(query.inputs))))
    one, two = signature(query), signature(other)
    assert one.text == two.text
    assert sorted(one.aliases) == list(query.aliases)
    # The aliases say which input of one query is which of the other.
    back = other.renamed(dict(zip(two.aliases, one.aliases, strict=True)))
    assert signature(back).text == one.text


@given(st.data())
@examples(35)
def test_shuffling(data: st.DataObject) -> None:
    """The order of FROM and WHERE would make another query."""
    catalog = data.draw(catalogs(2))
    query = data.draw(queries(catalog, most=4))
    equalities = [equality for key in query.keys for equality in key.equalities()]
    terms = data.draw(st.permutations([*equalities, *query.conditions]))
    inputs = data.draw(st.permutations(query.inputs))
    assert make_query(inputs, terms, query.projection, cross=query.cross) == query


@given(st.data())
@examples(15)
def test_changes(data: st.DataObject) -> None:
    """Two different queries would be answered with one result."""
    catalog = data.draw(catalogs(2))
    query = data.draw(queries(catalog, most=3))
    terms = [*(e for key in query.keys for e in key.equalities()), *query.conditions]
    more = data.draw(conditions(query.inputs, most=1))
    assume(more)
    narrower = make_query(query.inputs, [*terms, *more], query.projection, cross=True)
    assume(len(narrower.conditions) > len(query.conditions))
    assert signature(narrower).text != signature(query).text


@given(st.data())
@examples(20)
def test_windows_count(data: st.DataObject) -> None:
    """A query over an hour would be answered from the state of a minute."""
    catalog = data.draw(catalogs(2))
    query = data.draw(queries(catalog, most=3))
    first, *rest = query.inputs
    window = data.draw(windows)
    assume(window not in {input_.window for input_ in query.inputs})
    terms = [*(e for key in query.keys for e in key.equalities()), *query.conditions]
    inputs = [Input(first.alias, first.stream, window), *rest]
    assert signature(make_query(inputs, terms, query.projection, cross=True)).text != signature(query).text


def test_projection_does_not_count() -> None:
    """Queries that show different columns of one join would compute it twice."""
    assert text("SELECT x.a FROM r x, t y WHERE x.a = y.a") == text(
        "SELECT q.s FROM t p, r q WHERE q.a = p.a"
    )


def test_symmetric_queries() -> None:
    """A ring of one stream looks the same from everywhere; its signature would depend on the aliases."""
    ring = "SELECT x.a FROM r x, r y, r z WHERE x.a = y.b AND y.a = z.b AND z.a = x.b"
    turned = "SELECT x.a FROM r x, r y, r z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a"
    assert text(ring) == text(turned)
    assert text(ring) != text("SELECT x.a FROM r x, r y, r z WHERE x.a = y.a AND y.a = z.b AND z.a = x.b")


def test_representative_of_a_key_ignores_the_alias() -> None:
    """LOWER(x.s) sorts before x.s but after A.s: the alias would decide which of them is the key."""
    template = "SELECT {0}.a FROM r {0}, t k WHERE lower({0}.s) = k.s AND {0}.s = k.s"
    assert text(template.format("x")) == text(template.format("A"))


def test_outer_joins() -> None:
    """A LEFT JOIN would share the state of an inner join, or not of a renamed LEFT JOIN."""
    left = "SELECT {0}.a FROM r {0} LEFT JOIN t {1} ON {0}.a = {1}.a WHERE {0}.b IS NULL"
    assert text(left.format("x", "y")) == text(left.format("q", "p"))
    assert text(left.format("x", "y")) != text(left.format("x", "y").replace("LEFT", "FULL"))
    assert text(left.format("x", "y")) != text(left.format("x", "y").replace("LEFT JOIN", "JOIN"))


def test_signature_is_about_the_join_tree() -> None:
    """Two ways to nest outer joins would be taken for one."""
    x, y, z = (Input(name, RST.stream("r")) for name in "xyz")
    on_xy = parse_query("SELECT x.a FROM r x, r y WHERE x.a = y.a", RST).keys[0].equalities()
    on_yz = parse_query("SELECT y.a FROM r y, r z WHERE y.a = z.a", RST).keys[0].equalities()
    a, b = tuple(on_xy), tuple(on_yz)
    output = [Output("a", x.column("a"))]
    one = make_query([x, y, z], [], output, outer=Join("left", Join("left", "x", "y", a), "z", b))
    two = make_query([x, y, z], [], output, outer=Join("left", "x", Join("left", "y", "z", b), a))
    assert signature(one).text != signature(two).text
