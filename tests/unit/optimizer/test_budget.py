"""A storage budget binds what all queries store together: if these fail, memory runs out, or sharing is lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples, quick, seeds
from tests.unit.optimizer.ajoin import QUERIES, STATISTICS, ask
from tests.unit.optimizer.all_plans import WORKLOADS, cheapest, random_statistics
from tests.unit.optimizer.queries import join
from tests.unit.optimizer.workloads import workload
from tests.unit.optimizer.workspaces import workspace
from weft.errors import PlanError
from weft.logical.query.canonical import canonical
from weft.optimizer.cost import Weights
from weft.optimizer.joint.exact.solve import solve
from weft.optimizer.joint.incremental import add_query, plan_all
from weft.optimizer.joint.methods import (
    METHODS,
    JointResult,
    optimise_all,
    optimise_alone,
    options_of_group,
)
from weft.optimizer.joint.space.shared_cost import NoWayError
from weft.optimizer.joint.space.storage import least_by_input, least_storage, storage_by_store, thrifty_stores
from weft.optimizer.joint.space.workspace import Workspace
from weft.optimizer.space import Options
from weft.plan.workload import WorkloadPlan
from weft.stats.statistics import Statistics

SLACK = 1 + 1e-6
# By these, a stored tuple costs so little that joint plans store intermediate results.
STORING = Weights(ship=0.5, probe=0.5, store=0.01, keep=0.0, hop=0.0)


def held(space: Workspace, plan: WorkloadPlan) -> float:
    """What the stores of a plan hold."""
    return math.fsum(storage_by_store(space, plan).values())


def least(space: Workspace) -> float:
    """What the inputs hold, each once."""
    return math.fsum(map(space.stored, thrifty_stores(space).values()))


class TestAgainstAllPlans:
    """Small workloads, with budgets between the inputs alone and the best plan without one."""

    @pytest.mark.parametrize("name", ["chains", "a query in another", "a comparison"])
    @pytest.mark.parametrize("seed", quick(range(3)))
    @pytest.mark.parametrize("part", [0.0, 0.4, 0.8])
    def test_the_best_plan_within_the_budget(self, name: str, seed: int, part: float) -> None:
        """No other is cheaper, and the incremental one, which is within it too, comes near."""
        options = Options(partitions=2, weights=STORING)
        space = workspace(*WORKLOADS[name], statistics=random_statistics(seed), options=options)
        free = solve(space)
        budget = least(space) + part * (held(space, free.plan) - least(space))
        found = solve(space, budget=budget)
        assert found.gap == 0
        assert found.cost == pytest.approx(cheapest(space, budget * SLACK))
        quick = plan_all(space, budget=budget)
        for plan in (found.plan, quick):
            assert held(space, plan) <= budget * SLACK
        assert found.cost * (1 - 1e-9) <= space.cost_of(quick)

    @pytest.mark.parametrize("seed", quick(range(3)))
    def test_replicated_stores_count_all_their_copies(self, seed: int) -> None:
        """Else a plan of copies would hold several times what it may."""
        options = Options(partitions=3, weights=Weights(ship=1.0, probe=0.1, store=0.01, keep=0.0, hop=0.0))
        queries = WORKLOADS["a comparison"]
        space = workspace(*queries, statistics=random_statistics(seed), options=options, replicated=True)
        free = solve(space)
        assert any(store.layout.kind == "replicated" for store in free.plan.stores)
        budget = (least(space) + held(space, free.plan)) / 2
        found = solve(space, budget=budget)
        assert held(space, found.plan) <= budget * SLACK
        assert held(space, plan_all(space, budget=budget)) <= budget * SLACK


class TestMethods:
    """Random workloads by every method."""

    def plan(self, seed: int, method: str, budget: float | None) -> JointResult:
        queries, statistics = workload(seed, 4, streams=6, inputs=(2, 4), filters=0.3)
        options = Options(budget=budget, weights=STORING)
        return optimise_all(queries, statistics, options, method=method)

    @given(st.integers(0, 10_000), st.floats(0.0, 1.2), st.sampled_from(["auto", "exact", "incremental"]))
    @examples(8)
    def test_what_all_queries_store_is_within_the_budget(self, seed: int, part: float, method: str) -> None:
        """And if the plan without a budget is, it is the plan."""
        free = self.plan(seed, method, None)
        queries, statistics = workload(seed, 4, streams=6, inputs=(2, 4), filters=0.3)
        inputs = least_storage(queries, statistics)
        budget = inputs + part * (free.stored - inputs)
        found = self.plan(seed, method, budget)
        assert found.stored <= budget * SLACK
        assert [answer.name for answer in found.plan.answers] == list(queries)
        if free.stored <= budget:
            assert found.plan == free.plan

    @pytest.mark.parametrize("seed", quick(seeds(3)))
    def test_exact_is_never_dearer_than_incremental(self, seed: int) -> None:
        """It begins with the other's plan."""
        free = self.plan(seed, "exact", None)
        queries, statistics = workload(seed, 4, streams=6, inputs=(2, 4), filters=0.3)
        budget = (free.stored + least_storage(queries, statistics)) / 2
        exact, quick = self.plan(seed, "exact", budget), self.plan(seed, "incremental", budget)
        assert exact.cost is not None
        assert quick.cost is not None
        assert exact.cost <= quick.cost * (1 + 1e-9)

    @pytest.mark.parametrize("method", ["auto", "exact", "incremental"])
    @pytest.mark.parametrize("seed", quick(seeds(3)))
    def test_with_room_for_the_inputs_nothing_else_is_stored(self, method: str, seed: int) -> None:
        """Every input once, and no intermediate result."""
        queries, statistics = workload(seed, 5, streams=6, filters=0.3)
        inputs = least_storage(queries, statistics)
        found = optimise_all(queries, statistics, Options(budget=inputs * 1.0001), method=method)
        assert not found.plan.upkeep
        assert found.stored == pytest.approx(inputs, rel=1e-3)

    @pytest.mark.parametrize("method", METHODS)
    def test_too_little_for_the_inputs_is_refused_with_the_least(self, method: str) -> None:
        """What to do is part of the error."""
        queries, statistics = workload(2, 4)
        inputs = least_storage(queries, statistics)
        with pytest.raises(PlanError, match="no plan of 4 queries stores at most") as error:
            optimise_all(queries, statistics, Options(budget=inputs * 0.99), method=method)
        assert f"the inputs alone are about {inputs:.0f}" in str(error.value.hint)

    def test_joint_optimisation_stays_on(self) -> None:
        """A budget that does not bind once made every query be planned alone."""
        queries, statistics = workload(3, 5)
        found = optimise_all(queries, statistics, Options(budget=1e12), method="exact")
        assert found.method == "exact"
        assert found.plan == optimise_all(queries, statistics, method="exact").plan

    def test_a_strategy_that_the_user_set_stays_within_the_budget(self) -> None:
        """The query may store what the inputs of the others leave."""
        queries, statistics = workload(6, 5)
        free = optimise_all(queries, statistics, own={"q2": Options(strategy="left_deep")})
        budget = 0.5 * (free.stored + least_storage(queries, statistics))
        own = {"q2": Options(strategy="auto", probe_orders="greedy", budget=budget)}
        found = optimise_all(queries, statistics, Options(budget=budget), own=own, method="incremental")
        assert found.stored <= budget * SLACK

    def test_a_query_with_a_budget_of_its_own_is_planned_alone_by_it(self) -> None:
        """The others' plans do not depend on it."""
        queries, statistics = workload(6, 5)
        own_least = least_storage({"q2": queries["q2"]}, statistics)
        own = {"q2": Options(budget=own_least * 1.001)}
        found = optimise_all(queries, statistics, own=own)
        assert all(store.is_input for store in found.plan.stores_of("q2"))
        with pytest.raises(PlanError, match="stores at most"):
            optimise_all(queries, statistics, own={"q2": Options(budget=own_least * 0.9)})

    def test_separate_plans_that_store_too_much_together_are_refused(self) -> None:
        """They cannot share more than they happen to."""
        queries = {
            "a": canonical(join("R.a = S.a")).query,
            "b": canonical(join("R.b = S.b")).query,
        }
        statistics = random_statistics(1)
        inputs = least_storage(queries, statistics)
        with pytest.raises(PlanError, match="more than the budget"):
            optimise_all(queries, statistics, Options(budget=inputs), method="separate")
        assert optimise_all(queries, statistics, Options(budget=inputs)).stored <= inputs * SLACK


class TestRunning:
    """Queries that come while others run."""

    def grown(self, seed: int, part: float) -> tuple[JointResult, JointResult, float]:
        queries, statistics = workload(seed, 6, streams=6, inputs=(2, 4))
        fewer = {name: query for name, query in queries.items() if name != "q5"}
        inputs, free = least_storage(queries, statistics), optimise_all(queries, statistics).stored
        options = Options(budget=inputs + part * max(0.0, free - inputs))
        before = optimise_all(fewer, statistics, options)
        after = optimise_all(queries, statistics, options, running=before.plan, known=before.workspace)
        return before, after, options.budget or 0.0

    @given(st.integers(0, 10_000), st.floats(0.0, 1.0))
    @examples(6)
    def test_a_new_query_fits_beside_the_others_or_all_are_planned_afresh(
        self, seed: int, part: float
    ) -> None:
        """In either case they are within the budget."""
        before, after, budget = self.grown(seed, part)
        assert before.stored <= budget * SLACK
        assert after.stored <= budget * SLACK
        if after.changes:
            assert after.plan.answers[:-1] == before.plan.answers

    def test_a_new_query_whose_inputs_do_not_fit_is_refused(self) -> None:
        """The others go on."""
        queries, statistics = workload(2, 6)
        fewer = {name: query for name, query in queries.items() if name != "q5"}
        new = least_by_input(queries, statistics)
        known = least_by_input(fewer, statistics)
        assert set(new) >= set(known)
        options = Options(budget=math.fsum(known.values()) * 1.0001)
        before = optimise_all(fewer, statistics, options)
        if set(new) > set(known):
            with pytest.raises(PlanError, match="no plan of 6 queries"):
                optimise_all(queries, statistics, options, running=before.plan)
        more = {**fewer, "q9": canonical(join("X.a = Y.a")).query}
        with pytest.raises(PlanError, match="no plan of 6 queries"):
            optimise_all(more, statistics, options, running=before.plan)
        with pytest.raises(PlanError, match="no plan of 6 queries"):
            optimise_alone(more, statistics, options, own={}, running=before.plan)

    def test_queries_that_run_are_never_refused(self) -> None:
        """Rates rise, and a query that stops must be able to."""
        queries, statistics = workload(2, 6)
        before = optimise_all(queries, statistics)
        fewer = {name: query for name, query in queries.items() if name != "q3"}
        for changes in (0, 5):
            after = optimise_all(fewer, statistics, Options(budget=1.0), running=before.plan, changes=changes)
            assert after.plan.answers == before.plan.without(["q3"]).answers

    def test_a_running_plan_leaves_no_room(self) -> None:
        """Then the search says so, rather than store more."""
        queries, statistics = workload(2, 3)
        space = Workspace(queries, statistics)
        plan = plan_all(space.only(["q0", "q1"]))
        with pytest.raises(NoWayError):
            add_query(space, plan, "q2", budget=held(space, plan) * 0.5)


class TestEstimates:
    """What is stored, with and without a workspace."""

    @given(st.integers(0, 10_000))
    @examples(10)
    def test_both_agree_on_inputs(self, seed: int) -> None:
        """Else what is refused would depend on who counts."""
        queries, statistics = workload(seed, 5, streams=6, filters=0.5)
        assert least_storage(queries, statistics) == pytest.approx(least(Workspace(queries, statistics)))

    def test_a_query_of_one_input_stores_nothing(self) -> None:
        """It passes every tuple on, whatever others keep of the input."""
        pair = {"Q5": QUERIES["Q5"]}
        both = {**pair, "all": ask("W", "W.duration > -1")}
        assert least_storage(both, STATISTICS) == least_storage(pair, STATISTICS)
        assert least(Workspace(both, STATISTICS)) == pytest.approx(least(Workspace(pair, STATISTICS)))


class TestGroups:
    """Groups of queries that share nothing but the budget."""

    def test_each_leaves_the_others_their_inputs(self) -> None:
        """The first may not store so much that the second is refused."""
        queries, statistics = workload(4, 6)
        one = {name: queries[name] for name in ("q0", "q1", "q2")}
        two = {name: queries[name] for name in ("q3", "q4", "q5")}
        inputs = least_storage(one, statistics) + least_storage(two, statistics)
        options = Options(budget=1.05 * inputs)
        first = optimise_all(one, statistics, options_of_group(options, {}, [two], statistics))
        second = optimise_all(two, statistics, options_of_group(options, {"": first}, [], statistics))
        assert first.stored + second.stored <= 1.05 * inputs * SLACK

    def test_without_a_budget_nothing_is_divided(self) -> None:
        """The options are the session's."""
        assert options_of_group(Options(), {}, [], Statistics()) == Options()
