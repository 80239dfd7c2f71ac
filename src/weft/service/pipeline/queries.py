"""The queries of a pipeline file.

Guarantees: what the file says of a query is read whole, or an error names the place; nothing is parsed or planned.

    queries:
      planned: SELECT …                                          # with `weft run`, its results go to the console
      kept: {sql: SELECT …, sink: {parquet: out/kept}}           # `pipeline.sinks` has all kinds
      padded: {sql: SELECT … LEFT JOIN …, emit_unmatched_after: 10 minutes}    # so long a row waits for a partner
      sorted: {sql: SELECT …, order: outer, precision: 64}       # or none, inner, event; the last without precision
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from weft.logical.query.ordering import ORDERS
from weft.ports.sink import Sink
from weft.service.pipeline.document import Node
from weft.service.pipeline.sinks import read_sink

__all__ = ["QueryEntry", "read_query"]

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
    sink = read_sink(name, found["sink"], root) if "sink" in found else None
    wait = found["emit_unmatched_after"].duration() if "emit_unmatched_after" in found else None
    order = found["order"].choice("order", ORDERS) if "order" in found else "none"
    precision = found["precision"].integer() if "precision" in found else None
    return QueryEntry(found["sql"].text(_QUERY), sink, wait, order, precision)
