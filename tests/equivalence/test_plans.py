"""Whatever the optimiser does, the answer stays the same."""

from __future__ import annotations

import random

import pytest

from tests.equivalence.simulator import Simulator, random_batches, reference
from weft.optimizer.cost import Weights
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.lower import lower
from weft.testing import random_case

CASES = 60


def random_options(seed: int, strategy: str) -> Options:
    """Weights far from the usual ones, so that replicated, scattered and deep plans are all met."""
    rng = random.Random(seed)
    weights = Weights(
        ship=10 ** rng.uniform(-8, -4),
        probe=10 ** rng.uniform(-8, -5),
        store=10 ** rng.uniform(-9, -5),
        keep=10 ** rng.uniform(-12, -8),
        hop=rng.choice((0.0, 0.0, 1e-4, 0.1)),
    )
    orders = rng.choice(("greedy", "exhaustive", "auto"))
    return Options(strategy=strategy, partitions=rng.choice((1, 2, 3)), probe_orders=orders, weights=weights)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "exhaustive"])
@pytest.mark.parametrize("block", range(CASES // 10))
def test_every_strategy_answers_like_the_definition(strategy: str, block: int) -> None:
    """A wrong plan loses results, or gives them twice."""
    for seed in range(10 * block, 10 * block + 10):
        case = random_case(seed, least=2, most=4)
        options = random_options(seed, strategy)
        graph = lower(optimise(case.query, case.statistics, options))
        batches = random_batches(case.query, seed)
        simulator = Simulator(graph, options.partitions, seed)
        assert simulator.run(batches) == reference(case.query, batches), f"seed {seed}: {case.query}"


def test_exhaustive_answers_like_the_definition() -> None:
    """The yardstick would be worthless if its plans were wrong."""
    for seed in range(20):
        case = random_case(seed, least=2, most=3)
        options = random_options(seed, "exhaustive")
        graph = lower(optimise(case.query, case.statistics, options))
        batches = random_batches(case.query, seed)
        assert Simulator(graph, options.partitions, seed).run(batches) == reference(case.query, batches)
