"""Joint plans that are the best there are: CLASH 7.1's examples, and small workloads against all their plans."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tests.unit.optimizer.all_plans import SECOND, WORKLOADS, cheapest, paths, random_statistics
from tests.unit.optimizer.queries import join
from tests.unit.optimizer.workspaces import workspace
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.optimizer.cost import Weights
from weft.optimizer.joint.exact import component as joint_program
from weft.optimizer.joint.exact.component import Model
from weft.optimizer.joint.exact.program import FlowNode, Result
from weft.optimizer.joint.exact.solve import components, solve
from weft.optimizer.joint.space.single_query_plan import best_alone
from weft.optimizer.joint.space.step_pruning import relevant_steps
from weft.optimizer.joint.space.workspace import PROBES_ONLY, Workspace
from weft.optimizer.space import Options
from weft.plan.workload import SharedStore, Walk, WorkloadPlan
from weft.stats.statistics import Statistics, StreamStatistics

EQUAL_RATES = {name: StreamStatistics(100.0, dict.fromkeys("abcdefgh", 100.0)) for name in "RSTUVW"}


def shown(store: SharedStore) -> str:
    """A store as the thesis writes it: ST[b]."""
    by = store.layout.by
    return "".join(store.aliases) + (f"[{str(by).split('.')[1]}]" if by is not None else "")


def walk(found: Walk) -> str:
    """A walk as the thesis writes it."""
    return f"⟨{', '.join((found.start, *map(shown, found.visits)))}⟩"


def orders(space: Workspace, name: str, start: str, goal: int) -> set[str]:
    """All probe orders with partitionings to a sub-join."""
    found = paths(space.steps(name, start), space.find(name, (start,)), goal)
    return {walk(Walk(start, tuple(space.stores[step.store] for step in path))) for path in found}


class TestFigure71:
    """q1 = R(b), S(b, c), T(c) and q2 = S(c), T(c, d), U(d)."""

    SPACE = workspace(join("R.b = S.b", "S.c = T.c"), join("S.c = T.c", "T.d = U.d"))

    def plain(self, name: str, start: str, *, of: str | None = None) -> set[str]:
        """Probe orders without partitionings."""
        goal = self.SPACE.find(name, of) if of else self.SPACE.whole(name)
        every = orders(self.SPACE, name, start, goal)
        return {"".join(c for c in order if c not in "[bcd]") for order in every}

    def test_the_materialisable_intermediate_results(self) -> None:
        """R, S, T, U, RS, ST, TU; RT and SU would be cross products."""
        joins = {join for name in ("q1", "q2") for join in self.SPACE.sub_joins(name)}
        names = {"".join(self.SPACE.joins[join].aliases) for join in joins}
        assert names == {"R", "S", "T", "U", "RS", "ST", "TU"}

    def test_the_candidate_probe_orders(self) -> None:
        """Those of q1 and q2, and of the intermediate results."""
        assert self.plain("q1", "R") == {"⟨R, S, T⟩", "⟨R, ST⟩"}
        assert self.plain("q1", "S") == {"⟨S, T, R⟩", "⟨S, R, T⟩"}
        assert self.plain("q1", "T") == {"⟨T, S, R⟩", "⟨T, RS⟩"}
        assert self.plain("q2", "S") == {"⟨S, T, U⟩", "⟨S, TU⟩"}
        assert self.plain("q2", "T") == {"⟨T, U, S⟩", "⟨T, S, U⟩"}
        assert self.plain("q2", "U") == {"⟨U, T, S⟩", "⟨U, ST⟩"}
        assert self.plain("q1", "R", of="RS") == {"⟨R, S⟩"}
        assert self.plain("q2", "U", of="TU") == {"⟨U, T⟩"}

    def test_the_probe_orders_of_r_with_partitionings(self) -> None:
        """σ1 to σ6, among them those that only q2 finds useful; σ7 and σ8 are their beginnings."""
        assert orders(self.SPACE, "q1", "R", self.SPACE.whole("q1")) == {
            *("⟨R, S[b], T[c]⟩", "⟨R, S[c], T[c]⟩", "⟨R, S[b], T[d]⟩", "⟨R, S[c], T[d]⟩"),
            *("⟨R, ST[b]⟩", "⟨R, ST[d]⟩"),
        }
        assert orders(self.SPACE, "q1", "R", self.SPACE.find("q1", "RS")) == {"⟨R, S[b]⟩", "⟨R, S[c]⟩"}

    def test_a_tuple_that_does_not_know_the_partition_goes_to_all(self) -> None:
        """⟨R, S[b], T[d]⟩ broadcasts to T, since no tuple of R ⋈ S knows d."""
        by = {(shown(self.SPACE.stores[s.store]), s.known): s for s in self.SPACE.steps("q1", "R")}
        known = self.SPACE.find("q1", "RS")
        assert by["T[d]", known].cost == 4 * by["T[c]", known].cost

    def test_what_the_constraints_say(self) -> None:
        """A flow of one unit per query and input; one per input of ST, as much as ST is stored; each step once."""
        steps = relevant_steps(self.SPACE, ("q1", "q2"))
        model = Model(self.SPACE, ("q1", "q2"), steps)
        whole = [
            FlowNode(start, self.SPACE.whole(name))
            for name, starts in (("q1", "RST"), ("q2", "STU"))
            for start in starts
        ]
        stored = [
            FlowNode(start, self.SPACE.find(name, names))
            for name, names in (("q1", "RS"), ("q1", "ST"), ("q2", "TU"))
            for start in names
        ]
        assert set(model.flows) == {*whole, *stored}
        assert set(model.maintained) == {node.join for node in stored}
        first = [step for step in steps if step.start == "T" and step.target == self.SPACE.find("q1", "ST")]
        shared = [node for node in model.flows if any(step in model.flows[node] for step in first)]
        assert len(first) == 1  # T to the S-store: one variable, for both queries and for ST
        assert set(shared) == {
            *(FlowNode("T", self.SPACE.whole(name)) for name in ("q1", "q2")),
            FlowNode("T", self.SPACE.find("q1", "ST")),
        }

    def test_the_computation_of_st_serves_both_queries(self) -> None:
        """R and U visit ST, whose upkeep is the beginning of what S and T do anyway."""
        statistics = Statistics(EQUAL_RATES, horizon=SECOND)
        space = workspace(*self.SPACE.queries.values(), statistics=statistics)
        found = solve(space)
        assert found.gap == 0
        # R, U: 100 to ST each; S, T: 100 to each other, then 50 to R and 50 to U each.
        assert found.cost == pytest.approx(2 * 100 + 2 * (100 + 50 + 50))
        assert {kept.store.name for kept in found.plan.upkeep} == {"S⋈T"}

    def test_values_that_lead_nowhere_are_asked_for_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Within the solver's tolerance there may be nothing of a step that is needed; a plan there is."""
        statistics = Statistics(EQUAL_RATES, horizon=SECOND)
        space = workspace(*self.SPACE.queries.values(), statistics=statistics)
        expected, names = solve(space), tuple(space.queries)
        model = Model(space, names, relevant_steps(space, names))
        piece = model.begin(0.0, 0.0, None)
        assert not model.whole
        assert space.cost_of(piece.plan) > expected.cost
        nowhere = Result((0.0,) * model.program.variables, 0.0, 0.0, 0.0)
        monkeypatch.setattr(model.program, "run", lambda **_: nowhere)
        assert space.cost_of(model.improve(piece, 60.0, 0.0).plan) == pytest.approx(expected.cost)
        model.whole = True
        assert model.improve(piece, 60.0, 0.0) == piece


class TestTheExampleOf950Tuples:
    """q1 = (R, S, T), q2 = (S, T, U), all rates 100; S ⋈ T gives 150 results, the other joins 100."""

    STATISTICS = Statistics(
        EQUAL_RATES,
        {"R.a = S.a": 0.01, "S.b = T.b": 0.015, "T.c = U.c": 0.01},
        horizon=SECOND,
    )
    QUERIES = (join("R.a = S.a", "S.b = T.b"), join("S.b = T.b", "T.c = U.c"))

    def space(self, *queries: Query, intermediate: bool = False) -> Workspace:
        return Workspace(
            {f"q{i}": canonical(query).query for i, query in enumerate(queries, 1)},
            self.STATISTICS,
            Options(partitions=1, weights=PROBES_ONLY),
            replicated=False,
            intermediate=intermediate,
        )

    def visited(self, plan: WorkloadPlan, name: str, start: str) -> str:
        found = next(walk for walk in plan.answer(name).walks if walk.start == start)
        return "".join((start, *(store.name for store in found.visits)))

    def test_each_query_alone_sends_475_tuples(self) -> None:
        """Both avoid the larger join between S and T while they can."""
        for query, start, order in zip(self.QUERIES, "ST", ("SRT", "TUS"), strict=True):
            alone = solve(self.space(query))
            assert alone.cost == alone.bound == pytest.approx(475)
            assert self.visited(alone.plan, "q1", start) == order

    def test_together_they_share_the_steps_between_s_and_t(self) -> None:
        """950 tuples, less two first steps of 100, plus two second steps that are dearer by 25."""
        found = solve(self.space(*self.QUERIES))
        assert found.cost == found.bound == pytest.approx(950 - 2 * 100 + 2 * 25)
        assert self.visited(found.plan, "q1", "S") == "STR"
        assert self.visited(found.plan, "q2", "T") == "TSU"

    def test_the_variables_of_the_example_cost_what_it_says(self) -> None:
        """100 for first steps, 75 behind S ⋈ T, 50 behind the others."""
        space = self.space(*self.QUERIES)
        costs = {
            "".join(
                (step.start, *space.joins[step.known].aliases, *space.stores[step.store].aliases)
            ): step.cost
            for name in ("q1", "q2")
            for step in space.steps(name, "S")
        }
        expected = {"SSR": 100, "SRST": 50, "SST": 100, "SSTR": 75, "SSTU": 75}
        assert {name: round(cost) for name, cost in costs.items()} == expected

    def test_stored_intermediate_results_save_more(self) -> None:
        """R and U visit S ⋈ T with 100 tuples each; S and T send 100 to each other, and 75 each to R and to U."""
        found = solve(self.space(*self.QUERIES, intermediate=True))
        assert found.cost == found.bound == pytest.approx(2 * 100 + 2 * (100 + 75 + 75))


class TestAgainstAllPlans:
    """Nothing is cheaper, whatever is weighed."""

    @pytest.mark.parametrize("queries", WORKLOADS.values(), ids=WORKLOADS)
    @pytest.mark.parametrize("seed", range(3))
    def test_probe_cost(self, queries: tuple[Query, ...], seed: int) -> None:
        options = Options(partitions=1 + seed, weights=PROBES_ONLY)
        self.check(workspace(*queries, statistics=random_statistics(seed), options=options))

    @pytest.mark.parametrize("name", ["chains", "a query in another", "a comparison"])
    @pytest.mark.parametrize(("seed", "keep"), [(0, 0.0), (1, 0.05), (2, 0.3), (3, 1.0)])
    def test_with_the_cost_of_stores(self, name: str, seed: int, keep: float) -> None:
        weights = Weights(ship=0.5, probe=0.5, store=0.1, keep=keep, hop=0.0)
        options = Options(partitions=2, weights=weights)
        self.check(workspace(*WORKLOADS[name], statistics=random_statistics(seed), options=options))

    def check(self, space: Workspace) -> None:
        found = solve(space)
        assert found.gap == 0
        assert found.plan.cost is not None
        assert found.cost == pytest.approx(space.cost_of(found.plan)) == pytest.approx(found.plan.cost.total)
        assert found.cost == pytest.approx(cheapest(space))


class TestSolving:
    def many(self, count: int) -> Workspace:
        """Chains of three and four over six streams."""
        rng = Random(3)
        queries = {}
        for i in range(count):
            names = rng.sample("RSTUVW", rng.choice((3, 4)))
            edges = [f"{a}.{c} = {b}.{c}" for a, b in pairwise(names) for c in (rng.choice("ab"),)]
            queries[f"q{i}"] = canonical(join(*edges)).query
        return Workspace(
            queries, Statistics(EQUAL_RATES, horizon=SECOND), Options(weights=PROBES_ONLY), replicated=False
        )

    def test_queries_with_nothing_in_common_are_solved_apart(self) -> None:
        """Or the time of a workload would grow faster than its size."""
        space = workspace(
            join("R.a = S.a"), join("S.a = R.a", "R.b = T.b"), join("U.a = V.a"), join("U.b = V.b")
        )
        assert components(space) == [("q1", "q2"), ("q3",), ("q4",)]

    def test_queries_that_share_the_choice_of_a_layout_are_solved_together(self) -> None:
        """Where storing costs something, S by a or by b is a question for both."""
        queries = (join("R.a = S.a", "S.b = T.b"), join("S.a = U.a"))
        assert len(components(workspace(*queries))) == 2
        assert len(components(workspace(*queries, options=Options()))) == 1

    def test_a_plan_to_begin_with_changes_nothing_but_the_time(self) -> None:
        """From the best plan, from each query's own, from nothing: the same cost."""
        space = self.many(8)
        first = solve(space)
        assert first.gap == 0
        assert solve(space, warm=first.plan).cost == pytest.approx(first.cost)
        assert solve(space, warm=best_alone(space, "q0")).cost == pytest.approx(first.cost)

    def test_out_of_time_the_plan_given_is_the_answer_and_the_gap_says_so(self) -> None:
        """A plan is owed at once, proven or not."""
        space = self.many(12)
        best = solve(space)
        hasty = solve(space, time_limit=0.0, warm=best.plan)
        assert hasty.cost == pytest.approx(best.cost)
        assert 0 <= hasty.bound <= best.cost

    def test_a_good_plan_first_does_not_change_the_best(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Large programs begin with the steps that the relaxation takes; the answer is the same."""
        space = self.many(9)
        expected = solve(space)
        monkeypatch.setattr(joint_program, "LARGE", 0)
        found = solve(space)
        assert found.gap == 0
        assert found.cost == pytest.approx(expected.cost)

    @pytest.mark.parametrize("count", [2, 5, 9])
    def test_a_plan_is_a_solution_of_the_program(self, count: int) -> None:
        """What the solver begins with must keep all rows, or it begins with nothing."""
        space = self.many(count)
        alone = [best_alone(space, name) for name in space.queries]
        plans = [
            solve(space).plan,
            WorkloadPlan(()).with_answers(
                [answer for plan in alone for answer in plan.answers],
                [one for plan in alone for one in plan.upkeep],
            ),
        ]
        for names in components(space):
            model = Model(space, names, relevant_steps(space, names))
            for plan in plans:
                start = model._start(plan.without(set(space.queries) - set(names)))
                assert start is not None
                assert model.program.holds(start)

    def test_a_query_that_differs_in_names_only_is_not_solved_again(self) -> None:
        """The plan of one, with the other's names, is valid and as good."""
        space = workspace(
            join("R.a = S.a", "S.b = T.b"),
            join("W.c = V.d", "V.e = U.f"),
            statistics=Statistics(EQUAL_RATES, horizon=SECOND),
        )
        found = solve(space)
        assert found.cost == found.bound == pytest.approx(2 * 400)
        alone = [solve(space.only([name])).cost for name in space.queries]
        assert alone == [pytest.approx(400), pytest.approx(400)]

    def test_every_query_is_answered_in_the_order_given(self) -> None:
        """However the parts were solved."""
        space = self.many(10)
        found = solve(space, gap=0.05)
        assert [answer.name for answer in found.plan.answers] == list(space.queries)
        assert found.gap <= 0.05
        assert found.cost <= sum(space.cost_of(best_alone(space, name)) for name in space.queries)
