"""Plans on the way to others: queries are answered as before, while the stores of the plan to come are filled."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.equivalence.options import random_options
from tests.random_cases import random_case
from tests.shares import seeds
from tests.unit.plan.workloads import CHAIN, OTHER, PAIR, shared
from weft.errors import PlanError
from weft.logical.query.canonical import canonical
from weft.optimizer.single.strategies import optimise
from weft.plan.physical.graph import CODEC, PhysicalGraph
from weft.plan.physical.lower import lower_workload
from weft.plan.physical.part import part_of
from weft.plan.physical.rules import ProbeRule, ResultRule, StoreRule
from weft.plan.workload import Filling, WorkloadPlan, share
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.migration import migration_between
from weft.sql.bind import parse_query


def two_plans(seed: int) -> tuple[WorkloadPlan, WorkloadPlan]:
    """Two plans of the same queries, which join alike or have only streams in common."""
    rng = random.Random(seed)
    case = random_case(seed, least=2, most=4)
    alike = f"{case.query} AND {case.query.aliases[0]}.c2 < {rng.randint(1, 9)}"
    others = (
        str(random_case(rng.randrange(1000), least=2, most=len(case.query.aliases)).query)
        for _ in range(rng.randint(0, 1))
    )
    texts = [str(case.query), alike, *others][: rng.randint(1, 3)]
    queries = {
        f"q{n}": canonical(parse_query(t, case.catalog, cross=True)).query for n, t in enumerate(texts)
    }
    plans = []
    for turn in range(2):
        options = random_options(seed + 1000 * turn, rng.choice(("auto", "flat", "left_deep")))
        options = replace(options, partitions=2)
        plans.append(share({name: optimise(one, case.statistics, options) for name, one in queries.items()}))
    return plans[0], plans[1]


def on_the_way(seed: int) -> tuple[PhysicalGraph, PhysicalGraph, PhysicalGraph]:
    """The graph of a plan, that on the way to another, and that of the other."""
    old, new = two_plans(seed)
    target = lower_workload(new, tracked=True)
    beside = lower_workload(old.towards(new), tracked=True, target=target)
    return lower_workload(old, tracked=True), beside, target


SEEDS = seeds(20)


class TestTowards:
    """The plan on the way."""

    @pytest.mark.parametrize("seed", SEEDS)
    def test_answers_stay_and_all_stores_of_the_target_are_there(self, seed: int) -> None:
        """Each of them for all queries that will be answered from it."""
        old, new = two_plans(seed)
        beside = old.towards(new)
        assert beside.answers == old.answers
        assert beside.answering == old.answering
        assert set(old.stores) | set(new.stores) <= set(beside.stores)
        for store, users in new.answering.items():
            assert users <= beside.users[store]
        for store, users in old.answering.items():
            assert users <= beside.users[store]
        assert beside.without_filling() == old
        assert CODEC.loads(CODEC.dumps(beside)) == beside

    @pytest.mark.parametrize("seed", SEEDS)
    def test_only_what_is_missing_is_filled(self, seed: int) -> None:
        """A query that is answered from a store already does not wait for it."""
        old, new = two_plans(seed)
        now, then = old.answering, new.answering
        for one in old.towards(new).filling:
            assert set(one.users) == then[one.store] - now.get(one.store, frozenset())
        assert old.towards(old).filling == ()
        assert old.towards(old) == old

    @pytest.mark.parametrize("seed", SEEDS)
    def test_its_graph_is_valid_and_says_who_waits(self, seed: int) -> None:
        """Graphs check themselves; what answered before answers now, and nothing else."""
        before, beside, target = on_the_way(seed)
        waiting = {node.identity: set(node.filling) for node in beside.stores}
        had = {node.identity: set(node.users) for node in before.stores}
        for node in beside.stores:
            assert set(node.users) - set(node.filling) == had.get(node.identity, set())
        for node in target.stores:
            assert set(node.users) - waiting[node.identity] == set(node.users) & had.get(node.identity, set())
        assert _results(beside) == _results(before)
        assert {rule.store for rule in beside.later} <= {n.name for n in beside.stores if n.filling}
        assert PhysicalGraph.from_json(beside.to_json()) == beside

    @pytest.mark.parametrize("seed", SEEDS)
    def test_nothing_is_migrated_at_either_end(self, seed: int) -> None:
        """A batch that waits for stores to be laid out anew is what side by side is there to avoid."""
        before, beside, target = (ExecutableGraph(graph) for graph in on_the_way(seed))
        assert not migration_between(before, beside).is_needed
        last = migration_between(beside, target, filled=True)
        assert (last.reads, last.fills) == ((), ())

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_query_s_part_of_it_is_that_of_the_plan_it_runs_by(self, seed: int) -> None:
        """Users would read of stores and probes in `explain()` that do not answer their query."""
        before, beside, _ = on_the_way(seed)
        for member in before.members:
            part, shown = (part_of(graph, member.name, {}) for graph in (before, beside))
            assert {node.identity for node in shown.graph.stores} == {n.identity for n in part.graph.stores}
            assert {_probe(shown.graph, r) for r in _probes(shown.graph)} == {
                _probe(part.graph, r) for r in _probes(part.graph)
            }

    def test_a_plan_that_fills_for_nobody_cannot_be(self) -> None:
        """A store that nobody waits for would be filled for ever."""
        plan = shared(q=PAIR)
        store = shared(q=OTHER).stores[0]
        with pytest.raises(PlanError, match="that there are not"):
            replace(plan, filling=(Filling(store, ()),))
        with pytest.raises(PlanError, match="that there are not"):
            replace(plan, filling=(Filling(store, ("nobody",)),))


def _results(graph: PhysicalGraph) -> set[tuple[str, tuple[str, ...]]]:
    return {(rule.start, rule.users) for rule in graph.rules if isinstance(rule, ResultRule)}


def _probes(graph: PhysicalGraph) -> list[ProbeRule]:
    return [rule for rule in graph.rules if isinstance(rule, ProbeRule)]


def _probe(graph: PhysicalGraph, rule: ProbeRule) -> tuple[str, tuple[str, ...], str]:
    return rule.start, rule.known, graph.store(rule.store).identity


class TestValidation:
    """Graphs that would answer from stores that lack what came before are refused."""

    def filling(self) -> PhysicalGraph:
        """A chain that goes from no intermediate results to one that is stored."""
        old, new = shared("flat", q=CHAIN), shared("left_deep", q=CHAIN)
        found = lower_workload(old.towards(new), tracked=True, target=lower_workload(new, tracked=True))
        assert any(node.filling for node in found.stores)
        return found

    def with_filling(self, graph: PhysicalGraph, name: str, *users: str) -> PhysicalGraph:
        """The graph with a store that is filled for other queries."""
        stores = tuple(replace(n, filling=users) if n.name == name else n for n in graph.stores)
        return replace(graph, stores=stores)

    def test_an_answer_from_a_store_that_is_filled(self) -> None:
        """Its results would lack all that was stored before."""
        graph = self.filling()
        probed = {rule.store for rule in _probes(graph) if self._leads_to_results(graph, rule)}
        assert probed
        for name in sorted(probed):
            with pytest.raises(PlanError, match="still being filled"):
                self.with_filling(graph, name, "q")

    def test_a_store_computed_from_one_that_is_filled(self) -> None:
        """It would lack what that lacks, for as long as its own rows live."""
        graph = lower_workload(shared("left_deep", q=CHAIN))
        (kept,) = (node for node in graph.stores if len(node.aliases) > 1)
        edges = {rule.edge for rule in graph.rules if isinstance(rule, StoreRule) and rule.store == kept.name}
        (source, *_) = (rule.store for rule in _probes(graph) if edges & set(rule.outputs))
        with pytest.raises(PlanError, match="still being filled"):
            self.with_filling(graph, source, "q")

    def test_a_store_that_is_filled_for_strangers(self) -> None:
        """Nobody would ever wait for it."""
        graph = self.filling()
        filled = next(node.name for node in graph.stores if node.filling)
        with pytest.raises(PlanError, match="will not use it"):
            self.with_filling(graph, filled, "q", "stranger")

    def test_a_store_without_the_indexes_of_the_plan_to_come(self) -> None:
        """It would have to be indexed anew when the plan takes over."""
        graph = self.filling()
        assert graph.later
        with pytest.raises(PlanError, match="not indexed"):
            replace(graph, later=())

    def _leads_to_results(self, graph: PhysicalGraph, rule: ProbeRule) -> bool:
        rules = {one.edge: one for one in graph.rules}
        ends = [rules[name] for name in rule.outputs]
        return any(
            isinstance(end, ResultRule) or (isinstance(end, ProbeRule) and self._leads_to_results(graph, end))
            for end in ends
        )
