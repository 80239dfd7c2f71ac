"""Planning within limits: every query gets a plan, and in time; if these fail, a session hangs or ends at its start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from tests.unit.optimizer.queries import join
from tests.unit.optimizer.workloads import workload
from weft.errors import ConfigError, PlanError
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.joint.exact.solve import likeness
from weft.optimizer.joint.incremental import plan_all
from weft.optimizer.joint.methods import METHODS, optimise_all, optimise_alone
from weft.optimizer.joint.space.query_lattice import is_wide
from weft.optimizer.joint.space.step_pruning import relevant_steps, usable_steps
from weft.optimizer.joint.space.workspace import Workspace
from weft.optimizer.single.strategies import STRATEGIES, costs_of, optimise
from weft.optimizer.space import Options, Space
from weft.plan.physical.lower import lower_workload
from weft.stats.statistics import Statistics


def clock() -> Callable[[], float]:
    """A clock that goes on by a second whenever somebody looks at it."""
    ticks = count()
    return lambda: float(next(ticks))


def star(inputs: int) -> Query:
    """One input in the middle, joined with each other on a column of its own."""
    return canonical(join(*(f"A.a{i} = R{i:02}.a{i}" for i in range(1, inputs)))).query


OVER = Deadline(0.0, lambda: 1.0)
PAIR = canonical(join("A.k = B.k")).query
THREE = {
    "a sum": ("B.j = C.j", "B.k + C.k = A.k"),
    "coalesce": ("B.j = C.j", "COALESCE(B.k, C.k) = A.k"),
    "two sides": ("A.v <> B.v", "A.k + B.k = C.k + C.j"),
    "nothing else": ("B.k + C.k = A.k",),
    "more behind it": ("B.j = C.j", "B.k + C.k = A.k", "A.j = D.j", "D.m = E.m"),
}


class TestEqualitiesOverThree:
    """An input that nothing leads to but the join of two others."""

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("predicates", THREE.values(), ids=THREE)
    def test_beside_another_query(self, method: str, predicates: tuple[str, ...]) -> None:
        """The joint optimiser knew no way for it that visits inputs only, and ended in a KeyError."""
        three = canonical(join(*predicates)).query
        found = optimise_all({"pair": PAIR, "three": three}, Statistics(), method=method)
        graph = lower_workload(found.plan)
        assert [member.name for member in graph.members] == ["pair", "three"]

    def test_it_comes_to_a_running_query(self) -> None:
        """Which goes on as it is."""
        three = canonical(join(*THREE["a sum"])).query
        others = {f"pair{i}": PAIR for i in range(3)}
        before = optimise_all(others, Statistics())
        after = optimise_all({**others, "three": three}, Statistics(), running=before.plan)
        assert after.changes == 1
        assert after.plan.answers[:3] == before.plan.answers


class TestUsableSteps:
    """What the solver leaves of the steps may lack what some of them need."""

    def test_all_are_that_are_relevant(self) -> None:
        """Nothing is left out that a plan could take."""
        queries, statistics = workload(3, 4)
        steps = relevant_steps(workspace := Workspace(queries, statistics), queries)
        assert usable_steps(workspace, steps) == steps

    def test_what_is_not_computed_is_not_visited(self) -> None:
        """Nor is anything that can only be reached by visiting it."""
        query = canonical(join("A.k = B.k", "B.j = C.j", "C.m = D.m")).query
        workspace = Workspace({"q": query}, Statistics())
        every = [step for alias in query.aliases for step in workspace.steps("q", alias)]
        inner = workspace.find("q", ("A", "B"))
        fewer = [step for step in every if (step.start, step.target) != ("A", inner)]
        kept = usable_steps(workspace, fewer)
        assert kept
        assert any(workspace.join_of(step.store) == inner for step in fewer)
        assert not any(workspace.join_of(step.store) == inner for step in kept)
        assert not any((step.start, step.known) == ("A", inner) for step in kept)


class TestDeadlines:
    """Once there is no time left, the best plan so far is taken."""

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_a_query_has_a_plan_even_at_once(self, strategy: str) -> None:
        """By every strategy; more time makes it no dearer."""
        query, options = star(5), Options(strategy=strategy)
        hasty, patient = (optimise(query, Statistics(), options, until).cost for until in (OVER, NEVER))
        assert hasty is not None
        assert patient is not None
        assert hasty.total >= patient.total

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("seconds", [0, 1, 30, 300])
    def test_a_workload_has_a_plan_whenever_time_is_over(self, method: str, seconds: int) -> None:
        """Also in the middle of a move, which is undone."""
        queries, statistics = workload(5, 5)
        deadline = Deadline.after(seconds, clock())
        found = optimise_all(queries, statistics, method=method, deadline=deadline)
        assert [member.name for member in lower_workload(found.plan).members] == sorted(queries)

    def test_improving_ends(self) -> None:
        """It is what took ten seconds for eight queries; with time, the plan is better."""
        queries, statistics = workload(5, 6)
        workspace, ticks = Workspace(queries, statistics), clock()
        hasty = plan_all(workspace, deadline=Deadline.after(40, ticks))
        assert ticks() < 100  # it looked now and then, and stopped soon after
        assert workspace.cost_of(hasty) >= workspace.cost_of(plan_all(workspace))

    def test_newcomers_have_a_deadline_too(self) -> None:
        """A running session waits for them."""
        queries, statistics = workload(2, 6)
        fewer = {name: query for name, query in queries.items() if name != "q5"}
        before = optimise_all(fewer, statistics)
        after = optimise_all(queries, statistics, running=before.plan, deadline=OVER)
        assert after.plan.answers[:-1] == before.plan.answers

    def test_every_strategy_is_compared_in_its_own_time(self) -> None:
        """The first must not take all of it."""
        asked: list[str] = []

        def deadline_of(options: Options) -> Deadline:
            asked.append(options.strategy)
            return OVER

        assert list(costs_of(star(4), Statistics(), Options(), deadline_of)) == asked == list(STRATEGIES)

    def test_a_part_of_what_is_left(self) -> None:
        """So that several searches can share it."""
        assert NEVER.part(0.5) == NEVER
        assert Deadline(10.0, lambda: 4.0).part(0.5).at == 7.0
        assert OVER.part(0.5).over
        assert OVER.left == 0.0


class TestWideQueries:
    """Queries with more sub-joins than can be looked at."""

    def test_which_are(self) -> None:
        """Stars have far more sub-joins than chains."""
        chain = canonical(join(*(f"R{i:02}.a{i} = R{i + 1:02}.a{i}" for i in range(20)))).query
        wide = [is_wide(Space(query, Statistics(), Options())) for query in (star(9), star(12), chain)]
        assert wide == [False, True, False]

    @pytest.mark.parametrize("method", METHODS)
    def test_they_are_planned_beside_others(self, method: str) -> None:
        """Alone; their neighbours share what they have in common as before."""
        pairs = [canonical(join("A.a1 = R01.a1", f"A.a{i} = R{i:02}.a{i}")).query for i in (2, 3, 4)]
        queries = {"wide": star(12), **{f"q{i}": pair for i, pair in enumerate(pairs)}}
        found = optimise_all(queries, Statistics(), method=method, deadline=OVER)
        assert [member.name for member in lower_workload(found.plan).members] == sorted(queries)
        more = {**queries, "late": pairs[0], "wider": star(11)}
        after = optimise_all(more, Statistics(), method=method, running=found.plan, deadline=OVER)
        assert [member.name for member in lower_workload(after.plan).members] == sorted(more)
        assert after.plan.answer("wide") == found.plan.answer("wide")

    def test_a_star_of_twenty_has_a_plan(self) -> None:
        """In a fraction of the time that all strategies would take."""
        plan = optimise(star(20), Statistics(), Options(), OVER)
        assert len(plan.query.inputs) == 20

    def test_inputs_that_are_all_alike_are_not_put_in_every_order(self) -> None:
        """There are 5,040 orders of seven."""
        query = canonical(join(*(f"R{i}.k = R{i + 1}.k" for i in range(6)))).query
        workspace = Workspace({"q": query}, Statistics())
        steps = [step for alias in query.aliases for step in workspace.steps("q", alias)]
        assert likeness(workspace, steps) is None

    def test_too_many_inputs_are_refused_at_once(self) -> None:
        """With the limit, and how to raise it."""
        query = star(33)
        for refused in (
            lambda: optimise(query, Statistics()),
            lambda: optimise_all({"q": query, "pair": PAIR}, Statistics()),
        ):
            with pytest.raises(PlanError, match="33 inputs, more than most_inputs=32") as caught:
                refused()
            assert "weft.Options(most_inputs=33)" in str(caught.value)
        assert optimise(PAIR, Statistics(), Options(most_inputs=2)).cost is not None

    @pytest.mark.parametrize("wrong", [{"most_inputs": 0}, {"planning_seconds": -1.0}])
    def test_limits_that_cannot_be(self, wrong: dict[str, float]) -> None:
        """Named, with what can."""
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            replace(Options(), **wrong)  # type: ignore[arg-type]


class TestAlone:
    """What is left to do when the joint optimiser fails."""

    def test_what_runs_goes_on(self) -> None:
        """And newcomers are planned alone, in the order of the queries."""
        queries, statistics = workload(2, 6)
        fewer = {name: query for name, query in queries.items() if name not in ("q0", "q5")}
        before = optimise_all({**fewer, "gone": PAIR}, statistics)
        after = optimise_alone(queries, statistics, Options(), own={}, running=before.plan, changes=1)
        assert [answer.name for answer in after.plan.answers] == list(queries)
        assert all(after.plan.answer(name) == before.plan.answer(name) for name in fewer)
        assert (after.method, after.changes, after.cost) == ("separate", 4, None)
        lower_workload(after.plan)
