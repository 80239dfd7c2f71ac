"""Where every column of a query's results comes from: through expressions, joins and sub-selects to datasets.

Guarantees: pure. A column of a sub-select is followed to the columns of the streams that it is made of. Datasets have
the names that OpenLineage gives them (namespace and name), and no secret: of a server only its address is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from weft.connectors.files.source import FilesSource
from weft.connectors.kafka.source import KafkaSource
from weft.connectors.sink_descriptions import describe_sink
from weft.logical.expr.expression import Column, Expr, aliases, columns
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.ports.sink import Sink
from weft.service.hub.values import ColumnInfo, ColumnSource, DatasetInfo, QueryLineage
from weft.session.planned_query import PlannedQuery

__all__ = ["lineage_of"]

OWN = "weft"  # the namespace of what is nowhere but in a session: generated streams, results in memory


def lineage_of(planned: PlannedQuery, sources: Mapping[str, object]) -> QueryLineage:
    """The lineage of a query; ``sources`` are what streams and tables are read from, by name."""
    query = planned.query
    names = {name: _dataset(stream, sources.get(name)) for name, stream in _read(query).items()}
    output = _output(planned.name, planned.sink)
    fields = {
        output_.name: tuple(_sources(query, output_.expr, names, _way_of(output_.expr)))
        for output_ in query.projection
    }
    shown = tuple(ColumnInfo(output_.name, str(output_.expr.type)) for output_ in query.projection)
    return QueryLineage(
        planned.name,
        str(query),
        tuple(names[name] for name in sorted(names)),
        DatasetInfo(*output, shown),
        fields,
        tuple(dict.fromkeys(_indirect(query, names))),
    )


def _read(query: Query) -> dict[str, Stream]:
    """The streams and tables that a query reads, also inside its sub-selects."""
    streams: dict[str, Stream] = {}
    for input_ in query.inputs:
        if input_.stream.definition:
            for inner in input_.stream.definition:
                streams |= _read(inner)
        else:
            streams[input_.stream.name] = input_.stream
    return streams


@dataclass(frozen=True, slots=True)
class _Base:
    """A column of a stream that is read, and whether it is handed on as it is."""

    stream: str
    name: str
    is_same: bool


def _bases(query: Query, expr: Expr) -> Iterator[_Base]:
    """The columns of streams that an expression is made of."""
    is_same = isinstance(expr, Column)
    for column in columns(expr):
        stream = query.input(column.alias).stream
        if not stream.definition:
            yield _Base(stream.name, column.name, is_same)
        for inner in stream.definition:
            made = [output.expr for output in inner.projection if output.name == column.name]
            for base in (base for part in made for base in _bases(inner, part)):
                yield _Base(base.stream, base.name, is_same and base.is_same)


def _way_of(expr: Expr) -> str:
    return "IDENTITY" if isinstance(expr, Column) else "TRANSFORMATION"


def _sources(query: Query, expr: Expr, names: Mapping[str, DatasetInfo], way: str) -> Iterator[ColumnSource]:
    """The columns that a value is made of, each once."""
    for base in dict.fromkeys(_bases(query, expr)):
        dataset = names[base.stream]
        how = "TRANSFORMATION" if way == "IDENTITY" and not base.is_same else way
        yield ColumnSource(dataset.namespace, dataset.name, base.name, how)


def _indirect(query: Query, names: Mapping[str, DatasetInfo]) -> Iterator[ColumnSource]:
    """The columns that decide whether there is a result: by which inputs are joined, and by which rows are filtered."""
    outer = query.outer.conditions if query.outer is not None else ()
    tests: Iterable[Expr] = (*query.filters, *query.predicates, *query.residuals, *query.conditions, *outer)
    for key in query.keys:
        for member in key.members:
            yield from _sources(query, member, names, "JOIN")
    for test in tests:
        yield from _sources(query, test, names, "JOIN" if len(aliases(test)) > 1 else "FILTER")
    for input_ in query.inputs:
        for inner in input_.stream.definition:
            yield from _indirect(inner, names)


def _dataset(stream: Stream, source: object) -> DatasetInfo:
    """What a stream or table is read from."""
    shown = tuple(ColumnInfo(field.name, str(field.type)) for field in stream.schema.fields)
    return DatasetInfo(*_source_place(stream.name, source), shown)


def _source_place(name: str, source: object) -> tuple[str, str]:
    if isinstance(source, FilesSource):
        return _path_place(source.path)
    if isinstance(source, KafkaSource):
        return _kafka_place(source.options.servers, source.topic)
    path = getattr(source, "path", None)
    return _path_place(path) if isinstance(path, str) else (OWN, name)


def _output(name: str, sink: Sink | None) -> tuple[str, str]:
    """Where the results of a query go."""
    match describe_sink(sink) if sink is not None else None:
        case {"kind": "parquet" | "delta", "path": str(path)}:
            return _path_place(path)
        case {"kind": "kafka", "topic": str(topic), "servers": str(servers)}:
            return _kafka_place(servers, topic)
        case {"kind": str(kind), "table": table, "connection": connection}:
            parts = urlsplit(str(connection))
            if parts.hostname:
                return f"{kind}://{parts.hostname}:{parts.port or 5432}", f"{parts.path.strip('/')}.{table}"
            referred = str(connection) if str(connection).startswith(("env:", "file:")) else "connection"
            return f"{kind}://{referred}", str(table)
    return OWN, f"results of {name}"


def _path_place(path: str) -> tuple[str, str]:
    parts = urlsplit(path)
    if parts.scheme and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    return "file", str(Path(path).absolute())


def _kafka_place(servers: str, topic: str) -> tuple[str, str]:
    return f"kafka://{servers.split(',')[0].strip()}", topic
