"""Whatever the optimiser does, the answer stays the same."""

from __future__ import annotations

import pytest

from tests.equivalence.options import random_options
from tests.equivalence.simulator import Simulator, random_batches, reference
from tests.random_cases import random_case
from tests.shares import quick, seeds
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.plan.physical.lower import lower

BLOCKS, SEEDS = 3, 10
EXHAUSTIVE_SEEDS = 20


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "exhaustive"])
@pytest.mark.parametrize("block", quick(range(BLOCKS)))
def test_every_strategy_answers_like_the_definition(strategy: str, block: int) -> None:
    """A wrong plan loses results, or gives them twice."""
    for seed in seeds(SEEDS, block):
        case = random_case(seed, least=2, most=4)
        options = random_options(seed, strategy)
        graph = lower(optimise(case.query, case.statistics, options))
        batches = random_batches(case.query, seed)
        simulator = Simulator(graph, options.partitions, seed)
        assert simulator.run(batches) == reference(case.query, batches), f"seed {seed}: {case.query}"


def test_exhaustive_answers_like_the_definition() -> None:
    """The yardstick would be worthless if its plans were wrong."""
    for seed in seeds(EXHAUSTIVE_SEEDS):
        case = random_case(seed, least=2, most=3)
        options = random_options(seed, "exhaustive")
        graph = lower(optimise(case.query, case.statistics, options))
        batches = random_batches(case.query, seed)
        assert Simulator(graph, options.partitions, seed).run(batches) == reference(case.query, batches)
