"""Whatever the plan, the driver order, the partitions and the batches: joins by order answer like the definition."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.equivalence.campaign import campaign
from tests.equivalence.options import random_options
from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.streams import Join
from tests.equivalence.theta import random_theta
from tests.local_runner import LocalRunner
from tests.shares import quick
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.plan.physical.derive import counts_unwanted
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.lower import lower
from weft.runtime.loop.driver_order import POLICIES
from weft.stats.statistics import Statistics, StreamStatistics

BLOCKS, SEEDS = 3, 12
VARIANTS = 4
PARTITIONS = 5

# What part of all cases, at least, must have met each of these.
WANTED = {
    "results": 0.4,
    "a probe by equality": 0.2,
    "a probe by band": 0.4,
    "a probe by grid": 0.04,
    "probes sent by span": 0.1,
    "a probe by theta": 0.2,
    "a store that is scattered": 0.1,
    "a store that is partitioned": 0.1,
    "a store that is replicated": 0.1,
    "tuples counted per key": 0.15,
    "tuples counted that are not wanted": 0.02,
}


def check(seed: int, met: Counter[str]) -> None:
    """One random join in several variants."""
    join = random_theta(seed)
    oracle = Oracle.of(join)
    for graph, policy, partitions in variants(join, seed):
        runner = run(join, graph, partitions=partitions, driver=policy)
        wrong = differs(oracle, runner.results(), runner.metrics)
        assert not wrong, f"seed {seed}, {policy}, {partitions}: {wrong}: {join.query}"
        met.update(set(_met(runner)))


def variants(join: Join, seed: int) -> Iterator[tuple[PhysicalGraph, str, int]]:
    """Some of all strategies, driver policies and numbers of partitions; over seeds, all combinations."""
    rng = random.Random(seed)
    strategies = [name for name in STRATEGIES if name != "exhaustive" or len(join.query.inputs) < 4]
    rates = {s.name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for s in join.catalog.streams}
    for number in range(VARIANTS):
        strategy = strategies[(seed + number) % len(strategies)]
        policy = list(POLICIES)[(seed // 3 + number) % len(POLICIES)]
        options = replace(
            random_options(seed * VARIANTS + number, strategy), partitions=rng.randint(1, PARTITIONS)
        )
        yield lower(optimise(join.query, Statistics(rates), options)), policy, options.partitions


def _met(runner: LocalRunner) -> Iterator[str]:
    """What happened in a run."""
    if runner.results().num_rows:
        yield "results"
    for step in runner.program.steps.values():
        yield f"a probe by {step.access.kind}"
        if runner.partitions > 1:
            yield f"a store that is {step.store.node.layout.kind}"
            yield f"probes sent by {runner.program.edges[step.rule.edge].kind}"
        if step.store.per_key is not None:
            yield "tuples counted per key"
    if counts_unwanted(runner.graph.query):
        yield "tuples counted that are not wanted"


@pytest.mark.parametrize("block", quick(range(BLOCKS)))
def test_every_variant_answers_like_the_definition(block: int) -> None:
    """A pair that lies just inside its bounds is lost, or one just outside is found; or one is found twice."""
    campaign(check, block, SEEDS, VARIANTS, WANTED)
