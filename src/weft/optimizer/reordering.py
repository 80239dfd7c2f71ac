"""Better probe orders over the stores that a plan has: the changes of a plan that need no migration (design, D12).

Guarantees: the new plan answers the same queries from stores of the running one, and lays out nothing. A walk is the
cheapest way through the sets of inputs that can be joined by these stores; a step's cost depends on what is known and
on the store, not on the way there (CLASH 7.1). Steps count as shipped; whoever compares plans prices them in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from weft.optimizer.space import Options, Space
from weft.plan.schedule import ANYWHERE
from weft.plan.workload import SharedStore, Upkeep, Walk, WorkloadPlan
from weft.stats.statistics import Statistics

__all__ = ["reordered"]


def reordered(plan: WorkloadPlan, statistics: Statistics, options: Options) -> WorkloadPlan:
    """The plan with the best probe orders over its own stores; those that no walk visits any more are left out."""
    users = plan.answering
    spaces = {
        answer.name: Space(answer.query, statistics, options) for answer in plan.answers if answer.walks
    }
    answers = []
    for answer in plan.answers:
        mine = [store for store, names in users.items() if answer.name in names]
        answers.append(replace(answer, walks=_rerouted(answer.walks, spaces.get(answer.name), mine)))
    upkeep = [_kept_up(one, users, spaces) for one in plan.upkeep]
    return WorkloadPlan(()).with_answers(answers, upkeep)


def _kept_up(one: Upkeep, users: Mapping[SharedStore, frozenset[str]], spaces: Mapping[str, Space]) -> Upkeep:
    names, inside = users[one.store], set(one.store.aliases)
    smaller = [s for s, found in users.items() if set(s.aliases) < inside and names <= found]
    return Upkeep(one.store, _rerouted(one.walks, spaces.get(min(names)), smaller))


def _rerouted(walks: Iterable[Walk], space: Space | None, stores: list[SharedStore]) -> tuple[Walk, ...]:
    return tuple(walks) if space is None else tuple(_cheapest(walk, space, stores) for walk in walks)


def _cheapest(walk: Walk, space: Space, stores: list[SharedStore]) -> Walk:
    """The cheapest walk to what a walk reaches; the walk itself if there is none."""
    mask, start = space.estimator.mask, space.query.aliases.index(walk.start)
    goal = mask(walk.reached)
    masks = {store: mask(store.aliases) for store in stores if not mask(store.aliases) & ~goal}
    best: dict[int, tuple[float, tuple[SharedStore, ...]]] = {1 << start: (0.0, ())}
    waiting = [[1 << start], *([] for _ in range(goal.bit_count()))]  # sets of inputs by their size
    for known in (one for sets in waiting for one in sets):
        spent, visits = best[known]
        free = [store for store, inputs in masks.items() if not inputs & known]
        useful = space.next_steps(known, tuple(sorted({masks[store] for store in free})))
        for store in free:
            if masks[store] in useful:
                cost = spent + _step(space, start, known, masks[store], store)
                both = known | masks[store]
                if both not in best:
                    waiting[both.bit_count() - 1].append(both)
                if cost < best.get(both, (inf, ()))[0]:
                    best[both] = cost, (*visits, store)
    return Walk(walk.start, best[goal][1]) if goal in best else walk


def _step(space: Space, start: int, known: int, inputs: int, store: SharedStore) -> float:
    tuples, spread = space.tuples(start, known), space.spread(store.layout)
    work = space.work(start, known, inputs, spread, ANYWHERE, tuples, True)
    return work + space.call_cost(start, known, inputs)
