"""Plans for many queries: what is equal is there once, and what contradicts itself cannot be built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.shares import seeds
from tests.unit.plan.workloads import CHAIN, OTHER, PAIR, overlapping, plan, query, shared
from weft.errors import PlanError
from weft.logical.query.canonical import joined_on
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import CODEC
from weft.plan.workload import Answer, SharedStore, Upkeep, Walk, WorkloadPlan, answer_of, share

V, W = (SharedStore((alias,), Layout("scattered", 2)) for alias in "vw")
BOTH = SharedStore(("v", "w"), Layout("scattered", 2), joined_on(query(PAIR), ("v", "w")))
PAIRED = Answer("pair", query(PAIR), (Walk("v", (W,)), Walk("w", (V,))))


def test_equal_plans_are_shared_whoever_asked() -> None:
    """The second of two equal queries costs no store."""
    found = shared(one=PAIR, other=PAIR.replace("v.x", "w.uid"))
    assert found.stores == shared(one=PAIR).stores
    assert found.stores_of("one") == found.stores_of("other") == frozenset(found.stores)


def test_what_joins_otherwise_is_kept_apart() -> None:
    """Equal inputs do not make an equal result."""
    other = replace(BOTH, on=joined_on(query(OTHER), ("v", "w")))
    assert (BOTH.name, BOTH.layout) == (other.name, other.layout)
    assert BOTH.identity != other.identity


def test_an_answer_walks_through_its_operators_one_behind_the_other() -> None:
    """Of v ⋈ w stored and then joined with c: v goes to w, and on to c."""
    answer, upkeep = answer_of("chain", plan(CHAIN, "left_deep"))
    assert [walk.reached for walk in answer.walks] == [("c", "v", "w")] * 3
    (kept,) = upkeep
    assert [walk.reached for walk in kept.walks] == [kept.store.aliases] * 2
    for walk in kept.walks:
        (whole,) = (one for one in answer.walks if one.start == walk.start)
        assert whole.visits[: len(walk.visits)] == walk.visits


def test_a_plan_loses_what_only_those_who_go_have_used() -> None:
    """Their stores would be kept up to date for nobody."""
    both = share({"chain": plan(CHAIN, "left_deep"), "pair": plan(PAIR)})
    assert both.without(["chain"]) == share({"pair": plan(PAIR)})
    assert both.without(["pair"]) == share({"chain": plan(CHAIN, "left_deep")})
    assert both.without(["chain", "pair"]) == WorkloadPlan(())


def test_a_plan_takes_more_answers() -> None:
    """What equals what is there is shared."""
    chain, pair = plan(CHAIN, "left_deep"), plan(PAIR)
    answer, upkeep = answer_of("chain", chain)
    found = share({"pair": pair}).with_answers([answer], upkeep)
    assert found == share({"pair": pair, "chain": chain})


def test_of_two_ways_to_compute_a_store_that_of_those_who_are_there_stays() -> None:
    """It has the state for it."""
    c = SharedStore(("c",), Layout("scattered", 2))
    chain = Answer("chain", query(CHAIN), (Walk("c", (BOTH,)), Walk("v", (W, c)), Walk("w", (V, c))))
    first = Upkeep(BOTH, (Walk("v", (W,)), Walk("w", (V,))))
    copies = [SharedStore((alias,), Layout("replicated", 2)) for alias in "vw"]
    second = Upkeep(BOTH, (Walk("v", (copies[1],)), Walk("w", (copies[0],))))
    found = WorkloadPlan((chain,), (first,)).with_answers([replace(chain, name="again")], [second])
    assert found.upkeep == (first,)
    assert not set(copies) & set(found.stores)


@pytest.mark.parametrize("seed", seeds(8))
def test_plans_of_overlapping_queries_survive_json(seed: int) -> None:
    """The queries that stand are restored from it after a crash."""
    found = overlapping(seed)
    assert CODEC.loads(CODEC.dumps(found)) == found
    for answer in found.answers:
        assert answer.visited <= found.stores_of(answer.name)


class TestErrors:
    """Each of these would lose results, or keep what nobody needs."""

    def test_stores_hold_inputs_and_are_partitioned_by_their_own(self) -> None:
        """A value that a tuple does not have sends it nowhere."""
        with pytest.raises(PlanError, match="cannot be"):
            SharedStore((), Layout("scattered", 2))
        with pytest.raises(PlanError, match="cannot be"):
            SharedStore(("w", "v"), Layout("scattered", 2))
        with pytest.raises(PlanError, match="which it does not have"):
            SharedStore(("v",), Layout("partitioned", 2, query(PAIR).input("w").column("vid")))

    def test_a_walk_visits_an_input_once(self) -> None:
        """Else a tuple joins with itself."""
        with pytest.raises(PlanError, match="visits an input twice"):
            Walk("v", (BOTH,))

    def test_upkeep_has_a_walk_per_input_that_computes_the_store(self) -> None:
        """Else results whose last tuple is of another input are lost."""
        with pytest.raises(PlanError, match="one walk per input"):
            Upkeep(BOTH, (Walk("v", (W,)),))
        with pytest.raises(PlanError, match="does not compute"):
            Upkeep(BOTH, (Walk("v", (W,)), Walk("w", ())))

    def test_an_answer_has_a_walk_per_input_that_answers(self) -> None:
        """The same for a query."""
        with pytest.raises(PlanError, match="one walk per input"):
            replace(PAIRED, walks=PAIRED.walks[:1])
        with pytest.raises(PlanError, match="does not answer"):
            replace(PAIRED, walks=(Walk("v", ()), Walk("w", (V,))))

    def test_an_answer_visits_stores_that_join_as_it_does(self) -> None:
        """v ⋈ w on another predicate has other matches."""
        c = SharedStore(("c",), Layout("scattered", 2))
        walks = (Walk("c", (BOTH,)), Walk("v", (W, c)), Walk("w", (V, c)))
        assert Answer("chain", query(CHAIN), walks)
        wrong = replace(BOTH, on=joined_on(query(OTHER), ("v", "w")))
        with pytest.raises(PlanError, match="does not join v⋈w as its store does"):
            Answer("chain", query(CHAIN), (Walk("c", (wrong,)), *walks[1:]))

    def test_names_and_upkeep_are_unique_and_needed(self) -> None:
        """Two queries of one name, a store computed twice, or for nobody, or not at all."""
        kept = Upkeep(BOTH, (Walk("v", (W,)), Walk("w", (V,))))
        with pytest.raises(PlanError, match="one name"):
            WorkloadPlan((PAIRED, PAIRED))
        with pytest.raises(PlanError, match="twice"):
            WorkloadPlan((PAIRED,), (kept, kept))
        with pytest.raises(PlanError, match="just those that its queries need"):
            WorkloadPlan((PAIRED,), (kept,))
        chain = plan(CHAIN, "left_deep")
        answer, _ = answer_of("chain", chain)
        with pytest.raises(PlanError, match="nothing computes store"):
            WorkloadPlan((answer,))
        with pytest.raises(PlanError, match="nothing computes store"):
            WorkloadPlan((PAIRED,)).with_answers([answer], [])
        with pytest.raises(PlanError, match="nothing computes store"):
            WorkloadPlan((PAIRED,)).upkeep_of(BOTH)

    def test_a_query_with_outer_joins_is_planned_by_its_core(self) -> None:
        """Walks know inner joins only."""
        outer = query("SELECT v.x FROM v LEFT JOIN w ON v.vid = w.vid")
        with pytest.raises(PlanError, match="the core of a query with outer joins"):
            replace(PAIRED, query=outer)
