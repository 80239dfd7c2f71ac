"""Graphs of outer joins: none can be built that forgets to close rows, or closes them where their partners are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.plan.mutants import (
    Mutants,
    changed,
    refused,
    wrong_edges,
    wrong_nodes,
    wrong_rules,
    wrong_users,
    wrong_ways,
)
from tests.unit.plan.workloads import PAIR, plan
from weft.errors import PlanError
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower_workload
from weft.plan.physical.part import part_of
from weft.plan.physical.rules import ProbeRule, StoreRule, Sweep
from weft.plan.show.explain import explain
from weft.plan.show.shared import shared_text
from weft.plan.workload import share

LEFT = "SELECT v.x, w.uid FROM v [RANGE 5 SECONDS] LEFT JOIN w [RANGE 3 SECONDS] ON v.vid = w.vid"
FULL = """SELECT v.x, w.uid, c.t, provenance FROM v FULL JOIN w ON v.vid = w.vid
          FULL JOIN c ON COALESCE(v.vid, w.vid) = c.uid"""
ANTI = "SELECT v.x FROM v [RANGE 5 SECONDS] ANTI JOIN w ON v.x < w.uid"
STAR = """SELECT v.x FROM v [RANGE 5 SECONDS] LEFT JOIN w [RANGE 5 SECONDS] ON v.vid = w.vid
          LEFT JOIN c [RANGE 1 SECOND] ON v.x = c.uid"""
ALONE = {"left": LEFT, "full": FULL, "anti": ANTI, "star": STAR}


def graph_of(**queries: str) -> PhysicalGraph:
    """The graph of one query, or of several that share it."""
    return lower_workload(share({name: plan(sql) for name, sql in queries.items()}))


GRAPHS = [*(graph_of(**{name: sql}) for name, sql in ALONE.items()), graph_of(**ALONE, pair=PAIR)]


@pytest.mark.parametrize("graph", GRAPHS, ids=[*ALONE, "all"])
def test_a_graph_with_closings_survives_json(graph: PhysicalGraph) -> None:
    """The plan of a batch is written before it runs: a replay would close other rows, or none."""
    assert PhysicalGraph.from_json(graph.to_json()) == graph
    assert graph.sweeps


def wrong_sweeps(graph: PhysicalGraph) -> Mutants:
    """Rows that nobody closes, or two, or from elsewhere."""
    yield "none", lambda: replace(graph, sweeps=())
    yield "twice", lambda: replace(graph, sweeps=(*graph.sweeps, graph.sweeps[0]))
    yield "a stranger's", lambda: replace(graph, sweeps=(*graph.sweeps, Sweep("stranger", ())))
    for at, sweep in enumerate(graph.sweeps):
        yield (
            f"{sweep.query} lost",
            lambda at=at: replace(  # type: ignore[misc]
                graph, sweeps=graph.sweeps[:at] + graph.sweeps[at + 1 :]
            ),
        )
        yield f"{sweep.query} backwards", changed(graph, "sweeps", at, homes=sweep.homes[::-1])
        yield f"{sweep.query} short", changed(graph, "sweeps", at, homes=sweep.homes[1:])
        for place, home in enumerate(sweep.homes):
            for store in graph.stores:
                if store.name != home:
                    homes = (*sweep.homes[:place], store.name, *sweep.homes[place + 1 :])
                    yield f"{sweep.query} from {store.name}", changed(graph, "sweeps", at, homes=homes)


def wrong_closings(graph: PhysicalGraph) -> Mutants:
    """Queries that have nothing to close, or something though they are inner joins."""
    some = next(member.closing for member in graph.members if member.closing)
    for at, member in enumerate(graph.members):
        other = None if member.closing else some
        yield f"{member.name} otherwise", changed(graph, "members", at, closing=other)
        if member.closing:
            walked = replace(member.closing, walked=not member.closing.walked)
            yield f"{member.name} walked", changed(graph, "members", at, closing=walked)


def wrong_memories(graph: PhysicalGraph) -> Mutants:
    """Stores that forget a partner before the row that it is for is looked at, or never."""
    for at, store in enumerate(graph.stores):
        for span in (timedelta(seconds=1), timedelta(days=1), None):
            if (span,) != store.retention:
                yield f"{store.name} for {span}", changed(graph, "stores", at, retention=(span,))


def lost_nulls(graph: PhysicalGraph) -> Mutants:
    """A tuple without a key has no partner, and is a result all the same."""
    closed = {home for sweep in graph.sweeps for home in sweep.homes}
    for rule in graph.rules:
        if isinstance(rule, StoreRule) and rule.store in closed:
            at = next(i for i, edge in enumerate(graph.edges) if edge.name == rule.edge)
            if graph.edges[at].nulls:
                yield f"{rule.edge} drops", changed(graph, "edges", at, nulls=False)


OWN = [wrong_sweeps, wrong_closings, wrong_memories]


@pytest.mark.parametrize(
    "mutate",
    [*OWN, wrong_edges, wrong_rules, wrong_nodes, wrong_users, wrong_ways],
    ids=lambda one: one.__name__,
)
def test_no_wrong_graph_can_be_built(mutate: Callable[[PhysicalGraph], Mutants]) -> None:
    """Each of these would lose rows, pad rows that have a partner, or give them once per partition."""
    probed = [graph for graph in GRAPHS if any(isinstance(rule, ProbeRule) for rule in graph.rules)]
    graphs = probed if mutate is wrong_rules else GRAPHS  # what is only stored is so in any order
    assert all(refused(graph, mutate) for graph in graphs)


def test_tuples_without_a_key_reach_their_home() -> None:
    """They are the first that a user would miss: rows whose key is NULL have no partner for sure."""
    counts = [refused(graph, lost_nulls) for graph in GRAPHS]
    assert counts == [2, 3, 0, 2, 3]


def test_a_store_laid_out_otherwise_closes_nothing() -> None:
    """The refusal says which query, not only that something is wrong."""
    answer = share({"left": plan(LEFT)}).answers[0]
    homes = tuple(replace(store, layout=Layout("scattered", 2)) for store in answer.homes)
    with pytest.raises(PlanError, match="no partition alone can close the rows of left"):
        replace(answer, homes=homes)
    graph, scattered = GRAPHS[0], Layout("scattered", 2)
    with pytest.raises(PlanError, match="no partition alone can close the rows of left"):
        replace(graph, stores=tuple(replace(store, layout=scattered) for store in graph.stores))


@pytest.mark.parametrize("name", ALONE)
def test_a_query_has_its_part_of_a_shared_graph(name: str) -> None:
    """Progress and explain of a query among others would show another plan, or fail."""
    graph = GRAPHS[-1]
    authors = {alias: f"my_{alias}" for alias in graph.member(name).query.aliases}
    part = part_of(graph, name, authors)
    alone = part_of(graph_of(**{name: ALONE[name]}), name, authors)
    assert [member.name for member in part.graph.members] == [name]
    assert part.graph.members[0].closing == alone.graph.members[0].closing
    assert [part.graph.store(home).aliases for home in part.graph.sweeps[0].homes] == [
        (authors[alias],) for alias in sorted(authors)
    ]
    assert set(part.stores.values()) == {store.name for store in part.graph.stores}
    assert "Closing" in explain(part.graph, name)
    assert "my_v without a partner" in explain(part.graph, name)


def test_what_is_shared_says_what_is_closed_from_where() -> None:
    """Who wonders why a store is kept finds the query that is closed from it."""
    text = shared_text(GRAPHS[-1])
    closed = text[text.index("Closed from stores") :].splitlines()
    assert [line.split(":")[0].strip() for line in closed[1:]] == sorted(ALONE)
    assert "pair" not in text[text.index("Closed from stores") :]


def test_an_outer_join_shares_the_stores_of_an_inner_one() -> None:
    """A LEFT JOIN beside the inner join of the same streams would double their state."""
    both = graph_of(left=LEFT, pair=PAIR)
    assert [(store.name, store.users) for store in both.stores] == [
        ("v", ("left", "pair")),
        ("w", ("left", "pair")),
    ]
    assert [store.retention for store in both.stores] == [(timedelta(seconds=5),), (timedelta(seconds=8),)]
