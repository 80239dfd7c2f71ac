"""Users' functions, made DuckDB's.

Guarantees: a function is called with whole Arrow arrays, NULLs included, as Weft calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

import pyarrow as pa
import sqlglot

from weft.errors import QueryError
from weft.logical.expr.expression import type_sql
from weft.logical.expr.user_functions import user_calls
from weft.logical.query.query import Query
from weft.logical.schema import DataType

__all__ = ["define_functions"]


def define_functions(connection: Any, query: Query, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Make users' functions DuckDB's, each for the types it is called with."""
    kinds: dict[str, tuple[list[str], str]] = {}
    for expr in query.expressions():
        for call in user_calls(expr):
            kind = [_duckdb_type(arg.type) for arg in call.args], _duckdb_type(call.type)
            if kinds.setdefault(call.function, kind) != kind:
                raise QueryError(f"the reference takes {call.function} with one kind of arguments only")
    for name, (parameters, returns) in kinds.items():
        connection.create_function(
            name,
            _adapted(functions[name], len(parameters)),
            parameters,
            returns,
            type="arrow",
            null_handling="special",
        )


def _adapted(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A function of so many arrays; DuckDB reads off its signature how many it takes."""

    def adapted(*columns: Any) -> Any:
        return function(*(c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns))

    names = (Parameter(f"x{i}", Parameter.POSITIONAL_ONLY) for i in range(count))
    adapted.__signature__ = Signature(list(names))  # type: ignore[attr-defined]
    return adapted


def _duckdb_type(type_: DataType) -> str:
    """A type by DuckDB's name; times are plain, as in `_plain`."""
    if type_.name == "timestamp":
        return "TIMESTAMP"
    return str(sqlglot.exp.DataType.build(type_sql(type_), dialect="spark").sql("duckdb"))
