"""How many tasks a store needs, and how much of it one copes with (CLASH 5.5.2, 5.5.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.optimizer.queries import join, rates
from weft.optimizer.cost import BUSY, hop_cost, parallelism, task_capacity
from weft.optimizer.expected_cost import with_estimates
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower
from weft.plan.show.explain import explain


@examples(100)
@given(st.floats(1, 1e9), st.floats(1e-6, 1e3))
def test_as_many_tasks_as_needed_and_no_more(size: float, work: float) -> None:
    """N tasks hold the store, and one fewer would not (6.2: rate times window against the capacity)."""
    tasks, capacity = parallelism(work), task_capacity(size, work)
    assert size <= tasks * capacity * (1 + 1e-9)
    assert tasks == 1 or size > (tasks - 1) * capacity * (1 - 1e-9)


SHAPES = {
    "chain": ("R.a = S.a", "S.b = T.b", "T.c = U.c"),
    "star": ("R.a = S.a", "R.b = T.b", "R.c = U.c"),
    "one key": ("R.a = S.a", "S.a = T.a"),
    "theta": ("R.a < S.a", "S.b = T.b"),
}


def estimated(shape: str, rate: float, strategy: str = "auto") -> PhysicalGraph:
    """A plan for some inputs of that rate each."""
    query, options = join(*SHAPES[shape], window="[RANGE 10 SECONDS]"), Options(strategy=strategy)
    known = rates(**dict.fromkeys(query.aliases, rate))
    return with_estimates(lower(optimise(query, known, options)), known, options)


@pytest.mark.parametrize("strategy", ["flat", "left_deep", "auto"])
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_work_of_all_stores_is_that_of_the_plan(shape: str, strategy: str) -> None:
    """Otherwise the work of some store would be forgotten, or count twice."""
    graph = estimated(shape, 1e5, strategy)
    assert graph.cost is not None
    stores = [one for one in graph.cost.stores if one.capacity]
    work = sum(one.size * BUSY / one.capacity for one in stores if one.capacity)
    assert work + hop_cost(Options().weights, graph.hops) == pytest.approx(graph.cost.total)
    assert all(one.tasks == parallelism(one.size * BUSY / one.capacity) for one in stores if one.capacity)


def test_explain_names_stores_that_one_task_does_not_cope_with() -> None:
    """And is silent of the others: nobody need think of them."""
    assert "needs about" not in explain(estimated("one key", 10.0))
    graph = estimated("one key", 1e7)
    assert graph.cost is not None
    busiest = max(graph.cost.stores, key=lambda one: one.tasks)
    assert busiest.tasks > 1
    assert f"needs about {busiest.tasks} tasks: one copes with" in explain(graph)
