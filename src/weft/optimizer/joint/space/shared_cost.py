"""The steps and stores that the walks of many queries pay for together, kept up to date while walks come and go.

Guarantees: `total` is the same as `Workspace.cost_of` of the same walks: a step that walks with the same beginning take
is paid once, and so is every store. An intermediate result is computed while a walk visits it and no longer; the walks
that compute it (its *upkeep*) pay like any other. `route` is the cheapest walk given all that is paid already: a paid
beginning, then a shortest path through the lattice of sub-joins, whose levels have every sub-join after all those that
steps lead to from it. Ties go to the first, so all runs give the same plans.
With a budget, a walk that is added opens no stores for which there is no room (`StoragePool`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache, partial
from math import inf
from typing import NamedTuple

from weft.errors import PlanError
from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.joint.space.storage import StoragePool
from weft.optimizer.joint.space.workspace import WalkStep, Workspace
from weft.plan.workload import Answer, Upkeep, Walk

__all__ = ["NoWayError", "Owner", "PaidWalks", "Path"]


class _WalkLattice(NamedTuple):
    """The steps that a walk may take: by the sub-join known before, the largest first, and by the sub-join reached."""

    root: int
    levels: list[tuple[int, list[WalkStep]]]
    by: dict[int, dict[tuple[int, int], WalkStep]]


def _walk_lattice(workspace: Workspace, query: str | None, whole: int, start: str) -> _WalkLattice:
    """The lattice of an input's walks to a sub-join; with ``query``, only steps of this query are looked up."""
    joins = workspace.joins
    by: dict[int, dict[tuple[int, int], WalkStep]] = {}
    for step in _steps(workspace, query, whole, start):
        by.setdefault(step.known, {})[step.store, step.target] = step
    ordered = sorted(by, key=lambda known: (-len(joins[known].aliases), known))
    root = workspace.within(whole, (start,)) if query is None else workspace.find(query, (start,))
    return _WalkLattice(root, [(known, list(by[known].values())) for known in ordered], by)


def _steps(workspace: Workspace, query: str | None, whole: int, start: str) -> list[WalkStep]:
    if query is None:
        return workspace.upkeep_steps(whole, start)
    inside = set(workspace.joins[whole].aliases)
    every = workspace.steps(query, start)
    return [step for step in every if inside.issuperset(workspace.joins[step.target].aliases)]


# The owner of walks: a query, by its name, or an intermediate result, by the number of its store.
Owner = str | int
Path = tuple[WalkStep, ...]


class NoWayError(PlanError):
    """No walk reaches its goal by the stores and steps that are allowed."""


class _Node:
    """A node of the tree of all walks of an input: how many walks come through it, and the steps that follow."""

    __slots__ = ("count", "next")

    def __init__(self) -> None:
        self.count = 0
        self.next: dict[tuple[int, int], _Node] = {}


class PaidWalks:
    """The walks of queries and of stored results, and what they cost together.

    If ``query`` is given, only steps of this query are looked up in the workspace. The deadline is for `improve`, which
    looks for better walks.
    """

    def __init__(
        self,
        workspace: Workspace,
        query: str | None = None,
        deadline: Deadline = NEVER,
        budget: float = inf,
    ) -> None:
        self.workspace = workspace
        self.deadline = deadline
        self.pool = StoragePool(workspace, budget)
        self.total = 0.0
        self.walks: dict[Owner, dict[str, Path]] = {}
        self.users: dict[int, int] = {}
        self._roots: dict[str, _Node] = {}
        self._lattice = lru_cache(None)(partial(_walk_lattice, workspace, query))
        self._reachable: dict[int, frozenset[int]] = {}
        self._openings: dict[int, float] = {}
        self._computing: dict[int, float] = {}
        self._allowed: frozenset[int] = frozenset()
        self._banned: frozenset[int] = frozenset()
        self._avoided: WalkStep | None = None
        self._thrifty = False
        self._log: list[tuple[bool, Owner, str, Path]] = []

    # -- What there is -------------------------------------------------------------------------------------------

    def whole(self, owner: Owner) -> int:
        """The sub-join that an owner's walks compute."""
        return self.workspace.whole(owner) if isinstance(owner, str) else self.workspace.join_of(owner)

    def starts(self, owner: Owner) -> tuple[str, ...]:
        """The inputs that an owner has walks of."""
        return self.workspace.joins[self.whole(owner)].aliases

    def is_input(self, store: int) -> bool:
        """Whether a store needs no upkeep."""
        return self.workspace.stores[store].is_input

    def reachable(self, owner: Owner) -> frozenset[int]:
        """The stores that some walk of an owner might visit."""
        whole = self.whole(owner)
        found = self._reachable.get(whole)
        if found is None:
            lattices = [self._lattice(whole, start) for start in self.starts(owner)]
            every = (step.store for lattice in lattices for _, steps in lattice.levels for step in steps)
            found = self._reachable[whole] = frozenset(every)
        return found

    def first_steps(self, owner: Owner) -> list[WalkStep]:
        """The steps that walks of an owner might begin with."""
        lattices = [self._lattice(self.whole(owner), start) for start in self.starts(owner)]
        return [step for lattice in lattices for step in lattice.by.get(lattice.root, {}).values()]

    def inner(self, owner: Owner) -> frozenset[int]:
        """The intermediate results that an owner's walks might visit."""
        return frozenset(
            self.workspace.join_of(store) for store in self.reachable(owner) if not self.is_input(store)
        )

    def visitors(self, store: int) -> list[tuple[Owner, str]]:
        """The walks that visit a store."""
        return [
            (owner, start)
            for owner, paths in self.walks.items()
            for start, path in paths.items()
            if any(step.store == store for step in path)
        ]

    def takers(self, step: WalkStep) -> list[tuple[Owner, str]]:
        """The walks that take a step, whatever they did before."""
        return [
            (owner, step.start) for owner, paths in self.walks.items() if step in paths.get(step.start, ())
        ]

    def answer(self, name: str, owner: str) -> Answer:
        """The answer to a query by the walks of an owner that joins the same."""
        return Answer(name, self.workspace.queries[name], self._walks(owner))

    def upkeep(self) -> list[Upkeep]:
        """The walks that compute intermediate results."""
        stores = sorted(owner for owner in self.walks if isinstance(owner, int))
        return [Upkeep(self.workspace.stores[store], self._walks(store)) for store in stores]

    def _walks(self, owner: Owner) -> tuple[Walk, ...]:
        stores, paths = self.workspace.stores, self.walks[owner]
        return tuple(
            Walk(start, tuple(stores[step.store] for step in paths[start])) for start in self.starts(owner)
        )

    # -- Walks come and go ---------------------------------------------------------------------------------------

    def add(self, owner: Owner, start: str, path: Path) -> None:
        """Add a walk and its cost; intermediate results that no walk visited before are computed from now on."""
        opened = [
            step.store for step in path if not self.users.get(step.store) and not self.is_input(step.store)
        ]
        self._put(owner, start, path)
        for store in opened:
            self.add_all(store)

    def add_all(self, owner: Owner) -> None:
        """Route all walks of an owner, one after the other, and add them."""
        for start in self.starts(owner):
            self.add_routed(owner, start)

    def add_routed(self, owner: Owner, start: str) -> None:
        """Route a walk of an owner, and add it.

        There may be room for each of the stores that the walk opens but not for all of them. Then it takes the best way
        that opens nothing but what is reserved for its inputs.
        """
        mark, before, excess = self.mark(), self.total, self.pool.excess
        cost, path = self.route(self.whole(owner), start)
        if cost == inf:
            raise NoWayError(f"no walk of {start} is left")
        self.add(owner, start, path)
        if self.pool.excess > excess:
            if self._thrifty:
                raise NoWayError(f"there is no room for a walk of {start}")
            self.undo(mark)
            self.total = before
            self._set_thrifty(True)
            try:
                self.add_routed(owner, start)
            finally:
                self._set_thrifty(False)

    def _set_thrifty(self, thrifty: bool) -> None:
        self._thrifty = thrifty
        self._forget()

    def remove(self, owner: Owner, start: str) -> None:
        """Remove a walk and its cost; intermediate results that no walk visits any more are not computed any more."""
        path = self._take(owner, start)
        for step in path:
            if not self.users[step.store] and step.store in self.walks:
                self.remove_all(step.store)

    def remove_all(self, owner: Owner) -> None:
        """Remove all walks of an owner."""
        for start in tuple(self.walks[owner]):
            self.remove(owner, start)

    def mark(self) -> int:
        """The present state as a mark, to which `undo` can return."""
        return len(self._log)

    def touched(self, mark: int) -> set[str]:
        """The inputs whose walks have changed since a mark."""
        return {start for _, _, start, _ in self._log[mark:]}

    def undo(self, mark: int) -> None:
        """Return to the state of a mark."""
        while len(self._log) > mark:
            added, owner, start, path = self._log.pop()
            if added:
                self._take(owner, start)
            else:
                self._put(owner, start, path)
            self._log.pop()

    def _put(self, owner: Owner, start: str, path: Path) -> None:
        self._log.append((True, owner, start, path))
        self.walks.setdefault(owner, {})[start] = path
        self.pay_for(start, path)

    def _take(self, owner: Owner, start: str) -> Path:
        path = self.walks[owner].pop(start)
        if not self.walks[owner]:
            del self.walks[owner]
        self._log.append((False, owner, start, path))
        self.stop_paying_for(start, path)
        return path

    def pay_for(self, start: str, path: Path) -> None:
        """Count the steps of a walk as paid, without an owner; walks that begin alike then get them for nothing."""
        node = self._roots.setdefault(start, _Node())
        for step in path:
            node = node.next.setdefault((step.store, step.target), _Node())
            node.count += 1
            if node.count == 1:
                self.total += step.cost
            self.hold(step.store)

    def stop_paying_for(self, start: str, path: Path) -> None:
        """Take back what `pay_for` did for a walk."""
        node = self._roots[start]
        for step in path:
            before, node = node, node.next[step.store, step.target]
            node.count -= 1
            if not node.count:
                self.total -= step.cost
                del before.next[step.store, step.target]
            self.release(step.store)

    def hold(self, store: int) -> None:
        """Count one more user of a store."""
        count = self.users[store] = self.users.get(store, 0) + 1
        if count == 1:
            self.total += self.workspace.keeping(store)
            self.pool.open(store)
            self._forget()

    def release(self, store: int) -> None:
        """Count one user less."""
        self.users[store] -= 1
        if not self.users[store]:
            self.total -= self.workspace.keeping(store)
            self.pool.close(store)
            self._forget()

    # -- The cheapest walk ---------------------------------------------------------------------------------------

    def limit(
        self, allowed: Collection[int] = (), banned: Collection[int] = (), avoided: WalkStep | None = None
    ) -> None:
        """Limit `route`: it opens stores of ``allowed`` sub-joins only, and avoids ``banned`` stores and one step."""
        self._allowed, self._banned, self._avoided = frozenset(allowed), frozenset(banned), avoided
        self._forget()

    def _forget(self) -> None:
        self._openings.clear()
        self._computing.clear()

    def route(self, whole: int, start: str) -> tuple[float, Path]:
        """The cheapest walk of an input to a sub-join, and what it adds to the cost."""
        lattice = self._lattice(whole, start)
        ahead = self._ahead(lattice, whole)
        best, known = ahead[lattice.root][0], lattice.root
        path: Path = ()
        for joined, beginning in self._paid_paths(lattice, start):
            if ahead[joined][0] < best:
                best, known, path = ahead[joined][0], joined, beginning
        while known != whole:
            step = ahead[known][1]
            if step is None:
                break
            path, known = (*path, step), step.target
        return best, path

    def _ahead(self, lattice: _WalkLattice, whole: int) -> dict[int, tuple[float, WalkStep | None]]:
        """For every sub-join on the way, the least cost of the remaining steps if none is shared, and the next step."""
        ahead: dict[int, tuple[float, WalkStep | None]] = {whole: (0.0, None)}
        openings, avoided = self._openings, self._avoided
        for known, steps in lattice.levels:
            best, following = inf, None
            for step in steps:
                opening = openings.get(step.store)
                if opening is None:
                    opening = openings[step.store] = self._opening(step.store)
                if opening < best and step != avoided:
                    cost = step.cost + opening + ahead[step.target][0]
                    if cost < best:
                        best, following = cost, step
            ahead[known] = best, following
        return ahead

    def _paid_paths(self, lattice: _WalkLattice, start: str) -> Iterator[tuple[int, Path]]:
        """The beginnings of walks to the sub-join that are paid already, shorter ones first."""
        root = self._roots.get(start)
        waiting: list[tuple[_Node, int, Path]] = [(root, lattice.root, ())] if root else []
        for node, known, path in waiting:
            steps = lattice.by.get(known, {})
            for key, child in node.next.items():
                step = steps.get(key)
                if step is not None and key[0] not in self._banned and step != self._avoided:
                    waiting.append((child, key[1], (*path, step)))
                    yield key[1], (*path, step)

    def _opening(self, store: int) -> float:
        """What visiting a store adds to the cost beyond the step; 0 if it is open already."""
        if store in self._banned:
            return inf
        if self.users.get(store):
            return 0.0
        if not self.pool.has_room(store, thrifty=self._thrifty):
            return inf
        if self.is_input(store):
            return self.workspace.keeping(store)
        join = self.workspace.join_of(store)
        if join not in self._allowed:
            return inf
        if join not in self._computing:
            starts = self.workspace.joins[join].aliases
            self._computing[join] = sum(self.route(join, start)[0] for start in starts)
        return self.workspace.keeping(store) + self._computing[join]
