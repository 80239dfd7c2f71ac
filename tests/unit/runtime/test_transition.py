"""Stores that are filled side by side: what they lack is of no use when they take over, or results are lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.local_runner import LocalRunner
from tests.unit.plan.workloads import CHAIN, PAIR, query, shared
from tests.unit.runtime.joins import SECOND, v, w
from tests.unit.runtime.migrations import BELOW, OLD, pairs, program, stored
from weft.adapting.adoption import adopted, side_by_side
from weft.logical.codec import decode, encode
from weft.logical.outer.outer import core_and_closing
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import CODEC
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import Answer, SharedStore, Walk, WorkloadPlan
from weft.runtime.log.values import Blueprint, Manifest
from weft.runtime.loop.adapter import Situation
from weft.runtime.observe.progress import History
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.migration import kept_after, migration_between
from weft.runtime.queries.transition import Transition, can_be_filled, is_filled
from weft.runtime.queries.visibility import COPIES, StateFacts, members_of_plan

V5, W5 = "v [RANGE 5 SECONDS]", "w [RANGE 5 SECONDS]"
BEGAN = StateFacts(7, newest={"v": 10 * SECOND, "w": 8 * SECOND}, arrived={"v": 100, "w": 50})


def windowed(v: str, w: str = W5, sql: str = PAIR) -> str:
    """The pair under other windows."""
    return sql.replace(V5, v).replace(W5, w)


def change(sql: str) -> tuple[WorkloadPlan, WorkloadPlan]:
    """A plan, and one with another layout of v; inputs whose tuples are counted have names of their own."""
    parsed = query(sql)
    v, w = (next(i.alias for i in parsed.inputs if i.stream.name == name) for name in "vw")
    by_key = {alias: Layout("partitioned", 2, parsed.input(alias).column("vid")) for alias in (v, w)}

    def planned(layout: Layout) -> WorkloadPlan:
        stores = {v: SharedStore((v,), layout), w: SharedStore((w,), by_key[w])}
        walks = {v: Walk(v, (stores[w],)), w: Walk(w, (stores[v],))}
        return WorkloadPlan((Answer("q", parsed, tuple(walks[alias] for alias in parsed.aliases)),))

    return planned(by_key[v]), planned(Layout("replicated", 2))


def begun(sql: str, facts: StateFacts = BEGAN) -> tuple[Transition, ExecutableGraph]:
    """A transition under way, and what runs meanwhile."""
    old, new = change(sql)
    graph = lower_workload(old.towards(new), tracked=True, target=lower_workload(new, tracked=True))
    return Transition.beginning(new, facts), ExecutableGraph(graph)


def is_over(
    sql: str,
    marks: Mapping[str, float],
    arrived: Mapping[str, int] | None = None,
    began: StateFacts = BEGAN,
) -> bool:
    """Whether stores are filled once watermarks, in seconds, and counts of tuples are these."""
    transition, running = begun(sql, began)
    times = {name: round(second * SECOND) for name, second in marks.items()}
    return is_filled(transition, running.graph, replace(began, number=9, marks=times, arrived=arrived or {}))


class TestCanBeFilled:
    """Whether stores will ever have all they need."""

    @pytest.mark.parametrize(
        ("windows", "expected"),
        [
            ((V5, W5), True),
            (("v [ROWS 10]", "w [ROWS 3]"), True),
            (("v [ROWS 10]", W5), True),
            (("v [ROWS 10 PER vid]", W5), False),
            (("v", W5), False),
            (("v", "w"), False),
        ],
    )
    def test_windows_end_the_use_of_tuples(self, windows: tuple[str, str], expected: bool) -> None:
        """Of time or of tuples; not those that count per key, and not none."""
        assert can_be_filled(*change(windowed(*windows))) == expected

    def test_bounds_of_times_do_as_well(self) -> None:
        """Without a window, tuples that are far apart join nobody."""
        banded = windowed("v", "w") + " AND v.ts < w.ts + INTERVAL '5' SECOND"
        assert not can_be_filled(*change(banded))
        both = banded + " AND w.ts < v.ts + INTERVAL '5' SECOND"
        assert can_be_filled(*change(both))

    def test_queries_whose_stores_stay_do_not_count(self) -> None:
        """An endless window of theirs is of no importance."""
        endless = pairs(stored("v"), stored("w"), r=windowed("v", "w")).answers
        old, new = (WorkloadPlan((*one.answers, *endless)) for one in change(PAIR))
        assert can_be_filled(old, new)

    def test_rows_are_closed_from_stores_that_were_there_from_the_beginning(self) -> None:
        """A row without a partner in a store that lacks the past would be given though it had one."""
        left = "SELECT v.x FROM v [RANGE 5 SECONDS] LEFT JOIN w [RANGE 5 SECONDS] ON v.vid = w.vid"
        core, closing = core_and_closing(query(left))
        walks = pairs(stored("v"), stored("w"), q=PAIR).answers[0].walks

        def closed(v: SharedStore, w: SharedStore) -> WorkloadPlan:
            return WorkloadPlan((Answer("q", core, walks, closing, (v, w)),))

        first = closed(stored("v"), stored("w"))
        assert can_be_filled(first, first)
        assert not can_be_filled(first, closed(stored("v"), stored("w", "replicated")))


class TestIsFilled:
    """Whether they have."""

    def test_time_must_have_passed_what_was_stored(self) -> None:
        """The newest tuple of v, of second 10, is of use until the watermark of w is beyond 15; that of w until 13."""
        assert not is_over(PAIR, {"v": 30, "w": 15})
        assert is_over(PAIR, {"v": 30, "w": 15.1})
        assert not is_over(PAIR, {"v": 13, "w": 30})
        assert is_over(PAIR, {"v": 13.1, "w": 30})

    def test_a_stream_of_unknown_time_may_bring_anything(self) -> None:
        """What waits for its first tuple is of use."""
        assert not is_over(PAIR, {"v": 30})
        assert not is_over(PAIR, {})

    def test_a_stream_that_had_brought_nothing_is_complete(self) -> None:
        """New stores have all of it."""
        nothing = StateFacts(7, newest={"v": 10 * SECOND}, arrived={"v": 100})
        assert is_over(PAIR, {"w": 15.1}, began=nothing)
        assert not is_over(PAIR, {"w": 15}, began=nothing)
        assert is_over(PAIR, {}, began=StateFacts(7))

    def test_counted_tuples_must_have_been_replaced(self) -> None:
        """By as many as are counted, of each input."""
        counted = windowed("v [ROWS 10]", "w [ROWS 3]")
        assert not is_over(counted, {}, {"v": 109, "w": 53})
        assert not is_over(counted, {}, {"v": 110, "w": 52})
        assert is_over(counted, {}, {"v": 110, "w": 53})

    def test_windows_of_both_kinds(self) -> None:
        """Each input by its own."""
        mixed = windowed("v [ROWS 10]")
        assert not is_over(mixed, {"v": 13.1, "w": 30}, {"v": 109})
        assert not is_over(mixed, {"v": 13, "w": 30}, {"v": 110})
        assert is_over(mixed, {"v": 13.1, "w": 30}, {"v": 110})

    def test_who_uses_intermediate_results_waits_too(self) -> None:
        """They get columns for what is computed from them, which older rows lack: a wider window must pass as well."""
        wide = CHAIN.replace("5 SECONDS", "60 SECONDS")
        kept = shared("left_deep", other=wide)
        old, new = (kept.with_answers(one.answers, one.upkeep) for one in change(PAIR))
        graph = lower_workload(old.towards(new), target=lower_workload(new))
        transition = Transition.beginning(new, BEGAN)
        for second, expected in ((16, False), (70, False), (71, True)):
            marks = dict.fromkeys("vwc", second * SECOND)
            assert is_filled(transition, graph, replace(BEGAN, number=9, marks=marks)) == expected
        endless = shared("left_deep", other=CHAIN.replace("c [RANGE 5 SECONDS]", "c"))
        never = (endless.with_answers(one.answers, one.upkeep) for one in change(PAIR))
        assert not can_be_filled(*never)

    def test_what_nobody_waits_for_is_filled(self) -> None:
        """As after a restart between the last batch of a transition and the first after it."""
        transition, _ = begun(PAIR)
        assert is_filled(transition, OLD.graph, replace(BEGAN, number=9))


def test_a_transition_survives_json() -> None:
    """A session that is killed goes on filling stores when it is started again."""
    transition, running = begun(PAIR)
    assert decode(Transition, json.loads(json.dumps(encode(transition)))) == transition
    plan = change(PAIR)[0].towards(change(PAIR)[1])
    active = ActiveQueries({}, plan, running, transition=transition)
    blueprint = active.to_blueprint()
    again = ActiveQueries.from_blueprint(blueprint)
    assert again.transition == transition
    assert again.plan == plan
    assert again.program is not None
    assert again.program.graph == running.graph
    older = Blueprint(
        blueprint.graph, blueprint.plan, {}, {}, {}, 0
    )  # as versions without transitions wrote it
    assert ActiveQueries.from_blueprint(older).transition is None
    assert CODEC.loads(CODEC.dumps(plan)) == plan


class TestMigration:
    """What becomes of stores that are being filled."""

    def test_filled_stores_stay_and_others_must_be_filled_from_what_is_there(self) -> None:
        """If the plan takes over before its time, what the stores lack is read from those that have it."""
        _, running = begun(PAIR)
        target = program(change(PAIR)[1])
        assert not migration_between(running, target, filled=True).is_needed
        early = migration_between(running, target)
        assert early.fills == ("v replicated",)
        (read,) = early.reads
        assert (read.store, read.users, read.copies) == ("v partitioned by v.vid", ("q",), False)

    def test_giving_a_transition_up_costs_nothing(self) -> None:
        """Queries never depended on the new stores."""
        _, running = begun(PAIR)
        back = migration_between(running, program(change(PAIR)[0]))
        assert (back.reads, back.fills) == ((), ())

    def test_a_store_that_is_filled_again_for_others_answers_on(self) -> None:
        """Old users have all they need in it, and new ones wait."""
        old = pairs(stored("v"), stored("w"), a=PAIR).answers
        other = pairs(stored("v", "replicated"), stored("w"), b=PAIR)
        before = WorkloadPlan((*old, *other.answers))
        after = WorkloadPlan((*old, *pairs(stored("v"), stored("w"), b=PAIR).answers))
        found = program(before.towards(after))
        assert not migration_between(program(before), found).is_needed
        (node,) = (store for store in found.graph.stores if store.identity == "v partitioned by v.vid")
        assert (node.users, node.filling) == (("a", "b"), ("b",))

    def test_a_newcomer_does_not_see_what_is_not_all_there(self) -> None:
        """Tuples that a store has for a query which it is being filled for begin with the transition."""
        transition, running = begun(BELOW.format(5))
        before = program(change(BELOW.format(5))[0])
        facts = StateFacts(7, kept_after(None, before, migration_between(None, before), StateFacts()))
        kept = kept_after(before, running, migration_between(before, running), facts)
        assert kept["v replicated"][COPIES + "q"] == transition.number == 7
        assert COPIES + "q" not in kept["v partitioned by v.vid"]
        later = replace(facts, number=9, kept=kept)
        target = program(transition.target)
        migration = migration_between(running, target, filled=True)
        assert kept_after(running, target, migration, later)["v replicated"][COPIES + "q"] == 7


def test_columns_that_a_filled_result_will_be_read_by_are_kept() -> None:
    """The job at the boundary would be needed after all, for a time that was not kept."""
    old, new = shared("flat", q=CHAIN), shared("left_deep", q=CHAIN)
    active = ActiveQueries({}, old, ExecutableGraph(lower_workload(old, tracked=True)))
    situation = Situation(active, Manifest(), StateFacts(number=5), History())
    eager = adopted(situation, new, ())
    beside = ExecutableGraph(side_by_side(situation, eager).graph)
    wanted = {store.identity: set(store.columns) for store in ExecutableGraph(eager.graph).stores.values()}
    kept = {store.identity: set(store.columns) for store in beside.stores.values()}
    for identity, columns in wanted.items():
        assert columns <= kept[identity]


class TestNewcomers:
    """A query that begins while a store is being filled, and sees the past through the query it is filled for."""

    NARROW, WIDE, NEW = BELOW.format(5), PAIR, BELOW.format(8)
    BEGINS, COMES = 2, 4  # the batches with which the transition and the newcomer begin

    def plans(self) -> tuple[WorkloadPlan, WorkloadPlan, WorkloadPlan]:
        """``wide`` has its own store of v and moves to that of ``narrow``; ``new`` then begins in this one, too."""
        narrow = pairs(stored("v"), stored("w"), narrow=self.NARROW)
        wide = pairs(stored("v", "replicated"), stored("w"), wide=self.WIDE)
        moved = pairs(stored("v"), stored("w"), wide=self.WIDE)
        new = pairs(stored("v"), stored("w"), new=self.NEW)
        return (
            WorkloadPlan((*narrow.answers, *wide.answers)),
            WorkloadPlan((*narrow.answers, *moved.answers)),
            WorkloadPlan((*narrow.answers, *wide.answers, *new.answers)),
        )

    def batch(self, number: int) -> dict[str, list[tuple[int, int, int]]]:
        """Tuples of v (vid, x, second) and of w (vid, uid, second), a few of every value."""
        return {
            "v": [(k, (3 * number + k) % 10, number) for k in range(4)],
            "w": [(k, 10 * number + k, number) for k in range(4)],
        }

    def run(self) -> tuple[ExecutableGraph, list[list[int]]]:
        """The graph with the newcomer, and what it gives in every batch, sorted."""
        before, after, last = self.plans()
        graph = lower_workload(before, tracked=True)
        runner, found = LocalRunner(graph, partitions=2), []
        for number in range(7):
            old = runner.program
            if number == self.BEGINS:
                target = lower_workload(after, graph.members, tracked=True)
                beside = lower_workload(before.towards(after), graph.members, tracked=True, target=target)
                runner.change(beside, migration_between(old, ExecutableGraph(beside)))
            if number == self.COMES:
                members = members_of_plan(old, last, runner.facts)
                graph = lower_workload(last, members, tracked=True)
                runner.change(graph, migration_between(old, ExecutableGraph(graph)))
            rows = self.batch(number)
            tables = {"v": v(*rows["v"]), "w": w(*((k, u, "", s) for k, u, s in rows["w"]))}
            results = runner.process_all(tables, now=number * SECOND)
            found.append(sorted(results["new"]["x"].to_pylist()) if "new" in results else [])
        return runner.program, found

    def expected(self, running: ExecutableGraph) -> list[list[int]]:
        """What the newcomer should give, by its definition: of the past, the tuples that it is said to see."""
        seen = {alias: running.members["new"].visibility(alias).batch for alias in "vw"}
        found: list[list[int]] = [[] for _ in range(7)]
        sides = {a: [(n, *row) for n in range(7) for row in self.batch(n)[a]] for a in "vw"}
        for n, vid, x, ts in sides["v"]:
            for m, other, _, when in sides["w"]:
                last = max(n, m)
                joins = vid == other and x < 8 and abs(ts - when) <= 5
                if joins and n >= seen["v"] and m >= seen["w"] and last >= self.COMES:
                    found[last].append(x)
        return [sorted(one) for one in found]

    def test_nothing_is_missed_or_repeated(self) -> None:
        """Tuples of v that only ``wide`` wanted are in the store since the transition began, and no earlier."""
        running, found = self.run()
        assert found == self.expected(running)
        assert running.members["new"].visibility("v").batch == self.BEGINS
        assert running.members["new"].visibility("w").batch == 0
