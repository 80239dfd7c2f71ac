"""Whichever values are scattered, and in whichever stores: the answer is the definition's."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.equivalence import ordered_check
from tests.equivalence.drive import Setting, random_setting, rates_only
from tests.equivalence.heavy import NUMBERS, TEXTS, scatter
from tests.equivalence.options import random_options
from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.simulator import Simulator, random_batches, reference
from tests.equivalence.streams import random_join
from tests.equivalence.workload_check import check_workload
from tests.equivalence.workloads import Workload, random_workload
from tests.random_cases import random_case
from tests.shares import quick, seeds
from weft.logical.query.query import Query
from weft.optimizer.cost import Weights
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.join_plan import JoinPlan
from weft.plan.physical.lower import lower
from weft.runtime.loop.driver_order import POLICIES
from weft.stats.skew import Heavy
from weft.stats.statistics import Statistics, StreamStatistics

NAMES = [name for name in STRATEGIES if name != "exhaustive"]


@pytest.mark.parametrize("block", quick(range(2)))
def test_scattered_values_are_found_once_by_the_simulator(block: int) -> None:
    """A wrong edge loses pairs of heavy values, or finds them in more than one partition."""
    scattered = 0
    taken = seeds(20, block)
    for seed in taken:
        case = random_case(seed, least=2, most=4)
        options = random_options(seed, NAMES[seed % len(NAMES)])
        graph = lower(scatter(optimise(case.query, case.statistics, options), seed))
        scattered += any(store.layout.heavy for store in graph.stores)
        batches = random_batches(case.query, seed)
        simulator = Simulator(graph, options.partitions, seed)
        assert simulator.run(batches) == reference(case.query, batches), f"seed {seed}: {case.query}"
    assert scattered > 0.4 * len(taken)


@pytest.mark.parametrize("block", quick(range(2)))
def test_scattered_values_are_found_once_by_the_runtime(block: int) -> None:
    """Numbers and texts, NULL among them, values that never come, windows of every kind, any batches and orders."""
    scattered = 0
    taken = seeds(20, block)
    for seed in taken:
        join, rng = random_join(seed), random.Random(seed)
        rates = {s.name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for s in join.catalog.streams}
        options = random_options(seed, NAMES[seed % len(NAMES)])
        plan = scatter(optimise(join.query, Statistics(rates), options), seed)
        scattered += any(store.layout.heavy for store in plan.stores)
        runner = run(join, lower(plan), partitions=options.partitions, driver=rng.choice(list(POLICIES)))
        wrong = differs(Oracle.of(join), runner.results(), runner.metrics)
        assert not wrong, f"seed {seed}: {wrong}: {join.query}"
    assert scattered > 0.25 * len(taken)


@pytest.mark.ci
def test_results_stay_in_order_when_partners_are_scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partners of one tuple are found in many partitions, and its results leave as if they were in one."""

    def scattered(query: Query, statistics: Statistics, options: Options) -> JoinPlan:
        return scatter(optimise(query, statistics, options), options.partitions)

    monkeypatch.setattr(ordered_check, "optimise", scattered)
    for seed in seeds(8):
        ordered_check.check(seed)


def heavy_setting(workload: Workload, method: str, seed: int) -> Setting:
    """Heavy values that change all the time, tasks that wait for nothing but them, and new plans in between.

    Replicating would be another remedy; here it is too dear.
    """
    setting, rng = random_setting(workload, method, seed, rates_only), random.Random(seed)
    options = replace(setting.options, partitions=rng.choice((2, 3)))
    options = replace(
        options, weights=Weights(ship=1e-9, probe=1e-9, store=1.0, keep=1.0, hop=0.0, match=10.0)
    )

    def draw() -> Statistics:
        known = setting.statistics()
        shares = (0.5, 0.3, 0.1)
        drawn: dict[str, Heavy] = {
            name: {
                "k": dict(zip(rng.sample(NUMBERS[1:], 3), shares, strict=True)),
                "n": dict(zip(rng.sample(NUMBERS[1:], 2), shares, strict=False)),
                "s": dict(zip(rng.sample(TEXTS, 3), shares, strict=True)),
            }
            for name in known.streams
        }
        return known.with_heavy(drawn)

    return replace(setting, options=options, statistics=draw, afresh=0.4)


# Workloads of which many plans scatter something, while queries come and go.
SEEDS = (6, 9, 12, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (13, 18, 20, 23, 38)))


@pytest.mark.parametrize("seed", seeds(1))
def test_outer_joins_are_closed_beside_stores_that_scatter(seed: int) -> None:
    """Rows are closed where all tuples of a key are; what else is stored of them may be scattered."""
    workload = random_workload(seed, outer=0.6, batches=(4, 6))
    check_workload(workload, seed, Counter(), heavy_setting)


@pytest.mark.parametrize("seed", SEEDS)
def test_queries_share_stores_that_scatter_and_are_laid_out_anew(seed: int) -> None:
    """However often other values become heavy, and whoever comes and goes meanwhile: nothing is lost, nothing twice."""
    met: Counter[str] = Counter()
    check_workload(random_workload(seed), seed, met, heavy_setting)
    assert met["a store that scatters"] + met["a store that scatters for several"] > 0
    assert met["stores that are filled"] > 0
