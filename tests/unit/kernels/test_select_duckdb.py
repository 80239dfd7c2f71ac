"""The evaluator against DuckDB, on random expressions whose meaning both share."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.kernels.columns import chunked
from weft.kernels.expr.select import evaluate, holds
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Column, Expr, to_sql
from weft.logical.expr.functions import call
from weft.logical.schema import DataType

POOLS: dict[str, list[Any]] = {
    "int": [-7, -1, 0, 1, 2, 100],
    "long": [-9, -1, 0, 1, 3, 10**9],
    "double": [-2.5, -0.0, 0.0, 0.5, 1.0, 7.25, float("nan"), float("inf"), float("-inf")],
    "string": ["", "a", "ab", "b%", "Ä_x", "aab", " a "],
    "boolean": [True, False],
    "timestamp": [dt.datetime(2024, 2, 29, 23, 59, 58) + dt.timedelta(seconds=k) for k in range(4)],
    "date": [dt.date(1969, 12, 31), dt.date(2024, 1, 31), dt.date(2024, 2, 29)],
}
ARROW = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
ARROW |= {"timestamp": pa.timestamp("us"), "date": pa.date32()}
TYPES = {name: DataType(name) for name in POOLS}
COLUMNS = {f"{name}{n}": name for name in POOLS for n in (1, 2)}
INTERVALS = [dt.timedelta(seconds=1), dt.timedelta(minutes=-2)]


@st.composite
def rows(draw: st.DrawFn) -> Any:
    """A table with two columns of each type."""
    size = draw(st.integers(0, 8))
    values = {
        name: draw(st.lists(st.sampled_from([*POOLS[kind], None]), min_size=size, max_size=size))
        for name, kind in COLUMNS.items()
    }
    return pa.table(
        {name: pa.array(values[name], ARROW[kind], from_pandas=False) for name, kind in COLUMNS.items()}
    )


def leaf(kind: str) -> st.SearchStrategy[Expr]:
    columns = [Column("t", f"{kind}{n}", TYPES[kind]) for n in (1, 2)]
    constants = [literal(v) for v in POOLS[kind] if not (isinstance(v, float) and not math.isfinite(v))]
    typed = [constant for constant in constants if constant.type == TYPES[kind]]
    return st.sampled_from([*columns, *columns, *typed])


def numbers(depth: int) -> st.SearchStrategy[Expr]:
    return st.sampled_from(["int", "long", "double"]).flatmap(lambda kind: expressions(kind, depth))


@st.composite
def expressions(draw: st.DrawFn, kind: str, depth: int) -> Expr:
    """A random expression of a type; operators that overflow or divide are left to other tests."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(leaf(kind))
    below = depth - 1
    if draw(st.booleans()):
        return draw(_choices(kind, below))
    return draw(_typed(kind, below))


def _choices(kind: str, depth: int) -> st.SearchStrategy[Expr]:
    same = expressions(kind, depth)
    simple = st.builds(call, st.sampled_from(["coalesce", "nullif", "greatest", "least"]), same, same)
    return st.one_of(simple, st.builds(call, st.just("case"), expressions("boolean", depth), same, same))


def _typed(kind: str, depth: int) -> st.SearchStrategy[Expr]:
    text, time, number = expressions("string", depth), expressions("timestamp", depth), numbers(depth)
    if kind in ("int", "long"):
        ints = expressions(kind, depth)
        found = [st.builds(call, st.sampled_from(["+", "-"]), ints, ints)]
        if kind == "int":
            found += [
                st.builds(call, st.just("length"), text),
                st.builds(call, st.just("levenshtein"), text, text),
            ]
            found += [
                st.builds(call, st.sampled_from(["year", "month", "day", "hour", "minute", "second"]), time)
            ]
        return st.one_of(found)
    if kind == "double":
        floats = expressions("double", depth)
        return st.one_of(
            st.builds(call, st.sampled_from(["+", "-", "*"]), floats, floats),
            st.builds(call, st.just("abs"), floats),
            st.builds(cast, number, st.just(TYPES["double"])),
        )
    if kind == "string":
        return st.builds(call, st.sampled_from(["lower", "upper", "ltrim", "rtrim", "trim"]), text)
    if kind == "timestamp":
        return st.builds(
            call, st.sampled_from(["+", "-"]), time, st.sampled_from([literal(i) for i in INTERVALS])
        )
    if kind == "date":
        return st.builds(cast, time, st.just(TYPES["date"]))
    return _conditions(depth)


def _conditions(depth: int) -> st.SearchStrategy[Expr]:
    compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    booleans = expressions("boolean", depth)
    kinds = st.sampled_from(list(POOLS))
    comparisons = kinds.flatmap(
        lambda kind: st.builds(call, compare, expressions(kind, depth), expressions(kind, depth))
    )
    memberships = st.sampled_from(["int", "long", "string", "date"]).flatmap(
        lambda kind: st.builds(
            call, st.just("in"), expressions(kind, depth), *(st.sampled_from(_constants(kind)) for _ in "12")
        )
    )
    return st.one_of(
        comparisons,
        memberships,
        st.builds(call, st.sampled_from(["and", "or"]), booleans, booleans),
        st.builds(call, st.just("not"), booleans),
        kinds.flatmap(lambda kind: st.builds(call, st.just("is null"), expressions(kind, depth))),
        st.builds(call, st.just("contains"), expressions("string", depth), expressions("string", depth)),
        st.builds(call, st.just("like"), expressions("string", depth), st.sampled_from(_PATTERNS)),
    )


def _constants(kind: str) -> list[Expr]:
    return [literal(value) for value in POOLS[kind] if literal(value).type == TYPES[kind]] or [
        literal(10**10)
    ]


_PATTERNS = [literal(pattern) for pattern in ("%", "a%", "%b", "_", "a_", "%a%b%", "")]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return one == other or (one != one and other != other)
    return bool(one == other)


@examples(65)
@given(data=st.data(), table=rows(), parts=st.integers(1, 3))
def test_random_expressions(
    connection: duckdb.DuckDBPyConnection, data: st.DataObject, table: Any, parts: int
) -> None:
    kind = data.draw(st.sampled_from([*POOLS, "boolean", "boolean"]))
    expr = data.draw(expressions(kind, 3))
    connection.register("t", table)
    theirs = connection.sql(f"SELECT {to_sql(expr)} AS x FROM t").to_arrow_table().column(0)
    columns = {("t", name): chunked(table.column(name).combine_chunks(), parts) for name in COLUMNS}
    ours = evaluate(expr, columns, table.num_rows)
    if kind == "timestamp":
        ours = ours.cast(pa.timestamp("us", tz="UTC")).view(pa.timestamp("us"))
        theirs = theirs.cast(pa.timestamp("us"))
    values, expected = ours.to_pylist(), theirs.to_pylist()
    assert all(map(alike, values, expected)), (to_sql(expr), values, expected)
    if kind == "boolean":
        assert holds(expr, columns, table.num_rows).tolist() == [value is True for value in values]
