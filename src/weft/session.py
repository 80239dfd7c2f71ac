"""The path of a query, on one screen: parse, bind, optimise, lower, run.

Guarantees: a query that is refused leaves the session as it was. Planning needs neither Spark nor Java; `start` does.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any

from weft.errors import CatalogError, ConfigError, QueryError, StatisticsError, WeftError, nearest
from weft.logical.canonical import canonical
from weft.logical.catalog import Catalog
from weft.logical.expr import to_sql
from weft.logical.query import Input, Query
from weft.logical.schema import Schema, Stream
from weft.logical.window import Rows, parse_duration
from weft.optimizer.estimated import estimated
from weft.optimizer.joint import METHODS
from weft.optimizer.optimizer import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.explain import compare, diagram, explain
from weft.plan.graph import PhysicalGraph
from weft.plan.join_plan import Cost, JoinPlan
from weft.plan.lower import lower
from weft.plan.observation import Observation
from weft.plan.part import Part, part_of
from weft.plan.shared import shared_text
from weft.runtime.asked import Asked
from weft.runtime.driver import DEFAULT, POLICIES
from weft.runtime.measure import measured
from weft.runtime.observe import observed
from weft.runtime.progress import History, OwnProgress, QueryProgress, complete_from, own_metrics
from weft.sinks.describe import described, made, same_place
from weft.sinks.memory import MemorySink
from weft.sinks.protocol import Sink
from weft.sources.dead_letter import DeadLetterBox, DeadLetterLimit
from weft.sources.frames import DataFrameSource, dataframe
from weft.sources.rate import RateSource
from weft.sources.spec import FilesSource, Source
from weft.sql.bind import parse_predicate, parse_query
from weft.sql.builder import Builder
from weft.stats.statistics import Statistics

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.runtime.metrics import BatchMetrics
    from weft.runtime.spark import Running

__all__ = ["PlannedQuery", "Session"]

TELLING = 16  # queries whose figures say enough of the data


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query with the plan it is answered by; of one that runs together with others, its part of what they share."""

    name: str
    query: Query
    plan: JoinPlan
    graph: PhysicalGraph
    sink: Sink | None = field(default=None, repr=False, compare=False)
    session: Session | None = field(default=None, repr=False, compare=False)

    def explain(self, observed: Observation | None = None) -> str:
        """The plan as text: stores, probe orders, expected rates and costs, beside what was observed of them."""
        return explain(self.graph, self.name, self.plan.strategy, observed)

    def diagram(self) -> str:
        """The plan as a Mermaid flowchart."""
        return diagram(self.graph)

    def results(self) -> pa.Table:
        """What is in the query's memory sink."""
        if not isinstance(self.sink, MemorySink):
            raise ConfigError(
                f"query {self.name} does not keep its results", hint="use sink=weft.to_memory()"
            )
        return self.sink.results()

    def stop(self) -> None:
        """Run no longer, from the next batch on; the other queries go on."""
        self._owner().stop_query(self.name)

    @property
    def progress(self) -> QueryProgress:
        """How the query is getting on."""
        return self._owner().query_progress(self.name)

    def _owner(self) -> Session:
        if self.session is None:
            raise ConfigError(
                f"query {self.name} belongs to no session", hint="session.query gives one that does"
            )
        return self.session


class Session:
    """Streams, what is known of them, and the queries over them.

    Selectivities within ``statistics`` must be under the names that `predicate_name` gives; `selectivity` takes a
    predicate in any spelling.
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
    ) -> None:
        _check(checkpoint, str | Path | None, ConfigError, "a checkpoint", "name a directory")
        _check(statistics, Statistics | None, ConfigError, "statistics", "use weft.Statistics")
        _check(options, Options | None, ConfigError, "options", "use weft.Options")
        _check(
            dead_letter_limit, DeadLetterLimit | int | None, ConfigError, "a limit", "use a number of records"
        )
        _check(query_limit, int, ConfigError, "a limit of queries", "use a number")
        _check(state_limit, int | None, ConfigError, "a limit of state", "use a number of bytes per query")
        if joint not in METHODS:
            raise ConfigError(f"there is no joint optimiser {joint!r}", hint=nearest(str(joint), METHODS))
        if driver not in POLICIES:
            raise ConfigError(f"there is no driver policy {driver!r}", hint=nearest(str(driver), POLICIES))
        self.catalog = Catalog()
        self.statistics = statistics or Statistics()
        self.options = options or Options()
        self._checkpoint, self._master, self._spark = checkpoint, master, spark
        self._driver = driver
        limit = dead_letter_limit
        self._limit = DeadLetterLimit(records=limit) if isinstance(limit, int) else limit or DeadLetterLimit()
        self._sources: dict[str, Source] = {}
        self._sinks: dict[str, Sink] = {}
        self._running: Running | None = None  # while it runs
        self._run: Running | None = None  # the last one, also when it is over
        self._queries: dict[str, PlannedQuery] = {}
        self._asked: dict[str, Asked] = {}
        self._query_limit, self._state_limit = query_limit, state_limit
        self._joint = joint
        self._parts: dict[tuple[int, str], Part] = {}

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
        _check(name, str, CatalogError, "a stream's name", "use a text")
        _check(event_time, str | None, CatalogError, "an event time", "name a timestamp column")
        _check(late, str, CatalogError, "late", 'use "drop" or "join"')
        found = _source(source)
        schema = found if isinstance(found, Schema) else found.schema
        if schema is None:
            raise CatalogError(f"stream {name} has no schema", hint="give one to weft.files")
        idle = None if idle_after is None else _duration(idle_after, "idle_after")
        stream = Stream(name, schema, event_time, _duration(lateness, "a lateness"), late, idle)
        self.catalog = self.catalog.add(stream)
        if not isinstance(found, Schema):
            self._sources[name] = found

    def selectivity(self, predicate: str, value: float) -> None:
        """Say what part of all pairs, or of a stream's tuples, a predicate lets through.

        The predicate is over the streams' own names and may be spelled in any way; it holds for all queries planned
        from now on, and replaces what was said of it before.

        >>> session = Session()
        >>> session.stream("a", "k long")
        >>> session.stream("b", "k long")
        >>> session.selectivity("b.k = a.k", 0.5)
        >>> session.statistics.selectivities
        {'a.k = b.k': 0.5}
        """
        _check(predicate, str, StatisticsError, "a predicate", 'use a text, as in "a.k = b.k"')
        _check(value, int | float, StatisticsError, "a selectivity", "use a number between 0 and 1")
        inputs = [Input(stream.name, stream) for stream in self.catalog.streams]
        given = {**self.statistics.selectivities, to_sql(parse_predicate(predicate, inputs)): value}
        self.statistics = replace(self.statistics, selectivities=given, origin="given")

    def query(
        self,
        text: str | Builder,
        *,
        name: str | None = None,
        sink: Sink | None = None,
        strategy: str | None = None,
        cross: bool = False,
        backfill: bool = False,
    ) -> PlannedQuery:
        """Plan a query, given as SQL or by the builder; ``cross`` permits a cross product.

        With a sink, it runs when the session is started; if it is running already, from the next batch on, and then it
        sees what others have stored. With ``backfill``, it also gives the results that lie wholly in the stored past.
        """
        chosen = self._chosen(name, sink)
        _check(strategy, str | None, ConfigError, "a strategy", nearest("", STRATEGIES))
        options = self.options if strategy is None else replace(self.options, strategy=strategy)
        if options.strategy not in STRATEGIES:
            raise ConfigError(
                f"there is no strategy {options.strategy!r}", hint=nearest(options.strategy, STRATEGIES)
            )
        parsed = self.parse(text, cross=cross)
        if backfill:
            self._check_backfill(parsed)
        planned = self._plan(parsed, chosen, options, sink)
        if sink is not None:
            self._ask(planned, sink, strategy, backfill)
        self._queries[chosen] = planned
        return planned

    def _chosen(self, name: str | None, sink: Sink | None) -> str:
        """A query's name, if it and its sink are free."""
        _check(name, str | None, QueryError, "a query's name", "use a text")
        if name is not None and (not name.isprintable() or not name.strip("!") or name.startswith("!")):
            raise QueryError(f"a query cannot be called {name!r}", hint="use letters, digits and underscores")
        numbers = (f"query_{number}" for number in count(len(self._queries) + 1))
        chosen = name or next(free for free in numbers if free not in self._queries)
        if chosen in self._queries:
            raise QueryError(f"there is already a query {chosen!r}", hint="choose another name")
        if sink is not None:
            self._check_free(sink)
        return chosen

    def _check_free(self, sink: Sink) -> None:
        """Refuse one query too many, and a sink that another query writes to."""
        if self._active() >= self._query_limit:
            raise QueryError(
                f"there are {self._query_limit} queries already",
                hint="stop one, or make it Session(query_limit=…)",
            )
        taken = [other for other, used in self._sinks.items() if same_place(used, sink)]
        if taken:
            raise QueryError(f"query {taken[0]} writes to this sink already", hint="give every query its own")

    def _active(self) -> int:
        """How many queries run, or will."""
        stopped = self._run.runner.standing.stopped if self._run else {}
        return sum(name not in stopped for name in self._sinks)

    def _check_backfill(self, query: Query) -> None:
        for input_ in query.inputs:
            if isinstance(input_.window, Rows):
                raise QueryError(
                    f"the stored past of {input_.alias} cannot be answered: which of its tuples were the last "
                    "ones at each moment is not stored",
                    hint="leave out backfill, or use a RANGE window",
                )

    def _ask(self, planned: PlannedQuery, sink: Sink, strategy: str | None, backfill: bool) -> None:
        """Have a query run: at the start, or from the next batch on."""
        common = canonical(planned.query)
        asked = Asked(common.query, common.names, strategy, backfill, described(sink))
        if self._running is not None:
            self._check_sources({planned.name: asked})
            self._running.runner.add(planned.name, asked, sink)
        self._asked[planned.name], self._sinks[planned.name] = asked, sink

    def parse(self, text: str | Builder, *, cross: bool = False) -> Query:
        """A text or builder, parsed and bound to this session's streams."""
        _check(text, str | Builder, QueryError, "a query", "use SQL, or begin with weft.select")
        if isinstance(text, Builder):
            return (text.cross() if cross else text).build(self.catalog)
        return parse_query(text, self.catalog, cross=cross)

    def _plan(self, query: Query, name: str, options: Options, sink: Sink | None) -> PlannedQuery:
        plan = optimise(query, self.measured(), options)
        return PlannedQuery(name, query, plan, lower(plan, name), sink, self)

    def start(self, *, available_now: bool = False) -> None:
        """Run all queries that have a sink, and return at once; with ``available_now``, what is there and no more."""
        if self._checkpoint is None:
            raise ConfigError("running needs a checkpoint", hint='make it Session(checkpoint="ck")')
        if self._running is not None:
            raise ConfigError("the session is running already", hint="stop() it first")
        if not self._sinks:
            raise ConfigError("no query has a sink", hint="as in session.query(…, sink=weft.to_memory())")
        self._check_sources(self._asked)
        from weft.planning import Planner  # only running needs kernels, and Spark
        from weft.runtime.spark import launch

        streams = {name: self.catalog.stream(name) for name in sorted(self._sources)}
        root = Path(self._checkpoint)
        self._parts.clear()
        self._run = self._running = launch(
            self._spark or self._master,
            root,
            streams,
            {name: self._sources[name] for name in streams},
            {name: (asked, self._sinks[name]) for name, asked in self._asked.items()},
            Planner(self.measured, self.options, self._joint),
            made,
            self.options.partitions,
            driver=self._driver,
            available_now=available_now,
            set_aside=DeadLetterBox(root / "dead_letters", self._limit).take,
            state_limit=self._state_limit,
        )
        self._restore()

    def _check_sources(self, asked: Mapping[str, Asked]) -> None:
        """Refuse queries over streams that cannot be read."""
        known = self._sources if self._running is None else self._running.runner.sources
        for stream in sorted({i.stream.name for one in asked.values() for i in one.query.inputs}):
            if stream not in self._sources:
                raise CatalogError(
                    f"stream {stream} has a schema but no source",
                    hint="register it with weft.files(…), weft.rate(…) or a streaming DataFrame",
                )
            if stream not in known:
                raise CatalogError(
                    f"stream {stream} was registered after the session was started",
                    hint="stop() the session and start() it again, which loses nothing",
                )

    def _restore(self) -> None:
        """Queries that were added while an earlier run went on, and run again now."""
        runner = self._runs().runner
        for name, asked in runner.standing.asked.items():
            if name not in self._queries:
                query = asked.query.renamed(dict(asked.names))
                self._asked[name], self._sinks[name] = asked, runner.sinks[name]
                self._queries[name] = self._plan(query, name, self.options, runner.sinks[name])

    def stop_query(self, name: str) -> None:
        """Run a query no longer, from the next batch on; the others go on."""
        if name not in self._queries:
            raise QueryError(f"there is no query {name!r}", hint=nearest(name, self._queries))
        self._runs().runner.stop(name)

    def query_progress(self, name: str) -> QueryProgress:
        """How a query is getting on."""
        if self._run is None:
            return QueryProgress(name, "planned")
        runner = self._run.runner
        standing, batches = runner.standing, runner.history.of(name)
        first, done = (batches[0].number if batches else None), sum(one.answers[name] for one in batches)
        if name in standing.stopped:
            return QueryProgress(name, "stopped", first, len(batches), done, reason=standing.stopped[name])
        if name not in standing.asked or standing.program is None:
            return QueryProgress(name, "waiting")
        member = standing.program.members[name]
        complete = complete_from(member, standing.asked[name].backfill)
        figures = (member.first, len(batches), done, complete, runner.state_of(name))
        return QueryProgress(name, "running", *figures)

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
        history = self._run.runner.history
        return OwnProgress(
            history, tuple(self._sinks), lambda number, name: self._part(history, number, name)
        )

    def _part(self, history: History, number: int, name: str) -> Part | None:
        """A query's part of a graph; None if that is forgotten."""
        graph = history.graphs.get(number)
        if graph is None:
            self._parts.pop((number, name), None)
            return None
        if (number, name) not in self._parts:
            authors = dict(self._asked[name].names) if name in self._asked else {}
            self._parts[number, name] = part_of(graph, name, authors)
        return self._parts[number, name]

    def measured(self) -> Statistics:
        """The statistics given, with what the queries measured since they began; queries are planned by it."""
        statistics = self.statistics
        for graph, batches in self._seen(most=TELLING).values():
            statistics = measured(statistics, graph, batches)
        return statistics

    def _seen(self, most: int | None = None) -> dict[str, tuple[PhysicalGraph, list[BatchMetrics]]]:
        """The graph that each query runs by, and its batches since it does; of the largest queries, if not of all."""
        if self._run is None:
            return {}
        history = self._run.runner.history
        graph, recent = history.current
        found = {}
        members = sorted(graph.members, key=lambda m: -len(m.query.inputs)) if graph else []
        for member in members[:most]:
            part = self._part(history, max(history.graphs), member.name)
            if part is not None:
                batches = [own_metrics(metrics, member.name, part) for metrics in recent]
                found[member.name] = part.graph, batches
        return found

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
        seen = self._seen()
        parts = []
        for planned in self.queries:
            graph, batches = seen.get(planned.name, (planned.graph, []))
            shown = replace(planned, graph=self._estimated(planned, graph))
            parts.append(shown.explain(observed(graph, batches) if batches else None))
        program = self._run.runner.standing.program if self._run else None
        shared = [shared_text(program.graph)] if program and len(program.members) > 1 else []
        return "\n".join([*shared, *parts]) or "No queries yet.\n"

    def _estimated(self, planned: PlannedQuery, graph: PhysicalGraph) -> PhysicalGraph:
        """A graph with what is expected of it."""
        if graph.edges == planned.graph.edges:
            return planned.graph
        return estimated(graph, self.statistics, self.options)

    def compare(self, query: Query) -> str:
        """What every strategy would make of a query, the cheapest first."""
        _check(query, Query, QueryError, "a query to compare", "session.parse gives one of a text")
        costs: dict[str, Cost | WeftError] = {}
        for strategy in STRATEGIES:
            try:
                plan = optimise(query, self.statistics, replace(self.options, strategy=strategy))
            except WeftError as error:
                costs[strategy] = error
            else:
                costs[strategy] = plan.cost or Cost(0.0, 0.0, 0.0, 0.0, 0.0, 0)
        return compare(costs)


def _source(source: Any) -> Source | Schema:
    """What a stream is read from, or its schema."""
    if isinstance(source, str):
        return Schema.parse(source)
    if isinstance(source, FilesSource):
        return source.resolve()
    if isinstance(source, Schema | RateSource | DataFrameSource):
        return source
    if hasattr(source, "isStreaming"):
        return dataframe(source)
    raise CatalogError(
        f"a stream cannot be {reprlib.repr(source)}",
        hint='use weft.files(…), weft.rate(…), a streaming DataFrame, or "vid long, ts timestamp"',
    )


def _duration(value: timedelta | str, what: str) -> timedelta:
    _check(value, str | timedelta, CatalogError, what, 'use a text, as in "5 seconds"')
    return parse_duration(value) if isinstance(value, str) else value


def _check(value: object, kind: type | UnionType, error: type[WeftError], what: str, hint: str) -> None:
    """Refuse an argument of another type, by name."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise error(f"{what} cannot be {reprlib.repr(value)}", hint=hint)
