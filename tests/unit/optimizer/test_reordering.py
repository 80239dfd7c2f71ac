"""Probe orders over the stores that a plan has: the best ones, and no other stores."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.equivalence.drive import any_statistics, random_setting
from tests.equivalence.workloads import random_workload
from tests.shares import seeds
from weft.adapting.planner import Planner
from weft.optimizer.reordering import _step, reordered
from weft.optimizer.space import Space
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import SharedStore
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts


def ways(space: Space, start: int, known: int, goal: int, stores: list[SharedStore]) -> Iterator[float]:
    """The cost of every walk over some stores that makes no cross product where it need not."""
    if known == goal:
        yield 0.0
        return
    masks = {store: space.estimator.mask(store.aliases) for store in stores}
    free = [store for store in stores if not masks[store] & known and not masks[store] & ~goal]
    useful = space.next_steps(known, tuple(sorted({masks[store] for store in free})))
    for store in free:
        if masks[store] in useful:
            cost = _step(space, start, known, masks[store], store)
            for rest in ways(space, start, known | masks[store], goal, stores):
                yield cost + rest


@pytest.mark.parametrize("seed", seeds(25))
def test_walks_are_the_cheapest_over_the_same_stores(seed: int) -> None:
    """Against all walks there are; the plan is valid, and answers the same queries."""
    workload = random_workload(seed, ternary=0.3, outer=0.2)
    setting = random_setting(workload, "auto", seed)
    begin = workload.changes[0].begin
    requests = {name: QueryRequest(wish.query, strategy=wish.strategy) for name, wish in begin.items()}
    if not requests:
        return
    planner, rates = Planner(setting.options), setting.statistics()
    plan = planner(ActiveQueries(), requests, rates, StateFacts()).plan
    names = [stream.name for stream in workload.streams.catalog.streams]
    statistics = any_statistics(random.Random(seed), names)
    found = reordered(plan, statistics, setting.options)
    lower_workload(found)
    assert [(a.name, a.query, a.homes) for a in found.answers] == [
        (a.name, a.query, a.homes) for a in plan.answers
    ]
    assert set(found.stores) <= set(plan.stores)
    for answer in found.answers:
        space = Space(answer.query, statistics, setting.options)
        mine = [store for store, users in plan.answering.items() if answer.name in users]
        for walk in answer.walks:
            start = space.query.aliases.index(walk.start)
            known, cost = 1 << start, 0.0
            for store in walk.visits:
                inputs = space.estimator.mask(store.aliases)
                cost += _step(space, start, known, inputs, store)
                known |= inputs
            assert cost == pytest.approx(min(ways(space, start, 1 << start, known, mine)))
