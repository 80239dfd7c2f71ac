"""The worked examples of the thesis: if one of these fails, Weft no longer does what CLASH describes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.random_cases import SHAPES
from tests.unit.optimizer.enumerate import schemes, settle
from tests.unit.optimizer.queries import join, rates, space
from weft.optimizer.cost import copies, latency, probe_cost, storage_cost
from weft.optimizer.single.evaluate import price
from weft.optimizer.single.probe_order import greedy_order
from weft.optimizer.single.strategies import optimise
from weft.optimizer.single.tree import all_trees, chain, flat, greedy_left_deep, left_deep, merge
from weft.optimizer.space import Options, Space, Tree
from weft.plan.join_plan import JoinPlan, Layout, Operator, ProbeOrder, Store
from weft.plan.physical.lower import lower
from weft.stats.statistics import Statistics

R, S, T = 1, 2, 4
SIZES = {R: 2000, R | S: 1000, R | T: 1500, R | S | T: 700}
PARALLELISM = {S: 5, T: 1}


class TestProbeCost:
    """5.3.2: fewer intermediate tuples are not always fewer messages."""

    def cost(self, *order: int) -> float:
        known, sent = R, []
        for store in order:
            sent.append((SIZES[known], PARALLELISM[store]))
            known |= store
        return probe_cost(sent)

    def test_r_s_t_sends_11000_tuples(self) -> None:
        """⟨R, S, T⟩: 2000 tuples to five S-tasks, 1000 to one T-task."""
        assert self.cost(S, T) == 11_000

    def test_r_t_s_sends_9500_tuples(self) -> None:
        """⟨R, T, S⟩: 2000 tuples to one T-task, 1500 to five S-tasks."""
        assert self.cost(T, S) == 9_500

    def test_algorithm_1_finds_the_cheaper_order(self) -> None:
        """A greedy choice without the look-ahead would probe S first."""
        order = greedy_order(
            R, (S, T), SIZES.__getitem__, lambda _, store: PARALLELISM[store], lambda _, rest: rest
        )
        assert order == (T, S)


def shape_of(tree: Tree, operator: tuple[int, ...]) -> str:
    """A tree without the names of its leaves."""
    below = {sum(other): other for other in tree}
    parts = [shape_of(tree, below[store]) if store in below else "." for store in operator]
    return f"({''.join(sorted(parts))})"


class TestFigure54:
    """All structurally different trees over four relations."""

    def trees(self, count: int) -> list[Tree]:
        edges = SHAPES["clique"](count)
        predicates = [f"r{a}.c{a}{b} < r{b}.c{a}{b}" for a, b in edges]
        return list(all_trees(space(join(*predicates))))

    def test_there_are_five_shapes(self) -> None:
        """Flat, one ternary or one binary below the root, two binaries, left-deep."""
        shapes = {shape_of(tree, tree[-1]) for tree in self.trees(4)}
        assert shapes == {"(....)", "((...).)", "((..)..)", "((..)(..))", "(((..).).)"}

    @pytest.mark.parametrize(("count", "expected"), [(2, 1), (3, 4), (4, 26), (5, 236)])
    def test_no_tree_is_missing_or_listed_twice(self, count: int, expected: int) -> None:
        """The counts are those of Schröder's fourth problem."""
        trees = self.trees(count)
        assert len(trees) == len(set(trees)) == expected

    def test_no_inner_node_is_a_cross_product(self) -> None:
        """Over a chain R - S - T, R ⋈ T must never be stored."""
        found = list(all_trees(space(join("R.a = S.a", "S.b = T.b"))))
        assert sorted(shape_of(tree, tree[-1]) for tree in found) == ["((..).)", "((..).)", "(...)"]


class TestFigure66:
    """Partitioning candidates of an intermediate result."""

    QUERY = join("R1.a = R2.b", "R1.c = R3.d", "R3.e = R4.f", "R2.g = R4.h", "R4.i = R5.j")

    def candidates(self, *names: str) -> set[str]:
        found = space(self.QUERY)
        mask = found.estimator.mask(names)
        layouts = [found.layout(mask, spread) for spread in found.spreads(mask)]
        return {str(layout.by) for layout in layouts if layout.by is not None}

    def test_only_attributes_that_lead_outside_count(self) -> None:
        """R3.e is known too, but no partner outside is found by it."""
        assert self.candidates("R2", "R3", "R4") == {"R2.b", "R3.d", "R4.i"}

    def test_an_input_has_one_candidate_per_predicate(self) -> None:
        """R4 joins three others, each on another attribute."""
        assert self.candidates("R4") == {"R4.f", "R4.h", "R4.i"}

    def test_figure_67_enumerates_the_product_of_the_degrees(self) -> None:
        """Of the input stores, partitioned: 2 · 2 · 2 · 3 · 1 schemes."""
        found = space(self.QUERY)
        tree = next(flat(found))
        partitioned = [s for s in schemes(found, tree) if all(x.kind == "partitioned" for x in s.values())]
        assert len(partitioned) == 2 * 2 * 2 * 3


class TestMultipleEquiJoins:
    """6.4.1: (R, S, T, R.a = S.b, S.c = T.d), with S partitioned one way or the other."""

    QUERY = join("R.a = S.b", "S.c = T.d")

    def edges(self, by: str) -> dict[str, str]:
        columns = {str(m): m for key in self.QUERY.keys for m in key.members}
        layouts = {"R": columns["R.a"], "S": columns[by], "T": columns["T.d"]}
        stores = tuple(Store((name,), Layout("partitioned", 4, expr)) for name, expr in layouts.items())
        visits = {"R": ("S", "T"), "S": ("R", "T"), "T": ("S", "R")}
        orders = tuple(ProbeOrder(start, tuple((v,) for v in order)) for start, order in visits.items())
        graph = lower(JoinPlan(self.QUERY, (Operator(stores, orders),), "by hand"))
        found = {}
        for start in visits:
            for rule in graph.probes(start):
                found[f"{start} to {rule.store}"] = str(graph.edge(rule.edge))
        return found

    def test_option_1_broadcasts_t(self) -> None:
        """S by b: R finds its S-task, T does not; what it finds there stays in R's task too."""
        assert self.edges("S.b") == {
            "R to S": "local",  # R is stored by a, which is b: the same task
            "R to T": "group-by S.c",
            "S to R": "local",
            "S to T": "group-by S.c",
            "T to S": "all",
            "T to R": "local",
        }

    def test_option_2_broadcasts_r(self) -> None:
        """S by c: the other way round."""
        assert self.edges("S.c") == {
            "R to S": "all",
            "R to T": "local",
            "S to R": "group-by S.b",
            "S to T": "group-by S.c",
            "T to S": "local",
            "T to R": "group-by S.b",
        }

    def test_chi_counts_a_copy_per_partition_only_where_the_key_is_unknown(self) -> None:
        """Equation 6.2."""
        assert [copies("partitioned", known, 5) for known in (True, False)] == [1, 5]
        assert copies("scattered", True, 5) == 5
        assert copies("replicated", False, 5) == 1


class TestFormulas:
    """Equations by number."""

    def test_storage_is_inputs_plus_inner_nodes(self) -> None:
        """5.2: the root is not stored."""
        assert storage_cost([100, 200, 300, 50]) == 650

    def test_size_is_the_product_of_sizes_and_selectivities(self) -> None:
        """5.3, with windows of 10 s: 1000 · 2000 · 1/10000."""
        query = join("R.a = S.a", "S.b = T.b", window="[RANGE 10 SECONDS]")
        found = space(query, rates(R=100, S=200, T=10))
        assert found.size(found.estimator.mask(("R", "S"))) == pytest.approx(1000 * 2000 / 10_000)

    def test_the_example_of_71_halves_what_two_relations_send(self) -> None:
        """100 tuples each and 150 joined: 100 for the first step, 75 for the second (not 100/2 and 150/3)."""
        query = join("S.b = T.b", "S.a = R.a")
        selectivity = {"S.b = T.b": 150 / 100**2, "R.a = S.a": 100 / 100**2}
        statistics = Statistics(rates(R=100, S=100, T=100).streams, selectivity, horizon=timedelta(seconds=1))
        estimator = space(query, statistics).estimator
        s, st = estimator.mask(("S",)), estimator.mask(("S", "T"))
        start = query.aliases.index("S")
        assert estimator.tuples(start, s) == 100
        assert estimator.tuples(start, st) == pytest.approx(75)
        assert estimator.rate(st) == pytest.approx(150)

    def test_latency_counts_the_other_children_on_the_way_up(self) -> None:
        """5.6, for a tuple that climbs a binary and a ternary operator."""
        assert latency([2, 3]) == 3


class TestTreeStrategies:
    """5.3.3: what each strategy stores."""

    QUERY = join("R1.a = R2.a", "R2.b = R3.b", "R3.c = R4.c", "R4.d = R5.d", window="[RANGE 10 SECONDS]")
    RATES = rates(R1=100, R2=100, R3=100, R4=100, R5=100)

    def found(self, budget: float | None = None) -> Space:
        return space(self.QUERY, self.RATES, Options(budget=budget))

    def stored(self, tree: Tree) -> list[str]:
        return ["".join(self.found().names(sum(operator))) for operator in tree[:-1]]

    def test_flat_stores_only_the_inputs(self) -> None:
        """Figure 5.5b."""
        assert [self.stored(tree) for tree in flat(self.found())] == [[]]

    def test_left_deep_stores_n_minus_2_results(self) -> None:
        """Figure 5.5a."""
        assert {len(tree) for tree in left_deep(self.found())} == {4}

    def test_greedy_left_deep_stops_at_the_budget(self) -> None:
        """Figure 5.6: inputs take 5000; every pair takes 100."""
        for budget, results in ((5000, 0), (5100, 1), (5250, 3)):
            trees = list(greedy_left_deep(self.found(budget)))
            assert {len(tree) - 1 for tree in trees} == {results}, budget

    def test_chain_materialises_the_smallest_while_the_budget_lasts(self) -> None:
        """Algorithm 2, with line 5 read as its text says: stop at what does *not* fit."""
        assert [len(tree) - 1 for tree in chain(self.found(5000))] == [0]
        (one,) = chain(self.found(5150))
        assert len(one) > 1
        sizes = [self.found().size(sum(operator)) for operator in one[:-1]]
        assert sum(sizes) <= 150

    def test_merge_keeps_within_its_bounds(self) -> None:
        """Algorithm 3: a stored result is smaller than twice the largest input."""
        (tree,) = merge(self.found())
        assert len(tree) > 1
        assert all(self.found().size(sum(operator)) < 2 * 1000 for operator in tree[:-1])

    def test_merge_stores_nothing_large(self) -> None:
        """If every join explodes, nothing is worth storing."""
        many = Statistics(
            self.RATES.streams,
            {"R1.a = R2.a": 1.0, "R2.b = R3.b": 1.0, "R3.c = R4.c": 1.0, "R4.d = R5.d": 1.0},
        )
        (tree,) = merge(space(self.QUERY, many))
        assert len(tree) == 1

    def test_one_key_needs_one_hop(self) -> None:
        """Design D6: an n-way join on one key is one hop, whatever n."""
        query = join("R1.a = R2.a", "R2.a = R3.a", "R3.a = R4.a", "R4.a = R5.a", window="[RANGE 10 SECONDS]")
        plan = optimise(query, self.RATES, Options(strategy="flat"))
        assert plan.cost is not None
        assert plan.cost.hops == 1
        assert plan.cost.shipped == 0

    def test_price_is_what_was_settled(self) -> None:
        """The search and the report must not disagree."""
        found = self.found()
        for tree in all_trees(found):
            shape = settle(found, tree, next(schemes(found, tree)))
            assert price(found, shape).total == pytest.approx(shape.total)
