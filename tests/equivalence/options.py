"""Random options of the optimiser."""

from __future__ import annotations

import random

from weft.optimizer.cost import Weights
from weft.optimizer.space import Options


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
    return Options(
        strategy=strategy,
        partitions=rng.choice((1, 2, 3)),
        probe_orders=orders,
        weights=weights,
        reorder=rng.random() < 0.8,
        replicate=rng.random() < 0.8,
    )
