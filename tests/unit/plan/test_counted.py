"""Where tuples that are counted per key may be stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.equivalence.options import random_options
from weft.errors import PlanError, QueryError
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.optimizer.joint.methods import METHODS, optimise_all
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.join_plan import JoinPlan, Layout, Operator, ProbeOrder, Store
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower, lower_workload
from weft.plan.show.explain import explain
from weft.session.validation import check_backfill
from weft.sql.bind import parse_query
from weft.stats.estimate import Estimator
from weft.stats.statistics import Statistics, StreamStatistics

STREAMS = tuple(Stream(name, Schema.parse("a long, b long, c long, ts timestamp"), "ts") for name in "RSTU")
CHAIN = "R.a = S.a AND S.b = T.b AND T.c = U.c"


def query(inputs: str, where: str = CHAIN) -> Query:
    """A query over R, S, T and U."""
    return parse_query(f"SELECT R.a FROM {inputs} WHERE {where}", Catalog(STREAMS))


COUNTED = query("R [ROWS 5 PER a], S [ROWS 2 PER c], T, U")


def stores_of(graph: PhysicalGraph) -> dict[str, set[str]]:
    """The layouts in which inputs are stored, alone or with others."""
    found: dict[str, set[str]] = {}
    for store in graph.stores:
        found.setdefault("+".join(store.aliases), set()).add(str(store.layout))
    return found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tuples_of_a_key_stay_together(strategy: str) -> None:
    """Whoever counts them would see a part of them; a stored match cannot tell how many have come since."""
    met = set()
    for seed in range(12):
        options = random_options(seed, strategy)
        stores = stores_of(lower(optimise(COUNTED, Statistics(), options)))
        for names, layouts in stores.items():
            if {"R", "S"} & set(names.split("+")):
                assert "+" not in names
                assert all("R.a" in one or one.startswith("replicated") for one in layouts)
                met |= {(names, one.split()[0]) for one in layouts}
    assert ("S", "replicated") in met
    assert all(kind == "replicated" for name, kind in met if name == "S")


@pytest.mark.parametrize("method", METHODS)
def test_queries_that_share_keep_them_together_too(method: str) -> None:
    """What one query may store together, another that counts must not find so."""
    others = {"p": query("R [ROWS 9 PER a], S, T, U"), "q": COUNTED, "r": query("R, S, T, U")}
    queries = {name: canonical(one).query for name, one in others.items()}
    for replicated in (1e-9, 1e-5):
        options = Options(partitions=3, weights=replace(Options().weights, store=replicated))
        plan = optimise_all(queries, Statistics(), options, method=method).plan
        graph = lower_workload(plan)
        counted = [store for store in graph.stores if any("$rows" in alias for alias in store.aliases)]
        assert counted
        assert all(len(store.aliases) == 1 for store in counted)
        assert not any(store.layout.kind == "scattered" for store in counted)


def test_a_plan_that_tears_them_apart_is_refused() -> None:
    """A plan from elsewhere, a damaged one, would give wrong answers."""
    two = query("R [ROWS 5 PER a], S", "R.b = S.b")
    assert lower(_plan(two, Layout("replicated", 3))) is not None
    for layout in (Layout("scattered", 3), Layout("partitioned", 3, two.input("R").column("b"))):
        with pytest.raises(PlanError, match="spreads tuples over partitions that R counts together"):
            lower(_plan(two, layout))


def _plan(two: Query, layout: Layout) -> JoinPlan:
    stores = (Store(("R",), layout), Store(("S",), Layout("replicated", 3)))
    orders = (ProbeOrder("R", (("S",),)), ProbeOrder("S", (("R",),)))
    return replace(optimise(two, Statistics(), Options()), operators=(Operator(stores, orders),))


def test_unwanted_tuples_must_be_told_from_wanted_ones() -> None:
    """They count, so they are stored; without query-sets they would be joined, too."""
    wanted = lower(optimise(query("R [ROWS 5 PER a], S", "R.a = S.a AND R.b > 1"), Statistics(), Options()))
    assert wanted.tracked
    with pytest.raises(PlanError, match="must carry query-sets"):
        replace(wanted, tracked=False)
    assert not lower(optimise(query("R [ROWS 5 PER a], S", "R.a = S.a"), Statistics(), Options())).tracked


def test_what_a_window_per_key_holds() -> None:
    """The optimiser would take ten thousand keys for one."""
    known = Statistics({"R": StreamStatistics(rate=1e6, distinct={"a": 300})})
    two = query("R [ROWS 5 PER a], S", "R.a = S.a")
    assert Estimator(two, known).content("S", "R") == (1500.0, False)
    assert "5 rows per a" in explain(lower(optimise(two, known, Options())))


def test_queries_that_count_per_the_same_key_share_a_store() -> None:
    """Others must not: their tuples have other numbers."""
    names = [
        canonical(query(f"R {window}, S", "R.a = S.a")).query.aliases[0]
        for window in ("[ROWS 5 PER a]", "[ROWS 7 PER a]", "[ROWS 5 PER a, b]", "[ROWS 5]", "")
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 4


def test_what_counts_cannot_be_told_of_is_refused() -> None:
    """Rows would wait for ever, or the past be answered by what is left of it."""
    with pytest.raises(QueryError, match=r"R \[ROWS 5 PER a\] cannot be part of an outer"):
        core_and_closing(
            parse_query("SELECT R.a FROM R [ROWS 5 PER a] LEFT JOIN S ON R.a = S.a", Catalog(STREAMS))
        )
    with pytest.raises(QueryError, match="backfill needs the past of R"):
        check_backfill(COUNTED)
