"""The path of a query, on one screen: parse, bind, optimise, lower, run.

Guarantees: a query that is refused leaves the session as it was. Planning needs neither Spark nor Java; `start` does.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any

from weft.errors import CatalogError, ConfigError, QueryError, StatisticsError, WeftError, nearest
from weft.logical.catalog import Catalog
from weft.logical.expr import to_sql
from weft.logical.query import Input, Query
from weft.logical.schema import Schema, Stream
from weft.logical.window import parse_duration
from weft.optimizer.optimizer import STRATEGIES, optimise
from weft.optimizer.space import Options
from weft.plan.explain import compare, diagram, explain
from weft.plan.graph import PhysicalGraph
from weft.plan.join_plan import Cost, JoinPlan
from weft.plan.lower import lower
from weft.plan.observation import Observation
from weft.runtime.driver import DEFAULT, POLICIES
from weft.runtime.measure import measured
from weft.runtime.observe import observed
from weft.sinks.protocol import Sink
from weft.sources.dead_letter import DeadLetterBox, DeadLetterLimit
from weft.sources.frames import DataFrameSource, dataframe
from weft.sources.rate import RateSource
from weft.sources.spec import FilesSource, Source
from weft.sql.bind import parse_predicate, parse_query
from weft.sql.builder import Builder
from weft.stats.statistics import Statistics

if TYPE_CHECKING:
    from weft.runtime.metrics import BatchMetrics
    from weft.runtime.spark import Running

__all__ = ["PlannedQuery", "Session"]


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query with the plan it is answered by."""

    name: str
    query: Query
    plan: JoinPlan
    graph: PhysicalGraph

    def explain(self, observed: Observation | None = None) -> str:
        """The plan as text: stores, probe orders, expected rates and costs, beside what was observed of them."""
        return explain(self.graph, self.name, self.plan.strategy, observed)

    def diagram(self) -> str:
        """The plan as a Mermaid flowchart."""
        return diagram(self.graph)


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
    ) -> None:
        _check(checkpoint, str | Path | None, ConfigError, "a checkpoint", "name a directory")
        _check(statistics, Statistics | None, ConfigError, "statistics", "use weft.Statistics")
        _check(options, Options | None, ConfigError, "options", "use weft.Options")
        _check(
            dead_letter_limit, DeadLetterLimit | int | None, ConfigError, "a limit", "use a number of records"
        )
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
    ) -> PlannedQuery:
        """Plan a query, given as SQL or by the builder; ``cross`` permits a cross product.

        With a sink, it runs when the session is started.
        """
        if self._running is not None:
            raise QueryError("queries cannot be added to a running session yet", hint="add it before start()")
        _check(name, str | None, QueryError, "a query's name", "use a text")
        if name is not None and (not name.isprintable() or not name.strip("!") or name.startswith("!")):
            raise QueryError(f"a query cannot be called {name!r}", hint="use letters, digits and underscores")
        _check(strategy, str | None, ConfigError, "a strategy", nearest("", STRATEGIES))
        chosen = name or f"query_{len(self._queries) + 1}"
        if chosen in self._queries:
            raise QueryError(f"there is already a query {chosen!r}", hint="choose another name")
        options = self.options if strategy is None else replace(self.options, strategy=strategy)
        if options.strategy not in STRATEGIES:
            raise ConfigError(
                f"there is no strategy {options.strategy!r}", hint=nearest(options.strategy, STRATEGIES)
            )
        planned = self._plan(self.parse(text, cross=cross), chosen, options)
        self._queries[chosen] = planned
        if sink is not None:
            self._sinks[chosen] = sink
        return planned

    def parse(self, text: str | Builder, *, cross: bool = False) -> Query:
        """A text or builder, parsed and bound to this session's streams."""
        _check(text, str | Builder, QueryError, "a query", "use SQL, or begin with weft.select")
        if isinstance(text, Builder):
            return (text.cross() if cross else text).build(self.catalog)
        return parse_query(text, self.catalog, cross=cross)

    def _plan(self, query: Query, name: str, options: Options) -> PlannedQuery:
        plan = optimise(query, self.measured(), options)
        return PlannedQuery(name, query, plan, lower(plan))

    def start(self, *, available_now: bool = False) -> None:
        """Run all queries that have a sink, and return at once; with ``available_now``, what is there and no more."""
        if self._checkpoint is None:
            raise ConfigError("running needs a checkpoint", hint='make it Session(checkpoint="ck")')
        if self._running is not None:
            raise ConfigError("the session is running already", hint="stop() it first")
        graphs = {name: (self._queries[name].graph, sink) for name, sink in self._sinks.items()}
        if not graphs:
            raise ConfigError("no query has a sink", hint="as in session.query(…, sink=weft.to_memory())")
        read = {i.stream.name for graph, _ in graphs.values() for i in graph.query.inputs}
        missing = sorted(read - set(self._sources))
        if missing:
            raise CatalogError(
                f"stream {missing[0]} has a schema but no source",
                hint="register it with weft.files(…), weft.rate(…) or a streaming DataFrame",
            )
        from weft.runtime.spark import launch  # only running needs Spark

        streams = {name: self.catalog.stream(name) for name in sorted(read)}
        sources = {name: self._sources[name] for name in streams}
        spark = self._spark or self._master
        partitions = self.options.partitions
        root = Path(self._checkpoint)
        self._run = self._running = launch(
            spark,
            root,
            streams,
            sources,
            graphs,
            partitions,
            driver=self._driver,
            available_now=available_now,
            set_aside=DeadLetterBox(root / "dead_letters", self._limit).take,
        )
        for name, graph in self._running.graphs.items():  # a restarted query goes on by the plan it had
            self._queries[name] = replace(self._queries[name], graph=graph)

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
    def progress(self) -> dict[str, list[BatchMetrics]]:
        """What every batch of every query did: rows, probes, matches, state, time per hop; also after the end."""
        if self._run is None:
            raise ConfigError("the session has not run yet", hint="start() it first")
        return self._run.metrics

    def measured(self) -> Statistics:
        """The statistics given, with what the queries measured since they began; queries are planned by it."""
        statistics, metrics = self.statistics, self._run.metrics if self._run else {}
        for name, batches in metrics.items():
            statistics = measured(statistics, self._queries[name].graph, batches)
        return statistics

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
        metrics = self._run.metrics if self._run else {}
        parts = []
        for planned in self.queries:
            batches = metrics.get(planned.name)
            parts.append(planned.explain(observed(planned.graph, batches) if batches else None))
        return "\n".join(parts) or "No queries yet.\n"

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
