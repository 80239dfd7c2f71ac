"""What is proposed for running queries: never a dearer plan than they have, nor one that their own stores beat.

That holds for plans over other groups of queries as well.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.adapting.snapshots import EVEN, OPTIONS, SWAPPED, planned, requests, snapshot
from weft.adapting.proposal import Snapshot, propose
from weft.optimizer.cost import Weights
from weft.optimizer.expected_cost import shared_cost
from weft.optimizer.groups.overlap import Measured
from weft.optimizer.reordering import reordered
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import WorkloadPlan
from weft.runtime.queries.active import Samples
from weft.stats.statistics import Statistics


@pytest.mark.parametrize("made", [EVEN, SWAPPED])
@pytest.mark.parametrize("known", [EVEN, SWAPPED])
def test_a_proposal_is_the_cheapest_that_is_found(made: Statistics, known: Statistics) -> None:
    """Also where the best plan there is differs from the running one in its probe orders alone."""
    best = planned(known)
    for running in (planned(made), reordered(best, made, OPTIONS)):
        found = propose(snapshot(known, running))
        costs = [
            shared_cost(lower_workload(plan), known, OPTIONS)
            for plan in (running, best, reordered(running, known, OPTIONS))
        ]
        assert found.cost_now == pytest.approx(costs[0])
        assert found.cost_then == pytest.approx(min(costs))
        assert found.same_stores is None or found.same_stores[1] > found.cost_then


PAIR = "SELECT r.a, s.b FROM r [RANGE 5 SECONDS], s [RANGE 5 SECONDS] WHERE r.a = s.a AND "
# Two queries want most of their tuples for themselves; a tenth of all is for both.
TWO = (f"{PAIR} r.a < 11 AND s.a < 11", f"{PAIR} r.a > 9 AND s.a > 9")
SEEN = Samples(("q0", "q1"), {alias: {0b01: 45.0, 0b11: 10.0, 0b10: 45.0} for alias in "rs"})
MANY_PARTNERS = replace(EVEN, selectivities={"r.a = s.a": 0.01})


def two_queries(weights: Weights) -> Snapshot:
    """Two queries that share their stores, and what was seen of their filters."""
    options = replace(OPTIONS, weights=weights)
    running = planned(MANY_PARTNERS, *TWO)
    return Snapshot(running, requests(*TWO), MANY_PARTNERS, options, "auto", SEEN, "a test")


def groups_of(plan: WorkloadPlan) -> set[str]:
    """The groups that a plan has."""
    return {plan.group_of(answer.name) for answer in plan.answers}


def test_other_groups_are_proposed_at_the_price_of_their_plan() -> None:
    """What is saved is the part of the whole work, stores and hops included, as for any other change."""
    asked = two_queries(Weights(hop=0.001))
    assert groups_of(asked.running) == {""}
    found = propose(asked)
    assert len(groups_of(found.plan)) == 2
    part = Measured(SEEN.names, SEEN.sets).part
    now, then = (
        shared_cost(lower_workload(plan), asked.statistics, asked.options, part)
        for plan in (asked.running, found.plan)
    )
    assert found.cost_now == pytest.approx(now)
    assert found.cost_then == pytest.approx(then)
    assert found.gain == pytest.approx(1 - then / now)
    assert 0.1 < found.gain < 0.4


def test_groups_whose_stores_cost_more_than_they_save_are_not_proposed() -> None:
    """Equation 2 does not see what it costs to keep tuples, and would have them kept twice."""
    dear = Weights(hop=0.001, keep=1.0)
    found = propose(two_queries(dear))
    assert groups_of(found.plan) == {""}
    assert found.cost_then <= found.cost_now
