"""What a query would be if it were run: its plan, and what it would share with the queries that run.

Guarantees: nothing changes; the plan is made by a planner of its own, from what runs and what is known at that moment,
as it would be made if the query began with the next batch. A question is plain data, so that it can be answered in
another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING

from weft.adapting.planner import Planner, PreparedPlans, deadline_of
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.optimizer.expected_cost import calls_of, with_estimates
from weft.optimizer.single.strategies import costs_of
from weft.optimizer.space import Options
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.part import part_of
from weft.plan.physical.rules import ProbeRule
from weft.plan.show.explain import compare, explain
from weft.plan.show.svg import picture
from weft.plan.workload import WorkloadPlan
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.queries.request import QueryRequest
from weft.session.planned_query import PlannedQuery
from weft.session.registry import Registered
from weft.session.settings import Settings
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # only running needs kernels
    from weft.runtime.loop.loop import Loop
    from weft.runtime.queries.active import Samples
    from weft.runtime.queries.visibility import StateFacts

__all__ = [
    "CompareQuestion",
    "LoadQuestion",
    "PrepareQuestion",
    "Preview",
    "PreviewQuestion",
    "RunningQueries",
    "prepare_question",
    "preview_question",
]


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan that a query would get.

    ``graph`` is its part of the graph that all queries would run by, under its author's names. ``shares`` are the
    stores that are there already and that it would use too, ``adds`` those that would be new, which are expected to
    hold ``added_rows`` tuples. ``running`` is the graph that runs, None if there is none, and ``together`` the one that
    would take its place.
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

    def __repr__(self) -> str:
        sql = shorten(str(self.query), 120, placeholder=" …")
        shares, adds = (", ".join(names) or "nothing" for names in (self.shares, self.adds))
        return f"<Preview of {sql}: would share {shares}, would add {adds}>"

    def _repr_html_(self) -> str:
        shares, adds = (", ".join(names) or "nothing" for names in (self.shares, self.adds))
        text = f"<code>{escape(str(self.query))}</code>"
        return (
            f"<p>{text}<br>would share: {escape(shares)} · would add: {escape(adds)}</p>{picture(self.graph)}"
        )

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


@dataclass(frozen=True, slots=True)
class PreviewQuestion:
    """A query that somebody wants to see the plan of, and all that this plan depends on, as plain data.

    ``name`` is that of the query among ``requests``, which are those that run, or would begin with it. ``running`` is
    what these run by, None before the start. ``statistics`` are what is known of the data that matters for all of them,
    ``own`` for the query alone.
    """

    name: str
    query: Query
    strategy: str
    ordering: Ordering | None
    requests: Mapping[str, QueryRequest]
    statistics: Statistics
    own: Statistics
    options: Options
    method: str
    quick: bool
    running: RunningQueries | None = None

    def answer(self) -> Preview:
        """The plan that the query would get."""
        planner = Planner(self.options, self.method, quick=self.quick)
        before, graph = self._graphs(planner)
        there = {store.identity for store in before.stores} if before is not None else set()
        used = [store for store in graph.stores if self.name in store.users]
        part = part_of(graph, self.name, dict(self.requests[self.name].names))
        own = with_estimates(part.graph, self.own, self.options)
        new = {part.stores[store.name] for store in used if store.identity not in there}
        sizes = {store.store: store.size for store in own.cost.stores} if own.cost else {}
        return Preview(
            self.query,
            self.strategy,
            self.ordering,
            own,
            self.own,
            tuple(store.name for store in used if store.identity in there),
            tuple(store.name for store in used if store.identity not in there),
            sum(sizes.get(own.store(store).aliases, 0.0) for store in new),
            before,
            graph,
        )

    def _graphs(self, planner: Planner) -> tuple[PhysicalGraph | None, PhysicalGraph]:
        """The graph without the query, None if there is none, and the one with it."""
        if self.running is not None:
            return self.running.graph, self.running.plan_with(planner, self.requests, self.statistics)
        others = {name: request for name, request in self.requests.items() if name != self.name}
        graph = planner.start_plan(self.requests, self.statistics).graph
        return planner.start_plan(others, self.statistics).graph if others else None, graph


@dataclass(frozen=True, slots=True)
class PrepareQuestion:
    """A query that is about to be added, whose plans are to be worked out before: ``preview`` has all it takes.

    ``inner`` are the queries of its sub-selects, which begin with it, and ``others`` those that run beside it then.
    """

    preview: PreviewQuestion
    others: Mapping[str, QueryRequest]
    inner: Mapping[str, QueryRequest]

    @property
    def inputs(self) -> int:
        """How many inputs the query has, with those of its sub-selects."""
        queries = [self.preview.query, *(request.query for request in self.inner.values())]
        return sum(len(query.inputs) for query in queries)

    def answer(self) -> PreparedPlans:
        """The plans that `Planner.expect` takes."""
        asked, running = self.preview, self.preview.running
        planner = Planner(asked.options, asked.method, quick=asked.quick)
        requests = {**self.others, **self.inner, asked.name: asked.requests[asked.name]}
        if running is None:
            return planner.prepare(asked.name, requests, asked.statistics, None)
        runs = (running.plan, running.graph, running.fresh)
        return planner.prepare(asked.name, requests, asked.statistics, runs, running.samples)


@dataclass(frozen=True, slots=True)
class RunningQueries:
    """What queries run by, and what is known of their state: all that planning one more depends on."""

    requests: Mapping[str, QueryRequest]
    plan: WorkloadPlan | None
    graph: PhysicalGraph | None
    fresh: int
    facts: StateFacts
    samples: Samples | None

    @classmethod
    def of(cls, loop: Loop) -> RunningQueries:
        """What a loop runs now."""
        from weft.runtime.queries.visibility import StateFacts  # loaded by now

        active = loop.active_queries
        graph = active.program.graph if active.program is not None else None
        facts = StateFacts.after(loop.before)
        return cls(active.requests, active.plan, graph, active.fresh, facts, loop.batch_planner.samples)

    def plan_with(
        self, planner: Planner, wanted: Mapping[str, QueryRequest], statistics: Statistics
    ) -> PhysicalGraph:
        """The graph of the queries that are wanted, given those that run."""
        from weft.runtime.program.executable import ExecutableGraph  # which load the kernels
        from weft.runtime.queries.active import ActiveQueries

        program = ExecutableGraph(self.graph) if self.graph is not None else None
        active = ActiveQueries(self.requests, self.plan, program, fresh=self.fresh)
        return planner(active, wanted, statistics, self.facts, self.samples).graph


@dataclass(frozen=True, slots=True)
class LoadQuestion:
    """A question that has a process load what it needs to answer the others."""

    def answer(self) -> bool:
        """Load it."""
        import weft.runtime.program.executable
        import weft.runtime.queries.active  # noqa: F401

        return True


@dataclass(frozen=True, slots=True)
class CompareQuestion:
    """What every strategy would make of a query, the cheapest first, as a question of its own."""

    query: Query
    statistics: Statistics
    options: Options

    def answer(self) -> str:
        """The comparison as text."""
        return compare(costs_of(self.query, self.statistics, self.options, deadline_of))


def prepare_question(asked: PreviewQuestion, loop: Loop | None) -> PrepareQuestion:
    """Ask for the plans of a query that is about to be added, beside those that will run with the next batch."""
    if loop is None:
        return PrepareQuestion(asked, {}, {})
    changelog = loop.batch_planner.changelog
    waiting = {name: changelog.request(name) for name in changelog.waiting()}
    begin = {name: request for name, request in waiting.items() if request is not None}
    stopping = changelog.stopping()
    stay = {name: one for name, one in loop.active_queries.requests.items() if name not in stopping}
    inner = loop.derived.inner_queries(asked.requests[asked.name].query)
    return PrepareQuestion(asked, {**stay, **begin}, {one.name: one.request for one in inner})


def preview_question(
    planned: PlannedQuery,
    request: QueryRequest,
    registered: Registered,
    settings: Settings,
    measured: RecentStatistics,
    loop: Loop | None,
) -> PreviewQuestion:
    """Ask for the plan of a query beside those that run, or would begin with it; ``loop`` is what runs, if it does."""
    running = None if loop is None else RunningQueries.of(loop)
    others = registered.starting if running is None else running.requests
    requests = {**others, planned.name: request}
    cores = [core_and_closing(request.query)[0] for request in requests.values()]
    return PreviewQuestion(
        planned.name,
        planned.query,
        planned.strategy,
        planned.ordering,
        requests,
        measured.for_queries(cores),
        measured.for_queries(cores[-1:]),
        settings.options,
        settings.joint,
        settings.adapt != "off",
        running,
    )
