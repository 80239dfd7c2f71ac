"""Pipeline files: streams, statistics and queries in YAML.

Guarantees: a file is read whole or refused; an error names the file, the place in it and what would be right there.

    streams:
      videos:
        schema: vid long, geo string, ts timestamp
        event_time: ts
        lateness: 5 seconds                    # optional
        statistics:                            # optional; what is missing gets the documented defaults
          rate: 500                            # tuples per second
          distinct: {vid: 100000, geo: 50}
    statistics:                                # optional
      horizon: 1 hour                          # how long unbounded windows are expected to grow
      selectivity: {"videos.vid = views.vid": 0.00001}
    options: {partitions: 4, strategy: auto}   # optional
    queries:
      us_views: SELECT … FROM videos [RANGE 10 MINUTES] AS v, …

A name or text that YAML would read as something else (on, no, 5) is put in quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from weft.errors import PipelineError, nearest
from weft.logical.query import Query
from weft.logical.schema import Schema
from weft.optimizer.cost import Weights
from weft.optimizer.optimizer import STRATEGIES
from weft.optimizer.space import Options
from weft.service.document import Node, read_document
from weft.session import PlannedQuery, Session
from weft.stats.statistics import Statistics, StreamStatistics

__all__ = ["PROBE_ORDERS", "Pipeline", "load_pipeline", "read_pipeline"]

PROBE_ORDERS = ("auto", "greedy", "exhaustive")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A session with the file's streams and statistics, and its queries as texts by name."""

    file: str
    session: Session
    queries: Mapping[str, str]

    def plan(self, name: str) -> PlannedQuery:
        """Plan a query; errors name the file and the query."""
        with self._node(name).at():
            return self.session.query(self.queries[name], name=name)

    def parse(self, name: str) -> Query:
        """Parse and bind a query; errors name the file and the query."""
        with self._node(name).at():
            return self.session.parse(self.queries[name])

    def _node(self, name: str) -> Node:
        return Node(self.file, f"queries.{name}", self.queries[name])


def load_pipeline(path: Path) -> Pipeline:
    """Read a pipeline file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PipelineError(f"cannot read {path}: {error}") from None
    return read_pipeline(text, str(path))


def read_pipeline(text: str, file: str) -> Pipeline:
    """Read the text of a pipeline; ``file`` is where errors say it is."""
    top = read_document(text, file)
    top.section(("streams", "statistics", "options", "queries"))
    streams, queries = top.entry("streams"), top.entry("queries")
    for node in (streams, queries):
        if not node.mapping():
            raise node.error("there are none", "name at least one")
    session = Session(options=_options(top.entry("options")))
    known = {name: _stream(session, name, node) for name, node in streams.mapping().items()}
    given = {name: found for name, found in known.items() if found is not None}
    session.statistics = Statistics(given, origin="given" if given else "default")
    _statistics(session, top.entry("statistics"))
    texts = {
        name: node.text("a query is a text: SELECT … FROM …") for name, node in queries.mapping().items()
    }
    return Pipeline(file, session, texts)


def _stream(session: Session, name: str, node: Node) -> StreamStatistics | None:
    """Register a stream; what is known of it."""
    found = node.section(("schema", "event_time", "lateness", "statistics"))
    example = 'as in schema: "vid long, ts timestamp"'
    if "schema" not in found:
        raise node.error("a stream needs a schema", example)
    given: dict[str, Any] = {}
    if "event_time" in found:
        given["event_time"] = found["event_time"].text("name a timestamp column")
    if "lateness" in found:
        given["lateness"] = found["lateness"].duration()
    schema = found["schema"].text(example)
    with node.at():
        session.stream(name, schema, **given)
    if "statistics" not in found:
        return None
    return _stream_statistics(name, session.catalog.stream(name).schema, found["statistics"])


def _stream_statistics(stream: str, schema: Schema, node: Node) -> StreamStatistics:
    found = node.section(("rate", "distinct"))
    given: dict[str, Any] = {"rate": found["rate"].figure()} if "rate" in found else {}
    distinct: dict[str, float] = {}
    for name, count in node.entry("distinct").mapping().items():
        field = schema.find(name)
        if field is None:
            raise count.error(f"{stream} has no column {name!r}", nearest(name, schema.names))
        if field.name in distinct:
            raise count.error(f"column {field.name} is there twice")
        distinct[field.name] = count.figure()
    with node.at():
        return StreamStatistics(distinct=distinct, **given)


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
}


def _options(node: Node) -> Options:
    given: dict[str, Any] = {name: _OPTIONS[name](found) for name, found in node.section(_OPTIONS).items()}
    with node.at():
        return Options(**given)
