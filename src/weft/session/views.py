"""What can be seen of a session: its plans, what is expected of them, and what its batches did and measured.

Guarantees: looking changes nothing. All of it can be asked before the start, while the session runs, and afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from weft.adapting.planner import Planner
from weft.adapting.planning_time import deadline_of
from weft.errors import ConfigError, QueryError, ResultError
from weft.logical.arguments import checked
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.query import Query
from weft.optimizer.single.strategies import costs_of
from weft.plan.join_plan import StepCost, StoreCost
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.show.explain import compare
from weft.runtime.log.totals import Totals
from weft.runtime.observe.plan_changes import PlanChange, history_text
from weft.runtime.observe.progress import OwnProgress, QueryProgress, failure_of, progress_of
from weft.runtime.observe.table_progress import TableProgress, tables_text
from weft.session.planned_query import PlannedQuery, explain_queries
from weft.session.query_graphs import QueryGraphs
from weft.session.registry import Registered
from weft.session.settings import Settings
from weft.session.statistics_report import StatisticsReport
from weft.session.validation import check
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # only running needs kernels
    from weft.runtime.loop.handle import Running
    from weft.runtime.observe.metrics import Backlog, BatchMetrics

__all__ = ["SessionViews"]


class SessionViews:
    """The part of a session that shows what it does; ``_last_run`` is what runs, or ran last."""

    catalog: Catalog
    statistics: Statistics
    _settings: Settings
    _planner: Planner
    _registered: Registered
    _graphs: QueryGraphs
    _last_run: Running | None

    @checked(QueryError)
    def query_progress(self, name: str) -> QueryProgress:
        """How a query is getting on."""
        if self._last_run is None:
            return QueryProgress(name, "planned")
        loop = self._last_run.loop
        if loop.decider.changelog.request(name) is not None:
            return QueryProgress(name, "waiting")
        return progress_of(name, loop.active_queries, loop.history, loop.state_of, loop.suspended())

    @property
    def suspended(self) -> Mapping[str, str]:
        """The queries that are suspended, each with the reason: a sink or a stream that fails; nothing is lost."""
        found = {} if self._last_run is None else self._last_run.loop.suspended()
        return {name: one.reason for name, one in found.items()}

    @property
    def is_active(self) -> bool:
        """Whether the session has been started and has not ended."""
        return self._last_run is not None and self._last_run.is_active

    @checked(QueryError)
    def failure_of(self, name: str) -> ResultError | None:
        """Why the results of a query are not complete and never will be; None unless it failed or reached a limit."""
        loop = self._last_run.loop if self._last_run is not None else None
        return failure_of(name, loop.active_queries, loop.before) if loop is not None else None

    @property
    def totals(self) -> Totals:
        """What the session has done since its checkpoint began, in all runs: batches, rows and results."""
        return self._last_run.loop.history.totals if self._last_run is not None else Totals()

    @property
    def run_totals(self) -> Totals:
        """What the run under way has done, or did, without the earlier ones that it continues."""
        return (
            self.totals.since(self._last_run.loop.history.began) if self._last_run is not None else Totals()
        )

    @property
    def resumed_after(self) -> int:
        """The last batch of the run that this one continues; -1 if it is the first, or nothing is known of it."""
        return self._last_run.loop.history.resumed if self._last_run is not None else -1

    @property
    def progress(self) -> Mapping[str, list[BatchMetrics]]:
        """What every batch of every query did: rows, matches, state, latency, time per hop; also after the end."""
        if self._last_run is None:
            raise ConfigError("the session has not run yet", hint="start() it first")
        return OwnProgress(self._last_run.loop.history, dict(self._registered.requests))

    def backlog(self) -> Mapping[str, Backlog]:
        """What of every stream waits to be read: parts, rows, bytes, and for how long; nothing before the start."""
        return self._last_run.loop.backlog() if self._last_run else {}

    @checked(QueryError)
    def batches_after(self, number: int) -> tuple[tuple[PhysicalGraph | None, BatchMetrics], ...]:
        """What the batches after one did that this run has committed, each with the graph that it ran by.

        They are of all queries together. The last thousand batches are remembered, and fewer of their graphs: None
        stands for one that is forgotten.
        """
        if self._last_run is None:
            return ()
        history = self._last_run.loop.history
        # before the graphs, since another thread adds a graph before its first batch
        batches = [one for one in history.batches if history.is_committed(one[1].number)]
        found = takewhile(lambda one: one[1].number > number, reversed(batches))
        return tuple((history.graphs.get(graph), metrics) for graph, metrics in reversed(list(found)))

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The processes of the tasks that stay while the session runs; none where batches run otherwise."""
        found: tuple[int, ...] = getattr(self._last_run.loop.executor, "pids", ()) if self._last_run else ()
        return found

    @property
    def unfinished(self) -> Mapping[str, tuple[str, ...]]:
        """What the streams have that cannot be read yet, such as files that are still being written, and why."""
        return self._last_run.loop.intake.unfinished() if self._last_run else {}

    def measured(self) -> Statistics:
        """The statistics given, with what was sampled and measured lately; queries are planned by it."""
        requests = self._registered.requests.values()
        return self._known_for([core_and_closing(request.query)[0] for request in requests])

    def _known_for(self, queries: Collection[Query]) -> Statistics:
        """What is known of the data that matters for some queries."""
        return self._graphs.measured(self.statistics, queries)

    def statistics_report(self) -> StatisticsReport:
        """What is known of every stream and predicate: value, source, age and evidence; as text, a table.

        The sources are observed, sampled, given and default, the most trusted first.
        """
        return self._graphs.report(self.statistics, self.catalog)

    @property
    def plan_history(self) -> tuple[PlanChange, ...]:
        """Every change of the plan because the data changed: when, why, what it promised and what it brought."""
        return self._graphs.loop.config.adapter.changes if self._graphs.loop is not None else ()

    @property
    def execution(self) -> str:
        """How batches run: auto, resident, jobs or local."""
        return self._settings.execution

    @property
    def query_limit(self) -> int:
        """How many queries may run at once."""
        return self._settings.query_limit

    @property
    def queries(self) -> tuple[PlannedQuery, ...]:
        """All planned queries, oldest first."""
        return tuple(self._registered.queries.values())

    @property
    def tables(self) -> Mapping[str, TableProgress]:
        """Every table: its version in force, its rows, when it was read, and how looking at it again goes."""
        known = {stream.name: TableProgress(stream.name) for stream in self.catalog.streams if stream.table}
        return {**known, **(self._last_run.loop.tables.progress() if self._last_run is not None else {})}

    def explain(self) -> str:
        """The plans of all queries: what is expected of every step and, once it has run, what was observed.

        Before the start, this is what the queries with a sink will run by, all together. Tables come last.
        """
        plans = explain_queries(self.queries, self.shared_graph, self._graphs.observed_batches())
        texts = (plans, history_text(self.plan_history), tables_text(self.tables.values()))
        return "\n".join(text for text in texts if text)

    @property
    def shared_graph(self) -> PhysicalGraph | None:
        """The graph that all queries with a sink run by together, or will run by; None: there are none."""
        return self._graphs.shared_graph(self._planner)

    @checked(QueryError)
    def graph_of(self, name: str) -> PhysicalGraph:
        """The graph that answers a query, under its author's names, with what is expected of every step."""
        loop = self._graphs.loop
        expected = loop.config.adapter.expected if loop is not None else None
        return self._graphs.graph_of(name, self._planner, expected or self.statistics, self._settings.options)

    @checked(QueryError)
    def expected_of(self, name: str) -> tuple[dict[str, StepCost], dict[str, StoreCost]]:
        """What is expected of a query's probes, by edge, and of its stores, by name, as the shared graph has them."""
        loop = self._graphs.loop
        expected = loop.config.adapter.expected if loop is not None else None
        given = (self._planner, expected or self.statistics, self._settings.options)
        return self._graphs.expected_of(name, *given)

    @checked(QueryError)
    def compare(self, query: Query) -> str:
        """What every strategy would make of a query, the cheapest first."""
        check(query, Query, QueryError, "a query to compare", "session.parse gives one of a text")
        return compare(costs_of(query, self.statistics, self._settings.options, deadline_of))
