"""Checks of what users hand over, which bring it into one form.

Guarantees: an argument of another kind is refused by name, with the remedy, before anything has changed.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from weft.connectors.files.source import FilesSource
from weft.connectors.formats.dead_letters import DeadLetterLimit
from weft.connectors.frames.source import dataframe
from weft.connectors.sink_descriptions import writing_to
from weft.connectors.tables.readers import ArrowTable, FilesTable, FrameTable, arrow_schema
from weft.errors import CatalogError, ConfigError, QueryError, StatisticsError, WeftError, nearest
from weft.logical.arguments import shown
from weft.logical.catalog import Catalog
from weft.logical.nested.nested import read_streams
from weft.logical.query.query import Input, Query
from weft.logical.query.window import Rows
from weft.logical.schema import Schema, SchemaLike, Stream, StructLike, schema_of
from weft.logical.times import parse_duration
from weft.optimizer.single.strategies import STRATEGIES
from weft.optimizer.space import Options
from weft.ports.sink import Sink
from weft.ports.source import Source
from weft.ports.table import RegisteredTable, TableReader
from weft.runtime.queries.request import QueryRequest
from weft.sql.bind import parse_predicate
from weft.stats.statistics import Statistics
from weft.storage.uris import is_object_uri, normal_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "StreamSource",
    "TableLike",
    "check",
    "check_backfill",
    "check_free",
    "check_name",
    "check_one_of",
    "check_readable",
    "checkpoint_path",
    "dead_letters_of",
    "duration_of",
    "free_name",
    "options_for",
    "reader_of",
    "source_of",
    "stream_of",
    "table_of",
    "tasks_of",
    "with_counted_rows",
    "with_selectivity",
]


@runtime_checkable
class StreamingFrame(Protocol):
    """A DataFrame of Spark's, known by what only these have; Spark itself is not loaded for that."""

    @property
    def isStreaming(self) -> bool: ...  # noqa: N802


# What users may give as a stream's source, one of their own among others; a text is a schema, to plan with only.
StreamSource: TypeAlias = "SchemaLike | Source | StreamingFrame"


def source_of(source: StreamSource) -> Source | Schema:
    """What a stream is read from, or its schema."""
    if isinstance(source, str | Mapping | StructLike):
        return schema_of(source)
    if isinstance(source, FilesSource):
        return source.resolve()
    if isinstance(source, Schema | Source):
        return source
    if isinstance(source, StreamingFrame):
        return dataframe(source)
    if isinstance(source, TableReader | pa.Table):
        raise CatalogError(
            f"a stream cannot be {reprlib.repr(source)}: that is a table",
            hint="register it with session.table, or write its rows to files and use weft.files",
        )
    raise CatalogError(
        f"a stream cannot be {reprlib.repr(source)}",
        hint='use weft.files(…), weft.kafka(…), weft.rate(…), a streaming DataFrame, or "vid long, ts timestamp"',
    )


def tasks_of(master: str, spark: SparkSession | None) -> int | None:
    """How many tasks run at once, if that can be told without asking Spark.

    >>> tasks_of("local", None), tasks_of("local[3]", None), tasks_of("spark://host:7077", None)
    (1, 3, None)
    """
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master.strip()) if spark is None else None
    if local is None:
        return None
    return os.cpu_count() if local[1] == "*" else max(1, int(local[1] or 1))


def refuse_connect(master: str, spark: SparkSession | None) -> None:
    """Refuse sessions of Spark Connect, which cannot say what Weft must know: see `docs/clusters.md`."""
    if type(spark).__module__.startswith("pyspark.sql.connect") or master.strip().startswith("sc://"):
        raise ConfigError(
            "Weft does not run on Spark Connect: such a session has no SparkContext, which says on which machines "
            "and in how many slots tasks run",
            hint='run the driver on the cluster with Session(master="spark://…"), spark-submit, or Kubernetes',
        )


def stream_of(
    name: str,
    source: StreamSource,
    event_time: str | None,
    lateness: timedelta | str,
    late: str,
    idle_after: timedelta | str | None,
    ahead: timedelta | str | None,
    shed: str = "none",
) -> tuple[Stream, Source | None]:
    """A stream, and what it is read from; None: it can be planned with, but not run."""
    check(name, str, CatalogError, "a stream's name", "use a text")
    check(event_time, str | None, CatalogError, "an event time", "name a timestamp column")
    check(late, str, CatalogError, "late", 'use "drop" or "join"')
    readable = source_of(source)
    schema = readable if isinstance(readable, Schema) else readable.schema
    if schema is None:
        raise CatalogError(f"stream {name} has no schema", hint="give one to weft.files")
    idle = None if idle_after is None else duration_of(idle_after, "idle_after")
    limit = None if ahead is None else duration_of(ahead, "ahead")
    check(shed, str, CatalogError, "shed", 'use "sample" or "none"')
    span = duration_of(lateness, "a lateness")
    stream = Stream(name, schema, event_time, span, late, idle, ahead=limit, shed=shed)
    return stream, None if isinstance(readable, Schema) else readable


# What users may give as a table's source; a text is a schema, to plan with only.
TableLike: TypeAlias = "SchemaLike | FilesSource | TableReader | pa.Table | StreamingFrame"


def table_of(
    name: str, source: TableLike, refresh: timedelta | str | None
) -> tuple[Stream, RegisteredTable | None]:
    """A table, and what it is read from; None: it can be planned with, but not run."""
    check(name, str, CatalogError, "a table's name", "use a text")
    span = None if refresh is None else duration_of(refresh, "refresh").total_seconds()
    if span is not None and span <= 0:
        raise CatalogError(f"table {name}: it cannot be refreshed every {refresh}", hint="use a longer time")
    if isinstance(source, str | Schema | Mapping | StructLike):
        return Stream(name, schema_of(source), table=True), None
    reader = reader_of(name, source)
    columns = reader.columns()
    if columns is None:
        raise CatalogError(f"table {name} has no schema", hint="give one to weft.files")
    return Stream(name, columns, table=True), RegisteredTable(reader, span)


def with_counted_rows(known: Statistics, name: str, reader: TableReader) -> Statistics:
    """The statistics with how many rows a table has, if its reader can tell and nobody has said."""
    rows = reader.count() if known.stream(name).rows is None else None
    return known if rows is None else known.with_rows({name: rows})


def reader_of(name: str, source: TableLike) -> TableReader:
    """What a table is read from."""
    if isinstance(source, FilesSource):
        return FilesTable(source.resolve())
    if isinstance(source, pa.Table | pa.RecordBatch):
        whole = pa.Table.from_batches([source]) if isinstance(source, pa.RecordBatch) else source
        return ArrowTable(whole, arrow_schema(whole.schema, f"table {name}"))
    if isinstance(source, TableReader):
        return source
    if isinstance(source, StreamingFrame):
        if source.isStreaming:
            raise CatalogError(
                f"table {name} cannot be a streaming DataFrame", hint="register it with session.stream"
            )
        return FrameTable.of(source)
    raise CatalogError(
        f"a table cannot be {reprlib.repr(source)}",
        hint="use weft.files(…), weft.delta(…), a DataFrame, a pyarrow.Table, or its schema",
    )


def duration_of(value: timedelta | str, what: str) -> timedelta:
    """A duration, given as such or as a text."""
    check(value, str | timedelta, CatalogError, what, 'use a text, as in "5 seconds"')
    return parse_duration(value) if isinstance(value, str) else value


def check(value: object, kind: type | UnionType, error: type[WeftError], what: str, hint: str) -> None:
    """Refuse an argument of another type, by name."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise error(f"{what} cannot be {reprlib.repr(value)}", hint=hint)


def dead_letters_of(limit: DeadLetterLimit | int | None) -> DeadLetterLimit:
    """How many records may be bad, given as such or as their number."""
    check(limit, DeadLetterLimit | int | None, ConfigError, "a limit", "use a number of records")
    return DeadLetterLimit(records=limit) if isinstance(limit, int) else limit or DeadLetterLimit()


def check_one_of(value: object, known: Collection[str], what: str) -> None:
    """Refuse what is not among the names that are known."""
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"there is no {what} {shown(value)}", hint=nearest(str(value), known))


def checkpoint_path(path: str | Path) -> Path | str:
    """Where a checkpoint is kept: an absolute path of this machine's file system, or the URI of an object store."""
    if not str(path).strip():
        raise ConfigError("a checkpoint's path is empty", hint="name a directory, or s3://bucket/folder")
    place = normal_place(path)
    return place if is_object_uri(place) else Path(place)


def with_selectivity(known: Statistics, catalog: Catalog, predicate: str, value: float) -> Statistics:
    """The statistics with what part of all pairs, or of a stream's tuples, a predicate is said to let through."""
    check(predicate, str, StatisticsError, "a predicate", 'use a text, as in "a.k = b.k"')
    check(value, int | float, StatisticsError, "a selectivity", "use a number between 0 and 1")
    inputs = [Input(stream.name, stream) for stream in catalog.streams]
    return known.given(parse_predicate(predicate, inputs, catalog.functions), value)


def options_for(options: Options, strategy: str | None) -> Options:
    """The options of a query that asks for a strategy; None: those of its session."""
    check(strategy, str | None, ConfigError, "a strategy", nearest("", STRATEGIES))
    chosen = options if strategy is None else replace(options, strategy=strategy)
    check_one_of(chosen.strategy, STRATEGIES, "strategy")
    return chosen


def check_name(name: str | None) -> None:
    """Refuse what cannot be a query's name; None: it will be given one."""
    check(name, str | None, QueryError, "a query's name", "use a text")
    is_path = name in (".", "..")  # which nobody could ask for by a URL, nor keep in a folder
    if name is not None and (
        not name.isprintable() or not name.strip("!") or name.startswith("!") or is_path
    ):
        raise QueryError(f"a query cannot be called {name!r}", hint="use letters, digits and underscores")


def free_name(name: str | None, taken: Collection[str], streams: Collection[str]) -> str:
    """A query's name that nothing else has: the one it is given, if it can be called that, or one with a number."""
    check_name(name)
    queries, inputs = ({one.lower() for one in names} for names in (taken, streams))
    numbers = (f"query_{number}" for number in count(len(taken) + 1))
    chosen = name or next(free for free in numbers if free not in queries | inputs)
    for what, names in (("query", queries), ("stream", inputs)):
        if chosen.lower() in names:
            raise QueryError(f"there is already a {what} {chosen!r}", hint="choose another name")
    return chosen


def check_free(sink: Sink, sinks: Mapping[str, Sink], stopped: Collection[str], limit: int) -> None:
    """Refuse one query too many, and a sink that another query writes to."""
    if sum(name not in stopped for name in sinks) >= limit:
        raise QueryError(
            f"there are {limit} queries already", hint="stop one, or make it Session(query_limit=…)"
        )
    taken = writing_to(sink, sinks)
    if taken:
        raise QueryError(f"query {taken[0]} writes to this sink already", hint="give every query its own")


def check_backfill(query: Query) -> None:
    """Refuse a query whose stored past cannot be answered."""
    for input_ in query.inputs:
        if input_.stream.table:
            raise QueryError(
                f"backfill needs what {input_.alias} was in the past, and of a table only what it is now is stored",
                hint="leave out backfill",
            )
        if isinstance(input_.window, Rows):
            raise QueryError(
                f"backfill needs the past of {input_.alias}, and which of its tuples were the last "
                "ones at each moment is not stored",
                hint="leave out backfill, or use a RANGE window",
            )


def check_readable(requests: Mapping[str, QueryRequest], sources: Collection[str]) -> None:
    """Refuse queries over streams that have no source."""
    for stream in sorted({read.name for one in requests.values() for read in read_streams(one.query)}):
        if stream not in sources:
            raise CatalogError(
                f"stream {stream} has a schema but no source",
                hint="register it with weft.files(…), weft.rate(…) or a streaming DataFrame",
            )
