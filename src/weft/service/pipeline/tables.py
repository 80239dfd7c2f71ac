"""The tables of a pipeline file.

Guarantees: a table of the file is registered with the session whole, or an error names the place.

    customers:
      source: {files: parquet, path: dim/customers}    # or {delta: dim/customers}, and {delta: dim, version: 7}
      refresh: 5 minutes                               # optional; without, it is read when the session starts
      schema: id long, name string                     # not needed for parquet, arrow and delta
      statistics: {rows: 100000, distinct: {id: 100000}}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.connectors.delta.table import DeltaReader, delta
from weft.connectors.files.source import FilesSource
from weft.logical.schema import Schema
from weft.service.pipeline.document import Node
from weft.service.pipeline.paths import resolve_path
from weft.service.pipeline.sources import read_source
from weft.service.pipeline.streams import read_statistics
from weft.session.session import Session
from weft.stats.statistics import StreamStatistics

__all__ = ["add_table"]

_ENTRIES = ("schema", "source", "refresh", "statistics")
_SOURCES = "as in source: {files: parquet, path: dim/customers} or source: {delta: dim/customers}"


def add_table(session: Session, name: str, node: Node, root: Path) -> StreamStatistics | None:
    """Register a table with the session; returns what the file says of its figures."""
    found = node.section(_ENTRIES)
    schema = found.get("schema")
    source = _source(found["source"], schema, root) if "source" in found else None
    if source is None and schema is None:
        raise node.error("a table needs a source or a schema", _SOURCES)
    given: dict[str, Any] = {"refresh": found["refresh"].duration()} if "refresh" in found else {}
    with node.at():
        session.table(name, source or (schema.text() if schema is not None else ""), **given)
    if "statistics" not in found:
        return session.statistics.streams.get(name)
    return read_statistics(name, session.catalog.stream(name).schema, found["statistics"], "rows")


def _source(node: Node, schema: Node | None, root: Path) -> FilesSource | DeltaReader:
    if "delta" not in node.mapping():
        found = read_source(node, schema, root)
        if not isinstance(found, FilesSource):
            raise node.error("a table is read from files or from a Delta table", _SOURCES)
        return found
    entries = node.section(("delta", "version"))
    with node.at():
        columns = Schema.parse(schema.text()) if schema is not None else None
        version = entries["version"].integer() if "version" in entries else None
        return delta(resolve_path(entries["delta"], root), version=version, schema=columns)
