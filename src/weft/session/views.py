"""What can be seen of a session: its plans, what is expected of them, and what its batches did and measured.

Guarantees: looking changes nothing. All of it can be asked before the start, while the session runs, and afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from weft.adapting.planner import Planner, StartPlan, deadline_of
from weft.errors import ConfigError, QueryError, ResultError, nearest
from weft.logical.arguments import checked
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.query import Query
from weft.optimizer.expected_cost import with_estimates
from weft.optimizer.single.strategies import costs_of
from weft.optimizer.space import Options
from weft.plan.join_plan import StepCost, StoreCost
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.part import part_of
from weft.plan.physical.rules import ProbeRule
from weft.plan.show.explain import compare
from weft.runtime.log.totals import Totals
from weft.runtime.observe.analysis import Analysis, analyse
from weft.runtime.observe.plan_changes import PlanChange, history_text
from weft.runtime.observe.progress import OwnProgress, QueryProgress, failure_of, progress_of
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.observe.table_progress import TableProgress, tables_text
from weft.runtime.queries.request import QueryRequest
from weft.session.planned_query import PlannedQuery, explain_queries
from weft.session.registry import Registered
from weft.session.settings import Settings
from weft.session.show.statistics_report import StatisticsReport, statistics_report
from weft.session.validation import check
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # only running needs kernels
    from weft.runtime.loop.handle import Running
    from weft.runtime.loop.loop import Loop
    from weft.runtime.observe.metrics import Backlog, BatchMetrics

__all__ = ["QueryGraphs", "SessionViews", "cores_of"]


@dataclass
class QueryGraphs:
    """Which graph answers each query of a session; ``loop`` is what runs or ran last, None before the first start.

    Before the start it is the query's part of the graph that the first batch will run by (``planner``), then its part
    of the one that runs, or ran last. A part is worked out again only if what it is made from changes.
    """

    registered: Registered
    planner: Planner
    measured: RecentStatistics
    loop: Loop | None = None
    _parts: dict[str, tuple[tuple[PhysicalGraph, Statistics, Options], PhysicalGraph]] = field(
        default_factory=dict
    )

    def shared_graph(self) -> PhysicalGraph | None:
        """The graph that all queries share that run, or will run; None: there are none."""
        if self.loop is not None:
            return self.loop.active_queries.program.graph if self.loop.active_queries.program else None
        return self._start_plan().graph if self.registered.starting else None

    def _start_plan(self) -> StartPlan:
        """The plan that all queries with a sink begin by."""
        requests = self.registered.starting
        return self.planner.start_plan(requests, self.measured.for_queries(cores_of(requests)))

    def graph_of(self, name: str, options: Options) -> PhysicalGraph:
        """The graph that answers a query, under its author's names, with what is expected of every step."""
        if name not in self.registered.queries:
            raise QueryError(f"there is no query {name!r}", hint=nearest(name, self.registered.queries))
        graph = self._last_graph_with(name)
        if graph is not None:
            names = self.registered.requests[name].names
        else:
            start = self.registered.alone.get(name) or self._start_plan()
            graph, names = start.graph, start.requests[name].names
        made_from = (graph, self._expected(), options)
        part = self._parts.get(name)
        if part is None or any(old is not new for old, new in zip(part[0], made_from, strict=True)):
            own = with_estimates(part_of(graph, name, dict(names)).graph, *made_from[1:])
            self._parts[name] = part = made_from, own
        return part[1]

    def _expected(self) -> Statistics:
        """What the plan that runs was made from; before the start, what the session was told."""
        expected = self.loop.config.adapter.expected if self.loop is not None else None
        return expected or self.measured.given

    def expected_of(self, name: str, options: Options) -> tuple[dict[str, StepCost], dict[str, StoreCost]]:
        """What is expected of the probes and stores of a query that runs, under the shared graph's names."""
        own, request = self.graph_of(name, options), self.registered.requests.get(name)
        shared = self._last_graph_with(name)
        if shared is None or request is None:
            return {}, {}
        part = part_of(shared, name, dict(request.names))
        steps = {rule.edge: rule.estimate for rule in own.rules if isinstance(rule, ProbeRule)}
        stores = {store.store: store for store in own.cost.stores} if own.cost else {}
        probes = {edge: steps.get(own_edge) for edge, own_edge in part.edges.items()}
        held = {shared: stores.get(part.graph.store(store).aliases) for shared, store in part.stores.items()}
        return (
            {edge: cost for edge, cost in probes.items() if cost is not None},
            {store: cost for store, cost in held.items() if cost is not None},
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


def cores_of(requests: Mapping[str, QueryRequest]) -> list[Query]:
    """The parts of queries that are optimised, by which statistics are asked for."""
    return [core_and_closing(request.query)[0] for request in requests.values()]


class SessionViews:
    """The part of a session that shows what it does; ``_last_run`` is what runs, or ran last."""

    catalog: Catalog
    _measured: RecentStatistics
    _settings: Settings
    _registered: Registered
    _graphs: QueryGraphs
    _last_run: Running | None

    @checked(QueryError)
    def query_progress(self, name: str) -> QueryProgress:
        """How a query is getting on."""
        if self._last_run is None:
            return QueryProgress(name, "planned")
        loop = self._last_run.loop
        if loop.batch_planner.changelog.request(name) is not None:
            return QueryProgress(name, "waiting")
        slow = loop.watch.slow.reasons
        return progress_of(name, loop.active_queries, loop.history, loop.state_of, loop.suspended(), slow)

    @property
    def suspended(self) -> Mapping[str, str]:
        """The queries that are suspended, each with the reason: a sink or a stream that fails; nothing is lost."""
        suspended = {} if self._last_run is None else self._last_run.loop.suspended()
        return {name: one.reason for name, one in suspended.items()}

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
        newer = takewhile(lambda one: one[1].number > number, reversed(batches))
        return tuple((history.graphs.get(graph), metrics) for graph, metrics in reversed(list(newer)))

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The processes of the tasks that stay while the session runs; none where batches run otherwise."""
        pids: tuple[int, ...] = getattr(self._last_run.loop.executor, "pids", ()) if self._last_run else ()
        return pids

    @property
    def unfinished(self) -> Mapping[str, tuple[str, ...]]:
        """What the streams have that cannot be read yet, such as files that are still being written, and why."""
        return self._last_run.loop.intake.unfinished() if self._last_run else {}

    def measured(self) -> Statistics:
        """The statistics given, with what was sampled and measured lately; queries are planned by it."""
        return self._measured.for_queries(cores_of(self._registered.requests))

    def statistics_report(self) -> StatisticsReport:
        """What is known of every stream and predicate: value, source, age and evidence; as text, a table.

        The sources are observed, sampled, given and default, the most trusted first.
        """
        queries = cores_of(self._registered.requests)
        self._measured.for_queries(queries)  # so that what batches measured since is known
        last = self._graphs.loop.history.last if self._graphs.loop else None
        return statistics_report(
            self._measured.given,
            self._measured.known,
            [stream.name for stream in self.catalog.streams],
            queries,
            sampled=self._measured.sampled(queries),
            heavy=last.heavy if last else {},
        )

    @property
    def plan_history(self) -> tuple[PlanChange, ...]:
        """Every change of the plan because the data changed: when, why, what it promised and what it brought.

        Changes of the tasks by which it runs are among them, whether you asked for them or the load did.
        """
        loop = self._graphs.loop
        if loop is None:
            return ()
        return tuple(sorted((*loop.config.adapter.changes, *loop.scaling.changes), key=lambda one: one.batch))

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

    @checked(ConfigError)
    def explain(self, *, analyze: bool = False) -> str:
        """The plans of all queries: what is expected of every step and, once it has run, what was observed.

        Before the start, this is what the queries with a sink will run by, all together. Tables come last. With
        ``analyze``, it is where their time and memory went since they run by this plan: `analysis` as text.
        """
        if analyze:
            return str(self.analysis())
        plans = explain_queries(self.queries, self.shared_graph, self._graphs.observed_batches())
        texts = (plans, history_text(self.plan_history), tables_text(self.tables.values()))
        return "\n".join(text for text in texts if text)

    def analysis(self) -> Analysis:
        """Where time and memory went since the queries run by this plan: every step, and a bill for each query.

        The bills add up to what was measured; what queries share is divided among them (`Analysis` says how).
        """
        history = self._graphs.loop.history if self._graphs.loop is not None else None
        batches = (
            [] if history is None else [one for one in history.batches if history.is_committed(one[1].number)]
        )
        graph = history.graphs.get(batches[-1][0]) if history is not None and batches else None
        if graph is None:
            raise ConfigError("no batch has run yet", hint="start() the session, or run_available()")
        return analyse(graph, [metrics for number, metrics in batches if number == batches[-1][0]])

    @property
    def shared_graph(self) -> PhysicalGraph | None:
        """The graph that all queries with a sink run by together, or will run by; None: there are none."""
        return self._graphs.shared_graph()

    @checked(QueryError)
    def graph_of(self, name: str) -> PhysicalGraph:
        """The graph that answers a query, under its author's names, with what is expected of every step."""
        return self._graphs.graph_of(name, self._settings.options)

    @checked(QueryError)
    def expected_of(self, name: str) -> tuple[dict[str, StepCost], dict[str, StoreCost]]:
        """What is expected of a query's probes, by edge, and of its stores, by name, as the shared graph has them."""
        return self._graphs.expected_of(name, self._settings.options)

    @checked(QueryError)
    def compare(self, query: Query) -> str:
        """What every strategy would make of a query, the cheapest first."""
        check(query, Query, QueryError, "a query to compare", "session.parse gives one of a text")
        return compare(costs_of(query, self._measured.given, self._settings.options, deadline_of))
