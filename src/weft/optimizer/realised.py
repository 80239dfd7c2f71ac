"""What a plan of many queries costs when it is known where its tuples are (design, D6).

Guarantees: as `Workspace.cost_of`, but a step that stays in its task ships nothing, and every hop is paid, once for all
queries. Where a tuple is follows from `plan/schedule.py`. Joint optimisers do not search by this cost: it depends on
whole walks. It tells whether what they found is better than planning every query alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.logical.expr import Expr
from weft.optimizer.cost import copies, hop_cost, step_cost, store_cost
from weft.optimizer.space import Space
from weft.optimizer.workspace import Workspace
from weft.plan.join_plan import Layout, Names
from weft.plan.schedule import LOCAL, NO_KEY, Place, Spread, start, step, store_edge
from weft.plan.workload import SharedStore, Walk, WorkloadPlan

__all__ = ["Realised", "Realiser"]


# Keys that a query does not have are numbered from here.
FOREIGN = 1 << 20


@dataclass(frozen=True, slots=True)
class Realised:
    """A plan's cost in all, and its hops."""

    total: float
    hops: int


class Realiser:
    """Answers for the plans of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._spaces: dict[str, Space] = {}
        self._foreign: dict[Expr, int] = {}

    def cost(self, plan: WorkloadPlan) -> Realised | None:
        """The cost of a plan, hops included; None if it has a store that joint plans do not know."""
        for answer in plan.answers:
            if answer.name not in self._spaces:
                space = Space(answer.query, self.workspace.statistics, self.workspace.options)
                self._spaces[answer.name] = space
        try:
            return _Schedule(self, plan).cost()
        except KeyError:
            return None

    def mask(self, name: str, names: Names) -> int:
        """The bit mask of some inputs of a query."""
        return self._spaces[name].estimator.mask(names)

    def spread(self, name: str, layout: Layout) -> Spread:
        """A layout as a query sees it; what it is partitioned by may be a key of other queries only."""
        found = self._spaces[name].spread(layout)
        if layout.by is None or found.key != NO_KEY:
            return found
        return Spread(found.kind, FOREIGN + self._foreign.setdefault(layout.by, len(self._foreign)))

    def routable(self, name: str, spread: Spread, known: int) -> bool:
        """Whether tuples of a query that know some inputs know the partition."""
        return spread.key < FOREIGN and self._spaces[name].routable(spread.key, known)


class _Schedule:
    """Where the tuples of a plan's walks are, and what moving them costs; the same steps are counted once."""

    def __init__(self, realiser: Realiser, plan: WorkloadPlan) -> None:
        self._realiser, self._workspace, self._plan = realiser, realiser.workspace, plan
        self._homes: dict[str, list[SharedStore]] = {}
        for store in plan.stores:
            if store.is_input:
                self._homes.setdefault(store.aliases[0], []).append(store)
        self._complete: dict[SharedStore, int] = {store: 1 for store in plan.stores if store.is_input}
        self._work: dict[tuple[str, tuple[tuple[SharedStore, int], ...]], float] = {}
        self._stored: list[float] = []

    def cost(self) -> Realised:
        """The cost of the whole plan."""
        users = {s: a.name for a in self._plan.answers for s in self._plan.stores_of(a.name)}
        for one in self._plan.upkeep:  # smaller stores come first
            self._complete[one.store] = max(
                self._keep(users[one.store], walk, one.store) for walk in one.walks
            )
        ends = [self._walk(a.name, walk).hop for a in self._plan.answers for walk in a.walks]
        hops = max([*self._complete.values(), *ends], default=0)
        weights = self._workspace.options.weights
        work = math.fsum(self._work.values()) + math.fsum(self._stored) + math.fsum(map(self._kept, users))
        return Realised(work + hop_cost(weights, hops), hops)

    def _kept(self, store: SharedStore) -> float:
        """Storing an input and keeping any store."""
        workspace = self._workspace
        join = workspace.join_of(workspace.store_number(store))
        rate = workspace.rate(join) if store.is_input else 0.0
        return store_cost(workspace.options.weights, rate, workspace.size(join), _copies(store), True)

    def _keep(self, name: str, walk: Walk, store: SharedStore) -> int:
        """The hop in which what a walk found is stored."""
        edge, hop = store_edge(self._walk(name, walk), self._realiser.spread(name, store.layout))
        tuples = self._workspace.tuples(walk.start, self._workspace.find(name, store.aliases))
        weights = self._workspace.options.weights
        self._stored.append(store_cost(weights, tuples, 0.0, _copies(store), edge is not LOCAL))
        return hop

    def _walk(self, name: str, walk: Walk) -> Place:
        """Where a walk ends; its steps are added to the work."""
        place = self._home(name, walk)
        known: Names = (walk.start,)
        done: tuple[tuple[SharedStore, int], ...] = ()
        for visit in walk.visits:
            spread = self._realiser.spread(name, visit.layout)
            routable = self._realiser.routable(name, spread, self._realiser.mask(name, known))
            edge, place = step(place, spread, self._complete[visit], routable)
            join = self._workspace.find(name, known)
            count = copies(spread.kind, routable, self._workspace.options.partitions)
            tuples = self._workspace.tuples(walk.start, join)
            done = (*done, (visit, join))
            self._work[walk.start, done] = step_cost(
                self._workspace.options.weights, tuples, count, edge is not LOCAL
            )
            known = (*known, *visit.aliases)
        return place

    def _home(self, name: str, walk: Walk) -> Place:
        """Where a tuple is as it arrives: at the store of its input that its walk goes on from, if there is one."""
        homes = self._homes.get(walk.start, ())
        spreads = [self._realiser.spread(name, store.layout) for store in homes]
        first = self._realiser.spread(name, walk.visits[0].layout) if walk.visits else None
        near = [spread for spread in spreads if first and spread.key == first.key != NO_KEY]
        return start((near or spreads)[0]) if spreads else Place(0, NO_KEY, True)


def _copies(store: SharedStore) -> int:
    return store.layout.partitions if store.layout.kind == "replicated" else 1
