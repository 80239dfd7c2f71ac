"""Runs whose tasks and partitions change all the time: there are others of them with every few batches."""

from __future__ import annotations

import random

from weft.runtime.loop.scaling import FixedScale, Scaler, Scaling, TaskLoad

__all__ = ["MOST", "RestlessScale", "random_scale"]

MOST = 7  # tasks; there may be more of them than partitions


class RestlessScale:
    """Has any number of tasks with any of any number of partitions; ``made`` says how often it has changed them."""

    def __init__(self, rng: random.Random, often: float = 0.6, most: int = MOST) -> None:
        self.rng, self.often, self.most = rng, often, most
        self.made, self.may_grow = 0, False

    def next_scaling(self, seen: TaskLoad) -> Scaling | None:
        """Another draw, by the chance of ``often``; now and then without saying who has which partitions."""
        if self.rng.random() >= self.often:
            return None
        self.made += 1
        tasks = self.rng.randint(1, min(self.most, seen.room))
        owners = tuple(self.rng.randrange(tasks) for _ in range(seen.partitions))
        partitions = self.rng.choice((0, 0, 1, 2, 3, 4, 7))
        owners = owners if self.rng.random() < 0.8 else ()
        return Scaling("scaled", tasks, "a test", "a draw", owners, partitions)


def random_scale(seed: int) -> Scaler:
    """In two of three runs, tasks that change all the time."""
    rng = random.Random(f"tasks {seed}")
    return RestlessScale(rng) if rng.random() < 2 / 3 else FixedScale()
