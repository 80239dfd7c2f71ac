"""The streams of a pipeline file.

Guarantees: a stream of the file is registered with the session whole, or an error names the place. The rate of
generated rows is known, and counts as given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft.connectors.files.source import FilesSource
from weft.connectors.generate.rate import RateSource
from weft.errors import nearest
from weft.logical.schema import LATE, SHED, Field, Schema
from weft.service.pipeline.document import Node
from weft.service.pipeline.sources import PipelineSource, read_source
from weft.session.session import Session
from weft.stats.skew import HeavyValue, fits
from weft.stats.statistics import StreamStatistics

__all__ = ["StreamEntry", "add_stream", "read_statistics"]

_SCHEMA = 'as in schema: "vid long, ts timestamp"'
_ENTRIES = ("schema", "event_time", "lateness", "late", "idle_after", "ahead", "shed", "source", "statistics")
_TIMES: dict[str, Callable[[Node], Any]] = {
    "event_time": lambda node: node.text("name a timestamp column"),
    "lateness": Node.duration,
    "late": lambda node: node.choice("way with late tuples", LATE),
    "idle_after": Node.duration,
    "shed": lambda node: node.choice("way to shed", SHED),
    "ahead": lambda node: None if node.value == "none" else node.duration(),
}


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """What a file says of a stream that the session is not told when the stream is registered."""

    source: PipelineSource | None
    statistics: StreamStatistics | None


def add_stream(session: Session, name: str, node: Node, root: Path, *, enclosed: bool = False) -> StreamEntry:
    """Register a stream with the session; returns what else the file says of it.

    If it is ``enclosed``, no symbolic link leads out of the folder of its files: others than the operator named it.
    """
    found = node.section(_ENTRIES)
    schema = found.get("schema")
    source = read_source(found["source"], schema, root) if "source" in found else None
    if enclosed and isinstance(source, FilesSource):
        source = replace(source, enclosed=True)
    if source is None and schema is None:
        raise node.error("a stream needs a schema", _SCHEMA)
    given: dict[str, Any] = {entry: read(found[entry]) for entry, read in _TIMES.items() if entry in found}
    text = schema.text(_SCHEMA) if schema is not None else ""
    with node.at():
        session.stream(name, source or text, **given)
    rate = float(source.rows_per_second) if isinstance(source, RateSource) else None
    if "statistics" not in found and rate is None:
        return StreamEntry(source, None)
    columns = session.catalog.stream(name).schema
    return StreamEntry(source, read_statistics(name, columns, node.entry("statistics"), "rate", rate))


def read_statistics(
    stream: str, schema: Schema, node: Node, size: str, known: float | None = None
) -> StreamStatistics:
    """What a file says of a stream's or a table's figures; ``size`` is its rate or its rows, perhaps ``known``."""
    found = node.section((size, "distinct", "heavy"))
    given: dict[str, Any] = {} if known is None else {size: known}
    if size in found:
        given[size] = found[size].figure()
    distinct: dict[str, float] = {}
    for name, count in node.entry("distinct").mapping().items():
        distinct[_field(stream, schema, name, count, distinct).name] = count.figure()
    heavy: dict[str, dict[HeavyValue, float]] = {}
    for name, shares in node.entry("heavy").mapping().items():
        field = _field(stream, schema, name, shares, heavy)
        heavy[field.name] = _shares(field, shares)
    with node.at():
        return StreamStatistics(distinct=distinct, heavy=heavy, **given)


def _field(stream: str, schema: Schema, name: str, node: Node, taken: Collection[str]) -> Field:
    """The column of that name; an error if there is none, or if it was named before."""
    field = schema.find(name)
    if field is None:
        raise node.error(f"{stream} has no column {name!r}", nearest(name, schema.names))
    if field.name in taken:
        raise node.error(f"column {field.name} is there twice")
    return field


def _shares(field: Field, node: Node) -> dict[HeavyValue, float]:
    """The heavy values of a column, and their shares."""
    if not isinstance(node.value, dict):
        raise node.error("expected values with their shares", "as in {42: 0.18}")
    for value in node.value:
        if not isinstance(value, HeavyValue) or not fits(value, field.type):
            raise node.error(f"{value!r} is no {field.type}", "texts are in quotes, whole numbers are not")
    return {
        value: Node(node.file, f"{node.where}.{value}", share).figure() for value, share in node.value.items()
    }
