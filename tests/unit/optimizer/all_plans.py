"""All plans of small workloads, one by one: what searches are compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations, product
from random import Random

from tests.unit.optimizer.queries import join
from weft.optimizer.joint.space.workspace import WalkStep, Workspace
from weft.stats.statistics import Statistics, StreamStatistics

SECOND = timedelta(seconds=1)


def paths(steps: list[WalkStep], known: int, goal: int) -> Iterator[tuple[WalkStep, ...]]:
    """All ways from one sub-join to another."""
    if known == goal:
        yield ()
    for step in steps:
        if step.known == known:
            for rest in paths(steps, step.target, goal):
                yield (step, *rest)


def cheapest(space: Workspace, budget: float = math.inf) -> float:
    """The cost of the best plan within a budget, by trying all sets of stores, and for each all ways."""
    steps: dict[str, dict[WalkStep, None]] = {}
    goals: dict[str, set[int]] = {}
    for name, query in space.queries.items():
        for start in query.aliases:
            steps.setdefault(start, {}).update(dict.fromkeys(space.steps(name, start)))
            goals.setdefault(start, set()).add(space.whole(name))
    stores = {step.store for every in steps.values() for step in every}
    unlimited = budget == math.inf
    free = {s for s in stores if unlimited and space.keeping(s) == 0 and space.stores[s].is_input}
    tried = sorted(stores - free)
    return min(
        math.fsum(map(space.keeping, kept))
        + math.fsum(
            _tree(space, start, list(steps[start]), goals[start], free.union(kept)) for start in steps
        )
        for count in range(len(tried) + 1)
        for kept in combinations(tried, count)
        if math.fsum(map(space.stored, kept)) <= budget
    )


def _tree(space: Workspace, start: str, steps: list[WalkStep], goals: set[int], kept: set[int]) -> float:
    """The cheapest set of steps by which an input reaches its queries, and what is stored of it."""
    usable = [step for step in steps if step.store in kept]
    stored = {
        join
        for join in map(space.join_of, kept)
        if start in space.joins[join].aliases and len(space.joins[join].aliases) > 1
    }
    root = space.within(next(iter(goals)), (start,))
    ways = [list(paths(usable, root, goal)) for goal in sorted(goals | stored)]
    if not all(ways):
        return math.inf
    return min(math.fsum(step.cost for step in set().union(*choice)) for choice in product(*ways))


def random_statistics(seed: int) -> Statistics:
    """Rates and selectivities that make some joins grow and others shrink."""
    rng = Random(seed)
    streams = {
        name: StreamStatistics(rng.uniform(20, 200), {column: rng.uniform(20, 200) for column in "abcdefgh"})
        for name in "RSTUV"
    }
    return Statistics(streams, horizon=SECOND)


WORKLOADS = {
    "chains": (join("R.b = S.b", "S.c = T.c"), join("S.c = T.c", "T.d = U.d")),
    "one of four": (join("R.a = S.a", "S.b = T.b", "T.c = U.c"),),
    "a query in another": (join("R.b = S.b", "S.c = T.c"), join("S.c = T.c")),
    "a cycle": (join("R.a = S.a", "S.b = T.b", "T.c = R.c"), join("S.b = T.b", "T.d = U.d")),
    "a comparison": (join("R.a = S.a", "S.b < T.b"), join("R.a = S.a", "S.d = U.d")),
}
