"""Queries that differ in names only, so that what is the best plan of one is the best of all.

Guarantees: two queries of one workspace have equal `Likeness.key` only if renaming inputs and layouts turns all steps
of one, with their costs, into those of the other. Where rates are equal, as they are taken to be until they are
measured, most queries of a workload are alike; and just those are hard to solve, because so much in them is equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, permutations, product

from weft.optimizer.joint.workspace import Step, Workspace
from weft.plan.workload import SharedStore, Walk, WorkloadPlan

__all__ = ["Label", "Likeness", "likeness", "renamed"]

# Orders of inputs that are tried; with more, comparing two queries would take longer than solving both.
MOST_ORDERS = 720
# Costs that agree in so many digits are equal.
DIGITS = 9
# A store in terms of places: its inputs, what it costs to keep, and its steps (start, known, cost).
Label = tuple[int, float, tuple[tuple[int, int, float], ...]]


@dataclass(frozen=True, slots=True)
class Likeness:
    """The steps of a query with its inputs numbered: the input of each number, and the label of each store."""

    order: tuple[str, ...]
    labels: Mapping[int, Label]
    key: tuple[Label, ...]


def likeness(workspace: Workspace, steps: Iterable[Step]) -> Likeness | None:
    """A query's steps with its inputs numbered in an order that is independent of names; None: that would take long."""
    found = list(steps)
    groups = _groups(workspace, found)
    if math.prod(math.factorial(len(group)) for group in groups) > MOST_ORDERS:
        return None
    placed = (_placed(workspace, found, order) for order in _orders(groups))
    return min(placed, key=lambda one: one.key)


def _groups(workspace: Workspace, steps: list[Step]) -> list[tuple[str, ...]]:
    """The inputs sorted by their own steps' sizes and costs; those whose steps are equal in these are in one group."""
    traits: dict[str, list[tuple[int, int, float]]] = {}
    for step in steps:
        known, target = (len(workspace.joins[join].aliases) for join in (step.known, step.target))
        traits.setdefault(step.start, []).append((known, target, _rounded(step.cost)))
    told = {alias: sorted(found) for alias, found in traits.items()}
    return [tuple(group) for _, group in groupby(sorted(told, key=told.__getitem__), told.__getitem__)]


def _orders(groups: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """All orders of inputs that keep the order of the groups."""
    for parts in product(*(permutations(group) for group in groups)):
        yield tuple(alias for part in parts for alias in part)


def _placed(workspace: Workspace, steps: list[Step], order: tuple[str, ...]) -> Likeness:
    places = {alias: 1 << i for i, alias in enumerate(order)}
    joins = dict.fromkeys(join for step in steps for join in (step.known, workspace.join_of(step.store)))
    masks = {join: sum(places[alias] for alias in workspace.joins[join].aliases) for join in joins}
    found: dict[int, list[tuple[int, int, float]]] = {}
    for step in steps:
        found.setdefault(step.store, []).append((places[step.start], masks[step.known], _rounded(step.cost)))
    labels = {
        store: (masks[workspace.join_of(store)], _rounded(workspace.keeping(store)), tuple(sorted(visits)))
        for store, visits in found.items()
    }
    return Likeness(order, labels, tuple(sorted(labels.values())))


def _rounded(cost: float) -> float:
    return float(f"{cost:.{DIGITS}g}")


def renamed(
    workspace: Workspace, plan: WorkloadPlan, one: Likeness, name: str, other: Likeness
) -> WorkloadPlan | None:
    """The plan of one query turned into that of another that is like it; None if it takes other steps than these."""
    aliases = dict(zip(one.order, other.order, strict=True))
    stores = {label: store for store, label in other.labels.items()}
    if any(workspace.store_number(store) not in one.labels for store in plan.stores):
        return None

    def turned(store: SharedStore) -> int:
        return stores[one.labels[workspace.store_number(store)]]

    def ways(walks: tuple[Walk, ...]) -> dict[str, tuple[int, ...]]:
        return {aliases[walk.start]: tuple(map(turned, walk.visits)) for walk in walks}

    upkeep = {turned(kept.store): ways(kept.walks) for kept in plan.upkeep}
    return workspace.plan({name: ways(plan.answers[0].walks)}, upkeep)
