"""Small queries written as join graphs: "R.a = S.a" and the like over streams of long columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from weft.logical.catalog import Catalog
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.optimizer.space import Options, Space
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics, StreamStatistics


def join(*predicates: str, window: str = "") -> Query:
    """The query with these predicates over the streams they mention."""
    found = re.findall(r"(\w+)\.(\w+)", " ".join(predicates))
    columns: dict[str, dict[str, None]] = {}
    for alias, column in found:
        columns.setdefault(alias, {})[column] = None
    streams = [
        Stream(alias, Schema.parse(", ".join(f"{name} long" for name in (*names, "ts"))))
        for alias, names in columns.items()
    ]
    tables = ", ".join(f"{stream.name} {window}" for stream in streams)
    text = f"SELECT * FROM {tables} WHERE {' AND '.join(predicates)}"
    return parse_query(text, Catalog(tuple(streams)))


def rates(**given: float) -> Statistics:
    """Statistics with rates only."""
    return Statistics({name: StreamStatistics(rate=rate) for name, rate in given.items()}, origin="given")


def space(query: Query, statistics: Statistics | None = None, options: Options | None = None) -> Space:
    """The search space of a query."""
    return Space(query, statistics or Statistics(), options or Options())


def named(found: Mapping[str, object]) -> dict[str, str]:
    """Values as texts, for comparison."""
    return {name: str(value) for name, value in found.items()}
