"""What many queries share: if one of these fails, they share too little, or pay for the wrong things."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.random_cases import random_case
from tests.shares import seeds
from tests.unit.optimizer.queries import join, rates
from tests.unit.optimizer.workspaces import workspace
from weft.logical.query.canonical import canonical
from weft.optimizer.expected_cost import with_estimates
from weft.optimizer.joint.space.hop_cost import HopPricer
from weft.optimizer.joint.space.single_query_plan import best_alone
from weft.optimizer.joint.space.workspace import Workspace
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import share
from weft.stats.statistics import Statistics


class TestSubJoins:
    def test_what_two_queries_join_alike_is_one(self) -> None:
        """S ⋈ T is in both; R ⋈ S and T ⋈ U are in one."""
        found = workspace(join("R.b = S.b", "S.c = T.c"), join("S.c = T.c", "T.d = U.d"))
        assert found.find("q1", "ST") == found.find("q2", "ST")
        assert found.users(found.find("q1", "ST")) == ("q1", "q2")
        assert found.users(found.find("q1", "RS")) == ("q1",)

    def test_other_predicates_make_another_sub_join(self) -> None:
        """Or a query would be answered from the wrong store."""
        found = workspace(join("S.c = T.c", "T.d = U.d"), join("S.a = T.a", "T.d = U.d"))
        assert found.find("q1", "ST") != found.find("q2", "ST")
        assert found.find("q1", "TU") == found.find("q2", "TU")

    def test_cross_products_are_not_stored(self) -> None:
        """R and T have nothing in common."""
        found = workspace(join("R.b = S.b", "S.c = T.c"))
        names = {"".join(found.joins[n].aliases) for n in found.sub_joins("q1")}
        assert names == {"R", "S", "T", "RS", "ST"}

    def test_filters_of_several_queries_let_their_union_through(self) -> None:
        """A third of R passes either filter, 1 - (2/3)² = 5/9 one of them; T has no filter in one query."""
        first = join("R.a = S.a", "R.x < 1", "T.x < 1", "S.b = T.b")
        second = join("R.a = S.a", "R.x < 2", "S.b = T.b")
        both = workspace(first, second, statistics=rates(R=900, T=900))
        assert both.tuples("R", both.find("q1", "R")) == pytest.approx(500)
        assert both.tuples("T", both.find("q1", "T")) == pytest.approx(900)
        assert workspace(first, statistics=rates(R=900)).rate(0) == pytest.approx(300)

    def test_windows_of_several_queries_count_as_the_widest(self) -> None:
        """A store that serves both keeps what the longer window needs."""
        short = join("R.a = S.a", window="[RANGE 1 SECOND]")
        long = join("R.a = S.a", window="[RANGE 9 SECONDS]")
        both, alone = workspace(short, long), workspace(long)
        assert both.size(both.find("q1", "S")) == alone.size(alone.find("q1", "S"))
        assert both.rate(both.find("q1", "RS")) == alone.rate(alone.find("q1", "RS"))


class TestEditing:
    def test_adding_and_leaving_out_queries_is_building_anew(self) -> None:
        """A running workload is planned as if it had been so from the start."""
        queries = [join("R.b = S.b", "S.c = T.c"), join("S.c = T.c", "T.d = U.d")]
        both = workspace(*queries)
        again = both.without(["q2"]).adding({"q2": both.queries["q2"]})
        assert again.joins == both.joins
        assert both.only(["q1"]).joins == workspace(queries[0]).joins
        for name, query in both.queries.items():
            for alias in query.aliases:
                assert again.steps(name, alias) == both.steps(name, alias)


class TestCost:
    OPTIONS = Options(partitions=3)

    @pytest.mark.parametrize("seed", seeds(10))
    def test_a_plan_alone_is_no_dearer_than_that_of_the_optimiser_of_one_query(self, seed: int) -> None:
        """In the costs both know; that one saves hops besides, so it may choose otherwise."""
        case = random_case(seed, least=2, most=5)
        query = canonical(case.query).query
        space = Workspace({"q": query}, case.statistics, self.OPTIONS)
        other = share({"q": optimise(query, case.statistics, self.OPTIONS)})
        plan = best_alone(space, "q")
        assert plan.cost is not None
        assert space.cost_of(plan) == pytest.approx(plan.cost.total)
        assert space.cost_of(plan) <= 1.25 * space.cost_of(other)

    @pytest.mark.parametrize("seed", seeds(10))
    def test_the_latency_of_a_plan_is_that_of_its_graph_and_is_paid(self, seed: int) -> None:
        """A joint plan whose latency cost nothing would be preferred to a plan that takes fewer steps."""
        case = random_case(seed, least=2, most=5)
        query = canonical(case.query).query
        dear = replace(self.OPTIONS, weights=replace(self.OPTIONS.weights, latency=7.0))
        plan = share({"q": optimise(query, case.statistics, self.OPTIONS)})
        free, paid = (Workspace({"q": query}, case.statistics, options) for options in (self.OPTIONS, dear))
        graph = with_estimates(lower_workload(plan), case.statistics, self.OPTIONS)
        cost = paid.priced(plan).cost
        assert cost is not None
        assert graph.cost is not None
        assert cost.latency == pytest.approx(graph.cost.latency)
        assert paid.cost_of(plan) == pytest.approx(free.cost_of(plan) + 7 * cost.latency)
        assert cost.total == pytest.approx(paid.cost_of(plan))
        assert cost.probes == pytest.approx(free.priced(plan).cost.probes)  # type: ignore[union-attr]
        hops = [HopPricer(space).cost(plan) for space in (free, paid)]
        assert hops[0] is not None
        assert hops[1] is not None
        assert hops[1].total == pytest.approx(hops[0].total + 7 * cost.latency)

    @pytest.mark.parametrize("seed", seeds(6))
    def test_a_dear_latency_never_makes_the_chosen_plan_slower(self, seed: int) -> None:
        """What latency costs is part of the search, not only of the bill."""
        case = random_case(seed, least=3, most=5)
        query = canonical(case.query).query
        dear = replace(self.OPTIONS, weights=replace(self.OPTIONS.weights, latency=1e6))
        chosen = [
            best_alone(Workspace({"q": query}, case.statistics, options), "q")
            for options in (self.OPTIONS, dear)
        ]
        free, paid = (plan.cost.latency for plan in chosen if plan.cost is not None)
        assert paid <= free + 1e-9

    def test_equal_beginnings_of_walks_are_paid_once(self) -> None:
        """Both queries send S to T first; whatever either does then is its own."""
        statistics = Statistics(rates(R=100, S=100, T=100, U=100).streams, horizon=timedelta(seconds=1))
        both = workspace(join("S.c = T.c"), join("S.c = T.c", "T.d = U.d"), statistics=statistics)
        plan = best_alone(both, "q1")
        assert both.cost_of(plan) == pytest.approx(200)
        second = best_alone(both, "q2")
        together = plan.with_answers(second.answers, second.upkeep)
        assert both.cost_of(together) <= both.cost_of(plan) + both.cost_of(second)
