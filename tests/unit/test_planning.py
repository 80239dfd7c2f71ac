"""What a change of queries leads to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.local_runner import LocalRunner
from weft.adapting.background import ForegroundPlanner
from weft.adapting.planner import Planner
from weft.adapting.proposal import Snapshot, propose
from weft.errors import PlanError
from weft.logical.query.canonical import canonical
from weft.plan.workload import WorkloadPlan
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import (
    ActiveQueries,
    Decision,
    Samples,
    find_refused,
    plan_changes,
)
from weft.runtime.queries.changelog import Changes
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts
from weft.testing import reference_join

STREAMS = {"v": "k long, x long", "w": "k long, x long"}


def session() -> weft.Session:
    """Two streams."""
    found = weft.Session()
    for name, schema in STREAMS.items():
        found.stream(name, schema)
    return found


def requests(*conditions: str) -> dict[str, QueryRequest]:
    """The same join under different filters."""
    sql = "SELECT v.x, w.x AS y FROM v, w WHERE v.k = w.k AND "
    return {
        f"q{i}": QueryRequest(canonical(session().parse(sql + c)).query) for i, c in enumerate(conditions)
    }


def groups_of(plan: WorkloadPlan) -> dict[str, str]:
    """The group of every query of a plan."""
    return {answer.name: plan.group_of(answer.name) for answer in plan.answers}


def active_queries(decision: Decision, wanted: Mapping[str, QueryRequest]) -> ActiveQueries:
    """What runs after a decision."""
    return ActiveQueries(wanted, decision.plan, ExecutableGraph(decision.graph), fresh=decision.fresh)


def table(seed: int) -> pa.Table:
    """Some tuples."""
    rows = [(seed * 7 + i * 3) % 10 for i in range(40)]
    return pa.table({"k": [row % 4 for row in rows], "x": rows})


NOTHING = weft.Statistics()  # is known of the data

# Tuples of v and of w are for q0 and q1, which want the same, or for q2, which wants none of them.
APART = {"v": {0b011: 50.0, 0b100: 50.0}, "w": {0b011: 50.0, 0b100: 50.0}}


def test_queries_that_would_lose_by_sharing_get_stores_of_their_own() -> None:
    """Else every probe meets tuples that are for others only, and query-sets are computed to be empty."""
    planner = Planner(weft.Options(partitions=2))
    first = requests("v.x < 5 AND w.x < 5")
    one = planner(ActiveQueries(), first, NOTHING, StateFacts())
    many = requests("v.x < 5 AND w.x < 5", "v.x < 5 AND w.x < 5 AND w.x <> 3", "v.x > 5 AND w.x > 5")
    samples = Samples(("q0", "q1", "q2"), APART)
    apart = planner(active_queries(one, first), many, NOTHING, StateFacts(number=1), samples)
    groups = {name: apart.plan.group_of(name) for name in many}
    assert groups["q0"] == groups["q1"] != groups["q2"]
    users = {node.users for node in apart.graph.stores}
    assert users == {("q0", "q1"), ("q2",)}
    together = planner(active_queries(one, first), many, NOTHING, StateFacts(number=1), None)
    assert {node.users for node in together.graph.stores} == {("q0", "q1", "q2")}


def test_queries_that_are_kept_apart_are_answered_like_any() -> None:
    """A query that moves to another group takes its stored tuples along."""
    planner = Planner(weft.Options(partitions=2))
    many = requests("v.x < 5 AND w.x < 5", "v.x < 7 AND w.x < 5", "v.x > 5 AND w.x > 5")
    first = planner(ActiveQueries(), many, NOTHING, StateFacts())
    runner = LocalRunner(first.graph, partitions=2)
    data = {name: [table(i + 3 * j) for i in range(4)] for j, name in enumerate(STREAMS)}
    for batch in range(2):
        runner.process_all({name: tables[batch] for name, tables in data.items()})
    others = [f"v.x > 5 AND w.x > {bound}" for bound in range(5, 9)]
    more = requests("v.x < 5 AND w.x < 5", "v.x < 7 AND w.x < 5", "v.x > 5 AND w.x > 5", *others)
    halves = {0b0000011: 50.0, 0b1111100: 50.0}
    samples = Samples(tuple(more), {"v": halves, "w": halves})
    regrouped = planner(active_queries(first, many), more, NOTHING, runner.facts, samples)
    assert len({regrouped.plan.group_of(name) for name in more}) > 1
    runner.change(regrouped.graph, regrouped.migration)
    for batch in range(2, 4):
        runner.process_all({name: tables[batch] for name, tables in data.items()})
    for name in many:
        whole = {stream: pa.concat_tables(tables) for stream, tables in data.items()}
        expected = reference_join(many[name].query, whole)
        assert counted(runner.results(name)) == counted(expected)


def test_a_new_query_that_loses_in_every_group_gets_stores_of_its_own() -> None:
    """Also if only few queries have changed, as long as there is a sample."""
    planner = Planner(weft.Options(partitions=2))
    conditions = [f"v.x < {bound} AND w.x < {bound}" for bound in range(5, 10)]
    first = requests(*conditions)
    one = planner(ActiveQueries(), first, NOTHING, StateFacts())
    assert {one.plan.group_of(name) for name in first} == {""}
    many = requests(*conditions, "v.x > 20 AND w.x > 20")
    samples = Samples(tuple(many), {stream: {0b011111: 90.0, 0b100000: 10.0} for stream in "vw"})
    two = planner(active_queries(one, first), many, NOTHING, StateFacts(number=1), samples)
    assert two.plan.group_of("q5") == "group 2"
    assert all(two.plan.answer(name) == one.plan.answer(name) for name in first)


def test_a_quick_planner_leaves_running_queries_alone_however_many_come() -> None:
    """They begin at once; the best plan of all is then looked for in the background, groups included."""
    quick = Planner(weft.Options(partitions=2), quick=True)
    conditions = [
        "v.x < 5 AND w.x < 5",
        "v.x < 7 AND w.x < 5",
        "v.x > 20 AND w.x > 20",
        "v.x > 30 AND w.x > 20",
    ]
    first, many = requests(conditions[0]), requests(*conditions)
    one = quick(ActiveQueries(), first, NOTHING, StateFacts())
    samples = Samples(tuple(many), {stream: {0b0011: 50.0, 0b1100: 50.0} for stream in "vw"})
    two = quick(active_queries(one, first), many, NOTHING, StateFacts(number=1), samples)
    assert two.plan.answer("q0") == one.plan.answer("q0")
    snapshot = Snapshot(two.plan, many, weft.Statistics(), weft.Options(partitions=2), "auto", samples)
    together = Planner(weft.Options(partitions=2))(ActiveQueries(), many, NOTHING, StateFacts())
    regrouped = propose(replace(snapshot, running=together.plan))
    assert regrouped.gain > 0.1
    assert regrouped.plan.group_of("q0") != regrouped.plan.group_of("q3")
    again = propose(replace(snapshot, running=regrouped.plan))
    assert groups_of(again.plan) == groups_of(regrouped.plan)


class TestABudget:
    """It binds the sum of all queries, whichever groups they are in."""

    KNOWN = weft.Statistics(
        dict.fromkeys(STREAMS, weft.StreamStatistics(rate=1.0)), horizon=timedelta(seconds=100)
    )

    def planner(self, budget: float | None) -> Planner:
        return Planner(weft.Options(partitions=2, budget=budget))

    def test_queries_are_planned_together_within_it(self) -> None:
        """Both share the two stores of 100 tuples, and are not refused for 400."""
        planner, many = self.planner(201.0), requests("v.x <> 5", "w.x <> 5")
        decision = planner(ActiveQueries(), many, self.KNOWN, StateFacts())
        assert len(decision.plan.stores) == 2
        assert sum(one.stored for one in planner.last.values()) <= 201

    def test_what_does_not_fit_is_refused_with_the_least(self) -> None:
        """By the joint optimiser and by the one that takes its place."""
        many = requests("v.x <> 5", "w.x <> 5")
        with pytest.raises(PlanError, match="stores at most 100 tuples") as error:
            self.planner(100.0)(ActiveQueries(), many, self.KNOWN, StateFacts())
        assert "the inputs alone are about 200" in str(error.value.hint)

    def test_groups_for_which_there_is_no_room_are_not_formed(self) -> None:
        """Each would store both inputs."""
        many = requests("v.x < 5 AND w.x < 5", "v.x < 5 AND w.x < 5 AND w.x <> 3", "v.x > 5 AND w.x > 5")
        first, groups = {"q0": many["q0"]}, {}
        for budget in (None, 150.0):
            planner = self.planner(budget)
            one = planner(ActiveQueries(), first, self.KNOWN, StateFacts())
            samples = Samples(("q0", "q1", "q2"), APART)
            found = planner(active_queries(one, first), many, self.KNOWN, StateFacts(number=1), samples)
            groups[budget] = {found.plan.group_of(name) for name in many}
        assert groups == {None: {"", "group 2"}, 150.0: {""}}


def test_of_new_queries_only_those_that_cannot_be_planned_are_refused() -> None:
    """Another's mistake is no reason not to begin."""
    many = requests("v.x < 5", "v.x < 6", "v.x < 7", "v.x < 8")
    old, new = {"q0": many.pop("q0")}, many

    def decide(wanted: Mapping[str, QueryRequest]) -> None:
        if "q1" in wanted or {"q2", "q3"} <= wanted.keys():
            raise PlanError(f"too much with {max(wanted)}")

    assert find_refused(decide, old, new) == {"q1": "too much with q1", "q3": "too much with q3"}


class TestWhateverIsThrown:
    """The planner is not without mistakes; sessions go on all the same, and say so."""

    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A joint optimiser with one."""
        _break(monkeypatch)

    @pytest.mark.usefixtures("broken")
    def test_a_session_starts_with_separate_plans(self, caplog: pytest.LogCaptureFixture) -> None:
        """It would end before its first batch."""
        planner = Planner(weft.Options(partitions=2))
        many = requests("v.x < 5", "w.x < 5")
        decision = planner(ActiveQueries(), many, NOTHING, StateFacts())
        assert [answer.name for answer in decision.plan.answers] == ["q0", "q1"]
        assert planner.last[""].method == "separate"
        assert "planned alone: KeyError: 4" in caplog.text

    def test_running_queries_keep_their_plan(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """And a newcomer, planned alone, runs beside them."""
        planner, many = (
            Planner(weft.Options(partitions=2)),
            requests("v.x < 5", "w.x < 5"),
        )
        first = {"q0": many["q0"]}
        one = planner(ActiveQueries(), first, NOTHING, StateFacts())
        _break(monkeypatch)
        two = planner(active_queries(one, first), many, NOTHING, StateFacts(number=1))
        assert two.plan.answer("q0") == one.plan.answer("q0")
        assert "KeyError" in caplog.text

    @pytest.mark.usefixtures("broken")
    def test_planning_afresh_that_fails_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """Separate plans would lay out all that is stored anew, for no gain."""
        planner, many = (
            Planner(weft.Options(partitions=2)),
            requests("v.x < 5", "w.x < 5"),
        )
        now = planner(ActiveQueries(), many, NOTHING, StateFacts())
        finder = ForegroundPlanner()
        finder.ask(Snapshot(now.plan, many, weft.Statistics(), weft.Options(partitions=2), "auto"))
        assert finder.take() is None
        assert "cannot be planned again, and go on as they are: KeyError: 4" in caplog.text

    def test_what_fails_alone_too_is_an_error(self, caplog: pytest.LogCaptureFixture) -> None:
        """The user's, with the remedy, and no talk of other plans."""
        planner = Planner(weft.Options(most_inputs=1))
        with pytest.raises(PlanError, match="most_inputs=1"):
            planner(ActiveQueries(), requests("v.x < 5"), NOTHING, StateFacts())
        assert not caplog.text

    def test_a_newcomer_is_refused_whatever_is_thrown(self, caplog: pytest.LogCaptureFixture) -> None:
        """With the reason; the others go on."""
        planner, many = (
            Planner(weft.Options(partitions=2)),
            requests("v.x < 5", "w.x < 5"),
        )
        first = {"q0": many["q0"]}
        now = active_queries(planner(ActiveQueries(), first, NOTHING, StateFacts()), first)

        def decide(before: ActiveQueries, wanted: Mapping[str, QueryRequest], *more: Any) -> Decision:
            if "q1" in wanted:
                raise ZeroDivisionError("what a surprise")
            return planner(before, wanted, *more)

        changes = Changes({"q1": many["q1"]}, {})
        after, _ = plan_changes(now, changes, decide, NOTHING, StateFacts(number=1), None)
        assert after.requests.keys() == {"q0"}
        assert after.stopped == {"q1": "refused: ZeroDivisionError: what a surprise"}
        assert "query q1 is refused" in caplog.text

    def test_queries_go_on_though_nothing_can_be_planned(self, caplog: pytest.LogCaptureFixture) -> None:
        """By the plan they have; newcomers are refused, and who was to stop does not."""
        planner, many = (
            Planner(weft.Options(partitions=2)),
            requests("v.x < 5", "w.x < 5", "v.x < 6"),
        )
        first = {name: many[name] for name in ("q0", "q1")}
        now = active_queries(planner(ActiveQueries(), first, NOTHING, StateFacts()), first)

        def decide(*_: Any) -> Decision:
            raise KeyError(4)

        changes = Changes({"q2": many["q2"]}, {"q1": "stopped"})
        after, migration = plan_changes(now, changes, decide, NOTHING, StateFacts(number=1), None)
        assert (after.requests, after.plan, after.program) == (now.requests, now.plan, now.program)
        assert (after.stopped, migration.reads) == ({"q2": "refused: KeyError: 4"}, ())
        assert "go on by the plan they have" in caplog.text


def _break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the joint optimiser a mistake."""

    def fail(*_: Any, **__: Any) -> None:
        raise KeyError(4)

    monkeypatch.setattr("weft.adapting.planner.optimise_all", fail)


def counted(rows: pa.Table) -> Counter[str]:
    """Rows as a multiset."""
    return Counter(map(str, rows.to_pylist()))


def test_a_query_that_was_checked_starts_by_the_same_plan() -> None:
    """Looking whether a query can be planned changes nothing of the plan by which it starts."""
    wanted, options = requests("v.x > 1"), weft.Options(partitions=2)
    checked, plain = Planner(options), Planner(options)
    checked.check(wanted, NOTHING)
    assert checked.start_plan(wanted, NOTHING) == plain.start_plan(wanted, NOTHING)
    other = requests("v.x > 1", "w.x > 2")
    assert checked.start_plan(other, NOTHING) == plain.start_plan(other, NOTHING)


def test_a_catalog_refuses_a_query_with_the_name_of_a_stream() -> None:
    """A name that meant a stream and a query would be read as either."""
    found = session()
    query = found.parse("SELECT v.x FROM v, w WHERE v.k = w.k")
    assert found.catalog.with_queries({"q": query}).find_query("Q") == query
    assert found.catalog.find_query("q") is None
    with pytest.raises(weft.WeftError, match="a stream and a query are called 'v'"):
        found.catalog.with_queries({"V": query})


def test_queries_are_in_the_groups_that_are_told() -> None:
    """Someone who knows which queries lose by sharing keeps them apart, also when queries come later."""
    told = {"q0": "left", "q1": "right", "q2": "left"}
    planner = Planner(weft.Options(partitions=2, group=told))
    wanted = requests("v.x > 1", "v.x < 1", "v.x > 2", "v.x > 3")
    start = planner.start_plan({name: wanted[name] for name in ("q0", "q1")}, NOTHING)
    assert groups_of(start.plan) == {"q0": "left", "q1": "right"}
    assert groups_of(planner.start_plan(wanted, NOTHING).plan) == {**told, "q3": ""}
    with pytest.raises(weft.WeftError, match="group cannot be"):
        weft.Options(group={"q0": 1})  # type: ignore[dict-item]
