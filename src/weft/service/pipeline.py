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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from weft.errors import PipelineError, WeftError, nearest
from weft.logical.catalog import Catalog
from weft.logical.expr import to_sql
from weft.logical.query import Input
from weft.logical.window import parse_duration
from weft.optimizer.cost import Weights
from weft.optimizer.space import Options
from weft.session import Session
from weft.sql.bind import parse_predicate
from weft.stats.statistics import DEFAULTS, Statistics, StreamStatistics

__all__ = ["Pipeline", "load_pipeline"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A session with the file's streams and statistics, and its queries as texts by name."""

    session: Session
    queries: Mapping[str, str]


def load_pipeline(path: Path) -> Pipeline:
    """Read a pipeline file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"cannot read {path}: {error}") from None
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PipelineError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    return _Reader(str(path)).pipeline(content)


@dataclass(frozen=True, slots=True)
class _Reader:
    file: str

    def pipeline(self, content: object) -> Pipeline:
        top = self.section(content, "the file", ("streams", "statistics", "options", "queries"))
        streams = self.mapping(top.get("streams"), "streams")
        queries = self.mapping(top.get("queries"), "queries")
        if not streams or not queries:
            missing = "queries" if streams else "streams"
            raise self.error(missing, "there are none", "name at least one")
        session = Session(options=self.options(top.get("options")))
        for name, stream in streams.items():
            with self.at(f"streams.{name}"):
                self.stream(session, str(name), stream)
        session.statistics = self.statistics(top.get("statistics"), streams, session.catalog)
        return Pipeline(session, {str(name): self.sql(str(name), sql) for name, sql in queries.items()})

    def stream(self, session: Session, name: str, content: object) -> None:
        where = f"streams.{name}"
        allowed = ("schema", "event_time", "lateness", "statistics")
        stream = self.section(content, where, allowed)
        if not isinstance(stream.get("schema"), str):
            raise self.error(where, "a stream needs a schema", 'as in schema: "vid long, ts timestamp"')
        lateness = parse_duration(str(stream.get("lateness", "0 seconds")))
        session.stream(name, stream["schema"], event_time=stream.get("event_time"), lateness=lateness)

    def statistics(self, content: object, streams: Mapping[str, Any], catalog: Catalog) -> Statistics:
        top = self.section(content or {}, "statistics", ("horizon", "selectivity"))
        known = {name: self.stream_statistics(name, stream, catalog) for name, stream in streams.items()}
        with self.at("statistics"):
            horizon = parse_duration(str(top["horizon"])) if "horizon" in top else DEFAULTS.horizon
            inputs = [Input(stream.name, stream) for stream in catalog.streams]
            selectivity = {
                to_sql(parse_predicate(str(text), inputs)): self.figure("statistics.selectivity", value)
                for text, value in self.mapping(top.get("selectivity"), "statistics.selectivity").items()
            }
            given = {name: found for name, found in known.items() if found is not None}
            return Statistics(given, selectivity, horizon, "given" if given or selectivity else "default")

    def stream_statistics(
        self, name: str, stream: Mapping[str, Any], catalog: Catalog
    ) -> StreamStatistics | None:
        where = f"streams.{name}.statistics"
        if stream.get("statistics") is None:
            return None
        found = self.section(stream["statistics"], where, ("rate", "distinct", "row_bytes"))
        schema = catalog.stream(name).schema
        distinct = {}
        for column, count in self.mapping(found.get("distinct"), f"{where}.distinct").items():
            field = schema.find(str(column))
            if field is None:
                raise self.error(
                    where, f"{name} has no column {column!r}", nearest(str(column), schema.names)
                )
            distinct[field.name] = self.figure(f"{where}.distinct.{column}", count)
        figures = {
            key: self.figure(f"{where}.{key}", found[key]) for key in ("rate", "row_bytes") if key in found
        }
        with self.at(where):
            return StreamStatistics(distinct=distinct, **figures)

    def options(self, content: object) -> Options:
        allowed = [field.name for field in fields(Options)]
        found = dict(self.section(content or {}, "options", allowed))
        names = [field.name for field in fields(Weights)]
        weights = self.section(found.pop("weights", {}) or {}, "options.weights", names)
        with self.at("options"):
            numbers = {name: self.figure(f"options.weights.{name}", value) for name, value in weights.items()}
            for name in ("partitions", "budget"):
                if found.get(name) is not None:
                    found[name] = self.figure(f"options.{name}", found[name])
            if "partitions" in found:
                found["partitions"] = int(found["partitions"])
            return Options(**found, weights=Weights(**numbers))

    def sql(self, name: str, content: object) -> str:
        if not isinstance(content, str):
            raise self.error(f"queries.{name}", "a query is a text", "write SELECT … FROM …")
        return content

    def section(self, content: object, where: str, allowed: tuple[str, ...] | list[str]) -> Mapping[str, Any]:
        found = self.mapping(content, where)
        for name in found:
            if name not in allowed:
                raise self.error(where, f"unknown entry {name!r}", nearest(str(name), allowed))
        return found

    def mapping(self, content: object, where: str) -> Mapping[str, Any]:
        if content is None:
            return {}
        if not isinstance(content, dict):
            raise self.error(where, f"expected names with values, found {content!r}", None)
        return content

    def figure(self, where: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(where, f"{value!r} is not a number", None)
        return float(value)

    def error(self, where: str, message: str, hint: str | None) -> PipelineError:
        return PipelineError(f"{self.file}, {where}: {message}", hint=hint)

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Errors of the parts, with the place in the file in front."""
        try:
            yield
        except PipelineError:
            raise
        except WeftError as error:
            raise self.error(where, "\n".join([error.message, *error.excerpt()]), error.hint) from None
