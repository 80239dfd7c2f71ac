"""Graphs and plans that contradict themselves cannot be built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest

from tests.equivalence.options import random_options
from tests.random_cases import random_case
from tests.shares import quick, seeds
from tests.unit.optimizer.queries import join, rates
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
from tests.unit.plan.workloads import overlapping
from weft.errors import PlanError
from weft.logical.catalog import Catalog
from weft.logical.schema import Schema, Stream
from weft.optimizer.cost import Weights
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.join_plan import JoinPlan, Layout, Operator, ProbeOrder, Store
from weft.plan.physical.graph import CODEC, PhysicalGraph
from weft.plan.physical.lower import lower, lower_workload
from weft.plan.show.diagram import diagram
from weft.plan.show.explain import explain
from weft.sql.bind import parse_query

QUERY = join("R.a = S.a", "S.b = T.b", "R.c < T.c", window="[RANGE 10 SECONDS]")
PLAN = optimise(QUERY, rates(R=1000, S=2000, T=3000), Options(strategy="left_deep"))
GRAPH = lower(PLAN)


def test_a_graph_survives_json() -> None:
    """The plan of a batch is written before it runs, and read again by a replay."""
    assert PhysicalGraph.from_json(GRAPH.to_json()) == GRAPH
    assert CODEC.loads(CODEC.dumps(PLAN)) == PLAN


def test_other_json_is_refused() -> None:
    """A damaged plan log must not run as something else."""
    for text in ("{", "[1]", '{"is": "Nonsense"}', '{"is": "Field", "name": "x"}', "3"):
        with pytest.raises(PlanError):
            PhysicalGraph.from_json(text)


@cache
def graph_of(seed: int) -> PhysicalGraph:
    """A random graph of one query."""
    case = random_case(seed, least=2, most=4)
    return lower(optimise(case.query, case.statistics, random_options(seed, "auto")))


@pytest.mark.parametrize("block", quick(range(2)))
@pytest.mark.parametrize("mutate", [wrong_edges, wrong_rules, wrong_nodes])
def test_no_wrong_graph_can_be_built(mutate: Callable[[PhysicalGraph], Mutants], block: int) -> None:
    """Each of these would lose results, give them twice, or keep them for ever; the runtime would never notice."""
    taken = seeds(13, block)
    assert sum(refused(graph_of(seed), mutate) for seed in taken) > 12 * len(taken)


def wrong_members(graph: PhysicalGraph) -> Mutants:
    """Queries without a place of their own in query-sets, or without query-sets."""
    slot = graph.members[0].slot
    yield "one place", changed(graph, "members", 1, slot=slot)
    yield "no place", changed(graph, "members", 0, slot=-1)
    yield "one name", changed(graph, "members", 1, name=graph.members[0].name)
    yield "backwards", lambda: replace(graph, members=graph.members[::-1])
    yield "untracked", lambda: replace(graph, tracked=False)
    yield "one less", lambda: replace(graph, members=graph.members[1:])


@cache
def shared_graph(seed: int) -> PhysicalGraph:
    """A random graph of several queries; a few of large ones, since to check these takes long."""
    return lower_workload(overlapping(seed, most=3 if seed % 8 else 4))


@pytest.mark.parametrize("block", quick(range(2)))
@pytest.mark.parametrize(
    "mutate", [wrong_edges, wrong_rules, wrong_nodes, wrong_users, wrong_ways, wrong_members]
)
def test_no_wrong_shared_graph_can_be_built(mutate: Callable[[PhysicalGraph], Mutants], block: int) -> None:
    """One query's results must not depend on who else is there."""
    taken = seeds(13, block)
    assert sum(refused(shared_graph(seed), mutate) for seed in taken) > 4 * len(taken)


def test_a_tuple_is_sent_where_its_partners_are() -> None:
    """Grouping by another attribute sends it to the wrong task."""
    free_hops = Options(strategy="flat", partitions=8, weights=Weights(hop=0.0, keep=1e-3))
    graph = lower(optimise(QUERY, rates(R=1000, S=2000, T=3000), free_hops))
    at = next(i for i, e in enumerate(graph.edges) if e.by is not None and ": store" not in e.name)
    with pytest.raises(PlanError, match="it must be group-by"):
        changed(graph, "edges", at, by=QUERY.input("T").column("c"))()


class TestPlans:
    """Plans check themselves too."""

    R = Store(("R",), Layout("scattered", 2))
    S = Store(("S",), Layout("scattered", 2))
    T = Store(("T",), Layout("scattered", 2))

    def operator(self, **orders: tuple[str, ...]) -> Operator:
        found = tuple(ProbeOrder(name, tuple((v,) for v in visits)) for name, visits in orders.items())
        return Operator((self.R, self.S, self.T), found)

    def test_an_order_visits_every_store_once(self) -> None:
        """A store left out is a predicate left out."""
        with pytest.raises(PlanError, match="does not visit every store"):
            self.operator(R=("S",), S=("R", "T"), T=("S", "R"))

    def test_every_input_has_an_order(self) -> None:
        """Else results whose last tuple is its own are lost."""
        with pytest.raises(PlanError, match="one probe order per input"):
            self.operator(R=("S", "T"), S=("R", "T"))

    def test_stores_must_not_overlap(self) -> None:
        """A tuple would join with itself."""
        both = Store(("R", "S"), Layout("scattered", 2))
        with pytest.raises(PlanError, match="overlap"):
            Operator((self.R, both), ())

    def test_a_stored_result_must_be_computed(self) -> None:
        """A store nobody fills is always empty."""
        both = Store(("R", "S"), Layout("scattered", 2))
        orders = (ProbeOrder("R", (("T",),)), ProbeOrder("S", (("T",),)), ProbeOrder("T", (("R", "S"),)))
        with pytest.raises(PlanError, match="nothing computes store"):
            JoinPlan(QUERY, (Operator((both, self.T), orders),), "by hand")

    def test_layouts_say_by_what(self) -> None:
        """Partitioned by nothing, or replicated by something, is a contradiction."""
        with pytest.raises(PlanError):
            Layout("partitioned", 2)
        with pytest.raises(PlanError):
            Layout("replicated", 2, QUERY.input("R").column("a"))
        with pytest.raises(PlanError):
            Layout("scattered", 0)
        with pytest.raises(PlanError, match="which it does not have"):
            Store(("S",), Layout("partitioned", 2, QUERY.input("R").column("a")))


STREAMS = Catalog(
    tuple(Stream(name, Schema.parse("k long, x long, ts timestamp"), "ts") for name in ("v", "w", "c"))
)


def planned(sql: str) -> PhysicalGraph:
    """The graph of a query over v, w and c."""
    return lower(optimise(parse_query(sql, STREAMS), rates(v=100, w=100, c=100)))


class TestRetention:
    """How long state must live; too short loses results, too long fills the disk."""

    def kept(self, sql: str) -> dict[str, timedelta | None]:
        graph = planned(sql)
        return {store.name: store.retention[0] for store in graph.stores if len(store.aliases) == 1}

    def test_windows_bound_it(self) -> None:
        """A tuple is of use for as long as its own window."""
        kept = self.kept("SELECT v.k FROM v [RANGE 10 MINUTES], w [RANGE 5 SECONDS] WHERE v.k = w.k")
        assert kept == {"v": timedelta(minutes=10), "w": timedelta(seconds=5)}

    def test_event_time_bands_bound_it(self) -> None:
        """5 s either way between neighbours is 10 s between the ends."""
        band = "{0}.ts BETWEEN {1}.ts - INTERVAL '5' SECOND AND {1}.ts + INTERVAL '5' SECOND"
        sql = "SELECT v.k FROM v, w, c WHERE v.k = w.k AND w.x = c.x"
        kept = self.kept(f"{sql} AND {band.format('v', 'w')} AND {band.format('w', 'c')}")
        assert kept == {"c": timedelta(seconds=10), "v": timedelta(seconds=10), "w": timedelta(seconds=5)}

    def test_what_nothing_bounds_is_said(self) -> None:
        """A query whose state is unbounded is accepted and says so."""
        graph = planned("SELECT v.k FROM v, w [RANGE 5 SECONDS] WHERE v.k = w.k")
        assert {store.name: store.retention[0] for store in graph.stores} == {
            "v": None,
            "w": timedelta(seconds=5),
        }
        assert "nothing bounds the state of v;" in explain(graph)

    def test_count_windows_are_bounded_without_time(self) -> None:
        """The last 100 tuples are 100 tuples."""
        graph = planned("SELECT v.k FROM v [ROWS 100], w [RANGE 5 SECONDS] WHERE v.k = w.k")
        assert "nothing bounds" not in explain(graph)
        assert "100 rows" in explain(graph)


def test_one_input_needs_no_store() -> None:
    """A filter alone keeps no state and makes no hop."""
    graph = planned("SELECT v.k FROM v WHERE v.x > 3")
    assert graph.hops == 0
    assert graph.stores == ()
    assert "1 input" in explain(graph)


def test_an_n_ary_equality_routes_where_it_can() -> None:
    """r.a + s.b = t.c cannot be split in two, yet T is looked up by its own side of it."""
    query = join("R.a + S.b = T.c", "R.k = S.k", window="[RANGE 10 SECONDS]")
    graph = lower(optimise(query, rates(R=100, S=100, T=100_000)))
    lookups = {str(equality) for rule in graph.probes("R") for equality in rule.equalities}
    assert lookups == {"R.k = S.k", "R.a + S.b = T.c"}


def test_diagrams_escape_what_mermaid_would_read() -> None:
    """A predicate with < must not break the picture."""
    text = diagram(lower(optimise(join("R.a < S.a"), rates(R=10, S=10))))
    body = "\n".join(line for line in text.splitlines() if "|" in line)
    assert "flowchart LR" in text
    assert all(line.count('"') == 2 for line in body.splitlines())
