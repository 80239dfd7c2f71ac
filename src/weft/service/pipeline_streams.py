"""The streams of a pipeline file.

Guarantees: a stream of the file is registered with the session whole, or an error names the place. The rate of
generated rows is known, and counts as given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import nearest
from weft.logical.schema import LATE, Schema
from weft.service.document import Node
from weft.service.pipeline_sources import read_source
from weft.session import Session
from weft.sources.rate import RateSource
from weft.sources.spec import FilesSource
from weft.stats.statistics import StreamStatistics

__all__ = ["Described", "add_stream"]

_SCHEMA = 'as in schema: "vid long, ts timestamp"'
_ENTRIES = ("schema", "event_time", "lateness", "late", "idle_after", "source", "statistics")
_TIMES: dict[str, Callable[[Node], Any]] = {
    "event_time": lambda node: node.text("name a timestamp column"),
    "lateness": Node.duration,
    "late": lambda node: node.choice("way with late tuples", LATE),
    "idle_after": Node.duration,
}


@dataclass(frozen=True, slots=True)
class Described:
    """What a file says of a stream beyond what the session knows."""

    source: FilesSource | RateSource | None
    statistics: StreamStatistics | None


def add_stream(session: Session, name: str, node: Node, root: Path) -> Described:
    """Register a stream; what is known of it."""
    found = node.section(_ENTRIES)
    schema = found.get("schema")
    source = read_source(found["source"], schema, root) if "source" in found else None
    if source is None and schema is None:
        raise node.error("a stream needs a schema", _SCHEMA)
    given: dict[str, Any] = {entry: read(found[entry]) for entry, read in _TIMES.items() if entry in found}
    text = schema.text(_SCHEMA) if schema is not None else ""
    with node.at():
        session.stream(name, source or text, **given)
    rate = float(source.rows_per_second) if isinstance(source, RateSource) else None
    if "statistics" not in found and rate is None:
        return Described(source, None)
    columns = session.catalog.stream(name).schema
    return Described(source, _statistics(name, columns, node.entry("statistics"), rate))


def _statistics(stream: str, schema: Schema, node: Node, rate: float | None) -> StreamStatistics:
    found = node.section(("rate", "distinct"))
    given: dict[str, Any] = {} if rate is None else {"rate": rate}
    if "rate" in found:
        given["rate"] = found["rate"].figure()
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
