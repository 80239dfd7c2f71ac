"""Comparisons, connectives and choices.

Guarantees: three-valued logic as SQL has it. Floats have Spark's total order: NaN equals NaN and is greater than all
other values; -0.0 equals 0.0. `greatest` and `least` skip NULLs; `coalesce` and `case` take the first that applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.kernels.expr.datum import ColumnFunction, as_type

__all__ = ["FUNCTIONS", "compare"]


def compare(operator: str, left: Any, right: Any) -> Any:
    """`=`, `<>`, `<` or `<=` of two values of one type."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        either = left if isinstance(left, pa.Array) else right
        return (
            pa.nulls(len(either), pa.bool_()) if isinstance(either, pa.Array) else pa.scalar(None, pa.bool_())
        )
    if pa.types.is_boolean(left.type):
        left, right = pc.cast(left, pa.int8()), pc.cast(right, pa.int8())
    if pa.types.is_floating(left.type) and (_has_nan(left) or _has_nan(right)):
        return _compare_floats(operator, left, right)
    return _OPERATORS[operator](left, right)


_OPERATORS = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal}


def _has_nan(values: Any) -> bool:
    nan = pc.is_nan(values)
    return bool((pc.any(nan) if isinstance(nan, pa.Array) else nan).as_py())


def _compare_floats(operator: str, left: Any, right: Any) -> Any:
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if operator in ("=", "<>"):
        equal = pc.or_kleene(pc.equal(left, right), pc.and_kleene(left_nan, right_nan))
        return equal if operator == "=" else pc.invert(equal)
    if operator == "<":
        return pc.or_kleene(pc.less(left, right), pc.and_kleene(pc.invert(left_nan), right_nan))
    return pc.invert(_compare_floats("<", right, left))


def _comparison(operator: str) -> ColumnFunction:
    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        return compare(operator, args[0], args[1])

    return rule


def _and(args: Sequence[Any], _kind: pa.DataType) -> Any:
    return reduce(pc.and_kleene, (as_type(arg, pa.bool_()) for arg in args))


def _or(args: Sequence[Any], _kind: pa.DataType) -> Any:
    return reduce(pc.or_kleene, (as_type(arg, pa.bool_()) for arg in args))


def _not(args: Sequence[Any], _kind: pa.DataType) -> Any:
    return pc.invert(as_type(args[0], pa.bool_()))


def _is_null(args: Sequence[Any], _kind: pa.DataType) -> Any:
    return pc.is_null(args[0])


def _in(args: Sequence[Any], _kind: pa.DataType) -> Any:
    needle, *options = args
    if any(isinstance(option, pa.Array) for option in options):
        return _or([compare("=", needle, option) for option in options], pa.bool_())
    known = pa.array([option.as_py() for option in options if option.is_valid], needle.type)
    if pa.types.is_floating(needle.type):  # so that -0.0 is found among 0.0
        needle, known = (
            pc.add(needle, pa.scalar(0.0, needle.type)),
            pc.add(known, pa.scalar(0.0, needle.type)),
        )
    found = pc.is_in(needle, value_set=known)
    unknown = pa.scalar(None, pa.bool_())
    if len(known) < len(options):
        found = pc.if_else(found, found, unknown)
    return pc.if_else(pc.is_valid(needle), found, unknown)


def _case(args: Sequence[Any], kind: pa.DataType) -> Any:
    *pairs, result = args
    result = as_type(result, kind)
    for condition, value in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
        met = pc.fill_null(as_type(condition, pa.bool_()), False)
        result = pc.if_else(met, as_type(value, kind), result)
    return result


def _coalesce(args: Sequence[Any], kind: pa.DataType) -> Any:
    return pc.coalesce(*(as_type(arg, kind) for arg in args))


def _nullif(args: Sequence[Any], kind: pa.DataType) -> Any:
    left, right = (as_type(arg, kind) for arg in args)
    same = pc.fill_null(compare("=", left, right), False)
    return pc.if_else(same, pa.scalar(None, kind), left)


def _extreme(greatest: bool) -> ColumnFunction:
    def better(one: Any, other: Any) -> Any:
        wins = compare("<", one, other) if greatest else compare("<", other, one)
        chosen = pc.if_else(pc.fill_null(wins, False), other, one)
        return pc.if_else(pc.is_null(one), other, chosen)

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        return reduce(better, (as_type(arg, kind) for arg in args))

    return rule


FUNCTIONS: dict[str, ColumnFunction] = {
    **{operator: _comparison(operator) for operator in _OPERATORS},
    "and": _and,
    "or": _or,
    "not": _not,
    "is null": _is_null,
    "in": _in,
    "case": _case,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "greatest": _extreme(True),
    "least": _extreme(False),
}
