"""The queries of a pipeline file, and where their results go.

Guarantees: a description in the file becomes a sink, or an error at its place; nothing is written. Relative paths
begin where the pipeline file is.

    queries:
      planned: SELECT …                                          # with `weft run`, its results go to the console
      kept: {sql: SELECT …, sink: {parquet: out/kept, compression: zstd}}
      shown: {sql: SELECT …, sink: console}                      # or {console: 5}: so many rows of each batch
      counted: {sql: SELECT …, sink: memory}
      padded: {sql: SELECT … LEFT JOIN …, emit_unmatched_after: 10 minutes}    # so long a row waits for a partner
      sorted: {sql: SELECT …, order: outer, precision: 64}       # or none, inner, event; the last without precision
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from weft.errors import nearest
from weft.logical.ordering import ORDERS
from weft.service.document import Node
from weft.service.pipeline_sources import resolve_path
from weft.sinks import ConsoleSink, Sink, to_console, to_memory, to_parquet

__all__ = ["QueryEntry", "console_sink", "read_query"]

_SINKS = ("console", "memory", "parquet")
_EXAMPLE = "as in sink: {parquet: out/trolls}, sink: memory or sink: console"
_QUERY = "a query is a text: SELECT … FROM …, or {sql: SELECT … FROM …, sink: …}"


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """The text of a query, where its results go, how long rows wait for a partner and in which order results leave."""

    sql: str
    sink: Sink | None = None
    emit_unmatched_after: timedelta | None = None
    order: str = "none"
    precision: int | None = None


def read_query(name: str, node: Node, root: Path) -> QueryEntry:
    """What a file says of a query."""
    if not isinstance(node.value, dict):
        return QueryEntry(node.text(_QUERY))
    found = node.section(("sql", "sink", "emit_unmatched_after", "order", "precision"))
    if "sql" not in found:
        raise node.error("the query has no text", _QUERY)
    sink = _sink(name, found["sink"], root) if "sink" in found else None
    wait = found["emit_unmatched_after"].duration() if "emit_unmatched_after" in found else None
    order = found["order"].choice("order", ORDERS) if "order" in found else "none"
    precision = found["precision"].integer() if "precision" in found else None
    return QueryEntry(found["sql"].text(_QUERY), sink, wait, order, precision)


def console_sink(query: str) -> ConsoleSink:
    """The first rows of each batch, under the query's name."""
    return to_console(5, title=query)


def _sink(query: str, node: Node, root: Path) -> Sink:
    if isinstance(node.value, str):
        name = node.choice("sink", _SINKS)
        if name == "parquet":
            raise node.error("parquet needs a path", _EXAMPLE)
        return to_memory() if name == "memory" else console_sink(query)
    found = node.section((*_SINKS, "compression"))
    kinds = [name for name in _SINKS if name in found]
    if len(kinds) != 1:
        raise node.error("results go to one sink", f"{_EXAMPLE}; {nearest('', _SINKS)}")
    if kinds != ["parquet"] and "compression" in found:
        raise found["compression"].error(f"{kinds[0]} has no compression", "leave it out")
    return _with_options(query, kinds[0], node, found, root)


def _with_options(query: str, kind: str, node: Node, found: dict[str, Node], root: Path) -> Sink:
    if kind == "memory":
        raise found["memory"].error("memory has no options", "write sink: memory")
    if kind == "console":
        rows = found["console"].integer()
        with found["console"].at():
            return to_console(rows, title=query)
    path = resolve_path(found["parquet"], root)
    options: dict[str, Any] = {"compression": found["compression"].text()} if "compression" in found else {}
    with node.at():
        return to_parquet(path, **options)
