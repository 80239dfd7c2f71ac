"""Whatever the plan, the driver order, the partitions and the batches: the answer is the definition's."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.equivalence.oracle import Oracle, rows_of, run
from tests.equivalence.streams import Join, random_join
from tests.equivalence.test_plans import random_options
from weft.optimizer.optimizer import STRATEGIES, optimise
from weft.plan.graph import PhysicalGraph
from weft.plan.lower import lower
from weft.runtime.driver import POLICIES
from weft.stats.statistics import Statistics, StreamStatistics

BLOCKS = 20
VARIANTS = 4


def variants(join: Join, seed: int) -> Iterator[tuple[PhysicalGraph, str, int]]:
    """Some of all strategies, driver policies and numbers of partitions; over seeds, all combinations."""
    rng = random.Random(seed)
    strategies = [name for name in STRATEGIES if name != "exhaustive" or len(join.query.inputs) < 4]
    rates = {s.name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for s in join.catalog.streams}
    for number in range(VARIANTS):
        strategy = strategies[(seed + number) % len(strategies)]
        policy = list(POLICIES)[(seed // 3 + number) % len(POLICIES)]
        options = random_options(seed * VARIANTS + number, strategy)
        graph = lower(optimise(join.query, Statistics(rates), options))
        yield graph, policy, options.partitions


def check(seed: int) -> None:
    """One random join in several variants."""
    join = random_join(seed)
    oracle = Oracle.of(join)
    for graph, policy, partitions in variants(join, seed):
        runner = run(join, graph, partitions=partitions, driver=policy)
        orders = [metrics.order for metrics in runner.metrics]
        assert rows_of(runner.results()) == oracle.rows(orders), (
            f"seed {seed}, {policy}, {partitions}: {join.query}"
        )


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_variant_answers_like_the_definition(block: int, equivalence_cases: int) -> None:
    """A wrong answer anywhere: a lost result, one given twice, or one that is none."""
    seeds = max(1, equivalence_cases // VARIANTS // BLOCKS)
    for seed in range(block * seeds, (block + 1) * seeds):
        check(seed)


@pytest.mark.parametrize("block", range(4))
def test_late_tuples_that_are_joined_find_what_is_still_there(block: int) -> None:
    """Joining late tuples must not cost a result of those on time, nor invent one."""
    for seed in range(block * 15, block * 15 + 15):
        join = random_join(seed)
        if any("ROWS" in str(input_.window) for input_ in join.query.inputs):
            continue  # which tuples are the last n depends on the late ones
        least, most = Oracle.of(join).rows, Oracle.of(join, drop_late=False).rows
        for graph, policy, partitions in variants(join, seed):
            runner = run(join, graph, partitions=partitions, driver=policy, late="join")
            orders = [metrics.order for metrics in runner.metrics]
            found = rows_of(runner.results())
            assert least(orders) <= found <= most(orders), f"seed {seed}: {join.query}"
