"""Some of the many ways to plan and run a random join."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.equivalence.options import random_options
from tests.equivalence.streams import Join
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower
from weft.runtime.loop.driver_order import POLICIES
from weft.stats.statistics import Statistics, StreamStatistics

VARIANTS = 4


def variants(join: Join, seed: int, count: int = VARIANTS) -> Iterator[tuple[PhysicalGraph, str, int]]:
    """Some of all strategies, driver policies and numbers of partitions; over seeds, all combinations."""
    rng = random.Random(seed)
    strategies = [name for name in STRATEGIES if name != "exhaustive" or len(join.query.inputs) < 4]
    rates = {s.name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for s in join.catalog.streams}
    for number in range(count):
        strategy = strategies[(seed + number) % len(strategies)]
        policy = list(POLICIES)[(seed // 3 + number) % len(POLICIES)]
        options = random_options(seed * count + number, strategy)
        graph = lower(optimise(join.query, Statistics(rates), options))
        yield graph, policy, options.partitions
