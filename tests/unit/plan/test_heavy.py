"""Plans that scatter heavy values: printed, kept, and refused where they would lose or repeat a result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import weft
from weft.errors import PlanError
from weft.logical.expr.expression import Column, Literal
from weft.logical.schema import DataType
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.part import part_of
from weft.plan.physical.rules import Edge
from weft.plan.schedule import GROUP_BY, LOCAL, ProbePlace, Spread, start, step, store_edge

LONG = DataType("long")
BY = Column("a", "k", LONG)
PAIR = "SELECT a.x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
CHAIN = f"{PAIR.replace('WHERE', ', c [RANGE 1 SECOND] WHERE')} AND b.y = c.y"


def literals(*values: int) -> tuple[Literal, ...]:
    """Values of a key."""
    return tuple(Literal(value, LONG) for value in values)


def graph(sql: str = PAIR) -> PhysicalGraph:
    """A graph whose stores scatter 42 and 7."""
    session = weft.Session(options=weft.Options(partitions=8, tasks=2))
    for stream in "abc":
        session.stream(stream, "k long, y string, x long, ts timestamp", event_time="ts")
    known = weft.StreamStatistics(rate=20_000.0, heavy={"k": {42: 0.2, 7: 0.1}})
    session.statistics = weft.Statistics(dict.fromkeys("abc", known))
    return session.query(sql).graph


def test_a_layout_says_what_it_scatters() -> None:
    """In explain(), and in the store's identity: other heavy values, another store."""
    layout = Layout("partitioned", 4, BY, literals(42, 7))
    assert str(layout) == "partitioned by a.k, heavy 42, 7 scattered"
    store = graph().store("a")
    assert store.layout.heavy == literals(42, 7)
    assert store.identity != replace(store, layout=replace(store.layout, heavy=literals(42))).identity


@pytest.mark.parametrize(
    ("kind", "by", "heavy"),
    [
        ("scattered", None, literals(1)),
        ("replicated", None, literals(1)),
        ("partitioned", BY, literals(7, 42)),
        ("partitioned", BY, literals(7, 7)),
    ],
)
def test_heavy_values_are_sorted_and_of_a_key(kind: str, by: Any, heavy: tuple[Literal, ...]) -> None:
    """Equal layouts are equal values."""
    with pytest.raises(PlanError, match="heavy"):
        Layout(kind, 4, by, heavy)


def test_a_graph_with_heavy_values_survives_json_and_other_names() -> None:
    """It runs again after a crash, and is shown under its author's names."""
    for sql in (PAIR, CHAIN):
        made = graph(sql)
        assert PhysicalGraph.from_json(made.to_json()) == made
        part = part_of(made, made.members[0].name, {"a": "left", "b": "right"})
        assert part.graph.store(part.stores["a"]).layout.heavy == made.store("a").layout.heavy


def wrong_edges(made: PhysicalGraph) -> Iterator[tuple[Edge, ...]]:
    """The edges of a graph, one of them with other heavy values."""
    for place, edge in enumerate(made.edges):
        for heavy in ((), literals(42), literals(5)):
            if edge.by is not None and heavy != edge.heavy:
                yield (*made.edges[:place], replace(edge, heavy=heavy), *made.edges[place + 1 :])


@pytest.mark.parametrize("sql", [PAIR, CHAIN])
def test_edges_that_do_not_fit_the_stores_are_refused(sql: str) -> None:
    """A probe that takes the way of light values misses what is scattered."""
    made = graph(sql)
    mutants = list(wrong_edges(made))
    assert len(mutants) >= 12
    for edges in mutants:
        with pytest.raises(PlanError, match="it must be"):
            replace(made, edges=edges)


def test_an_edge_with_heavy_values_needs_a_value() -> None:
    """Else nobody knows who is heavy."""
    for kind, rides in ((GROUP_BY, None), (LOCAL, "a: store a")):
        Edge("e", "a", "b", kind, 1, BY, rides, heavy=literals(1))
        with pytest.raises(PlanError, match="cannot be"):
            Edge("e", "a", "b", kind, 1, None, rides, heavy=literals(1))
    with pytest.raises(PlanError, match="cannot be"):
        Edge("e", "a", "b", LOCAL, 1, BY)


def test_after_heavy_values_the_same_key_leads_to_another_hop() -> None:
    """But what is computed may be stored where it is, if the store scatters the same values or more."""
    plain, some, more = (Spread("partitioned", 0, heavy) for heavy in ((), ("42",), ("42", "7")))
    kind, there = step(start(some), more, 1, True)
    assert (kind, there) == (LOCAL, ProbePlace(1, 0, False, ("42", "7")))
    for target in (plain, some):
        assert step(there, target, 1, True) == (GROUP_BY, ProbePlace(2, 0, False, target.heavy))
    assert store_edge(there, more) == (LOCAL, 1)
    assert store_edge(there, some) == (GROUP_BY, 2)
    kind, there = step(start(some), plain, 1, True)
    assert step(there, plain, 1, True) == (LOCAL, ProbePlace(1, 0))
