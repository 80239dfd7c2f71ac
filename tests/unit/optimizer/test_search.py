"""The search: what it promises of its bounds, its optimum and its choices."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import shares
from tests.equivalence.options import random_options
from tests.random_cases import random_case
from tests.shares import examples
from tests.unit.optimizer.enumerate import schemes, settle
from tests.unit.optimizer.formulas import plan_cost
from tests.unit.optimizer.queries import join, rates
from weft.errors import ConfigError, PlanError
from weft.optimizer.cost import Weights
from weft.optimizer.single.evaluate import lower_bound, price, settle_exactly
from weft.optimizer.single.partitioning import stores
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.single.tree import all_trees
from weft.optimizer.space import Options, Space
from weft.plan.physical.graph import CODEC, PhysicalGraph
from weft.plan.physical.lower import lower

SLACK = 1 + 1e-9

seeds = st.integers(0, 10_000)
names = st.sampled_from([name for name in STRATEGIES if name != "exhaustive"])


@given(seeds, names)
@examples(50)
def test_every_plan_lowers_to_a_valid_graph(seed: int, strategy: str) -> None:
    """Graphs check themselves; what the cost says of hops and steps must be what the graph does."""
    case = random_case(seed, least=1, most=6)
    options = random_options(seed, strategy)
    plan = optimise(case.query, case.statistics, options)
    graph = lower(plan)
    assert plan.cost is not None
    assert graph.hops == plan.cost.hops
    assert PhysicalGraph.from_json(graph.to_json()) == graph
    assert CODEC.loads(CODEC.dumps(plan)) == plan
    if plan.operators:
        assert plan_cost(plan, case.statistics, options).total == pytest.approx(plan.cost.total)
    for rule in graph.rules:
        estimate = getattr(rule, "estimate", None)
        if estimate is not None:
            assert graph.edge(rule.edge).hop == estimate.hop
            assert (graph.edge(rule.edge).kind != "local") == estimate.shipped


@given(seeds, st.randoms(use_true_random=False))
@examples(25)
def test_bounds_are_bounds(seed: int, rng: random.Random) -> None:
    """A bound that is too high would make `exhaustive` miss the best plan, and `auto` look better than it is."""
    case = random_case(seed, least=3, most=4)
    space = Space(case.query, case.statistics, random_options(seed, "auto"))
    tree = rng.choice(list(all_trees(space)))
    every = {mask: space.spreads(mask) for mask in stores(tree)}
    layouts = {mask: rng.choice(spreads) for mask, spreads in every.items()}
    some = {mask: (layouts[mask],) if rng.random() < 0.5 else every[mask] for mask in every}
    settled = settle(space, tree, layouts)
    exact = settle_exactly(space, tree, layouts, float("inf"))
    assert exact is not None
    assert price(space, exact).total == pytest.approx(exact.total)
    assert price(space, settled).total == pytest.approx(settled.total)
    assert exact.total <= settled.total * SLACK
    assert lower_bound(space, tree, every) <= lower_bound(space, tree, some) * SLACK
    assert lower_bound(space, tree, some) <= exact.total * SLACK


@pytest.mark.parametrize("seed", shares.seeds(4))
def test_exhaustive_is_the_minimum(seed: int) -> None:
    """Checked by trying everything: all trees, all layouts, without any pruning."""
    case = random_case(seed, least=3, most=3)
    space = Space(case.query, case.statistics, Options(strategy="exhaustive"))
    shapes = (
        settle_exactly(space, tree, layouts, float("inf"))
        for tree in all_trees(space)
        for layouts in schemes(space, tree)
    )
    least = min(shape.total for shape in shapes if shape)
    plan = optimise(case.query, case.statistics, space.options)
    assert plan.cost is not None
    assert plan.cost.total == pytest.approx(least)


def test_auto_is_near_the_best_and_never_behind_the_simple_ones() -> None:
    """Within 5 % of `exhaustive` on average, never behind flat or left-deep; `weft bench strategies` tries 1,000."""
    ratios = []
    for seed in shares.seeds(12):
        case = random_case(seed, least=3, most=4)
        costs = {}
        for strategy in ("auto", "exhaustive", "flat", "left_deep"):
            plan = optimise(case.query, case.statistics, Options(strategy=strategy))
            costs[strategy] = plan.cost.total if plan.cost else 0.0
        assert costs["auto"] <= min(costs["flat"], costs["left_deep"]) * SLACK, f"seed {seed}"
        assert costs["exhaustive"] <= costs["auto"] * SLACK, f"seed {seed}"
        ratios.append(costs["auto"] / costs["exhaustive"])
    assert sum(ratios) / len(ratios) <= 1.05


def test_planning_is_deterministic() -> None:
    """The same query must not get another plan because it was planned again."""
    case = random_case(7)
    assert optimise(case.query, case.statistics) == optimise(case.query, case.statistics)


def test_dear_hops_make_plans_with_fewer_hops() -> None:
    """The cost model knows hops: if they were free, plans would use at least as many."""
    for seed in shares.seeds(10):
        case = random_case(seed)
        hops = [
            optimise(case.query, case.statistics, Options(weights=Weights(hop=weight))).cost
            for weight in (0.0, 1e6)
        ]
        assert hops[0] is not None
        assert hops[1] is not None
        assert hops[1].hops <= hops[0].hops


def test_a_slow_small_stream_is_replicated() -> None:
    """Probes of a replicated store stay where they are, which is worth a few copies."""
    query = join("R.a = S.a", "S.b = T.b", window="[RANGE 10 SECONDS]")
    plan = optimise(query, rates(R=50_000, S=50_000, T=0.01))
    kinds = {store.name: store.layout.kind for store in plan.stores}
    assert kinds["T"] == "replicated"
    assert kinds["R"] == kinds["S"] == "partitioned"


def test_unknown_strategies_are_refused_with_the_known_ones() -> None:
    """A typo must not silently fall back to another strategy."""
    case = random_case(0)
    with pytest.raises(ConfigError, match="no strategy 'fat'") as caught:
        optimise(case.query, case.statistics, Options(strategy="fat"))
    assert "did you mean flat?" in str(caught.value)


def test_exhaustive_refuses_what_it_cannot_finish() -> None:
    """Six relations have thousands of trees; better a clear no than an hour of silence."""
    case = random_case(0, least=6, most=6)
    with pytest.raises(PlanError, match="takes up to 5 inputs"):
        optimise(case.query, case.statistics, Options(strategy="exhaustive"))


@pytest.mark.parametrize(
    "wrong", [{"partitions": 0}, {"probe_orders": "lazy"}, {"budget": -1.0}, {"weights": {"ship": -1.0}}]
)
def test_impossible_options_are_refused(wrong: dict[str, object]) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError):
        Weights(**wrong["weights"]) if "weights" in wrong else Options(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", shares.seeds(2))
def test_auto_keeps_its_promise_for_many_inputs(seed: int) -> None:
    """With seven and eight inputs the search is shorter, but never behind flat or left-deep."""
    case = random_case(seed, least=7, most=8)
    costs = {}
    for strategy in ("auto", "flat", "left_deep"):
        plan = optimise(case.query, case.statistics, Options(strategy=strategy))
        costs[strategy] = plan.cost.total if plan.cost else 0.0
    assert costs["auto"] <= min(costs.values()) * SLACK


class TestBudget:
    """What a user allows to be stored is a limit, for every strategy, copies included."""

    QUERY = join("R.a = S.a", "S.b = T.b", "T.c = U.c", window="[RANGE 10 SECONDS]")
    RATES = rates(R=1, S=100, T=100, U=100)
    INPUTS = 3010.0

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("extra", [0, 20, 500])
    def test_no_plan_stores_more(self, strategy: str, extra: float) -> None:
        """Else the budget would be a wish; a strategy whose trees all store more says so."""
        budget = self.INPUTS + extra
        options = Options(strategy=strategy, budget=budget)
        if extra == 0 and strategy in ("left_deep", "merge"):
            with pytest.raises(PlanError, match=f"no plan by {strategy}"):
                optimise(self.QUERY, self.RATES, options)
            return
        plan = optimise(self.QUERY, self.RATES, options)
        assert plan.cost is not None
        assert plan.cost.storage <= budget * SLACK

    def test_what_cannot_be_is_said(self) -> None:
        """The inputs alone need more; no plan can change that."""
        with pytest.raises(PlanError, match="stores at most 100 tuples") as caught:
            optimise(self.QUERY, self.RATES, Options(budget=100))
        assert "the inputs alone are about 3010" in str(caught.value)
