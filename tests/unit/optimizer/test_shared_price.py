"""What queries cost that share their stores, by what their filters have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.adapting.snapshots import EVEN, OPTIONS, requests
from weft.optimizer.cost import hop_cost
from weft.optimizer.expected_cost import Part, shared_cost
from weft.optimizer.groups.overlap import Measured
from weft.optimizer.single.strategies import optimise
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import WorkloadPlan, share

TEXTS = [
    "SELECT r.a, s.b, t.c FROM r [RANGE 5 SECONDS], s [RANGE 5 SECONDS], t [RANGE 5 SECONDS] "
    f"WHERE r.a = s.a AND s.b = t.b AND r.a < {bound} AND t.b < {bound}"
    for bound in (1, 2, 3)
]
QUERIES = {name: request.query for name, request in requests(*TEXTS).items()}
PLANS = {name: optimise(query, EVEN, OPTIONS) for name, query in QUERIES.items()}


def apart() -> WorkloadPlan:
    """The plan in which every query has a group of its own."""
    plan = WorkloadPlan(())
    for number, (name, own) in enumerate(PLANS.items(), 1):
        part = share({name: own}).in_group(f"group {number}")
        plan = plan.with_answers(part.answers, part.upkeep)
    return plan


def work(plan: WorkloadPlan, part: Part) -> float:
    """The cost of a plan without its hops, which groups do not share."""
    graph = lower_workload(plan)
    return shared_cost(graph, EVEN, OPTIONS, part) - hop_cost(OPTIONS.weights, graph.hops)


@given(st.floats(0.01, 1.0))
def test_queries_that_want_the_same_tuples_cost_together_what_one_costs(wanted: float) -> None:
    """Nothing is dropped, and nothing is done twice."""
    alike = Measured(tuple(QUERIES), {alias: {0b111: wanted, 0: 1 - wanted} for alias in "rst"}).part
    together, alone = work(share(PLANS), alike), work(share({"q0": PLANS["q0"]}), alike)
    assert together == pytest.approx(alone)
    assert work(apart(), alike) == pytest.approx(3 * alone)


@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3))
def test_queries_that_have_no_tuple_in_common_never_cost_less_together(shares: list[float]) -> None:
    """All of their tuples are stored and probed with anyway, and those of others are met in vain."""
    sets = {1 << place: share_ for place, share_ in enumerate(shares)}
    disjoint = Measured(tuple(QUERIES), dict.fromkeys("rst", sets)).part
    assert work(share(PLANS), disjoint) >= work(apart(), disjoint) * (1 - 1e-9)


@given(st.dictionaries(st.integers(0, 7), st.floats(0.01, 1.0), min_size=1))
def test_what_more_queries_want_costs_no_less(sets: dict[int, float]) -> None:
    """Whatever filters have in common, a query that joins others adds to their work, or adds nothing."""
    part = Measured(tuple(QUERIES), dict.fromkeys("rst", sets)).part
    two = share({name: PLANS[name] for name in ("q0", "q1")})
    assert work(share(PLANS), part) >= work(two, part) * (1 - 1e-9)
