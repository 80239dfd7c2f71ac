"""What is proposed for running queries: never a dearer plan than they have, nor one that their own stores beat."""

from __future__ import annotations

import pytest

from tests.unit.adapting.snapshots import EVEN, OPTIONS, SWAPPED, planned, snapshot
from weft.adapting.proposal import propose
from weft.optimizer.expected_cost import shared_cost
from weft.optimizer.reordering import reordered
from weft.plan.physical.lower import lower_workload
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
