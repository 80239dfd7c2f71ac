"""The path of a query, on one screen: parse, bind, optimise, lower, run.

Guarantees: a query that is refused leaves the session as it was. Planning needs neither Spark nor Java; `start` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.ahead import loading_ahead
from weft.arguments import (
    check,
    check_backfill,
    check_free,
    check_one_of,
    check_readable,
    dead_letters_of,
    duration_of,
    free_name,
    ordering_for,
    stream_of,
    tasks_of,
)
from weft.bounded import shown
from weft.errors import ConfigError, QueryError, StatisticsError, nearest
from weft.logical.canonical import canonical
from weft.logical.catalog import Catalog
from weft.logical.ordering import Ordering
from weft.logical.query import Input, Query
from weft.logical.query_limits import DEFAULT_LIMITS, Limits
from weft.logical.waiting import check_closing, patient
from weft.optimizer.expected_cost import calls_of
from weft.optimizer.ranking import ranked
from weft.optimizer.single.strategies import STRATEGIES, costs_of, optimise
from weft.optimizer.space import Options
from weft.patience import deadline_of
from weft.plan.explain import compare
from weft.plan.graph import PhysicalGraph
from weft.plan.lower import lower
from weft.planned import PlannedQuery, explained
from weft.registering import expected, packed
from weft.runtime.loop.driver import DEFAULT
from weft.runtime.observe.feedback import heavy_known, measured
from weft.runtime.observe.progress import OwnProgress, QueryProgress, progress_of
from weft.runtime.queries.request import QueryRequest
from weft.runtime.task.functions import PackedFunction
from weft.settings import Settings
from weft.sinks.describe import described, in_order
from weft.sinks.protocol import Sink
from weft.sources.dead_letter import DeadLetterLimit
from weft.sources.spec import Source
from weft.sql.bind import parse_predicate, parse_query
from weft.sql.builder import Builder
from weft.stats.statistics import Statistics

if TYPE_CHECKING:
    from weft.runtime.loop.handle import Running
    from weft.runtime.observe.metrics import BatchMetrics

__all__ = ["PlannedQuery", "Session"]

TELLING = 16  # queries whose figures say enough of the data


class Session:
    """Streams, what is known of them, and the queries over them.

    Selectivities within ``statistics`` must be under the names that `predicate_name` gives; `selectivity` takes a
    predicate in any spelling. ``key_limit`` is how many results one key of an outer join on one key may have,
    ``result_limit`` how many a query may have in one batch: one that has more is stopped; ``limits`` how large a query
    may be. ``memory``, as in "2 GB", is what one task may work with; by default, tasks share half of what the machine
    has. Batches run in tasks that stay (``execution="resident"``), as jobs of Spark ("jobs"), or as there is room.
    """

    def __init__(
        self,
        *,
        checkpoint: str | Path | None = None,
        master: str = "local[*]",
        spark: Any = None,
        statistics: Statistics | None = None,
        options: Options | None = None,
        driver: str = DEFAULT,
        dead_letter_limit: DeadLetterLimit | int | None = None,
        joint: str = "auto",
        query_limit: int = 1_000,
        state_limit: int | None = None,
        key_limit: int = 10_000_000,
        execution: str = "auto",
        limits: Limits | None = None,
        memory: str | int | None = None,
        result_limit: int | None = None,
    ) -> None:
        check(statistics, Statistics | None, ConfigError, "statistics", "use weft.Statistics")
        check(options, Options | None, ConfigError, "options", "use weft.Options")
        check(limits, Limits | None, ConfigError, "limits", "use weft.Limits")
        self._limits = limits or DEFAULT_LIMITS
        bad = dead_letters_of(dead_letter_limit)
        self._settings = Settings(
            checkpoint,
            master,
            spark,
            driver,
            bad,
            joint,
            query_limit,
            state_limit,
            key_limit,
            execution,
            memory,
            result_limit,
        )
        self.catalog = Catalog()
        self.statistics = statistics or Statistics()
        self.options = options or Options()
        if self.options.tasks is None:
            self.options = replace(self.options, tasks=tasks_of(master, spark))
        self._functions: dict[str, PackedFunction] = {}
        self._sources: dict[str, Source] = {}
        self._sinks: dict[str, Sink] = {}
        self._running: Running | None = None  # while it runs
        self._run: Running | None = None  # the last one, also when it is over
        self._queries: dict[str, PlannedQuery] = {}
        self._requests: dict[str, QueryRequest] = {}
        self._ends = False  # whether the input is taken to end, some day

    def stream(
        self,
        name: str,
        source: Any,
        *,
        event_time: str | None = None,
        lateness: timedelta | str = timedelta(0),
        late: str = "drop",
        idle_after: timedelta | str | None = None,
    ) -> None:
        """Register a stream that queries can name.

        ``source`` is what it is read from (`weft.files`, `weft.rate`, any streaming DataFrame) or, to plan only, its
        schema. Tuples more than ``lateness`` behind the newest of earlier batches are late: they are dropped, or
        joined with what is still there. A stream silent for longer than ``idle_after`` does not hold others back.
        """
        stream, found = stream_of(name, source, event_time, lateness, late, idle_after)
        self.catalog = self.catalog.add(stream)
        if found is not None:
            self._sources[name] = found
            if self._running is not None:
                self._running.loop.add_stream(stream, found)

    def function(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        returns: str,
        selectivity: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Register a function that queries can call: in conditions, and in what they give.

        It takes one Arrow array per argument, NULLs included, and gives one of the same length and of the type
        ``returns``. It must be deterministic: how often it is called is up to the plan. If it fails, the queries that
        call it stop. ``selectivity`` and ``cost``, in seconds per row, are what is expected until it is measured.

        >>> import pyarrow.compute as pc
        >>> session = Session()
        >>> session.stream("a", "x double")
        >>> session.function("large", lambda x: pc.greater(x, 10), returns="boolean", selectivity=0.1)
        >>> print(session.parse("SELECT a.x FROM a WHERE large(a.x)"))
        SELECT a.x AS x FROM a WHERE LARGE(a.x)
        """
        made = packed(name, function, returns)
        catalog = self.catalog.define(made.declared)
        self.statistics = expected(self.statistics, made.declared, selectivity, cost)
        self.catalog, self._functions[made.declared.name] = catalog, made

    def selectivity(self, predicate: str, value: float) -> None:
        """Say what part of all pairs, or of a stream's tuples, a predicate lets through.

        The predicate is over the streams' own names and may be spelled in any way; it holds for all queries planned
        from now on, and replaces what was said of it before. Of several conditions (``BETWEEN``) each gets a part.

        >>> session = Session()
        >>> session.stream("a", "k long")
        >>> session.stream("b", "k long")
        >>> session.selectivity("b.k = a.k", 0.5)
        >>> session.statistics.selectivities
        {'a.k = b.k': 0.5}
        """
        check(predicate, str, StatisticsError, "a predicate", 'use a text, as in "a.k = b.k"')
        check(value, int | float, StatisticsError, "a selectivity", "use a number between 0 and 1")
        inputs = [Input(stream.name, stream) for stream in self.catalog.streams]
        parsed = parse_predicate(predicate, inputs, self.catalog.functions)
        self.statistics = self.statistics.given(parsed, value)

    def query(
        self,
        text: str | Builder,
        *,
        name: str | None = None,
        sink: Sink | None = None,
        strategy: str | None = None,
        cross: bool = False,
        backfill: bool = False,
        emit_unmatched_after: timedelta | str | None = None,
        order: str = "none",
        precision: int | None = None,
    ) -> PlannedQuery:
        """Plan a query, given as SQL or by the builder; ``cross`` permits a cross product.

        With a sink, it runs when the session is started; if it is running already, from the next batch on, and then it
        sees what others have stored. With ``backfill``, it also gives the results that lie wholly in the stored past.

        Rows of outer joins that have no partner are given when none can come any more. Where that is never, for want of
        a window, ``emit_unmatched_after`` is how long they wait: as if their inputs had a window of that length.

        Results leave in an ``order``: "outer" or "inner", with a ``precision``, or "event" (`weft.logical.ordering`).
        """
        chosen = self._chosen(name, sink)
        check(strategy, str | None, ConfigError, "a strategy", nearest("", STRATEGIES))
        options = self.options if strategy is None else replace(self.options, strategy=strategy)
        check_one_of(options.strategy, STRATEGIES, "strategy")
        parsed = self.parse(text, cross=cross)
        if backfill:
            check_backfill(parsed)
        if emit_unmatched_after is not None:
            parsed = patient(parsed, duration_of(emit_unmatched_after, "emit_unmatched_after"))
        ordering = ordering_for(text, parsed, self.catalog, order, precision, backfill=backfill)
        planned = self._plan(parsed, chosen, options, in_order(sink, ordering), ordering)
        if planned.sink is not None:
            self._ask(planned, planned.sink, strategy, backfill)
        self._queries[chosen] = planned
        return planned

    def parse(self, text: str | Builder, *, cross: bool = False) -> Query:
        """A text or builder, parsed and bound to this session's streams."""
        check(text, str | Builder, QueryError, "a query", "use SQL, or begin with weft.select")
        if isinstance(text, Builder):
            return (text.cross() if cross else text).build(self.catalog, self._limits)
        return parse_query(text, self.catalog, cross=cross, limits=self._limits)

    def _plan(
        self, query: Query, name: str, options: Options, sink: Sink | None, order: Ordering | None = None
    ) -> PlannedQuery:
        statistics = self.measured()
        plan = optimise(query, statistics, options, deadline_of(options))
        calls = calls_of(query, statistics)
        graph = lower(plan, name, order, ranked([plan.query], statistics))
        return PlannedQuery(name, query, plan, graph, sink, self, calls, order)

    def _ask(self, planned: PlannedQuery, sink: Sink, strategy: str | None, backfill: bool) -> None:
        """Have a query run: at the start, or from the next batch on."""
        common = canonical(planned.query)
        ordering = planned.ordering and planned.ordering.renamed({old: new for new, old in common.names})
        request = QueryRequest(common.query, common.names, strategy, backfill, described(sink), ordering)
        if self._running is not None:
            if not self._ends:
                check_closing(planned.query, planned.name)
            check_readable({planned.name: request}, self._sources)
            self._running.loop.add(planned.name, request, sink)
        self._requests[planned.name], self._sinks[planned.name] = request, sink

    def start(self, *, available_now: bool = False, ends: bool = False) -> None:
        """Run all queries that have a sink, and return at once; with ``available_now``, what is there and no more.

        With ``ends``, the input will end, and rows of outer joins may wait for that: `end` says when.
        """
        for name, request in self._requests.items() if not ends else ():
            check_closing(request.query.renamed(dict(request.names)), name)
        self._start(available_now=available_now, ends=ends)

    def end(self) -> None:
        """Process what is there and take it for all there is: what waits for a partner, or for its time, is given."""
        loop = self._runs().loop
        self.process_all_available()
        if any(request.waits for request in self._requests.values()):
            loop.end_input()
            self.process_all_available()

    def run_available(self, *, end: bool = True) -> None:
        """Run all queries that have a sink over the input that is there, show how far they are, and stop.

        It is taken for all there is: rows of outer joins that have no partner are given. With ``end=False`` those for
        which one may still come are left open, for input that comes another day.
        """
        self._start(ends=True)
        loop = self._runs().loop
        try:
            with shown(loop.history, loop.config.sources.values()):
                self.end() if end else self.process_all_available()
        finally:
            self.stop()

    def _start(self, *, available_now: bool = False, ends: bool = False) -> None:
        settings = self._settings
        if settings.checkpoint is None:
            raise ConfigError("running needs a checkpoint", hint='make it Session(checkpoint="ck")')
        if self._running is not None:
            raise ConfigError("the session is running already", hint="stop() it first")
        if not self._sinks:
            raise ConfigError("no query has a sink", hint="as in session.query(…, sink=weft.to_memory())")
        check_readable(self._requests, self._sources)
        from weft.runtime.spark.session import create_spark  # only running needs Spark, and kernels
        from weft.runtime.spark.workers import check_workers, start_workers

        with loading_ahead():
            spark = settings.spark or create_spark(settings.master)
        start_workers(spark)  # which takes as long as all that follows
        check_workers(spark)
        from weft.running import run

        self._run = self._running = run(
            spark,
            settings,
            self.catalog,
            self._sources,
            {name: (request, self._sinks[name]) for name, request in self._requests.items()},
            self.measured,
            self.options,
            self._functions,
            available_now=available_now,
        )
        self._ends = ends
        self._restore()

    def _chosen(self, name: str | None, sink: Sink | None) -> str:
        """A query's name, if it and its sink are free."""
        stopped = self._run.loop.active_queries.stopped if self._run else {}
        chosen = free_name(name, [known for known in self._queries if known not in stopped])
        if sink is not None:
            check_free(sink, self._sinks, stopped, self._settings.query_limit)
        return chosen

    def _restore(self) -> None:
        """Queries that were added while an earlier run went on, and run again now."""
        loop = self._runs().loop
        for name, request in loop.active_queries.requests.items():
            if name not in self._queries:
                query = request.query.renamed(dict(request.names))
                self._requests[name], self._sinks[name] = request, loop.sinks[name]
                order = request.ordering and request.ordering.renamed(dict(request.names))
                self._queries[name] = self._plan(query, name, self.options, loop.sinks[name], order)

    def stop_query(self, name: str) -> None:
        """Run a query no longer, from the next batch on; the others go on."""
        if name not in self._queries:
            raise QueryError(f"there is no query {name!r}", hint=nearest(name, self._queries))
        self._runs().loop.stop_query(name)

    def query_progress(self, name: str) -> QueryProgress:
        """How a query is getting on."""
        if self._run is None:
            return QueryProgress(name, "planned")
        loop = self._run.loop
        return progress_of(name, loop.active_queries, loop.history, loop.state_of)

    def process_all_available(self) -> None:
        """Wait until all that was there when this was called is processed."""
        self._runs().process_all_available()

    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait until the session has stopped or failed, or so many seconds; whether it has stopped."""
        return self._runs().await_termination(timeout)

    def stop(self) -> None:
        """Stop after the batch under way; a session that is not running stays so."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    @property
    def progress(self) -> Mapping[str, list[BatchMetrics]]:
        """What every batch of every query did: rows, probes, matches, state, time per hop; also after the end."""
        if self._run is None:
            raise ConfigError("the session has not run yet", hint="start() it first")
        return OwnProgress(self._run.loop.history, dict(self._requests))

    @property
    def unfinished(self) -> Mapping[str, tuple[str, ...]]:
        """What the streams have that cannot be read yet, such as files that are still being written, and why."""
        return self._run.loop.intake.unfinished() if self._run else {}

    def measured(self) -> Statistics:
        """The statistics given, with what the queries measured since they began; queries are planned by it."""
        statistics = heavy_known(self.statistics, self._run.loop.history.last if self._run else None)
        for graph, batches in self._seen(most=TELLING).values():
            statistics = measured(statistics, graph, batches)
        return statistics

    def _seen(self, most: int | None = None) -> dict[str, tuple[PhysicalGraph, list[BatchMetrics]]]:
        """The graph that each query runs by, and its batches since it does; of the largest queries, if not of all."""
        return self._run.loop.history.since_planned(self._requests, most) if self._run else {}

    def _runs(self) -> Running:
        if self._running is None:
            raise ConfigError("the session is not running", hint="start() it first")
        return self._running

    @property
    def queries(self) -> tuple[PlannedQuery, ...]:
        """All planned queries, oldest first."""
        return tuple(self._queries.values())

    def explain(self) -> str:
        """The plans of all queries: what is expected of every step and, once it has run, what was observed."""
        runs = self._run.loop.active_queries.program if self._run else None
        graph = runs.graph if runs else None
        return explained(self.queries, self._seen(), graph, self.statistics, self.options)

    def compare(self, query: Query) -> str:
        """What every strategy would make of a query, the cheapest first."""
        check(query, Query, QueryError, "a query to compare", "session.parse gives one of a text")
        return compare(costs_of(query, self.statistics, self.options, deadline_of))
