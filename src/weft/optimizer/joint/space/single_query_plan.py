"""A good plan of one query by itself, in the costs of a `Workspace`, from which joint optimisers begin.

Guarantees: the plan is never dearer than the best binary tree of stored results, nor than storing only the inputs, with
layouts that are improved input by input. Both are found by dynamic programming over sub-joins.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from weft.optimizer.joint.space.workspace import WalkStep, Ways, Workspace
from weft.plan.workload import WorkloadPlan

__all__ = ["best_alone", "best_ways", "best_within"]


def best_alone(workspace: Workspace, name: str) -> WorkloadPlan:
    """A good plan of one query by itself."""
    found = [ways for ways in (_binary(workspace, name), _flat(workspace, name)) if ways is not None]
    plans = [workspace.plan({name: ways}, upkeep) for ways, upkeep in found]
    return min(plans, key=workspace.cost_of)


def best_within(workspace: Workspace, name: str, stores: Collection[int]) -> WorkloadPlan:
    """The best plan of one query that visits only these stores, which are of inputs, at least one of each."""
    return workspace.plan({name: _price(workspace, name, stores)[1]}, {})


class _Side(NamedTuple):
    """The cheapest store for one sub-join to visit another in, and the costs of visiting and keeping it."""

    cost: float
    store: int


class _Tree(NamedTuple):
    """The best way to compute a sub-join: its two parts, each with the store it is kept in."""

    cost: float
    stores: tuple[int, ...] = ()


def _binary(workspace: Workspace, name: str) -> tuple[Ways, dict[int, Ways]] | None:
    """The best binary tree; None if the query is a cross product that has none."""
    sides = _sides(workspace, name)
    best = {workspace.find(name, (alias,)): _Tree(0.0) for alias in workspace.queries[name].aliases}
    for target, pairs in sorted(
        _splits(workspace, name, sides).items(), key=lambda item: _width(workspace, item[0])
    ):
        options = [
            _Tree(
                best[a].cost + best[b].cost + sides[a, b].cost + sides[b, a].cost,
                (sides[b, a].store, sides[a, b].store),
            )
            for a, b in pairs
            if a in best and b in best
        ]
        if options:
            best[target] = min(options)
    whole = workspace.whole(name)
    if whole not in best:
        return None
    upkeep: dict[int, Ways] = {}
    return _climb(workspace, best, whole, upkeep), upkeep


def _width(workspace: Workspace, join: int) -> int:
    return len(workspace.joins[join].aliases)


def _sides(workspace: Workspace, name: str) -> dict[tuple[int, int], _Side]:
    """For each known and visited sub-join, the store of the latter that is cheapest if all known inputs visit it."""
    totals: dict[tuple[int, int], list[float]] = {}
    for alias in workspace.queries[name].aliases:
        for step in workspace.steps(name, alias):
            found = totals.setdefault((step.known, step.store), [workspace.keeping(step.store), 0])
            found[0] += step.cost
            found[1] += 1
    sides: dict[tuple[int, int], _Side] = {}
    for (known, store), (cost, count) in totals.items():
        if count == _width(workspace, known):
            place = known, workspace.join_of(store)
            sides[place] = min(_Side(cost, store), sides.get(place, _Side(math.inf, -1)))
    return sides


def _splits(
    workspace: Workspace, name: str, sides: Mapping[tuple[int, int], _Side]
) -> dict[int, list[tuple[int, int]]]:
    """The pairs of sub-joins of which each can be stored and visited by the other, by the sub-join they give."""
    found: dict[int, list[tuple[int, int]]] = {}
    for alias in workspace.queries[name].aliases:
        for step in workspace.steps(name, alias):
            pair = step.known, workspace.join_of(step.store)
            if pair[0] < pair[1] and pair in sides and pair[::-1] in sides:
                pairs = found.setdefault(step.target, [])
                if pair not in pairs:
                    pairs.append(pair)
    return found


def _climb(
    workspace: Workspace, best: Mapping[int, _Tree], join: int, upkeep: dict[int, Ways]
) -> dict[str, tuple[int, ...]]:
    """The ways to a sub-join through its parts; the upkeep of stored parts is added to ``upkeep``."""
    stores = best[join].stores
    if not stores:
        return {workspace.joins[join].aliases[0]: ()}
    ways: dict[str, tuple[int, ...]] = {}
    for own, other in (stores, stores[::-1]):
        below = _climb(workspace, best, workspace.join_of(own), upkeep)
        if len(below) > 1:
            upkeep[own] = below
        ways.update({start: (*way, other) for start, way in below.items()})
    return ways


def _flat(workspace: Workspace, name: str) -> tuple[Ways, dict[int, Ways]]:
    """The plan that stores only inputs, each in the layout that is best given those of the others."""
    query = workspace.queries[name]
    choices = {alias: workspace.layouts(workspace.find(name, (alias,))) for alias in query.aliases}
    allowed = {alias: min(stores, key=workspace.keeping) for alias, stores in choices.items() if stores}
    cost, ways = _price(workspace, name, allowed.values())
    improved = True
    while improved:
        improved = False
        for alias, stores in choices.items():
            for store in stores:
                trial = {**allowed, alias: store}
                dearer, other = _price(workspace, name, trial.values())
                if dearer < cost:
                    cost, ways, allowed, improved = dearer, other, trial, True
    return ways, {}


def _price(workspace: Workspace, name: str, allowed: Iterable[int]) -> tuple[float, Ways]:
    stores = set(allowed)
    found = {
        alias: best_ways(
            (step for step in workspace.steps(name, alias) if step.store in stores),
            workspace.find(name, (alias,)),
        )[workspace.whole(name)]
        for alias in workspace.queries[name].aliases
    }
    cost = math.fsum(cost for cost, _ in found.values()) + math.fsum(
        workspace.keeping(store) for store in stores
    )
    return cost, {alias: way for alias, (_, way) in found.items()}


def best_ways(
    steps: Iterable[WalkStep] | Iterator[WalkStep], start: int
) -> dict[int, tuple[float, tuple[int, ...]]]:
    """The cheapest ways from a sub-join to all that steps lead to; these must come in the order of what they know."""
    best: dict[int, tuple[float, tuple[int, ...]]] = {start: (0.0, ())}
    for step in steps:
        if step.known in best:
            cost, way = best[step.known]
            if step.target not in best or cost + step.cost < best[step.target][0]:
                best[step.target] = cost + step.cost, (*way, step.store)
    return best
