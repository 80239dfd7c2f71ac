"""Which graph answers each query of a session, before it starts and while it runs, and what its batches measured.

Guarantees: before the start, the graph is the query's part of the one that the first batch will run by (`Planner`);
then its part of the one that runs, or ran last. A part is worked out again only if what it is made from changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.adapting.planner import Planner
from weft.errors import QueryError, nearest
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.query import Query
from weft.optimizer.expected_cost import with_estimates
from weft.optimizer.space import Options
from weft.plan.join_plan import StepCost, StoreCost
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.part import part_of
from weft.plan.physical.rules import ProbeRule
from weft.runtime.observe.recent import RecentStatistics
from weft.session.registry import Registered
from weft.session.statistics_report import StatisticsReport, statistics_report
from weft.stats.known import Known
from weft.stats.sampling.sampled import SampledStatistics, sampled_statistics
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # looking at plans needs no kernels
    from weft.runtime.loop.loop import Loop
    from weft.runtime.observe.metrics import BatchMetrics

__all__ = ["QueryGraphs"]


@dataclass
class QueryGraphs:
    """The graphs of the queries of a session; ``loop`` is what runs or ran last, None before the first start.

    ``recent`` keeps what batches measured, also of loops and graphs before.
    """

    registered: Registered
    loop: Loop | None = None
    recent: RecentStatistics = field(default_factory=RecentStatistics)
    _written: Known | None = None  # what is in the log
    _parts: dict[str, tuple[tuple[PhysicalGraph, Statistics, Options], PhysicalGraph]] = field(
        default_factory=dict
    )

    def shared_graph(self, planner: Planner) -> PhysicalGraph | None:
        """The graph that all queries share that run, or will run; None: there are none."""
        if self.loop is not None:
            return self.loop.active_queries.program.graph if self.loop.active_queries.program else None
        starting = self.registered.starting
        return planner.start_plan(starting).graph if starting else None

    def graph_of(
        self, name: str, planner: Planner, statistics: Statistics, options: Options
    ) -> PhysicalGraph:
        """The graph that answers a query, under its author's names, with what is expected of every step."""
        if name not in self.registered.queries:
            raise QueryError(f"there is no query {name!r}", hint=nearest(name, self.registered.queries))
        graph = self._last_graph_with(name)
        if graph is not None:
            names = self.registered.requests[name].names
        else:
            start = self.registered.alone.get(name) or planner.start_plan(self.registered.starting)
            graph, names = start.graph, start.requests[name].names
        source = (graph, statistics, options)
        known = self._parts.get(name)
        if known is None or any(old is not new for old, new in zip(known[0], source, strict=True)):
            own = with_estimates(part_of(graph, name, dict(names)).graph, statistics, options)
            self._parts[name] = known = source, own
        return known[1]

    def expected_of(
        self, name: str, planner: Planner, statistics: Statistics, options: Options
    ) -> tuple[dict[str, StepCost], dict[str, StoreCost]]:
        """What is expected of the probes and stores of a query that runs, under the shared graph's names."""
        own, request = self.graph_of(name, planner, statistics, options), self.registered.requests.get(name)
        shared = self._last_graph_with(name)
        if shared is None or request is None:
            return {}, {}
        part = part_of(shared, name, dict(request.names))
        steps = {rule.edge: rule.estimate for rule in own.rules if isinstance(rule, ProbeRule)}
        stores = {store.store: store for store in own.cost.stores} if own.cost else {}
        found = {edge: steps.get(mine) for edge, mine in part.edges.items()}
        held = {store: stores.get(part.graph.store(mine).aliases) for store, mine in part.stores.items()}
        return (
            {edge: one for edge, one in found.items() if one is not None},
            {store: one for store, one in held.items() if one is not None},
        )

    def _last_graph_with(self, name: str) -> PhysicalGraph | None:
        """The graph that a query runs by, or ran by last; None: it has not run yet, though another of its name may."""
        if self.loop is None or name not in self.registered.requests:
            return None
        core, _ = core_and_closing(self.registered.requests[name].query)
        program = self.loop.active_queries.program
        older = sorted(self.loop.history.graphs.items(), reverse=True)
        graphs = [*([program.graph] if program else []), *(graph for _, graph in older)]
        return next(
            (g for g in graphs if any(m.name == name and m.query == core for m in g.members)),
            None,
        )

    def observed_batches(self) -> dict[str, tuple[PhysicalGraph, list[BatchMetrics]]]:
        """The graph that each query runs by, and its batches since then."""
        return self.loop.history.since_planned(self.registered.requests) if self.loop else {}

    def follow(self, loop: Loop) -> None:
        """Know what the batches of a loop tell, and what those of earlier sessions over its log told."""
        loop.history.samples.half_life = self.recent.half_life.batches
        self.recent.restore(loop.log.statistics())
        self.loop, self._written = loop, self.recent.known

    def measured(self, statistics: Statistics, queries: Collection[Query]) -> Statistics:
        """Statistics with what samples tell about queries, and what batches measured, where recent ones count most.

        What was measured is written into the log, so that a later session knows it.
        """
        if self.loop is None:
            return self.recent.statistics(statistics, None, None)
        found = self.recent.statistics(statistics, self.loop.history, self._sampled(queries))
        found = found.with_rows(self.loop.tables.rows())
        if self.recent.known is not self._written:
            self._written = self.recent.known
            self.loop.log.write_statistics(self._written.to_json())
        return found

    def _sampled(self, queries: Collection[Query]) -> SampledStatistics | None:
        return sampled_statistics(self.loop.history.samples.merged(), queries) if self.loop else None

    def report(self, statistics: Statistics, catalog: Catalog) -> StatisticsReport:
        """What is known of streams and of the queries over them: each figure, its source, age and evidence."""
        queries = [core_and_closing(request.query)[0] for request in self.registered.requests.values()]
        self.measured(statistics, queries)
        last = self.loop.history.last if self.loop else None
        return statistics_report(
            statistics,
            self.recent.known,
            [stream.name for stream in catalog.streams],
            queries,
            sampled=self._sampled(queries),
            heavy=last.heavy if last else {},
        )
