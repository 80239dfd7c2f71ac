"""Queries that differ in names only, so that the best plan of one, renamed, is the best of the others.

Guarantees: two queries of one workspace have equal `Likeness.key` only if renaming inputs and layouts turns all steps
of one, with their costs, into those of the other. Where rates are equal, as they are assumed to be until they are
measured, most queries of a workload are alike. These are also the hardest to solve, because so many of their steps have
equal costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, permutations, product

from weft.optimizer.joint.workspace import WalkStep, Workspace
from weft.plan.workload import SharedStore, Walk, WorkloadPlan

__all__ = ["Label", "Likeness", "likeness", "rename_plan"]

# How many orders of inputs are tried; with more, comparing two queries would take longer than solving both.
MOST_ORDERS = 720
# Costs that agree in so many digits count as equal.
DIGITS = 9
# A store, with inputs as numbers: its inputs, what it costs to keep, and its steps (start, known, cost).
Label = tuple[int, float, tuple[tuple[int, int, float], ...]]


@dataclass(frozen=True, slots=True)
class Likeness:
    """The steps of a query with its inputs numbered: the input of each number, and the label of each store."""

    order: tuple[str, ...]
    labels: Mapping[int, Label]
    key: tuple[Label, ...]


def likeness(workspace: Workspace, steps: Iterable[WalkStep]) -> Likeness | None:
    """A query's steps with its inputs numbered in an order independent of names; None if that would take too long."""
    found = list(steps)
    groups = _groups(workspace, found)
    if math.prod(math.factorial(len(group)) for group in groups) > MOST_ORDERS:
        return None
    placed = (_placed(workspace, found, order) for order in _orders(groups))
    return min(placed, key=lambda one: one.key)


def _groups(workspace: Workspace, steps: list[WalkStep]) -> list[tuple[str, ...]]:
    """The inputs, sorted by the sizes and costs of their own steps; inputs that are equal in these form one group."""
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


def _placed(workspace: Workspace, steps: list[WalkStep], order: tuple[str, ...]) -> Likeness:
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


def rename_plan(
    workspace: Workspace, plan: WorkloadPlan, one: Likeness, name: str, other: Likeness
) -> WorkloadPlan | None:
    """The plan of one query renamed to that of a query like it; None if it takes steps that the likeness lacks."""
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
