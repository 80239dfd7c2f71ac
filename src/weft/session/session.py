"""The session: parses, binds, plans and runs queries over the streams, tables and functions it knows.

Guarantees: a query that is refused leaves the session as it was. All queries go through one planner (`Planner`),
be it one or many, before the start and while they run: what `explain` shows before the start is what will run. The
planner is handed what is known of the data as a value. Looking at a session writes nothing: its loop writes the log.
Planning needs neither Spark nor Java; `start` does, unless batches run in this process (``execution="local"``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from weft.adapting.planner import Planner, PreparedPlans, StartPlan
from weft.connectors.sink_descriptions import sink_for
from weft.errors import ConfigError, QueryError, nearest
from weft.logical.arguments import checked
from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.query import Query
from weft.optimizer.space import Options
from weft.ports.sink import Sink
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.queries.request import QueryRequest
from weft.session.planned_query import PlannedQuery
from weft.session.preview import (
    CompareQuestion,
    PrepareQuestion,
    Preview,
    PreviewQuestion,
    prepare_question,
    preview_question,
)
from weft.session.registry import Registered
from weft.session.relations import SessionRelations
from weft.session.request import bind_query, request_of
from weft.session.settings import Settings, takes_settings
from weft.session.show.display import Watch, progress_bar, session_html, watch_session
from weft.session.show.notebook import show_tables_in_notebooks
from weft.session.start import start_run
from weft.session.validation import check
from weft.session.views import QueryGraphs, SessionViews
from weft.sql.bind import bind
from weft.sql.builder import Builder, parse_statement
from weft.sql.statement import Statement
from weft.stats.known import HalfLife
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # only running needs Spark, and kernels
    from weft.runtime.loop.handle import Running
    from weft.runtime.queries.request import QueryRequest

__all__ = ["PlannedQuery", "Session"]


class Session(SessionRelations, SessionViews):
    """Streams, what is known of them, and the queries over them.

    Its keywords are the fields of `Settings`, each with its default; all of them are optional.

    - ``checkpoint``: the folder, or the URI in an object store, of the session's log and state. Started with the same
      one again, it goes on where it was. Only `run_available` needs none.
    - ``master``: which Spark is started, as in "local[*]" or "spark://host:7077"; or ``spark``: a Spark session of
      yours.
    - ``execution``: batches run in tasks that stay ("resident"), as jobs of Spark ("jobs"), as there is room for it
      ("auto"), or in this process, without Spark ("local").
    - ``statistics``: what you know of the data. Selectivities within it must be under the names that `predicate_name`
      gives; `selectivity` takes a predicate in any spelling.
    - ``options``: how queries are planned (`weft.Options`); ``joint``: how many queries are planned together ("auto",
      "exact", "incremental", "separate"); ``driver``: in which order the inputs of a batch are processed.
    - ``adapt``: plans follow the data as ``adaptation`` says ("auto"), stay as they are ("off"), or become others at
      the end of every epoch at which others seem better ("always").
    - ``memory``: what one task may work with, as in "2 GB"; by default, tasks share half of what the machine has.
    - ``state_limit``: how many bytes of state a query may have, ``result_limit`` how many results in one batch, and
      ``key_limit`` how many results one key of an outer join on one key: a query that has more is stopped.
    - ``query_limit``: how many queries may run; ``limits``: how large the text of one may be (`weft.Limits`).
    - ``dead_letter_limit``: how many records may be set aside before the session ends (`weft.DeadLetterLimit`).
    - ``ship``: whether Weft is sent to the executors of a cluster, which then need not have it installed.
    - ``durability``: what is committed survives the end of all processes ("process") or also that of the machine
      ("machine"), for which it is flushed to the disk.
    - ``latency``: within which time results are wanted after their last tuple came, as in "500 ms": a target, by which
      batches take as much of what waits as can be done in time, and more where that is too late anyway. Without it, a
      batch takes all that waits and that memory allows.
    - ``every``: batches begin at multiples of this time, as in "1 second", and late ones at once; without it, whenever
      something waits.
    - ``merging``: how long a task merges what is stored in one batch, at most and if merging is no more than a third of
      its work; what is left is done in later batches, so that large state makes no batch long.
    - ``scale``: the number of tasks follows the load, from ``min_tasks`` to ``max_tasks`` of them ("auto"), or stays
      what it is until `scale` says otherwise ("off").
    - ``too_slow``: a query that cannot meet its target, or keeps others from theirs, is reported ("report") or also
      stopped ("stop").
    """

    @takes_settings(Settings)
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.catalog = Catalog()
        adaptation = settings.adaptation
        half_life = HalfLife(adaptation.half_life_batches, adaptation.half_life_seconds)
        self._measured = RecentStatistics(half_life, given=settings.statistics)
        self._planner = self._make_planner()
        self._registered = Registered()
        self._graphs = QueryGraphs(self._registered, self._planner, self._measured)
        self._current_run: Running | None = None
        self._last_run: Running | None = None  # also when it is over
        self._ends = False  # whether the input is taken to end, some day
        show_tables_in_notebooks()

    def __repr__(self) -> str:
        tables = sum(stream.table for stream in self.catalog.streams)
        parts = (f"{len(self.catalog.streams) - tables} streams", f"{tables} tables")
        state = "running" if self.is_active else "planned" if self._last_run is None else "stopped"
        done = f", {self.totals.batches:,} batches" if self._last_run is not None else ""
        return f"<Session: {', '.join(parts)}, {len(self.queries)} queries; {state}{done}>"

    def _repr_html_(self) -> str:
        return session_html(self)

    @property
    def options(self) -> Options:
        """How queries are planned; queries that run already go on by the options they were started with."""
        return self._settings.options

    @options.setter
    def options(self, options: Options) -> None:
        self._settings = replace(self._settings, options=options)
        self._planner = self._graphs.planner = self._make_planner()

    def _make_planner(self) -> Planner:
        """A planner that leaves it to the background to plan all queries afresh, unless plans stay as they are."""
        return Planner(self.options, self._settings.joint, quick=self._settings.adapt != "off")

    @property
    def statistics(self) -> Statistics:
        """What the session was told of its data; `measured` has what its batches found beside it."""
        return self._measured.given

    @statistics.setter
    def statistics(self, statistics: Statistics) -> None:
        self._measured.given = statistics

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
        latency: timedelta | str | None = None,
        mode: str = "append",
    ) -> PlannedQuery:
        """Plan a query, and run it if it has a sink: when the session is started, or from the next batch on.

        A query that begins while others run sees what they have stored.

        - ``text``: SQL, or what the builder made (`weft.select`); ``name``: by which progress, files and other queries
          know it, by default one that is free.
        - ``sink``: where results go (`weft.to_parquet` and others); without one, it is only planned.
        - ``strategy``: how its plan is found, instead of that of the session's options; ``cross`` permits a cross
          product.
        - ``backfill``: whether it also gives the results that lie wholly in the stored past.
        - ``emit_unmatched_after``: how long rows of outer joins wait for a partner where no window says it, as if their
          inputs had a window of that length. Such rows are given when none can come any more.
        - ``order``: results leave as they are found ("none"), by arrival ("outer", or "inner" with a ``precision``),
          or by event time ("event").
        - ``latency``: within which time its results are wanted, where that is another than the session's.
        - ``mode``: when groups of a query with aggregates leave: once, when they are complete ("append"), or after
          every batch that changed them ("update"), to sinks that replace what they have.
        """
        name = self._free_name(name, sink)
        statement = self._parse(text)
        bound = bind_query(
            statement,
            self._catalog_with_queries(),
            self._settings,
            strategy=strategy,
            cross=cross,
            backfill=backfill,
            emit_unmatched_after=emit_unmatched_after,
            order=order,
            precision=precision,
            mode=mode,
        )
        planned = bound.named(name, self, sink_for(sink, bound.ordering, bound.keys))
        request = request_of(planned, strategy, backfill, latency)
        plan = self._plan(planned, request)
        self._run(planned, request, plan)
        return planned

    def _parse(self, text: str | Builder) -> Statement:
        """The statement that a text or builder makes; none of its names has been looked up yet."""
        check(text, str | Builder, QueryError, "a query", "use SQL, or begin with weft.select")
        return parse_statement(text, self._settings.limits)

    def _plan(self, planned: PlannedQuery, request: QueryRequest) -> StartPlan | None:
        """The plan that a query has if it runs alone; one that cannot be planned is refused here.

        None for a query that starts with others: it runs by the plan of all, and nobody sees one of its own.
        """
        statistics = self._measured.for_queries([core_and_closing(request.query)[0]])
        if planned.sink is not None and self._last_run is None:
            self._planner.check({planned.name: request}, statistics)
            return None
        return self._planner.start_plan({planned.name: request}, statistics)

    def _run(self, planned: PlannedQuery, request: QueryRequest, plan: StartPlan | None) -> None:
        """Register a planned query, and have it begin with the next batch if it has a sink and the session runs."""
        if self._current_run is not None and planned.sink is not None:
            self._registered.check_runnable({planned.name: request}, ends=self._ends)
            self._current_run.loop.add(planned.name, request, planned.sink)
        self._registered.add(planned, request, plan)

    def _free_name(self, name: str | None, sink: Sink | None = None) -> str:
        limit, streams = self._settings.query_limit, self.catalog.names
        return self._registered.free_name(name, sink, self._stopped(), limit, streams)

    @checked(QueryError)
    def frame_of(self, name: str) -> Any:
        """A streaming DataFrame over the results of a query; see `PlannedQuery.dataframe`."""
        from weft.session.run import frame_sink, result_frame  # planning needs no kernels

        self._check_query(name)
        planned = self._registered.queries[name]
        if planned.sink is None:
            planned = replace(planned, sink=frame_sink(self._settings, name, planned.ordering))
            request = request_of(planned)
            self._run(planned, request, self._plan(planned, request))
        return result_frame(self._settings, name, planned.query, planned.sink)

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
        """The plan that a query would get now, and what it would share with those that run; nothing changes.

        ``text``, ``strategy``, ``cross``, ``emit_unmatched_after``, ``order`` and ``precision`` are those of `query`.
        """
        question = self.preview_question(
            text,
            strategy=strategy,
            cross=cross,
            emit_unmatched_after=emit_unmatched_after,
            order=order,
            precision=precision,
        )
        return question.answer()

    def preview_question(
        self,
        text: str | Builder,
        *,
        name: str | None = None,
        sink: Sink | None = None,
        strategy: str | None = None,
        backfill: bool = False,
        latency: timedelta | str | None = None,
        **keywords: Any,
    ) -> PreviewQuestion:
        """A preview that is still to be worked out, which may take long; ``keywords`` are those of `preview`.

        With a ``name``, a ``sink``, ``backfill`` or a ``latency`` it is that of a query which is to be added so.
        """
        name, statement, catalog = (
            self._free_name(name, sink),
            self._parse(text),
            self._catalog_with_queries(),
        )
        bound = bind_query(
            statement, catalog, self._settings, strategy=strategy, backfill=backfill, **keywords
        )
        planned = bound.named(name, self, sink_for(sink, bound.ordering, bound.keys))
        request = request_of(planned, strategy, backfill, latency)
        loop = self._current_run.loop if self._current_run is not None else None
        if loop is not None:
            self._registered.check_runnable({name: request}, ends=self._ends)
        return preview_question(planned, request, self._registered, self._settings, self._measured, loop)

    def prepare_question(self, text: str | Builder, **keywords: Any) -> PrepareQuestion:
        """The plans of a query that is about to be added, still to be worked out; ``keywords`` are those of `query`."""
        question = self.preview_question(text, **keywords)
        return prepare_question(question, self._current_run.loop if self._current_run is not None else None)

    def expect(self, prepared: PreparedPlans) -> None:
        """Take the plans of a query that is about to be added, so that `query` need not work them out."""
        self._planner.expect(prepared)

    def compare_question(self, text: str | Builder) -> CompareQuestion:
        """A comparison of strategies that is still to be worked out, by whoever has the question."""
        return CompareQuestion(self.parse(text), self.statistics, self.options)

    @checked(QueryError, but=("text",))
    def parse(self, text: str | Builder, *, cross: bool = False) -> Query:
        """A text or builder, parsed and bound to this session's streams and queries."""
        catalog, limits = self._catalog_with_queries(), self._settings.limits
        return bind(self._parse(text), catalog, cross=cross, limits=limits)[0]

    @checked(ConfigError)
    def start(self, *, available_now: bool = False, ends: bool = False, idle: bool = False) -> None:
        """Run all queries that have a sink, and return at once; with ``available_now``, what is there and no more.

        With ``ends``, the input will end, and rows of outer joins may wait for that: `end` says when. With ``idle``,
        there need be no query yet; input that comes before the first one is passed over.
        """
        if self._current_run is not None:
            raise ConfigError("the session is running already", hint="stop() it first")
        self._registered.check_runnable(self._registered.requests, ends=ends)
        self._current_run = self._last_run = start_run(
            self._settings,
            self.catalog,
            self._registered,
            self._planner,
            self._measured,
            available_now=available_now,
            idle=idle,
        )
        self._ends, self._graphs.loop = ends, self._current_run.loop
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
        which one may still come are left open, for input that comes another day, which needs a checkpoint; without one,
        what is there is read anew each time. If a query failed or reached a limit,
        the others run to their end, and then its `ResultError` is raised.
        """
        with self._somewhere():
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

    @contextmanager
    def _somewhere(self) -> Iterator[None]:
        """Keep state in a folder that goes when the run is over, if the session was given none to keep it in."""
        if self._settings.checkpoint is not None:
            yield
            return
        settings = self._settings
        with TemporaryDirectory(prefix="weft-", ignore_cleanup_errors=True) as folder:
            self._settings = replace(settings, checkpoint=folder)
            try:
                yield
            finally:
                self._settings = settings

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

    @checked(ConfigError)
    def scale(self, *, tasks: int | None = None, partitions: int | None = None) -> None:
        """Have another number of tasks, or of partitions, from the next batch on.

        Tasks share the partitions of the state, as far as there is room for tasks. Tasks for which Spark has to find
        room first begin when it has; batches go on with those there are until then. Partitions are ranges of hashes, of
        which others are made between two batches. None of the state is copied for either. `plan_history` says what
        came of it.
        """
        if tasks is not None and tasks < 1:
            raise ConfigError(f"{tasks} tasks run nothing", hint="use 1 or more, as in scale(tasks=2)")
        if partitions is not None and partitions < 1:
            raise ConfigError(
                f"{partitions} partitions hold nothing", hint="use 1 or more, as in scale(partitions=8)"
            )
        if tasks is None and partitions is None:
            raise ConfigError("nothing is scaled", hint="say what, as in scale(tasks=2)")
        scaling = self._run_under_way().loop.scaling
        if tasks is not None:
            scaling.ask(tasks)
        if partitions is not None:
            scaling.ask_partitions(partitions)

    def stop(self) -> None:
        """Stop after the batch under way; a session that is not running stays so."""
        if self._current_run is not None:
            self._current_run.stop()
            self._current_run = None

    @checked(ConfigError)
    def watch(self, *, every: float = 1.0, seconds: float | None = None) -> Watch:
        """Show live how the queries are getting on, every so many seconds.

        In a notebook it is a cell that goes on by itself until the session ends, ``seconds`` have passed or
        ``watch.stop()`` is called; on a terminal the call lasts as long, or until Ctrl-C.
        """
        return watch_session(self, every, seconds)

    def _run_under_way(self) -> Running:
        if self._current_run is None:
            raise ConfigError("the session is not running", hint="start() it first")
        return self._current_run
