"""Expressions over a few values, evaluated and compared."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from weft.kernels.expr.select import evaluate
from weft.logical.expr.expression import Column, Expr
from weft.logical.expr.functions import call
from weft.logical.schema import parse_type

NAN, INF = float("nan"), float("inf")


def column(kind: str, name: str = "x") -> Column:
    return Column("t", name, parse_type(kind))


def arrow(kind: str) -> Any:
    from weft.kernels.expr.arrow import arrow_type

    return arrow_type(parse_type(kind))


def values(expr: Expr, **columns: tuple[str, list[Any]]) -> list[Any]:
    """What an expression gives for columns of table t."""
    arrays = {
        ("t", name): pa.array(items, arrow(kind), from_pandas=False)
        for name, (kind, items) in columns.items()
    }
    rows = max((len(array) for array in arrays.values()), default=1)
    result = evaluate(expr, arrays, rows)
    assert result.type == arrow(str(expr.type))
    found: list[Any] = result.to_pylist()
    return found


def one(function: str, *args: tuple[str, Any]) -> Any:
    """A function of columns of one row."""
    columns = [column(kind, f"c{i}") for i, (kind, _) in enumerate(args)]
    (value,) = values(call(function, *columns), **{f"c{i}": (kind, [v]) for i, (kind, v) in enumerate(args)})
    return value


def alike(found: Any, wanted: Any) -> bool:
    return bool(found == wanted or (found != found and wanted != wanted))
