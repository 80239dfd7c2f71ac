"""Who merges ordered results: the driver, as it does with few of them, or tasks, as with many; drawn at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

TASKS = (1, 2, 3, 5)


@contextmanager
def random_merging(seed: int) -> Iterator[None]:
    """In three cases of four, tasks merge, a random number of them; ranges may have a single row."""
    rng = random.Random(f"merging {seed}")
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.75:
            patch.setattr("weft.runtime.output.ordered_results.FEW", 0)
            patch.setattr("weft.runtime.output.ordered_results.LEAST", rng.choice((1, 1, 1000)))
            patch.setattr("weft.runtime.local.TASKS", rng.choice(TASKS))
        yield
