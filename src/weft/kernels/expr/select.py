"""Expressions computed on whole columns, as Spark SQL defines them.

Guarantees: one value per row, of the type the expression has (`arrow_type`); no Python runs per row. A value that does
not exist (division by zero, overflow, a text that is no number) is NULL and raises nothing: the result is Spark's in
its default mode where Spark gives one, and NULL where Spark would stop the query. See `logic`, `arithmetic`, `casts`,
`texts` and `times`. Only two kinds of functions raise a `FunctionError`: users' own (`user_functions`), and functions
of texts whose result would be too large (`texts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.columns import taken
from weft.bucket.compiled import Mask
from weft.bucket.words import Column as Values
from weft.bucket.words import flatten
from weft.errors import PlanError, nearest
from weft.kernels.expr import arithmetic, casts, grid_cells, logic, texts
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.builtin import formats, hashes, json, lists, nested, numbers, times
from weft.kernels.expr.builtin import texts as more_texts
from weft.kernels.expr.datum import ColumnFunction, as_array, as_type, constant
from weft.kernels.expr.user_functions import call_user, count_checked
from weft.logical.expr.expression import Call, Column, Expr, Literal, all_of
from weft.logical.expr.expression import columns as columns_of
from weft.logical.expr.user_functions import has_user_call

__all__ = ["ColumnKey", "Columns", "evaluate", "holds", "passing_rows"]

ColumnKey = tuple[str, str]  # the alias of an input and the name of one of its columns
Columns = Mapping[ColumnKey, Values]

_FUNCTIONS: dict[str, ColumnFunction] = {
    **logic.FUNCTIONS,
    **arithmetic.FUNCTIONS,
    **texts.FUNCTIONS,
    **more_texts.FUNCTIONS,
    **times.FUNCTIONS,
    **formats.FUNCTIONS,
    **nested.FUNCTIONS,
    **lists.FUNCTIONS,
    **hashes.FUNCTIONS,
    **json.FUNCTIONS,
    **numbers.FUNCTIONS,
    **grid_cells.FUNCTIONS,
    "cast": casts.cast,
}


def evaluate(expr: Expr, columns: Columns, rows: int) -> Any:
    """The value of an expression for every row."""
    return as_type(as_array(_value(expr, columns), rows), arrow_type(expr.type))


def holds(predicate: Expr, columns: Columns, rows: int, *, counted: Expr | None = None) -> Mask:
    """For which rows a predicate is true: neither false nor NULL.

    A predicate that calls users' functions is counted (`count_checked`) under its own text. ``counted`` is the
    predicate to count under instead, where the calls have been replaced by columns before.
    """
    value = _value(predicate, columns)
    mask: Mask
    if isinstance(value, pa.Scalar):
        mask = np.full(rows, bool(value.as_py()))
    else:
        known = pc.fill_null(as_type(value, pa.bool_()), False) if value.null_count else value
        mask = known.to_numpy(zero_copy_only=False)
    if counted is not None or has_user_call(predicate):
        count_checked(counted or predicate, rows, int(np.count_nonzero(mask)))
    return mask


def passing_rows(predicates: Iterable[Expr], columns: Columns, rows: int) -> Mask:
    """For which rows all predicates are true; users' functions are called only for rows that pass all others."""
    every = tuple(predicates)
    plain = all_of(one for one in every if not has_user_call(one))
    mask = holds(plain, columns, rows)
    for predicate in every:
        if has_user_call(predicate):
            left = np.flatnonzero(mask).astype(np.int32)
            named = {(part.alias, part.name) for part in columns_of(predicate)}
            found = {key: taken(columns[key], left) for key in named}
            mask[left] = holds(predicate, found, left.size)
    return mask


def _value(expr: Expr, columns: Columns) -> Any:
    if isinstance(expr, Literal):
        return constant(expr)
    if isinstance(expr, Column):
        found = columns.get((expr.alias, expr.name))
        if found is None:
            known = [f"{alias}.{name}" for alias, name in columns]
            raise PlanError(f"there is no column {expr}", hint=nearest(str(expr), known))
        return as_type(flatten(found), arrow_type(expr.type))
    return _call(expr, [_value(arg, columns) for arg in expr.args])


def _call(call: Call, args: Sequence[Any]) -> Any:
    kind = arrow_type(call.type)
    if all(isinstance(arg, pa.Scalar) for arg in args):
        ones = [as_array(args[0], 1), *args[1:]]
        return as_type(_rule(call, ones)(ones, kind), kind)[0]
    return as_type(_rule(call, args)(args, kind), kind)


def _rule(call: Call, args: Sequence[Any]) -> ColumnFunction:
    if call.function in ("+", "-") and any(_is_time(arg) for arg in args):
        return lambda values, _kind: arithmetic.add_times(call.function, values)
    if call.function == "*" and any(pa.types.is_duration(arg.type) for arg in args):
        return lambda values, _kind: arithmetic.multiply_interval(values)
    rule = _FUNCTIONS.get(call.function)
    if rule is None and has_user_call(call):
        return lambda values, kind: call_user(call, values, kind)
    if rule is None:
        raise PlanError(
            f"there is no kernel for the function {call.function}", hint=nearest(call.function, _FUNCTIONS)
        )
    return rule


def _is_time(value: Any) -> bool:
    checks = (pa.types.is_duration, pa.types.is_timestamp, pa.types.is_date)
    return any(check(value.type) for check in checks)
