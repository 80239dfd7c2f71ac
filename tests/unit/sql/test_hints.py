"""Hints that suggest SQL: what they say is run, and gives what was asked for."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from tests.unit.sql.hints import PLAIN, REPLACED, suggesting

from weft.errors import SqlError
from weft.kernels.expr.select import evaluate
from weft.logical.catalog import Catalog
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

COLUMNS = "x long, y long, n int, b boolean, s string, t timestamp, d date"
CATALOG = Catalog((Stream("r", Schema.parse(COLUMNS)),))
LONGS = [None, 0, 1, -1, 7, -7, 2, 2**53 + 1, 2**62 + 1, -(2**62) - 1]
TIMES = [
    dt.datetime(2024, 3, 31, 12, 30, 15, 999_999),
    dt.datetime(1969, 12, 31, 23, 59, 59, 500_000),
    dt.datetime(2024, 2, 29),
    dt.datetime(2500, 11, 30, 23, 59, 59, 999_999),
    None,
]
TEXTS = ["10%", "100", "äb", "ÄB", "", "12", " 3 ", "x", None]


def table() -> Any:
    """Every pair of long numbers, beside values of the other columns."""
    pairs = [(x, y) for x in LONGS for y in LONGS]
    rows = range(len(pairs))
    times = [TIMES[row % len(TIMES)] for row in rows]
    return pa.table(
        {
            "x": pa.array([x for x, _ in pairs], pa.int64()),
            "y": pa.array([y for _, y in pairs], pa.int64()),
            "n": pa.array([(None, 0, 1, 3, 40)[row % 5] for row in rows], pa.int32()),
            "b": pa.array([(True, False, None)[row % 3] for row in rows]),
            "s": pa.array([TEXTS[row % len(TEXTS)] for row in rows]),
            "t": pa.array(times, pa.timestamp("us")),
            "d": pa.array([None if time is None else time.date() for time in times]),
        }
    )


CASES = [(hint, *case) for hint, cases in REPLACED.items() for case in cases]


def computed(text: str, rows: Any) -> list[Any]:
    """What an expression gives, by Weft."""
    (output,) = parse_query(f"SELECT {text} AS found FROM r", CATALOG).projection
    columns = {("r", name): rows.column(name).combine_chunks() for name in rows.column_names}
    return comparable(evaluate(output.expr, columns, rows.num_rows))


def comparable(column: Any) -> list[Any]:
    """The values of a column; times without their zone."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC")).view(pa.timestamp("us"))
    found: list[Any] = column.to_pylist()
    return found


# What Spark writes otherwise than DuckDB, so that DuckDB can say what was asked for.
IN_DUCKDB = {
    "s LIKE '10!%' ESCAPE '!'": "s LIKE '10!%' ESCAPE '!'",
    "'a' 'b'": "'ab'",
    "x <=> y": "x IS NOT DISTINCT FROM y",
    "t + INTERVAL n SECOND": "t + to_seconds(n)",
    "d - INTERVAL '1' MONTH": "CAST(d - INTERVAL '1' MONTH AS DATE)",
}


def asked(text: str, rows: Any) -> list[Any]:
    """What an expression gives, by DuckDB."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("r", rows)
    said = IN_DUCKDB.get(text) or sqlglot.transpile(text, read="spark", write="duckdb")[0]
    return comparable(connection.sql(f"SELECT {said} AS found FROM r").to_arrow_table().column(0))


@pytest.mark.parametrize(("hint", "refused", "written"), CASES, ids=[case[1] for case in CASES])
def test_what_a_hint_says_gives_what_was_asked_for(hint: str, refused: str, written: str) -> None:
    """Who does as they are told would get another answer, and not know it."""
    with pytest.raises(SqlError) as caught:
        parse_query(f"SELECT {refused} AS found FROM r", CATALOG)
    assert caught.value.hint == hint
    rows = table()
    assert computed(written, rows) == asked(refused, rows)


def test_every_hint_that_suggests_sql_is_tried() -> None:
    """A new hint would be wrong as those were that nobody had run."""
    found = set(suggesting())
    assert not sorted(found - REPLACED.keys() - PLAIN), "give it an entry in REPLACED, or in plain_hints.txt"
    assert not sorted((REPLACED.keys() | PLAIN) - found), "no hint says this any more"
