"""The session: parses, binds, plans and runs queries over the streams, tables and functions it knows.

Guarantees: a query that is refused leaves the session as it was. All queries go through one planner (`Planner`),
be it one or many, before the start and while they run: what `explain` shows before the start is what will run.
Planning needs neither Spark nor Java; `start` does, unless batches run in this process (``execution="local"``).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.adapting.planner import Planner
from weft.connectors.formats.dead_letters import DeadLetterLimit
from weft.errors import ConfigError, QueryError, nearest
from weft.logical.arguments import checked
from weft.logical.catalog import Catalog
from weft.logical.nested.flatten import Note
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.logical.query.query import Query
from weft.optimizer.adaptation import Adaptation
from weft.optimizer.space import Options
from weft.ports.sink import Sink
from weft.runtime.loop.driver import DEFAULT
from weft.runtime.observe.recent import RecentStatistics
from weft.runtime.queries.request import QueryRequest
from weft.session.planned_query import PlannedQuery
from weft.session.preview import CompareQuestion, Preview, PreviewQuestion, preview_question
from weft.session.progress_bar import progress_bar
from weft.session.query_graphs import QueryGraphs
from weft.session.registry import Registered, request_of
from weft.session.relations import SessionRelations
from weft.session.request import Wishes
from weft.session.result_frames import frame_sink, result_frame
from weft.session.settings import Settings
from weft.session.starting import start_run
from weft.session.validation import (
    check,
    options_for,
)
from weft.session.views import SessionViews
from weft.sql.bind import parse_with_notes
from weft.sql.builder import Builder
from weft.stats.known import HalfLife
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # only running needs Spark, and kernels
    from pyspark.sql import SparkSession

    from weft.runtime.loop.handle import Running
    from weft.runtime.queries.request import QueryRequest

__all__ = ["PlannedQuery", "Session"]


class Session(SessionRelations, SessionViews):
    """Streams, what is known of them, and the queries over them.

    Selectivities within ``statistics`` must be under the names that `predicate_name` gives; `selectivity` takes a
    predicate in any spelling. ``key_limit`` is how many results one key of an outer join on one key may have,
    ``result_limit`` how many a query may have in one batch: one that has more is stopped; ``limits`` how large a query
    may be. ``memory``, as in "2 GB", is what one task may work with; by default, tasks share half of what the machine
    has. Plans follow the data as ``adaptation`` says (``adapt="auto"``), stay as they are ("off"), or become others at
    the end of every epoch at which others seem better ("always"). Batches run in tasks that stay
    (``execution="resident"``), as jobs of Spark ("jobs"), as there is room ("auto"), or in this process, without Spark
    ("local"). With ``ship``, Weft is sent to the executors of a cluster, which need not have it installed. What is
    committed survives the end of all processes (``durability="process"``) or also that of the machine ("machine"), for
    which it is flushed to the disk.
    """

    def __init__(
        self,
        *,
        checkpoint: str | Path | None = None,
        master: str = "local[*]",
        spark: SparkSession | None = None,
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
        adapt: str = "auto",
        adaptation: Adaptation | None = None,
        ship: bool = False,
        durability: str = "process",
    ) -> None:
        check(statistics, Statistics | None, ConfigError, "statistics", "use weft.Statistics")
        self._settings = Settings(
            checkpoint=checkpoint,
            master=master,
            spark=spark,
            options=Options() if options is None else options,
            driver=driver,
            dead_letter_limit=dead_letter_limit,
            joint=joint,
            query_limit=query_limit,
            state_limit=state_limit,
            key_limit=key_limit,
            execution=execution,
            limits=DEFAULT_LIMITS if limits is None else limits,
            memory=memory,
            result_limit=result_limit,
            adapt=adapt,
            adaptation=Adaptation() if adaptation is None else adaptation,
            ship=ship,
            durability=durability,
        )
        self.catalog = Catalog()
        self.statistics = statistics or Statistics()
        self._planner = self._make_planner()
        self._registered = Registered()
        half_life = HalfLife(
            self._settings.adaptation.half_life_batches, self._settings.adaptation.half_life_seconds
        )
        self._graphs = QueryGraphs(self._registered, recent=RecentStatistics(half_life))
        self._current_run: Running | None = None
        self._last_run: Running | None = None  # also when it is over
        self._ends = False  # whether the input is taken to end, some day

    @property
    def options(self) -> Options:
        """How queries are planned; queries that run already go on by the options they were started with."""
        return self._settings.options

    @options.setter
    def options(self, options: Options) -> None:
        self._settings = replace(self._settings, options=options)
        self._planner = self._make_planner()

    def _make_planner(self) -> Planner:
        """A planner that leaves it to the background to plan all queries afresh, unless plans stay as they are."""
        quick = self._settings.adapt != "off"
        return Planner(self._known_for, self.options, self._settings.joint, quick=quick)

    @checked(QueryError, but=("text", "name", "strategy", "order", "precision"))
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
        Results leave in an ``order``: "outer" or "inner", with a ``precision``, or "event" (`Ordering`).
        """
        wishes = Wishes(sink, strategy, backfill, emit_unmatched_after, order, precision)
        planned, request = self._request(name, text, wishes, cross)
        self._register(planned, request)
        return planned

    def _register(self, planned: PlannedQuery, request: QueryRequest) -> None:
        """Plan a query and take it in; a query that cannot be planned, or cannot run, is refused here."""
        alone = self._planner.start_plan({planned.name: request})
        if self._current_run is not None and planned.sink is not None:
            self._registered.check_runnable({planned.name: request}, ends=self._ends)
            self._current_run.loop.add(planned.name, request, planned.sink)
        starts = planned.sink is not None and self._last_run is None
        self._registered.add(planned, request, None if starts else alone)

    @checked(QueryError)
    def frame_of(self, name: str) -> Any:
        """A streaming DataFrame over the results of a query; see `PlannedQuery.dataframe`."""
        self._check_query(name)
        planned = self._registered.queries[name]
        if planned.sink is None:
            planned = replace(planned, sink=frame_sink(self._settings, name, planned.ordering))
            self._register(planned, request_of(planned, None, False))
        return result_frame(self._settings, name, planned.query, planned.sink)

    def _request(
        self, name: str | None, text: str | Builder, wishes: Wishes, cross: bool
    ) -> tuple[PlannedQuery, QueryRequest]:
        """A query as it was asked for, checked; nothing has changed yet."""
        limit, streams = self._settings.query_limit, self.catalog.names
        chosen = self._registered.free_name(name, wishes.sink, self._stopped(), limit, streams)
        options_for(self.options, wishes.strategy)
        parsed, notes = self._parse(text, cross=cross)
        catalog = self._catalog_with_queries()
        planned, request = wishes.request(chosen, text, parsed, catalog, self.options, self)
        return replace(planned, notes=notes), request

    @checked(QueryError, but=("text", "name", "strategy", "order", "precision"))
    def preview(
        self,
        text: str | Builder,
        *,
        strategy: str | None = None,
        cross: bool = False,
        emit_unmatched_after: timedelta | str | None = None,
        order: str = "none",
        precision: int | None = None,
    ) -> Preview:
        """The plan that a query would get now, and what it would share with those that run; nothing changes."""
        wishes = Wishes(None, strategy, False, emit_unmatched_after, order, precision)
        return self.preview_question(text, wishes, cross=cross).answer()

    def preview_question(self, text: str | Builder, wishes: Wishes, *, cross: bool) -> PreviewQuestion:
        """A preview that is still to be worked out, which may take long, by whoever has the question."""
        planned, request = self._request(None, text, wishes, cross)
        run = self._current_run
        if run is not None:
            self._registered.check_runnable({planned.name: request}, ends=self._ends)
        given = (planned, request, self._registered, self._settings, self._known_for)
        return preview_question(*given, run.loop if run is not None else None)

    def compare_question(self, text: str | Builder) -> CompareQuestion:
        """A comparison of strategies that is still to be worked out, by whoever has the question."""
        return CompareQuestion(self.parse(text), self.statistics, self.options)

    @checked(QueryError, but=("text",))
    def parse(self, text: str | Builder, *, cross: bool = False) -> Query:
        """A text or builder, parsed and bound to this session's streams and queries."""
        return self._parse(text, cross=cross)[0]

    def _parse(self, text: str | Builder, *, cross: bool) -> tuple[Query, tuple[Note, ...]]:
        check(text, str | Builder, QueryError, "a query", "use SQL, or begin with weft.select")
        catalog, limits = self._catalog_with_queries(), self._settings.limits
        if isinstance(text, Builder):
            return (text.cross() if cross else text).build_with_notes(catalog, limits)
        return parse_with_notes(text, catalog, cross=cross, limits=limits)

    @checked(ConfigError)
    def start(self, *, available_now: bool = False, ends: bool = False, idle: bool = False) -> None:
        """Run all queries that have a sink, and return at once; with ``available_now``, what is there and no more.

        With ``ends``, the input will end, and rows of outer joins may wait for that: `end` says when. With ``idle``,
        there need be no query yet; input that comes before the first one is passed over.
        """
        if self._current_run is not None:
            raise ConfigError("the session is running already", hint="stop() it first")
        self._registered.check_runnable(self._registered.requests, ends=ends)
        given = (self._settings, self.catalog, self._registered, self._planner)
        self._current_run = self._last_run = start_run(*given, available_now=available_now, idle=idle)
        self._ends = ends
        self._graphs.follow(self._current_run.loop)
        self._registered.restore(self._current_run.loop, self, self.options.strategy)

    def end(self) -> None:
        """Process what is there and take it for all there is: what waits for a partner, or for its time, is given."""
        run = self._run_under_way()
        run.process_what_can_be()
        if any(request.waits for request in self._registered.requests.values()):
            run.loop.end_input()
        run.process_all_available()

    @checked(ConfigError)
    def run_available(self, *, end: bool = True) -> None:
        """Run all queries that have a sink over the input that is there, show how far they are, and stop.

        It is taken for all there is: rows of outer joins that have no partner are given. With ``end=False`` those for
        which one may still come are left open, for input that comes another day. If a query failed or reached a limit,
        the others run to their end, and then its `ResultError` is raised.
        """
        self.start(ends=True)
        loop = self._run_under_way().loop
        try:
            with progress_bar(loop.history, loop.config.sources.values()):
                self.end() if end else self.process_all_available()
        finally:
            self.stop()
        for name in self._registered.requests:
            if (failure := self.failure_of(name)) is not None:
                raise failure

    @checked(QueryError)
    def stop_query(self, name: str) -> None:
        """Run a query no longer, from the next batch on; the others go on."""
        self._check_query(name)
        self._run_under_way().loop.stop_query(name)

    def _check_query(self, name: str) -> None:
        if name not in self._registered.queries:
            raise QueryError(f"there is no query {name!r}", hint=nearest(name, self._registered.queries))

    def process_all_available(self) -> None:
        """Wait until all that was there when this was called is committed, files that were being written included."""
        self._run_under_way().process_all_available()

    @checked(ConfigError)
    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait until the session has stopped or failed, or so many seconds; True if it has stopped."""
        return self._run_under_way().await_termination(timeout)

    def check_suspended(self) -> None:
        """Raise an error if queries are suspended, or were when the session ended; it names their sinks or streams."""
        if self._last_run is not None:
            self._last_run.check_suspended()

    def stop(self) -> None:
        """Stop after the batch under way; a session that is not running stays so."""
        if self._current_run is not None:
            self._current_run.stop()
            self._current_run = None

    def _run_under_way(self) -> Running:
        if self._current_run is None:
            raise ConfigError("the session is not running", hint="start() it first")
        return self._current_run
