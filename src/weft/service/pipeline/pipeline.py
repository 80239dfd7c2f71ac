"""Pipeline files: streams, statistics, queries and how to run them, in YAML.

Guarantees: a file is read whole or refused; an error names the file, the place in it and what would be right there.
Nothing is started; of the sources, only files whose schema is to be inferred are opened. The modules named under
``functions`` are imported, which runs their code: such a file is to be trusted as a program is.

    streams:
      videos:
        schema: vid long, geo string, ts timestamp   # not needed for parquet, arrow and generated rows
        event_time: ts
        lateness: 5 seconds                    # optional, as are `late: drop | join`, `idle_after: 10 seconds`
                                               # and `ahead: 1 day` (`none` permits any time)
        source: {files: parquet, path: in}     # needed to run, not to plan; `pipeline.sources` has all kinds
        statistics:                            # optional; what is missing gets the documented defaults
          rate: 500                            # tuples per second
          distinct: {vid: 100000, geo: 50}
    tables:                                    # optional
      customers:
        source: {files: parquet, path: dim/customers}    # or {delta: dim/customers}, and {delta: dim, version: 7}
        refresh: 5 minutes                     # optional; without, it is read when the session starts
        schema: id long, name string           # not needed for parquet, arrow and delta
        statistics: {rows: 100000, distinct: {id: 100000}}
    functions:                                 # optional; code
      similar: {python: "my_functions:similar", returns: boolean, selectivity: 0.1, cost: 0.000001}
    statistics:                                # optional
      horizon: 1 hour                          # how long unbounded windows are expected to grow
      selectivity: {"videos.vid = views.vid": 0.00001}
    options: {partitions: 4, strategy: auto}   # optional
    queries:
      us_views: SELECT … FROM videos [RANGE 10 MINUTES] AS v, …    # with `weft run`, its results go to the console
      kept: {sql: SELECT …, sink: {parquet: out}}    # or delta, iceberg, postgres, …: see `pipeline.sinks`
      padded: {sql: SELECT … LEFT JOIN …, emit_unmatched_after: 10 minutes}    # instead of a window
      sorted: {sql: SELECT …, order: outer, precision: 64}    # or inner, event, none
      urgent: {sql: SELECT …, latency: 200 ms}    # the session's own is a setting, as every: is
    checkpoint: ck                             # where a run keeps its state, or s3://bucket/ck
    master: local[*]                           # optional, as are the driver policy and the limit of bad records
    driver: initial_output_size
    dead_letter_limit: 1000                    # or {records: 1000, fraction: 0.01}
    key_limit: 10000000                        # results of one key of an outer join on one key
    execution: auto                            # or resident, jobs, local
    ship: false                                # whether Weft is sent to the executors of a cluster
    memory: 2 GB                               # of a task; half of the machine's by default, shared by all
    result_limit: 100000000                    # results of one query in one batch; none by default
    query_limit: 1000                          # queries that run at once, those of requests to `weft serve` too
    limits: {words: 40000, depth: 100}         # how large a query may be; also characters and terms
    latency: 500 ms                            # within which results are wanted; a target, none by default
    every: 1 second                            # batches begin at multiples of it; by default when something waits
    merging: 100 ms                            # of a batch, for merging what is stored
    too_slow: report                           # or stop: what becomes of a query that cannot meet its target
    adapt: auto                                # whether plans follow the data: auto, off or always
    adaptation: {threshold: 0.1, migrate: auto}  # how; `weft.Adaptation` has all settings
    allow: {sinks: [{parquet: out/*}]}         # what requests to `weft serve` may name; `pipeline.serving` has all
    serve: {port: 8080}                        # where it listens, and its limits

A module that ``functions`` names is looked for beside the file first, and then where Python finds it. One beside the
file is sent to Spark's workers with the function; any other must be installed there. `refuse_functions` is for files
that are not trusted: it imports nothing.

Paths are relative to the file; files, results and state may also be in object stores, by URIs. A name or text that YAML
would read as something else (on, no, 5) is put in quotes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.connectors.delta.table import DeltaReader, delta
from weft.connectors.files.source import FilesSource
from weft.errors import PipelineError, nearest
from weft.logical.query.ordering import ORDERS
from weft.logical.query.query import Query
from weft.logical.schema import Schema
from weft.optimizer.cost import Weights
from weft.optimizer.single.strategies import STRATEGIES
from weft.optimizer.space import PROBE_ORDERS, Options
from weft.ports.sink import Sink
from weft.service.pipeline.document import Node, read_document, resolve_path
from weft.service.pipeline.serving import Allowed, ServeSettings, read_allowed, read_serving
from weft.service.pipeline.settings import SETTINGS, read_settings
from weft.service.pipeline.sinks import console_sink, read_sink
from weft.service.pipeline.sources import PipelineSource, read_source
from weft.service.pipeline.streams import add_stream, read_statistics
from weft.session.planned_query import PlannedQuery
from weft.session.session import Session
from weft.stats.statistics import Statistics, StreamStatistics

__all__ = [
    "Pipeline",
    "QueryEntry",
    "add_function",
    "add_table",
    "load_pipeline",
    "read_pipeline",
    "read_query",
    "refuse_functions",
]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A session with the file's streams and statistics, its queries as texts by name, and their sinks if given."""

    file: str
    session: Session
    queries: Mapping[str, str]
    sources: Mapping[str, PipelineSource] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    checkpoint: Path | str | None = None
    master: str = "local[*]"
    waits: Mapping[str, timedelta] = field(default_factory=dict)  # of rows for a partner, by query, if given
    orders: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)  # with precisions, by query
    latencies: Mapping[str, timedelta] = field(default_factory=dict)  # targets, by query, if given
    allowed: Allowed = Allowed()  # noqa: RUF009
    serving: ServeSettings = ServeSettings()  # noqa: RUF009

    def plan(self, name: str, sink: Sink | None = None) -> PlannedQuery:
        """Plan a query, to be run if it has a sink; errors name the file and the query."""
        with self.place(f"queries.{name}").at():
            wait = self.waits.get(name)
            order, precision = self.orders.get(name, ("none", None))
            return self.session.query(
                self.queries[name],
                name=name,
                sink=sink,
                emit_unmatched_after=wait,
                order=order,
                precision=precision,
                latency=self.latencies.get(name),
            )

    def sink(self, name: str) -> Sink:
        """Where the results of a query go: to the console, if the file does not say."""
        return self.sinks.get(name) or console_sink(name)

    def parse(self, name: str) -> Query:
        """Parse and bind a query; errors name the file and the query."""
        with self.place(f"queries.{name}").at():
            return self.session.parse(self.queries[name])

    def place(self, where: str) -> Node:
        """A place in the file, for errors to name."""
        return Node(self.file, where, None)


def load_pipeline(path: Path, *, functions: bool = True, idle: bool = False, **given: Any) -> Pipeline:
    """Read a pipeline file; a checkpoint or master that is given wins over the file's.

    This imports the modules whose functions the file names, and so runs code; without ``functions`` such a file is
    refused and nothing is imported.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PipelineError(f"cannot read {path}: {error}") from None
    return read_pipeline(
        text, str(path), root=path.absolute().parent, functions=functions, idle=idle, **given
    )


_TOP = ("streams", "tables", "functions", "statistics", "options", "queries", "allow", "serve", *SETTINGS)


def read_pipeline(
    text: str,
    file: str,
    *,
    root: Path | None = None,
    functions: bool = True,
    idle: bool = False,
    **given: Any,
) -> Pipeline:
    """Read the text of a pipeline; ``file`` is its name in errors, ``root`` where its relative paths begin.

    If it may be ``idle``, it needs neither streams nor queries: they will come.
    """
    top, root = read_document(text, file), root or Path.cwd()
    top.section(_TOP)
    if not functions:
        refuse_functions(top.entry("functions"))
    streams, queries = top.entry("streams"), top.entry("queries")
    for node in (streams, queries):
        if not node.mapping() and not idle:
            raise node.error("there are none", "name at least one")
    settings = read_settings(top, root, given)
    session = Session(options=_options(top.entry("options")), **settings)
    found = {name: add_stream(session, name, node, root) for name, node in streams.mapping().items()}
    tables = {
        name: add_table(session, name, node, root) for name, node in top.entry("tables").mapping().items()
    }
    known = {name: one.statistics for name, one in found.items() if one.statistics is not None}
    known |= {name: one for name, one in tables.items() if one is not None}
    session.statistics = Statistics(known, origin="given" if known else "default")
    for name, node in top.entry("functions").mapping().items():
        add_function(session, name, node, root)
    _statistics(session, top.entry("statistics"))
    asked = {name: read_query(name, node, root) for name, node in queries.mapping().items()}
    return Pipeline(
        file,
        session,
        {name: one.sql for name, one in asked.items()},
        {name: one.source for name, one in found.items() if one.source is not None},
        {name: one.sink for name, one in asked.items() if one.sink is not None},
        settings.get("checkpoint"),
        settings.get("master", "local[*]"),
        {name: wait for name, one in asked.items() if (wait := one.emit_unmatched_after) is not None},
        {name: (one.order, one.precision) for name, one in asked.items()},
        {name: one.latency for name, one in asked.items() if one.latency is not None},
        read_allowed(top.entry("allow"), root, settings.get("checkpoint")),
        read_serving(top.entry("serve")),
    )


def _statistics(session: Session, node: Node) -> None:
    found = node.section(("horizon", "selectivity"))
    if "horizon" in found:
        horizon = found["horizon"].duration()
        with found["horizon"].at():
            session.statistics = replace(session.statistics, horizon=horizon)
    for text, value in node.entry("selectivity").mapping().items():
        before = len(session.statistics.selectivities)
        figure = value.figure()
        with value.at():
            session.selectivity(text, figure)
        if len(session.statistics.selectivities) == before:
            raise value.error("the same predicate is there twice, written differently", "remove one of them")


def _weights(node: Node) -> Weights:
    found = node.section([field.name for field in fields(Weights)])
    figures = {name: weight.figure() for name, weight in found.items()}
    with node.at():
        return Weights(**figures)


_OPTIONS: dict[str, Callable[[Node], object]] = {
    "strategy": lambda node: node.choice("strategy", STRATEGIES),
    "partitions": Node.integer,
    "probe_orders": lambda node: node.choice("way to choose probe orders", PROBE_ORDERS),
    "budget": Node.figure,
    "weights": _weights,
    "scatter_heavy": Node.flag,
    "tasks": Node.integer,
    "planning_seconds": Node.figure,
    "most_inputs": Node.integer,
    "share": Node.flag,
    "group": Node.flag,
    "reorder": Node.flag,
    "replicate": Node.flag,
}


def _options(node: Node) -> Options:
    given: dict[str, Any] = {name: _OPTIONS[name](found) for name, found in node.section(_OPTIONS).items()}
    with node.at():
        return Options(**given)


_PYTHON = "as in python: my_functions:similar"
_ENTRIES = ("python", "returns", "selectivity", "cost")


def refuse_functions(node: Node) -> None:
    """Refuse a file that names functions; ``node`` is what it says of them."""
    for name in node.mapping():
        raise node.entry(name).error(
            "the file names Python code, which --no-functions refuses to import",
            "leave out --no-functions if you trust the file and the modules that it names",
        )


def add_function(session: Session, name: str, node: Node, root: Path) -> None:
    """Register a function with the session."""
    found = node.section(_ENTRIES)
    for entry, hint in (("python", _PYTHON), ("returns", "as in returns: boolean")):
        if entry not in found:
            raise node.error(f"a function needs {entry}", hint)
    function = _function(found["python"], root)
    hints = {entry: found[entry].figure() for entry in ("selectivity", "cost") if entry in found}
    with node.at():
        session.function(name, function, returns=found["returns"].text("as in boolean"), **hints)


def _function(node: Node, root: Path) -> Callable[..., Any]:
    text = node.text(_PYTHON)
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise node.error(f"{text!r} names no function", _PYTHON)
    found = _module(node, module, root)
    if not hasattr(found, attribute):
        names = [one for one in vars(found) if callable(getattr(found, one)) and not one.startswith("_")]
        raise node.error(f"{module} has no {attribute}", nearest(attribute, names))
    function: Callable[..., Any] = getattr(found, attribute)
    return function


def _module(node: Node, name: str, root: Path) -> ModuleType:
    sys.path.insert(0, str(root))
    try:
        found = importlib.import_module(name)
    except Exception as error:
        raise node.error(f"cannot import {name}: {type(error).__name__}: {error}", _PYTHON) from None
    finally:
        sys.path.remove(str(root))
    if Path(getattr(found, "__file__", None) or "/").is_relative_to(root):
        from pyspark import cloudpickle  # only who has functions needs it

        cloudpickle.register_pickle_by_value(found)  # type: ignore[no-untyped-call]
    return found


_QUERY = "a query is a text: SELECT … FROM …, or {sql: SELECT … FROM …, sink: …}"


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """The text of a query, where its results go, how long rows wait, in which order results leave, and how soon."""

    sql: str
    sink: Sink | None = None
    emit_unmatched_after: timedelta | None = None
    order: str = "none"
    precision: int | None = None
    latency: timedelta | None = None


def read_query(name: str, node: Node, root: Path) -> QueryEntry:
    """What a file says of a query."""
    if not isinstance(node.value, dict):
        return QueryEntry(node.text(_QUERY))
    found = node.section(("sql", "sink", "emit_unmatched_after", "order", "precision", "latency"))
    if "sql" not in found:
        raise node.error("the query has no text", _QUERY)
    sink = read_sink(name, found["sink"], root) if "sink" in found else None
    wait = found["emit_unmatched_after"].duration() if "emit_unmatched_after" in found else None
    order = found["order"].choice("order", ORDERS) if "order" in found else "none"
    precision = found["precision"].integer() if "precision" in found else None
    latency = found["latency"].duration() if "latency" in found else None
    return QueryEntry(found["sql"].text(_QUERY), sink, wait, order, precision, latency)


_TABLE_ENTRIES = ("schema", "source", "refresh", "statistics")
_TABLE_SOURCES = "as in source: {files: parquet, path: dim/customers} or source: {delta: dim/customers}"


def add_table(session: Session, name: str, node: Node, root: Path) -> StreamStatistics | None:
    """Register a table with the session; returns what the file says of its figures."""
    found = node.section(_TABLE_ENTRIES)
    schema = found.get("schema")
    source = _table_source(found["source"], schema, root) if "source" in found else None
    if source is None and schema is None:
        raise node.error("a table needs a source or a schema", _TABLE_SOURCES)
    given: dict[str, Any] = {"refresh": found["refresh"].duration()} if "refresh" in found else {}
    with node.at():
        session.table(name, source or (schema.text() if schema is not None else ""), **given)
    if "statistics" not in found:
        return session.statistics.streams.get(name)
    return read_statistics(name, session.catalog.stream(name).schema, found["statistics"], "rows")


def _table_source(node: Node, schema: Node | None, root: Path) -> FilesSource | DeltaReader:
    if "delta" not in node.mapping():
        found = read_source(node, schema, root)
        if not isinstance(found, FilesSource):
            raise node.error("a table is read from files or from a Delta table", _TABLE_SOURCES)
        return found
    entries = node.section(("delta", "version"))
    with node.at():
        columns = Schema.parse(schema.text()) if schema is not None else None
        version = entries["version"].integer() if "version" in entries else None
        return delta(resolve_path(entries["delta"], root), version=version, schema=columns)
