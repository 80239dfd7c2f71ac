"""Queries over streams of known names."""

from __future__ import annotations

from weft.logical.catalog import Catalog
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

STREAMS = Catalog(
    tuple(Stream(n, Schema.parse("k long, x long, s string, ts timestamp"), "ts") for n in ("v", "w", "c"))
)


def query(sql: str) -> Query:
    """A query over v, w and c."""
    return parse_query(sql, STREAMS)
