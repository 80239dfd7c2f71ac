"""Whichever values are scattered, and in whichever stores: the answer is the definition's."""

from __future__ import annotations

import random

import pytest

from tests.equivalence.heavy import scatter
from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.simulator import Simulator, random_batches, reference
from tests.equivalence.streams import random_join
from tests.equivalence.test_plans import random_options
from weft.optimizer.optimizer import STRATEGIES, optimise
from weft.plan.lower import lower
from weft.runtime.driver import POLICIES
from weft.stats.statistics import Statistics, StreamStatistics
from weft.testing import random_case

NAMES = [name for name in STRATEGIES if name != "exhaustive"]


@pytest.mark.parametrize("block", range(4))
def test_scattered_values_are_found_once_by_the_simulator(block: int) -> None:
    """A wrong edge loses pairs of heavy values, or finds them in more than one partition."""
    scattered = 0
    for seed in range(25 * block, 25 * block + 25):
        case = random_case(seed, least=2, most=4)
        options = random_options(seed, NAMES[seed % len(NAMES)])
        graph = lower(scatter(optimise(case.query, case.statistics, options), seed))
        scattered += any(store.layout.heavy for store in graph.stores)
        batches = random_batches(case.query, seed)
        simulator = Simulator(graph, options.partitions, seed)
        assert simulator.run(batches) == reference(case.query, batches), f"seed {seed}: {case.query}"
    assert scattered > 10


@pytest.mark.parametrize("block", range(8))
def test_scattered_values_are_found_once_by_the_runtime(block: int) -> None:
    """Numbers and texts, NULL among them, values that never come, windows of every kind, any batches and orders."""
    scattered = 0
    for seed in range(20 * block, 20 * block + 20):
        join, rng = random_join(seed), random.Random(seed)
        rates = {s.name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for s in join.catalog.streams}
        options = random_options(seed, NAMES[seed % len(NAMES)])
        plan = scatter(optimise(join.query, Statistics(rates), options), seed)
        scattered += any(store.layout.heavy for store in plan.stores)
        runner = run(join, lower(plan), partitions=options.partitions, driver=rng.choice(list(POLICIES)))
        wrong = differs(Oracle.of(join), runner.results(), runner.metrics)
        assert not wrong, f"seed {seed}: {wrong}: {join.query}"
    assert scattered > 6
