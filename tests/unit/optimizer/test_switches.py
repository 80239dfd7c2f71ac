"""Switches of what saves work, and strategies of users: they change plans, and never an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import weft
from tests.unit.optimizer.queries import join, rates
from weft.errors import ConfigError, PlanError
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.join_plan import JoinPlan

CHAIN = "SELECT * FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS], c [RANGE 5 SECONDS] WHERE a.x = b.x AND b.y = c.y"


def session(**options: Any) -> weft.Session:
    """A session with three streams, whose queries are planned by some options."""
    found = weft.Session(options=weft.Options(**options))
    for name in "abc":
        found.stream(name, "x long, y long, ts timestamp", event_time="ts")
    return found


@pytest.fixture
def own_strategies() -> Iterator[None]:
    """A test in which strategies can be registered, and are gone at the end."""
    known = dict(STRATEGIES)
    yield
    STRATEGIES.clear()
    STRATEGIES.update(known)


def orders(plan: JoinPlan) -> list[tuple[str, ...]]:
    """The first inputs of the stores that every probe order of a plan visits, in turn."""
    found = [order.visits for operator in plan.operators for order in operator.orders]
    return [tuple("+".join(store) for store in stores) for stores in found]


def test_a_star_is_probed_by_name() -> None:
    """Where every store can be reached, the order is the alphabet's, however dear that is."""
    star = join("a.x = b.x", "b.x = c.x", "c.x = d.x")
    known = rates(a=1.0, b=1e6, c=1e3, d=1.0)
    plan = optimise(star, known, Options(strategy="flat", reorder=False))
    assert orders(plan)[0] == tuple(sorted(orders(plan)[0]))
    assert orders(plan) == [tuple(sorted(one)) for one in orders(plan)]
    chosen = optimise(star, known, Options(strategy="flat", probe_orders="exhaustive"))
    assert orders(chosen) != orders(plan)


def test_without_replication_stores_are_divided() -> None:
    """Also where the optimiser would rather keep a small store everywhere, to save a hop."""
    query, known = join("a.x = b.x", "b.y = c.y"), rates(a=1.0, b=1.0, c=1e4)
    kinds = {
        replicate: {
            store.layout.kind for store in optimise(query, known, Options(replicate=replicate)).stores
        }
        for replicate in (True, False)
    }
    assert "replicated" in kinds[True]
    assert kinds[False] == {"partitioned"}


def test_without_sharing_every_query_has_its_own_stores() -> None:
    """Two queries over the same streams have twice the stores of one; with sharing, as many as one."""
    shared, apart = session(), session(share=False)
    for one in (shared, apart):
        for name in ("one", "other"):
            one.query(CHAIN, name=name, sink=weft.to_count())
    counts = [len(graph.stores) for one in (shared, apart) if (graph := one.shared_graph) is not None]
    assert counts[1] == 2 * counts[0]


def test_switches_that_are_no_flags_are_refused() -> None:
    """A text is always true, so `share="no"` would share."""
    for name in ("share", "group", "reorder", "replicate"):
        with pytest.raises(ConfigError, match=name):
            weft.Options(**{name: "no"})  # type: ignore[arg-type]


@pytest.mark.usefixtures("own_strategies")
def test_a_strategy_of_ones_own_decides_what_is_stored() -> None:
    """The tree it gives is the tree of the plan."""

    def pairs(problem: weft.JoinProblem) -> list[Any]:
        first, second, third = problem.aliases
        assert problem.size(first) > 0
        assert problem.rate(first, second) > 0
        assert problem.can_store(first, second)
        assert not problem.can_store(first, third)  # a cross product
        return [((first, second), third)]

    weft.register_strategy("pairs", pairs)
    planned = session().query(CHAIN, name="q", strategy="pairs")
    assert [store.aliases for store in planned.graph.stores if len(store.aliases) > 1] == [("a", "b")]


@pytest.mark.usefixtures("own_strategies")
def test_the_cheapest_tree_of_ones_own_is_taken() -> None:
    """A strategy may give several; together with all others' it cannot beat the best there is."""
    query = join("a.x = b.x", "b.y = c.y")
    known = rates(a=10.0, b=1e4, c=1e5)

    def both(problem: weft.JoinProblem) -> list[Any]:
        a, b, c = problem.aliases
        return [(a, b, c), ((a, b), c), (a, (b, c))]

    weft.register_strategy("both", both)
    costs = {
        name: optimise(query, known, replace(Options(), strategy=name)).cost
        for name in ("both", "flat", "exhaustive")
    }
    assert costs["both"] is not None
    assert costs["flat"] is not None
    assert costs["exhaustive"] is not None
    assert costs["exhaustive"].total <= costs["both"].total * (1 + 1e-9)
    assert costs["both"].total <= costs["flat"].total * (1 + 1e-9)


@pytest.mark.usefixtures("own_strategies")
@pytest.mark.parametrize(
    ("trees", "said"),
    [
        ([], "gives no tree"),
        ([("a", "b")], "not every input is once"),
        ([("a", "b", "b", "c")], "not every input is once"),
        ([("a", "b", "d")], "'d', which is no input"),
        ([(("a", "c"), "b")], "stores a, c, which cannot be stored"),
        ([(("a",), "b", "c")], "stores a, which cannot be stored"),
    ],
)
def test_trees_that_are_none_are_refused(trees: list[Any], said: str) -> None:
    """By an error that names the strategy and what is wrong with its tree."""
    weft.register_strategy("wrong", lambda _: trees)
    with pytest.raises(PlanError, match=said):
        session().query(CHAIN, name="q", strategy="wrong")


@pytest.mark.usefixtures("own_strategies")
def test_a_strategy_that_fails_says_so() -> None:
    """What a user's function throws is no stack trace of Weft's, and the remedy works."""

    def broken(problem: weft.JoinProblem) -> list[Any]:
        return [problem.aliases[7]]

    weft.register_strategy("broken", broken)
    with pytest.raises(PlanError, match="strategy broken fails: IndexError"):
        session().query(CHAIN, name="q", strategy="broken")
    assert session().query(CHAIN, name="q", strategy="auto").graph.stores


def test_strategies_that_are_none_are_refused() -> None:
    """Weft's own names are taken, and only functions are strategies."""
    with pytest.raises(ConfigError, match="cannot be called 'auto'"):
        weft.register_strategy("auto", lambda _: [])
    with pytest.raises(ConfigError, match="is 3"):
        weft.register_strategy("three", 3)  # type: ignore[arg-type]
