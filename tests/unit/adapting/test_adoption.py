"""What a change of plan comes to, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.adapting.snapshots import CHAIN as FOUR
from tests.unit.adapting.snapshots import EVEN, SWAPPED, planned, snapshot
from tests.unit.plan.workloads import CHAIN, PAIR, shared
from tests.unit.runtime.migrations import pairs, stored
from weft.adapting.adoption import adopted, filled, horizon_of, side_by_side, what_changes
from weft.adapting.proposal import propose
from weft.optimizer.adaptation import is_alike
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import WorkloadPlan
from weft.runtime.log.values import Manifest
from weft.runtime.loop.adapter import Situation
from weft.runtime.observe.progress import History
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.transition import Transition
from weft.runtime.queries.visibility import StateFacts

HOUR = timedelta(hours=1)
BOTH = (FOUR, "SELECT s.b FROM s [RANGE 5 SECONDS], t [RANGE 5 SECONDS] WHERE s.b = t.b")


def situation(plan: WorkloadPlan, *, tracked: bool = True) -> Situation:
    """Queries that run by a plan, before batch 5."""
    program = ExecutableGraph(lower_workload(plan, tracked=tracked))
    active = ActiveQueries({}, plan, program, fresh=3)
    return Situation(active, Manifest(), StateFacts(number=5), History())


class TestWhatChanges:
    """In words."""

    def test_nothing(self) -> None:
        """An empty text."""
        assert what_changes(shared(q=PAIR), shared(q=PAIR)) == ""

    def test_stores_and_orders(self) -> None:
        """Those that come, those that go, and the walks that are others."""
        before, after = (
            pairs(stored("v", kind), stored("w"), q=PAIR) for kind in ("scattered", "replicated")
        )
        assert what_changes(before, after) == (
            "new stores v replicated; without v scattered; probe orders w → v"
        )

    def test_only_orders(self) -> None:
        """Over the same stores, nothing is laid out anew."""
        before = shared(q=CHAIN)
        walks = before.answers[0].walks
        (middle,) = (walk for walk in walks if walk.start == "w")
        turned = replace(middle, visits=tuple(reversed(middle.visits)))
        answer = replace(before.answers[0], walks=tuple(turned if w is middle else w for w in walks))
        after = replace(before, answers=(answer,))
        names = " → ".join(store.name for store in turned.visits)
        assert what_changes(before, after) == f"probe orders w → {names}"

    def test_of_many_some(self) -> None:
        """A hundred stores are no text to read."""
        before = shared(q=PAIR)
        grouped = [before.in_group(f"g{n}") for n in range(9)]
        answers = [replace(one.answers[0], name=f"q{n}") for n, one in enumerate(grouped)]
        text = what_changes(WorkloadPlan(()), WorkloadPlan(tuple(answers)))
        assert "and 14 more" in text
        assert text.count("of g") == 4


class TestHorizon:
    """How long a saving counts."""

    def test_until_all_windows_have_passed(self) -> None:
        """The longest of all queries."""
        assert horizon_of(shared(q=PAIR), HOUR) == 5.0
        longer = PAIR.replace("v [RANGE 5 SECONDS]", "v [RANGE 2 MINUTES]")
        assert horizon_of(shared(q=PAIR, r=longer), HOUR) == 120.0

    def test_windows_that_never_end_count_for_the_horizon_of_statistics(self) -> None:
        """So do windows that count tuples."""
        for window in ("", "[ROWS 10]"):
            endless = PAIR.replace("v [RANGE 5 SECONDS]", f"v {window}")
            assert horizon_of(shared(q=endless), HOUR) == 3600.0

    def test_queries_of_one_input_do_not_count(self) -> None:
        """They store nothing."""
        assert horizon_of(shared(q=PAIR, r="SELECT v.x FROM v"), HOUR) == 5.0


class TestProposal:
    """What is proposed for a chain whose selectivities swap."""

    def test_both_plans_are_priced_by_the_same_statistics(self) -> None:
        """Else an old plan that was thought to be cheap would stay."""
        found = propose(snapshot(SWAPPED))
        assert found.gain == pytest.approx(1 - found.cost_then / found.cost_now)
        assert found.gain > 0.5
        assert found.extra is not None
        assert 0 <= found.extra < 1
        again = propose(snapshot(SWAPPED, found.plan))
        assert again.cost_now == pytest.approx(found.cost_then)

    def test_a_plan_that_is_best_stays(self) -> None:
        """To find it again is no change."""
        found = propose(snapshot(EVEN))
        assert is_alike(found.plan, found.running)
        assert found.gain == pytest.approx(0.0)

    def test_work_that_costs_nothing_is_not_divided_by(self) -> None:
        """Users may set all weights to zero."""
        found = replace(propose(snapshot(SWAPPED)), cost_now=0.0, cost_then=0.0, beside=0.0)
        assert (found.gain, found.extra) == (0.0, 0.0)
        assert replace(found, beside=None).extra is None


class TestGraphs:
    """The graphs by which queries go on."""

    def test_side_by_side_nothing_is_migrated_at_either_end(self) -> None:
        """No batch waits for stores to be laid out anew: that is what it is for."""
        old, new = planned(EVEN), planned(SWAPPED)
        first = situation(old)
        eager = adopted(first, new, ())
        assert eager.migration.is_needed
        beside = side_by_side(first, eager)
        assert not beside.migration.is_needed
        assert beside.migration.fills == ()
        assert beside.fresh == 3
        going = replace(first.active_queries, plan=beside.plan, program=ExecutableGraph(beside.graph))
        transition = Transition.beginning(new, first.facts)
        last = filled(replace(first, active_queries=going), transition)
        assert not last.migration.is_needed
        assert last.migration.fills == ()
        assert is_alike(last.plan, new)
        assert not any(store.filling for store in last.graph.stores)

    def test_stores_are_filled_as_the_plan_to_come_wants_them(self) -> None:
        """A store with other indexes or columns would have to be rebuilt when the plan takes over."""
        old, new = planned(EVEN), planned(SWAPPED)
        eager = adopted(situation(old), new, ())
        beside = side_by_side(situation(old), eager)
        became = {store.identity: store for store in beside.graph.stores}
        for store in eager.graph.stores:
            assert set(store.indexes) <= set(became[store.identity].indexes)
            assert became[store.identity].retention == store.retention

    def test_a_query_that_has_been_alone_goes_on_without_query_sets(self) -> None:
        """All tuples are for it, in whichever way its plan changes."""
        alone = situation(planned(EVEN), tracked=False)
        eager = adopted(alone, planned(SWAPPED), ())
        assert eager.migration.is_needed
        assert not eager.graph.tracked
        assert not side_by_side(alone, eager).graph.tracked
        assert not adopted(alone, planned(EVEN), ()).graph.tracked

    def test_queries_stay_who_they_are(self) -> None:
        """Stored tuples name them by their slots."""
        first = situation(planned(EVEN, *BOTH))
        eager = adopted(first, planned(SWAPPED, *BOTH), ())
        assert first.active_queries.program is not None
        members = first.active_queries.program.graph.members
        assert eager.graph.members == side_by_side(first, eager).graph.members == members
