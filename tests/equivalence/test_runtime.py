"""Whatever the plan, the driver order, the partitions and the batches: the answer is the definition's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.streams import Join, random_join
from tests.equivalence.variants import variants
from tests.shares import quick, seeds
from weft.logical.catalog import Catalog

BLOCKS, SEEDS = 8, 6


def check(seed: int) -> None:
    """One random join in several variants."""
    join = random_join(seed)
    oracle = Oracle.of(join)
    for graph, policy, partitions in variants(join, seed):
        runner = run(join, graph, partitions=partitions, driver=policy)
        wrong = differs(oracle, runner.results(), runner.metrics)
        assert not wrong, f"seed {seed}, {policy}, {partitions}: {wrong}: {join.query}"


@pytest.mark.parametrize("block", quick(range(BLOCKS), 2))
def test_every_variant_answers_like_the_definition(block: int) -> None:
    """A wrong answer anywhere: a lost result, one given twice, or one that is none."""
    for seed in seeds(SEEDS, block):
        check(seed)


def test_the_random_joins_have_late_tuples_and_idle_sources() -> None:
    """A campaign that never meets them says nothing about them."""
    joins = [random_join(seed) for seed in range(100)]
    oracles = [Oracle.of(join) for join in joins]
    dropped = [_lost(oracle) > 0 for oracle in oracles]
    joined = [not all(map(np.all, oracle.on_time.values())) for oracle in oracles]
    patient = [Oracle.of(_patient(join)) for join in joins]
    idle = [_lost(one) != _lost(other) for one, other in zip(oracles, patient, strict=True)]
    assert min(sum(dropped), sum(joined)) >= 10
    assert sum(idle) >= 2


def _patient(join: Join) -> Join:
    streams = tuple(replace(stream, idle_after=None) for stream in join.catalog.streams)
    return replace(join, catalog=Catalog(streams))


def _lost(oracle: Oracle) -> int:
    rows = sum(table.num_rows for table in oracle.join.tables.values())
    return int(rows - sum(kept.size for kept in oracle.kept.values()))
