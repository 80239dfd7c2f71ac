"""Which task has which partitions in a batch.

Guarantees: every partition has one task, and a task has its partitions in their order. What a batch gives does not
depend on the assignment, so that another attempt at it, or the next batch, may have another: tasks and partitions are
not one to one. Where the load of partitions is known, it is balanced: a partition that has more to do than an equal
share of all work gets a task of its own, and the others share the rest (AJoin, section 4: overloaded partitions first).
A partition that moves has to be opened by another process, so partitions move only where that makes the busiest task
clearly less busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from weft.bucket.compiled import Ints

__all__ = ["Assignment", "balanced_owners", "busiest_share", "even_owners"]

WORTH = 0.15  # partitions move if the busiest task then has less to do by at least this part


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of every task: ``owners`` is the task of each partition; a task may have none."""

    tasks: int
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.tasks < 1 or any(not 0 <= owner < self.tasks for owner in self.owners):
            raise ValueError(
                f"partitions belong to tasks {set(self.owners)}, of which there are {self.tasks}"
            )

    def partitions_of(self, task: int) -> tuple[int, ...]:
        """The partitions of a task, in their order."""
        return _by_task(self)[task]

    @property
    def width(self) -> int:
        """How many partitions a task has at most."""
        return max(1, *map(len, _by_task(self)))

    def places(self) -> Ints:
        """By partition, its place where tasks stand one after the other, each with room for `width` partitions."""
        return _places(self)


@lru_cache(maxsize=64)
def _by_task(assignment: Assignment) -> tuple[tuple[int, ...], ...]:
    partitions: list[list[int]] = [[] for _ in range(assignment.tasks)]
    for partition, owner in enumerate(assignment.owners):
        partitions[owner].append(partition)
    return tuple(map(tuple, partitions))


@lru_cache(maxsize=64)
def _places(assignment: Assignment) -> Ints:
    width, places = assignment.width, np.zeros(len(assignment.owners), np.int32)
    for task, partitions in enumerate(_by_task(assignment)):
        for place, partition in enumerate(partitions):
            places[partition] = task * width + place
    places.flags.writeable = False
    return places


def even_owners(partitions: int, tasks: int) -> tuple[int, ...]:
    """Tasks that take turns: task n has partitions n, n + tasks, ….

    >>> even_owners(5, 2)
    (0, 1, 0, 1, 0)
    """
    return tuple(partition % tasks for partition in range(partitions))


def balanced_owners(
    partitions: int, tasks: int, load: Mapping[int, float], before: Sequence[int] = ()
) -> tuple[int, ...]:
    """The task of each partition so that tasks have about the same to do, and few partitions move.

    ``load`` is what partitions have to do, in any unit; ``before`` are the owners so far, which stay unless others are
    clearly better. The partitions with most to do are assigned first, each to the task that has least so far, which is
    at most a third worse than the best assignment there is.

    >>> balanced_owners(4, 2, {0: 9.0, 1: 1.0, 2: 1.0, 3: 1.0})
    (0, 1, 1, 1)
    >>> balanced_owners(4, 2, {0: 1.0, 1: 1.1, 2: 1.0, 3: 1.0}, before=(0, 0, 1, 1))
    (0, 0, 1, 1)
    """
    stays = len(before) == partitions and max(before, default=0) < tasks
    if tasks == 1 or not any(load.values()):
        return tuple(before) if stays and tasks > 1 else even_owners(partitions, tasks)
    amounts, owners = [0.0] * tasks, [0] * partitions
    for partition in sorted(range(partitions), key=lambda one: (-load.get(one, 0.0), one)):
        usual = partition % tasks
        owner = min(range(tasks), key=lambda task: (amounts[task], task != usual, task))
        owners[partition] = owner
        amounts[owner] += load.get(partition, 0.0)
    if stays and len(set(before)) == min(partitions, tasks):
        kept = _busiest(before, tasks, load)
        if max(amounts) > (1 - WORTH) * kept:
            return tuple(before)
    return tuple(owners)


def busiest_share(owners: Sequence[int], tasks: int, load: Mapping[int, float]) -> float:
    """The part of all work that the busiest task has; an equal share if there is no work.

    >>> busiest_share((0, 1, 1), 2, {0: 3.0, 1: 0.5, 2: 0.5})
    0.75
    """
    total = sum(load.values())
    return _busiest(owners, tasks, load) / total if total else 1 / tasks


def _busiest(owners: Sequence[int], tasks: int, load: Mapping[int, float]) -> float:
    amounts = [0.0] * tasks
    for partition, owner in enumerate(owners):
        amounts[owner] += load.get(partition, 0.0)
    return max(amounts)
