"""Graphs of many queries: probe trees that part where the queries do, stores that are there once."""

from __future__ import annotations

import pytest

from tests.shares import seeds
from tests.unit.plan.workloads import CHAIN, OTHER, PAIR, overlapping, plan, query, shared
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import Member, PhysicalGraph
from weft.plan.physical.lower import lower, lower_workload
from weft.plan.physical.part import part_of
from weft.plan.physical.rules import ProbeRule, ResultRule, StoreRule
from weft.plan.schedule import GROUP_BY
from weft.plan.show.shared import shared_text
from weft.plan.workload import Answer, SharedStore, Walk, WorkloadPlan


def partitioned(sql: str, alias: str, name: str) -> SharedStore:
    """A store of an input of a query, partitioned by one of its columns."""
    return SharedStore((alias,), Layout("partitioned", 2, query(sql).input(alias).column(name)))


def both() -> WorkloadPlan:
    """A chain v, w, c and a pair v, w whose tuples of v begin alike, all stores partitioned by their keys."""
    v, w, c = (partitioned(CHAIN, *by) for by in (("v", "vid"), ("w", "vid"), ("c", "uid")))
    chain = Answer("chain", query(CHAIN), (Walk("c", (w, v)), Walk("v", (w, c)), Walk("w", (v, c))))
    pair = Answer("pair", query(PAIR), (Walk("v", (w,)), Walk("w", (v,))))
    return WorkloadPlan((chain, pair))


def test_queries_that_begin_alike_are_one_until_they_part() -> None:
    """The first probe of v is done once for both; the second for the chain alone (CLASH Figure 7.2)."""
    graph = lower_workload(both())
    assert graph.tracked
    assert [(store.name, store.users) for store in graph.stores] == [
        ("c", ("chain",)),
        ("v", ("chain", "pair")),
        ("w", ("chain", "pair")),
    ]
    first, second = graph.probes("v")
    assert (first.store, first.users, second.store, second.users) == ("w", ("chain", "pair"), "c", ("chain",))
    behind = [rule for name in first.outputs for rule in graph.rules if rule.edge == name]
    assert {type(rule): rule.users for rule in behind} == {ProbeRule: ("chain",), ResultRule: ("pair",)}


def test_the_text_of_a_probe_tree_says_who_uses_what() -> None:
    """What `explain()` shows of many queries."""
    text = shared_text(lower_workload(both()))
    assert text.startswith("2 queries · 3 stores · 6 probes")
    assert "result of pair" in text
    assert "w: partitioned by w.vid · chain, pair" in text


def test_equal_queries_are_answered_by_one_walk() -> None:
    """A result rule for both."""
    graph = lower_workload(shared(one=PAIR, other=PAIR))
    assert len(graph.rules) == len(lower(plan(PAIR)).rules)
    assert {rule.users for rule in graph.rules} == {("one", "other")}


def test_places_in_query_sets_are_those_given() -> None:
    """A query keeps its place for as long as it runs; the rows that are stored name it by that."""
    found = both()
    members = [Member("pair", query(PAIR), slot=7, first=3)]
    graph = lower_workload(found, members)
    assert [(m.name, m.slot, m.first) for m in graph.members] == [("chain", 0, 0), ("pair", 7, 3)]


def test_a_store_by_a_key_that_some_query_does_not_join_on_keeps_nulls() -> None:
    """For that query, a tuple without the value is as good as any other; it looks in all partitions."""
    v, w = partitioned(PAIR, "v", "vid"), partitioned(PAIR, "w", "vid")
    plans = {
        name: Answer(name, query(sql), (Walk("v", (w,)), Walk("w", (v,))))
        for name, sql in (("pair", PAIR), ("other", OTHER))
    }
    graph = lower_workload(WorkloadPlan((plans["other"], plans["pair"])))
    stored = [graph.edge(rule.edge) for rule in graph.rules if isinstance(rule, StoreRule)]
    assert all(edge.kind == GROUP_BY and edge.nulls for edge in stored)
    kinds = {
        (rule.users, graph.edge(rule.edge).kind, graph.edge(rule.edge).rides is not None)
        for rule in graph.rules
        if isinstance(rule, ProbeRule)
    }
    assert kinds == {(("other",), "all", False), (("pair",), "local", True)}


def test_nulls_are_dropped_where_one_query_is_alone_and_joins_on_the_key() -> None:
    """They join nothing; once others may come, they are kept for them."""
    v, w = partitioned(PAIR, "v", "vid"), partitioned(PAIR, "w", "vid")
    alone = WorkloadPlan((Answer("pair", query(PAIR), (Walk("v", (w,)), Walk("w", (v,)))),))
    assert not any(edge.nulls for edge in lower_workload(alone).edges)
    tracked = lower_workload(alone, tracked=True)
    assert [edge.nulls for edge in tracked.edges if edge.kind == GROUP_BY] == [True, True]


@pytest.mark.parametrize("seed", seeds(8))
def test_graphs_of_overlapping_queries_survive_json(seed: int) -> None:
    """Every worker builds its program from it."""
    graph = lower_workload(overlapping(seed))
    assert PhysicalGraph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("strategy", ["flat", "left_deep"])
def test_the_part_of_a_graph_of_one_query_is_that_graph(strategy: str) -> None:
    """What is shown of a query that runs alone is what was planned for it."""
    answer_plan = plan(CHAIN, strategy)
    graph = lower(answer_plan, "chain")
    part = part_of(graph, "chain", {})
    assert (part.graph.edges, part.graph.stores, part.graph.sources) == (
        graph.edges,
        graph.stores,
        graph.sources,
    )
    inside = [rule.edge for rule in graph.rules if isinstance(rule, ProbeRule | StoreRule)]
    assert part.edges == {name: name for name in inside}
    assert part.stores == {store.name: store.name for store in graph.stores}


@pytest.mark.parametrize("seed", seeds(8))
def test_parts_of_a_shared_graph_lead_from_its_names_to_theirs(seed: int) -> None:
    """Edge by edge and store by store, so that what was counted can be shown to every author."""
    graph = lower_workload(overlapping(seed))
    for member in graph.members:
        authors = {alias: f"my_{number}" for number, alias in enumerate(member.query.aliases)}
        part = part_of(graph, member.name, authors)
        assert part.graph.query == member.query.renamed(authors)
        inside = [rule for rule in graph.rules if isinstance(rule, ProbeRule | StoreRule)]
        mine = [rule for rule in inside if member.name in rule.users]
        theirs = [rule.edge for rule in part.graph.rules if isinstance(rule, ProbeRule | StoreRule)]
        assert sorted(part.edges) == sorted(rule.edge for rule in mine)
        assert sorted(part.edges.values()) == sorted(theirs)
        used = [store.name for store in graph.stores if member.name in store.users]
        assert sorted(part.stores) == sorted(used)
        assert sorted(part.stores.values()) == sorted(store.name for store in part.graph.stores)
        for rule in mine:
            same = next(r for r in part.graph.rules if r.edge == part.edges[rule.edge])
            assert isinstance(same, ProbeRule | StoreRule)
            assert same.store == part.stores[rule.store]
            if isinstance(rule, ProbeRule):
                assert isinstance(same, ProbeRule)
                assert same.start == part.aliases[rule.start]
