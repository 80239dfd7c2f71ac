"""Sinks as plain data, so that a query that was added to a running session is there again after a crash.

Guarantees: from what `describe_sink` gives, `make_sink` makes a sink like the first; a sink that calls a function of
the user's has no description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from weft.connectors.delta.sink import DeltaSink
from weft.connectors.derived.sink import DerivedSink
from weft.connectors.files.parquet_sink import ParquetSink
from weft.connectors.iceberg.sink import to_iceberg
from weft.connectors.kafka.sink import kafka_sink
from weft.connectors.memory.console import to_console
from weft.connectors.memory.count import to_count
from weft.connectors.memory.recent import to_recent
from weft.connectors.memory.sink import to_memory
from weft.connectors.postgres.sink import to_postgres
from weft.errors import QueryError, SinkError
from weft.logical.query.ordering import Ordering
from weft.ports.sink import KeyedSink, Sink
from weft.storage.uris import is_object_uri

__all__ = [
    "describe_sink",
    "make_sink",
    "place_of",
    "portable_description",
    "same_place",
    "sink_for",
    "writing_to",
]


Description: TypeAlias = "dict[str, object]"


@runtime_checkable
class DescribedSink(Protocol):
    """A sink that can be made again from plain data."""

    def describe(self) -> Mapping[str, object]:
        """Its kind, and what `make_sink` needs to make it again."""


@runtime_checkable
class OrderableSink(Protocol):
    """A sink that writes ordered results in another way than unordered ones."""

    def in_order(self) -> Sink:
        """The sink for results that leave in an order."""


def describe_sink(sink: Sink) -> Description | None:
    """What is needed to make a sink again; None if it cannot be made again."""
    return dict(sink.describe()) if isinstance(sink, DescribedSink) else None


def portable_description(sink: Sink) -> Description | None:
    """What a task needs to make a sink again; None if it has no description, or is of a user's own class."""
    description = describe_sink(sink)
    return description if description is not None and type(make_sink(description)) is type(sink) else None


def same_place(one: Sink, other: Sink) -> bool:
    """Whether two sinks would write to the same place."""
    return bool(writing_to(one, {"other": other}))


def writing_to(sink: Sink, sinks: Mapping[str, Sink]) -> list[str]:
    """The names of the sinks that would write to the same place as a sink."""
    place = _place(describe_sink(sink) or {})
    if place is None:  # most sinks that are in memory: nothing of the others has to be asked
        return [name for name, used in sinks.items() if used is sink]
    return [
        name for name, used in sinks.items() if used is sink or _place(describe_sink(used) or {}) == place
    ]


def _place(description: Mapping[str, object]) -> object:
    """What two descriptions of one directory or one table have in common; None if results go to no such place."""
    if "path" in description:
        path = str(description["path"])
        try:
            return path if is_object_uri(path) else Path(path).resolve()
        except (OSError, RuntimeError, ValueError):
            # A link in a circle, or no path at all, as one with a zero byte: the sink says so when it is opened.
            return path
    if "table" in description:
        tabled = {name: value for name, value in description.items() if name not in ("key", "null_keys")}
        return sorted((name, str(value)) for name, value in tabled.items())
    return None


def place_of(sink: Sink) -> str | None:
    """Where people find the results, without a secret; None if they are nowhere when the session has ended.

    >>> place_of(to_postgres("env:WAREHOUSE", "sales.trolls"))
    'table sales.trolls at env:WAREHOUSE'
    """
    match describe_sink(sink):
        case {"kind": "parquet" | "delta", "path": path}:
            return str(path)
        case {"table": table, "connection": connection}:
            return f"table {table} at {connection}"
        case {"kind": "kafka", "topic": topic, "servers": servers}:
            return f"topic {topic} at {servers}"
    return None


def sink_for(sink: Sink | None, ordering: Ordering | None, keys: Sequence[str] | None = None) -> Sink | None:
    """The sink to write results to, given the order in which they leave; None stays None.

    With ``keys``, results replace earlier ones with the same keys; a sink that cannot do that is refused.
    """
    if sink is not None and keys is not None:
        if not isinstance(sink, KeyedSink):
            raise QueryError(
                f"{type(sink).__name__} only adds rows, and cannot replace those of groups that changed",
                hint='use mode="append", or a sink that replaces rows: to_memory, to_postgres, to_kafka, '
                "to_delta or foreach_batch",
            )
        return sink.keyed(keys)
    return sink.in_order() if ordering is not None and isinstance(sink, OrderableSink) else sink


def _path_of(description: Mapping[str, Any]) -> Path | str:
    """Where the files of a sink are: a path, or the URI of an object store."""
    path = str(description["path"])
    return path if is_object_uri(path) else Path(path)


def make_sink(description: Mapping[str, Any]) -> Sink:
    """The sink that a description stands for; what was in memory is gone."""
    match description["kind"]:
        case "parquet":
            form = (description["compression"], description["batch_column"], description["digits"])
            return ParquetSink(_path_of(description), *form)
        case "delta":
            columns = tuple(description["partition_by"])
            lake = DeltaSink(_path_of(description), columns, description["compact"])
            return lake.keyed(description["keys"]) if "keys" in description else lake
        case "postgres":
            table = to_postgres(description["connection"], description["table"], key=description["key"])
            return table.keyed(table.key) if description.get("null_keys") else table
        case "iceberg":
            return to_iceberg(description["properties"] or description["connection"], description["table"])
        case "memory":
            kept = to_memory(description.get("limit"))
            return kept.keyed(description["keys"]) if "keys" in description else kept
        case "recent":
            return to_recent(description["rows"], description["bytes"])
        case "count":
            return to_count()
        case "console":
            return to_console(rows=description["rows"])
        case "kafka":
            return kafka_sink(description)
        case "derived":
            return DerivedSink(description["place"], description["event_time"])
    raise SinkError(
        f"there is no sink of the kind {description['kind']!r}", hint="was it of another version?"
    )
