"""What becomes of the state when queries come and go: what is forgotten is lost, what is seen twice is given twice."""

from __future__ import annotations

import json

import pytest

from tests.local_runner import LocalRunner
from tests.unit.plan.workloads import CHAIN, PAIR, plan, query, shared
from tests.unit.runtime.joins import sorted_rows, v, w
from tests.unit.runtime.migrations import BELOW, OLD, pairs, program, stored
from weft.logical.codec import decode, encode
from weft.logical.outer.outer import core_and_closing
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import Member, Visibility
from weft.plan.physical.lower import lower_workload
from weft.plan.physical.rules import ProbeRule, StoreRule
from weft.plan.workload import Answer, SharedStore, Walk, WorkloadPlan, share
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.migration import (
    StateMigration,
    StoreScan,
    edges_for,
    evicted_after,
    kept_after,
    migration_between,
)
from weft.runtime.queries.visibility import NULLS, StateFacts, members_of_plan

V, W = "v partitioned by v.vid", "w partitioned by w.vid"
NEWEST = {"v": 90, "w": 80}


def joined(found: WorkloadPlan, old: ExecutableGraph | None, facts: StateFacts) -> dict[str, Member]:
    """The members of a new plan."""
    return {member.name: member for member in members_of_plan(old, found, facts)}


def facts_of(old: ExecutableGraph, **given: dict[str, int]) -> StateFacts:
    """What is known of a program's state before batch 5, that has been there from the first on."""
    kept = kept_after(None, old, StateMigration(), StateFacts())
    return StateFacts(
        5, kept, given.get("evicted", {}), given.get("marks", {}), NEWEST, given.get("oldest", {})
    )


def visibilities(sql: str, old: ExecutableGraph = OLD, **given: dict[str, int]) -> Member:
    """A new query beside the old one, in the same stores."""
    both = pairs(stored("v"), stored("w"), new=sql, old=BELOW.format(5))
    return joined(both, old, facts_of(old, **given))["new"]


ANTI = "SELECT v.x FROM v [RANGE 5 SECONDS] ANTI JOIN w [RANGE 5 SECONDS] ON v.vid = w.vid"


def closed_sight(sql: str) -> Visibility:
    """What a new query that only closes rows sees of w, in the stores of the old one."""
    core, closing = core_and_closing(query(sql))
    new = Answer("new", core, (), closing, (stored("v"), stored("w")))
    old = pairs(stored("v"), stored("w"), old=BELOW.format(5)).answers
    return joined(WorkloadPlan((new, *old)), OLD, facts_of(OLD))["new"].visibility("w")


class TestNewcomers:
    """Who is who, and sees what."""

    def test_what_closes_rows_is_read_too(self) -> None:
        """Partners whose columns nobody kept would be taken for none, and rows given that have one."""
        assert closed_sight(ANTI).batch == 0
        assert closed_sight(f"{ANTI} AND v.x = w.uid").batch == 5

    def test_those_who_are_there_at_first_see_all(self) -> None:
        """Nothing was before them."""
        found = joined(shared(b=PAIR, a=CHAIN), None, StateFacts())
        assert [(m.slot, m.first, m.visibilities) for m in found.values()] == [(0, 0, ()), (1, 0, ())]

    def test_a_place_is_kept_and_a_free_one_is_taken(self) -> None:
        """Rows that are stored name queries by their places."""
        three = shared(a=PAIR, b=PAIR, c=PAIR)
        old = program(three, *(Member(name, query(PAIR), slot) for slot, name in enumerate("abc")))
        found = joined(three.without(["b"]).with_answers(shared(d=PAIR).answers, ()), old, facts_of(old))
        assert {name: (m.slot, m.first) for name, m in found.items()} == {
            "a": (0, 0),
            "c": (2, 0),
            "d": (1, 5),
        }

    def test_the_past_is_seen_as_far_as_others_were_given_it(self) -> None:
        """Who asks for less than somebody who was there sees all of it; who asks for more, nothing before now."""
        assert visibilities(BELOW.format(3)).visibilities == (
            Visibility("v", 0, store=V),
            Visibility("w", 0, store=W),
        )
        blind = Visibility("v", 5, None, NEWEST["v"] + 1)
        assert visibilities(BELOW.format(9)).visibilities == (blind, Visibility("w", 0, store=W))
        assert visibilities(PAIR).visibility("v") == blind

    def test_a_column_that_nobody_kept_is_seen_from_now_on(self) -> None:
        """Its values are gone."""
        found = visibilities(
            "SELECT w.s FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS] WHERE v.vid = w.vid AND v.x < 3"
        )
        assert [visibility.batch for visibility in found.visibilities] == [0, 5]
        assert found.visibility("w").complete == NEWEST["w"] + 1

    def test_what_was_forgotten_is_not_seen(self) -> None:
        """Some of it may still lie there: results would depend on when runs are merged."""
        longer = BELOW.format(3).replace("v [RANGE 5 SECONDS]", "v [RANGE 50 SECONDS]")
        marks = {"v": 60_000_000, "w": 60_000_000}
        found = visibilities(longer, evicted={V: 55_000_000}, marks=marks)
        assert found.visibility("v") == Visibility("v", 0, 55_000_000, 55_000_000, V)
        nothing = visibilities(longer, evicted={V: 55_000_000}, marks=marks, oldest={"v": 55_000_000})
        assert nothing.visibility("v") == Visibility("v", 0, None, None, V), (
            "nothing was older than what may be gone"
        )
        some = visibilities(longer, evicted={V: 55_000_000}, marks=marks, oldest={"v": 54_999_999})
        assert some.visibility("v") == found.visibility("v")
        same = visibilities(BELOW.format(3), evicted={V: 55_000_000}, marks=marks)
        assert same.visibility("v") == Visibility("v", 0, None, None, V)

    def test_of_counted_tuples_those_are_seen_that_were_kept(self) -> None:
        """Where a window counts, what is gone is a number, and results are complete when the past is past."""
        counted = BELOW.format(5).replace("RANGE 5 SECONDS", "ROWS 4")
        name, other = "v$rows", "w$rows"
        v, w = (
            SharedStore((alias,), Layout("partitioned", 2, query(counted).input(alias).column("vid")))
            for alias in (name, other)
        )
        walks = (Walk(name, (w,)), Walk(other, (v,)))
        wide = counted.replace("ROWS 4", "ROWS 9")
        old = program(WorkloadPlan((Answer("old", query(counted), walks),)))
        both = WorkloadPlan((Answer("new", query(wide), walks), Answer("old", query(counted), walks)))
        some = joined(both, old, facts_of(old, evicted={v.identity: 7}))["new"].visibility(name)
        assert some == Visibility(name, 0, 7, NEWEST["v"] + 1, v.identity)
        every = joined(both, old, facts_of(old, evicted={v.identity: 0}))["new"].visibility(name)
        assert every == Visibility(name, 0, None, None, v.identity)

    def test_who_looks_through_a_newcomer_sees_what_that_one_does(self) -> None:
        """No query sees more than was kept for anybody."""
        visibility = Visibility("v", 3, 7, 9, V)
        member = Member("old", query(BELOW.format(5)), 0, 4, (visibility,))
        old = program(pairs(stored("v"), stored("w"), old=BELOW.format(5)), member)
        assert visibilities(BELOW.format(3), old).visibility("v") == visibility


class TestRelay:
    """What the job at a boundary reads and fills."""

    def test_at_the_start_there_is_nothing_to_do(self) -> None:
        """No state, no job."""
        assert migration_between(None, OLD) == StateMigration()
        assert not StateMigration().is_needed

    def test_a_query_that_finds_its_stores_needs_no_job(self) -> None:
        """Nor does one that goes."""
        two = program(pairs(stored("v"), stored("w"), new=BELOW.format(3), old=BELOW.format(5)))
        assert not migration_between(OLD, two).is_needed
        assert not migration_between(two, OLD).is_needed

    def test_a_store_laid_out_anew_is_filled_from_the_one_before(self) -> None:
        """The other stays as it is."""
        new = program(pairs(stored("v", "replicated"), stored("w"), old=BELOW.format(5)))
        found = migration_between(OLD, new)
        assert found == StateMigration((StoreScan("v", V, ("old",)),), ("v replicated",))
        assert edges_for(new.graph, found) >= {"v: store v"}
        assert not any(isinstance(new.rules[edge], ProbeRule) for edge in edges_for(new.graph, found))

    def test_an_intermediate_result_is_computed_from_its_inputs(self) -> None:
        """Those who come may not use one that was made for others."""
        old = ExecutableGraph(lower_workload(shared("flat", chain=CHAIN), tracked=True))
        new = ExecutableGraph(lower_workload(shared("left_deep", chain=CHAIN), tracked=True))
        found = migration_between(old, new)
        (between,) = (store for store in new.stores.values() if len(store.node.aliases) > 1)
        assert between.identity in found.fills
        assert {read.alias for read in found.reads} >= set(between.node.aliases)
        edges = edges_for(new.graph, found)
        stores = {
            rule.edge for rule in new.order if isinstance(rule, StoreRule) and rule.store == between.name
        }
        assert stores <= edges
        assert not any(edge.endswith("result") for edge in edges)

    def test_a_past_that_is_asked_for_is_read_and_answered(self) -> None:
        """From the store that the newcomer sees it in; without sight there is nothing to read."""
        both = pairs(stored("v"), stored("w"), new=BELOW.format(3), old=BELOW.format(5))
        seen = joined(both, OLD, facts_of(OLD))
        new = program(both, *seen.values())
        found = migration_between(OLD, new, ["new"])
        assert found == StateMigration(
            (StoreScan("v", V, ("new",)), StoreScan("w", W, ("new",))), (), ("new",)
        )
        assert {"v: result", "w: result"} <= edges_for(new.graph, found)

    def test_a_relay_survives_json(self) -> None:
        """It is part of the plan of a batch."""
        migration = StateMigration((StoreScan("v", V, ("a", "b"), replicated=True),), (V, W), ("b",))
        assert decode(StateMigration, json.loads(json.dumps(encode(migration)))) == migration

    @pytest.mark.parametrize("group", ["", "group 1"])
    @pytest.mark.parametrize("kind", ["partitioned", "replicated", "scattered"])
    def test_what_every_partition_has_is_read_once(self, kind: str, group: str) -> None:
        """Whichever group the store is of: read more often, its tuples would be joined more often."""
        old = program(pairs(stored("v", kind), stored("w"), old=BELOW.format(5)).in_group(group))
        new = program(pairs(stored("v", column="x"), stored("w"), old=BELOW.format(5)))
        migration = migration_between(old, new)
        read = migration.reads[0]
        assert (read.alias, read.is_read_in(0), read.is_read_in(1)) == ("v", True, kind != "replicated")
        runner = LocalRunner(old.graph)
        runner.process_all({"v": v((1, 3, 0), (2, 4, 0))})
        runner.change(new.graph, migration)
        assert sorted_rows(runner.process_all({"w": w((1, 7, None, 1))})["old"]) == [(3,)]


class TestKept:
    """Since when a column is kept, and below which time rows may be gone."""

    def test_a_column_is_kept_since_it_was_first_asked_for(self) -> None:
        """What was there stays; what is filled is as old as what it is filled from."""
        facts = facts_of(OLD)
        more = "SELECT w.s FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS] WHERE v.vid = w.vid"
        new = program(pairs(stored("v", "replicated"), stored("w"), new=more, old=BELOW.format(5)))
        migration = migration_between(OLD, new)
        found = kept_after(OLD, new, migration, facts)
        assert (found[W]["w.vid"], found[W]["w.s"], found[W][NULLS]) == (0, 5, 0)
        assert found["v replicated"]["v.x"] == 0

    def test_what_is_filled_lacks_what_its_source_has_forgotten(self) -> None:
        """And a store that stays, what it has itself."""
        new = program(pairs(stored("v", "replicated"), stored("w"), old=BELOW.format(5)))
        facts = facts_of(OLD, evicted={V: 40, W: 30})
        assert evicted_after(new, migration_between(OLD, new), facts) == {"v replicated": 40, W: 30}


def test_a_plan_of_queries_that_all_stay_changes_nothing() -> None:
    """The same graph, the same members."""
    found = share({"chain": plan(CHAIN, "left_deep"), "pair": plan(PAIR)})
    old = program(found)
    members = joined(found, old, facts_of(old))
    assert tuple(members.values()) == old.graph.members
    assert migration_between(old, program(found, *members.values())) == StateMigration()
