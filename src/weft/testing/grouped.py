"""Groups by brute force: what a query with aggregates gives for the rows of its join, computed by DuckDB.

Guarantees: DuckDB is asked in one statement over all rows, so batches, partitions and partial states play no part.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

from weft.logical.expr.expression import Expr, rename
from weft.logical.query.grouping import GROUP, Aggregate, GroupWindow
from weft.logical.query.query import Query

__all__ = ["reference_groups"]

_SAME = {"any_value": "min", "count_distinct": "count", "approx_count_distinct": "count"}


def reference_groups(connection: Any, query: Query, rows: pa.Table, to_duckdb: Any) -> pa.Table:
    """The groups that a query makes of the rows of its join; ``to_duckdb`` says an expression in DuckDB's words."""
    grouping = query.grouping
    if grouping is None:
        return rows
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.timestamp("us")))
    connection.register("joined_rows", rows)
    keys, source = [_quoted(name) for name in grouping.keys], "joined_rows"
    edges: list[str] = []
    if grouping.window is not None:
        source, edges = _windowed(grouping.window, keys), ['"start"', '"end"']
    made = [f"{_call(one)} AS {_quoted(one.name)}" for one in grouping.aggregates]
    by = [*keys, *edges]
    text = f"SELECT {', '.join([*by, *made]) or '1'} FROM {source}" + (
        f" GROUP BY {', '.join(by)}" if by else ""
    )
    shown = [f"{to_duckdb(_of_groups(output.expr))} AS {_quoted(output.name)}" for output in grouping.outputs]
    having = "" if grouping.having is None else f" WHERE {to_duckdb(_of_groups(grouping.having))}"
    try:
        found: pa.Table = connection.sql(
            f"SELECT {', '.join(shown)} FROM ({text}) AS groups{having}"
        ).to_arrow_table()
    finally:
        connection.unregister("joined_rows")
    return found


def _of_groups(expr: Expr) -> Expr:
    return rename(expr, {GROUP: "groups"})


def _windowed(window: GroupWindow, keys: list[str]) -> str:
    """The rows of the join in their windows, as a sub-select."""
    time, size = _quoted(window.column), _interval(window.size)
    rows = f"(SELECT * FROM joined_rows WHERE {time} IS NOT NULL)"
    if window.slide is None:
        per = f"PARTITION BY {', '.join(keys)} " if keys else ""
        apart = f"{time} - lag({time}) OVER ({per}ORDER BY {time}) <= {size}"
        begins = f"(SELECT *, CASE WHEN {apart} THEN 0 ELSE 1 END AS __begins FROM {rows})"
        number = f"sum(__begins) OVER ({per}ORDER BY {time})"
        numbered = f"(SELECT *, {number} AS __session FROM {begins})"
        within = f"(PARTITION BY {', '.join([*keys, '__session'])})"
        edges = f'min({time}) OVER {within} AS "start", max({time}) OVER {within} + {size} AS "end"'
        return f"(SELECT *, {edges} FROM {numbered})"
    count = -(-window.size // window.slide)
    last = f"time_bucket({_interval(window.slide)}, {time}, TIMESTAMP '1970-01-01')"
    copies = (
        f'(SELECT *, {last} - n * {_interval(window.slide)} AS "start" FROM {rows}, range({count}) AS r(n))'
    )
    return f'(SELECT *, "start" + {size} AS "end" FROM {copies} WHERE "start" + {size} > {time})'


def _call(one: Aggregate) -> str:
    argument = "*" if one.argument is None else _quoted(one.argument)
    distinct = "DISTINCT " if one.function.endswith("count_distinct") else ""
    return f"{_SAME.get(one.function, one.function)}({distinct}{argument})"


def _interval(span: timedelta) -> str:
    return f"to_microseconds({span // timedelta(microseconds=1)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
