"""Plans of many queries, as they come and go: if these fail, queries compute twice what they could share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples, seeds
from tests.unit.optimizer.ajoin import QUERIES, SAMPLE, STATISTICS, WC, ask
from tests.unit.optimizer.workloads import workload
from weft.optimizer.groups.grouping import groups
from weft.optimizer.joint.incremental import (
    ChosenSubJoin,
    _paid_by,
    add_query,
    changed_too_much,
    plan_all,
    shared_order,
)
from weft.optimizer.joint.space.workspace import Workspace
from weft.plan.workload import WorkloadPlan


def said(workspace: Workspace, choices: list[ChosenSubJoin]) -> list[tuple[int, str, tuple[str, ...]]]:
    """Choices as texts."""
    return [(c.iteration, "⋈".join(workspace.joins[c.join].aliases), c.queries) for c in choices]


class TestFigure7b:
    """The order that iterative dynamic programming gives to Q1-Q6."""

    WORKSPACE = Workspace(QUERIES, STATISTICS)

    def test_order(self) -> None:
        """V ⋈ W is shared by Q1 and Q2, so W ⋈ C is Q3's alone; T1 ⋈ C is not shared with Q6, of another group."""
        found = shared_order(self.WORKSPACE, groups(QUERIES, SAMPLE, STATISTICS))
        assert said(self.WORKSPACE, found) == [
            (1, "V⋈W", ("Q1", "Q2")),
            (1, "C⋈W", ("Q3",)),
            (1, "V⋈W", ("Q4", "Q6")),
            (1, "V⋈W", ("Q5",)),
            (2, "C⋈V⋈W", ("Q2",)),
            (2, "C⋈R⋈W", ("Q3",)),
            (2, "C⋈V⋈W", ("Q4", "Q6")),
        ]

    def test_max_shared_is_the_cost_by_the_queries_that_share(self) -> None:
        """MinShared is what it costs alone."""
        for choice in shared_order(self.WORKSPACE, groups(QUERIES, SAMPLE, STATISTICS)):
            assert choice.min_shared == self.WORKSPACE.rate(choice.join)
            assert choice.max_shared == pytest.approx(choice.min_shared / len(choice.queries))

    def test_without_groups_everything_is_shared(self) -> None:
        """All that have V and W begin with it."""
        first, *_ = said(self.WORKSPACE, shared_order(self.WORKSPACE))
        assert first == (1, "V⋈W", ("Q1", "Q2", "Q4", "Q5", "Q6"))

    def test_q7_takes_up_the_running_join(self) -> None:
        """Figure 1's Q2 and the text's Q7: a new query re-uses what the running ones compute."""
        plan = plan_all(self.WORKSPACE)
        workspace = self.WORKSPACE.adding({"Q7": ask("W, C", WC)})
        added = add_query(workspace, plan, "Q7")
        running = {walk.visits[:1] for answer in plan.answers for walk in answer.walks}
        running |= {walk.visits[:1] for one in plan.upkeep for walk in one.walks}
        assert all(walk.visits in running for walk in added.answer("Q7").walks)


class TestAdd:
    """Eager sharing."""

    @given(st.integers(0, 10_000))
    @examples(5)
    def test_nobody_else_changes(self, seed: int) -> None:
        """Running queries go on as they are, with their stores."""
        queries, statistics = workload(seed, 5, streams=6)
        *running, new = queries
        workspace = Workspace({name: queries[name] for name in running}, statistics)
        plan = plan_all(workspace)
        added = add_query(workspace.adding({new: queries[new]}), plan, new)
        assert {a.name for a in added.answers} == set(queries)
        assert [added.answer(name) for name in running] == [plan.answer(name) for name in running]
        assert all(added.upkeep_of(one.store) == one for one in plan.upkeep)
        assert added.without([new]) == WorkloadPlan(plan.answers, plan.upkeep)

    def test_a_query_that_runs_already_costs_nothing(self) -> None:
        """It takes the other's walks."""
        queries, statistics = workload(1, 4)
        workspace = Workspace(queries, statistics)
        plan = plan_all(workspace)
        more = workspace.adding({"again": queries["q2"]})
        assert more.cost_of(add_query(more, plan, "again")) == pytest.approx(workspace.cost_of(plan))

    def test_a_plan_grows_from_nothing(self) -> None:
        """The first query finds nothing to share."""
        queries, statistics = workload(2, 3)
        workspace, plan = Workspace({}, statistics), WorkloadPlan(())
        for name, query in queries.items():
            workspace = workspace.adding({name: query})
            plan = add_query(workspace, plan, name)
        assert [answer.name for answer in plan.answers] == list(queries)


class TestPlanAll:
    """Any workload."""

    @given(st.integers(0, 10_000), st.sampled_from([0.0, 0.4]))
    @examples(5)
    def test_plans_are_valid(self, seed: int, filters: float) -> None:
        """Every query has an answer, and the cost that guided the search is the plan's."""
        queries, statistics = workload(seed, 4, streams=6, filters=filters)
        workspace = Workspace(queries, statistics)
        plan = plan_all(workspace)
        assert [answer.name for answer in plan.answers] == list(queries)
        assert workspace.cost_of(plan) == pytest.approx(_paid_by(workspace, plan).total)

    def test_some_queries_stay_as_they_are(self) -> None:
        """The others are planned around them."""
        queries, statistics = workload(4, 6)
        workspace = Workspace(queries, statistics)
        fixed = plan_all(workspace.only(["q1", "q4"]))
        plan = plan_all(workspace, around=fixed)
        assert {answer.name for answer in plan.answers} == set(queries)
        assert [plan.answer(name) for name in ("q1", "q4")] == list(fixed.answers)

    @pytest.mark.parametrize("seed", seeds(2))
    def test_never_dearer_than_eager_sharing(self, seed: int) -> None:
        """Seeing all queries at once must pay."""
        queries, statistics = workload(seed, 5, streams=6)
        workspace, plan = Workspace({}, statistics), WorkloadPlan(())
        for name, query in queries.items():
            workspace = workspace.adding({name: query})
            plan = add_query(workspace, plan, name)
        assert workspace.cost_of(plan_all(workspace)) <= workspace.cost_of(plan) * (1 + 1e-9)

    def test_plans_are_the_same_in_every_run(self) -> None:
        """Else a restart would move state."""
        queries, statistics = workload(5, 6)
        plans = [plan_all(Workspace(queries, statistics)) for _ in range(2)]
        assert plans[0] == plans[1]


def test_half_of_the_queries_may_change() -> None:
    """More, and a fresh plan is due."""
    assert not changed_too_much(2, 4)
    assert changed_too_much(3, 4)
