"""How many tuples the stores of a plan of many queries hold, and what a budget leaves for others.

Guarantees: a store that queries share counts once, with the tuples that any of them wants, and a replicated one as
often as there are copies of it: as the optimiser of single queries counts (`optimizer/single/evaluate.py`). Every plan
stores every input that is joined, so no plan stores less than `least_storage`, and there is one that stores no more.
A `StoragePool` reserves that much for inputs that are not stored yet, so that whatever else is stored, every query that
is planned later still finds room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from weft.errors import PlanError
from weft.logical.expr.expression import aliases
from weft.logical.query.query import Query
from weft.optimizer.joint.space.workspace import Workspace
from weft.plan.join_plan import Layout
from weft.plan.workload import SharedStore, WorkloadPlan
from weft.stats.estimate import Estimator
from weft.stats.statistics import Statistics

__all__ = [
    "SLACK",
    "StoragePool",
    "budget_error",
    "is_within",
    "least_by_input",
    "least_storage",
    "storage_by_store",
    "thrifty_stores",
]

# The part of a budget by which a plan may exceed it: the solver's tolerance, and errors of rounding.
SLACK = 1e-6


def is_within(stored: float, budget: float) -> bool:
    """Whether a number of tuples may be stored."""
    return stored <= budget * (1 + SLACK)


def budget_error(budget: float, least: float, count: int) -> PlanError:
    """The error that no plan of so many queries is within a budget, with the least that would do."""
    queries = "the query" if count == 1 else f"{count} queries"
    return PlanError(
        f"no plan of {queries} stores at most {budget:.0f} tuples",
        hint=f"the inputs alone are about {least:.0f}; shorten their windows, or raise the budget",
    )


def thrifty_stores(workspace: Workspace) -> dict[str, int]:
    """For each input of a join, the store of it that holds the fewest tuples, copies counted."""
    inputs = {
        alias: workspace.find(name, (alias,))
        for name, query in workspace.queries.items()
        if len(query.inputs) > 1
        for alias in query.aliases
    }
    return {
        alias: min(workspace.layouts(join), key=lambda store: (workspace.stored(store), store))
        for alias, join in inputs.items()
    }


def storage_by_store(workspace: Workspace, plan: WorkloadPlan) -> dict[SharedStore, float]:
    """The tuples that each store of a plan holds.

    Stores of queries that the workspace does not have are estimated for the queries of the plan that need them.
    """
    found, estimates = {}, _Estimates({a.name: a.query for a in plan.answers}, workspace.statistics)
    needed = {answer.name: plan.stores_of(answer.name) for answer in plan.answers}
    for store in plan.stores:
        size = workspace.size_of(store)
        if size is None:
            users = [name for name, stores in needed.items() if store in stores]
            size = estimates.size(store.aliases, users)
        found[store] = size * _copies(store.layout)
    return found


def least_storage(queries: Mapping[str, Query], statistics: Statistics) -> float:
    """The tuples that the inputs of queries hold if each is stored once: no plan of the queries stores less."""
    return math.fsum(least_by_input(queries, statistics).values())


def least_by_input(queries: Mapping[str, Query], statistics: Statistics) -> dict[str, float]:
    """For each input that queries join, the tuples that one store of it holds."""
    estimates = _Estimates(queries, statistics)
    users: dict[str, list[str]] = {}
    for name, query in queries.items():
        for alias in query.aliases if len(query.inputs) > 1 else ():
            users.setdefault(alias, []).append(name)
    return {alias: estimates.size((alias,), names) for alias, names in users.items()}


def _copies(layout: Layout) -> int:
    return layout.partitions if layout.kind == "replicated" else 1


class _Estimates:
    """How many tuples of a sub-join some of several queries want, as `SubJoins` estimates it, without a lattice."""

    def __init__(self, queries: Mapping[str, Query], statistics: Statistics) -> None:
        self._queries, self._statistics = queries, statistics
        self._estimators: dict[str, tuple[Estimator, Estimator]] = {}

    def size(self, names: tuple[str, ...], users: Iterable[str]) -> float:
        """The tuples that at least one of the users wants: no more than their sum, nor than are there unfiltered."""
        inside = frozenset(names)
        sizes: dict[object, tuple[float, float]] = {}
        for user in users:
            filtered, plain = self._of(user)
            mask, filters = filtered.mask(inside), [f for f in filtered.query.filters if aliases(f) <= inside]
            size = filtered.size(mask), plain.size(mask)
            sizes[tuple(filters)] = max(size, sizes.get(tuple(filters), size))
        most = max((plain for _, plain in sizes.values()), default=0.0)
        missed = math.prod(1 - min(1.0, size / plain) if plain else 1.0 for size, plain in sizes.values())
        return min(math.fsum(size for size, _ in sizes.values()), most * (1 - missed))

    def _of(self, name: str) -> tuple[Estimator, Estimator]:
        found = self._estimators.get(name)
        if found is None:
            query = self._queries[name]
            plain = Estimator(replace(query, filters=()), self._statistics)
            found = self._estimators[name] = Estimator(query, self._statistics), plain
        return found


class StoragePool:
    """What the open stores of a search hold, and what inputs that are not stored yet will need at least."""

    def __init__(self, workspace: Workspace, budget: float) -> None:
        self._workspace, self._budget = workspace, budget
        self._least = (
            {alias: workspace.stored(store) for alias, store in thrifty_stores(workspace).items()}
            if self.is_limited
            else {}
        )
        self._open: dict[str, int] = {}  # how many stores of each input are open
        self.used = math.fsum(self._least.values())  # tuples that are stored, or reserved
        self.suspended = False  # whether stores are counted, but opened whatever the budget

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget at all; without one, nothing is counted."""
        return self._budget < math.inf

    @property
    def excess(self) -> float:
        """How many tuples more are stored, or reserved, than the budget allows; 0 if there is room."""
        return 0.0 if self.suspended or is_within(self.used, self._budget) else self.used - self._budget

    def has_room(self, store: int, *, thrifty: bool = False) -> bool:
        """Whether a store can be opened; with ``thrifty``, whether it takes no more than is reserved for its input."""
        if self.suspended or not self.is_limited:
            return True
        more = self._workspace.stored(store) - self._reserved(self._workspace.stores[store])
        return more <= 0 if thrifty else is_within(self.used + more, self._budget)

    def open(self, store: int) -> None:
        """Count a store."""
        if self.is_limited:
            self.occupy(self._workspace.stores[store], self._workspace.stored(store))

    def occupy(self, store: SharedStore, tuples: float) -> None:
        """Count a store that holds so many tuples; for an input that is stored, nothing is reserved any more."""
        self.used += tuples - self._reserved(store)
        self._count(store, 1)

    def close(self, store: int) -> None:
        """Count a store no longer."""
        if self.is_limited:
            one = self._workspace.stores[store]
            self._count(one, -1)
            self.used -= self._workspace.stored(store) - self._reserved(one)

    def take(self, tuples: float) -> None:
        """Count tuples that are stored where the search cannot use them."""
        self.used += tuples

    def _count(self, store: SharedStore, number: int) -> None:
        if store.is_input:
            alias = store.aliases[0]
            self._open[alias] = self._open.get(alias, 0) + number

    def _reserved(self, store: SharedStore) -> float:
        alias = store.aliases[0]
        return self._least.get(alias, 0.0) if store.is_input and not self._open.get(alias) else 0.0
