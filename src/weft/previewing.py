"""What a query would be if it were run: its plan, and what it would share with the queries that run.

Guarantees: nothing changes; the plan is made by a planner of its own, from what runs and what is known at that moment,
as it would be made if the query began with the next batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.logical.ordering import Ordering
from weft.logical.query import Query
from weft.optimizer.expected_cost import calls_of, with_estimates
from weft.optimizer.space import Options
from weft.plan.explain import explain
from weft.plan.graph import PhysicalGraph
from weft.plan.part import part_of
from weft.plan.rules import ProbeRule
from weft.planned import PlannedQuery
from weft.planning import Planner
from weft.registered import Registered
from weft.runtime.queries.request import QueryRequest
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # only running needs kernels
    from weft.runtime.loop.loop import Loop

__all__ = ["Preview", "preview_query"]


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan that a query would get.

    ``graph`` is its part of the graph that all queries would run by, under its author's names. ``shares`` are the
    stores that are there already and that it would use too, ``adds`` those that would be new, which are expected to
    hold ``added_rows`` tuples. ``running`` is the graph
    that runs, None if there is none, and ``together`` the one that would take its place.
    """

    query: Query
    strategy: str
    ordering: Ordering | None
    graph: PhysicalGraph
    statistics: Statistics
    shares: tuple[str, ...]
    adds: tuple[str, ...]
    added_rows: float
    running: PhysicalGraph | None
    together: PhysicalGraph

    @property
    def added_steps(self) -> int:
        """How many probe steps there would be more."""
        before = 0 if self.running is None else _steps(self.running)
        return _steps(self.together) - before

    @property
    def added_hops(self) -> int:
        """How many hops a batch would have more."""
        return self.together.hops - (0 if self.running is None else self.running.hops)

    def explain(self, name: str = "query") -> str:
        """The plan as text, as `PlannedQuery.explain` has it, and what it would share."""
        calls = calls_of(self.query, self.statistics)
        text = explain(self.graph, name, self.strategy, None, self.query, calls, self.ordering)
        shared = ", ".join(self.shares) or "nothing"
        return f"{text}\nWould share: {shared} · would add: {', '.join(self.adds) or 'nothing'}\n"


def _steps(graph: PhysicalGraph) -> int:
    return sum(isinstance(rule, ProbeRule) for rule in graph.rules)


def preview_query(
    planned: PlannedQuery,
    request: QueryRequest,
    registered: Registered,
    planner: Planner,
    options: Options,
    loop: Loop | None,
) -> Preview:
    """Plan a query beside those that run, or would begin with it."""
    name = planned.name
    if loop is None:
        before, graph = None, planner.start_plan({**registered.starting, name: request}).graph
        if registered.starting:
            before = planner.start_plan(registered.starting).graph
    else:
        from weft.runtime.loop.migrated_manifest import facts_of  # loaded by now

        active = loop.active_queries
        before = active.program.graph if active.program is not None else None
        wanted = {**active.requests, name: request}
        graph = planner(active, wanted, facts_of(loop.before), loop.decider.samples).graph
    known = {store.identity for store in before.stores} if before is not None else set()
    mine = [store for store in graph.stores if name in store.users]
    statistics = planner.statistics([member.query for member in graph.members if member.name == name])
    part = part_of(graph, name, dict(request.names))
    own = with_estimates(part.graph, statistics, options)
    new = {part.stores[store.name] for store in mine if store.identity not in known}
    sizes = {store.store: store.size for store in own.cost.stores} if own.cost else {}
    return Preview(
        planned.query,
        planned.strategy,
        planned.ordering,
        own,
        statistics,
        tuple(store.name for store in mine if store.identity in known),
        tuple(store.name for store in mine if store.identity not in known),
        sum(sizes.get(own.store(store).aliases, 0.0) for store in new),
        before,
        graph,
    )
