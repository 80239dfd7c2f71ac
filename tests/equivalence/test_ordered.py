"""Whatever the plan, the partitions and the batches: ordered results are the definition's, and in order."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.equivalence.merging import random_merging
from tests.equivalence.oracle import Oracle
from tests.equivalence.ordered import Truth, shown_join
from tests.equivalence.ordered_check import (
    ORDERS,
    check,
    holds,
    ordered_run,
)
from tests.shares import quick, seeds
from weft.logical.query.ordering import Ordering

BLOCKS, SEEDS = 4, 9


@pytest.mark.parametrize("block", quick(range(BLOCKS), 1))
def test_ordered_results_are_the_definitions_in_order(block: int) -> None:
    """A downstream system that relies on the order would go wrong without a word."""
    for seed in seeds(SEEDS, block):
        with random_merging(seed):
            check(seed)


def test_the_checker_says_no_to_shuffled_results() -> None:
    """A checker that never says no would let everything pass."""
    refused = tried = 0
    for seed in range(24):
        rng, kind = random.Random(seed), ORDERS[seed % 2]
        join = shown_join(seed)
        names = join.query.aliases if kind == "inner" else ()
        ordering = Ordering(kind, 1, names)
        runner = ordered_run(join, ordering, seed)
        results = runner.results()
        if results.num_rows < 8:
            continue
        order = rng.sample(range(results.num_rows), results.num_rows)
        shuffled = results.take(pa.array(order))
        truth = Truth.of(Oracle.of(join), runner.metrics).of_results(shuffled)
        tried += 1
        refused += not holds(truth, ordering)
    assert tried >= 5
    assert refused == tried
