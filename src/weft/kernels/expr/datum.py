"""Values that expressions are computed on: whole columns and constants.

Guarantees: these functions change how values are represented, never the values. Times are microseconds since 1970 in
UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Mask
from weft.bucket.words import flatten, validity
from weft.kernels.expr.arrow import TIMESTAMP, arrow_type
from weft.logical.expr.expression import Literal

__all__ = [
    "ColumnFunction",
    "as_array",
    "as_type",
    "columns_of",
    "constant",
    "constant_of",
    "limits_of",
    "naive",
    "null_unless",
    "numbers",
    "valid_rows",
    "with_nulls",
]

# How a function is computed: from its arguments, of which at least one is an array, and the type to return.
ColumnFunction = Callable[[Sequence[Any], pa.DataType], Any]


def constant(literal: Literal) -> Any:
    """A constant as a scalar."""
    value: Any = literal.value
    if isinstance(value, datetime):
        value = (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    elif isinstance(value, timedelta):
        value = value // timedelta(microseconds=1)
    return pa.scalar(value, arrow_type(literal.type))


def as_type(value: Any, kind: pa.DataType) -> Any:
    """The same values stored as `kind`; only for changes that lose nothing."""
    if value.type == kind:
        return value
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(value.type) and isinstance(value, pa.Array):
        return pc.cast(value, pa.timestamp("us", value.type.tz), safe=False).view(kind)
    if pa.types.is_decimal(value.type) and pa.types.is_floating(kind):
        return _nearest(value, kind)
    return pc.cast(value, kind, safe=False)


def _nearest(value: Any, kind: pa.DataType) -> Any:
    """Decimals as the floats nearest to them; Arrow's own cast of a decimal of 0.5 may give a float below it."""
    old = value.type
    if isinstance(value, pa.Array) and kind == pa.float64() and old.precision <= 15:
        digits = pa.Array.from_buffers(
            pa.decimal128(old.precision, 0), len(value), value.buffers(), value.null_count, value.offset
        )
        # Both are exact, so the quotient is the nearest double.
        return pc.divide(pc.cast(pc.cast(digits, pa.int64()), kind), pa.scalar(10.0**old.scale))
    return pc.cast(pc.cast(value, pa.string()), kind)


def as_array(value: Any, rows: int) -> Any:
    """The value as a column of so many rows: a constant is repeated."""
    if isinstance(value, pa.Scalar):
        return pa.nulls(rows, value.type) if not value.is_valid else pa.repeat(value, rows)
    return flatten(value)


def columns_of(args: Sequence[Any]) -> list[Any]:
    """All arguments of a function as columns; if all are constants, of one row."""
    rows = next((len(arg) for arg in args if not isinstance(arg, pa.Scalar)), 1)
    return [as_array(arg, rows) for arg in args]


def constant_of(arg: Any) -> Any:
    """The value of an argument that is a constant, which may have been repeated; None where it is NULL."""
    one = arg if isinstance(arg, pa.Scalar) else arg[0] if len(arg) else None
    return None if one is None else one.as_py()


def limits_of(kind: pa.DataType) -> np.iinfo[Any]:
    """The least and the greatest value of a type of integers."""
    return np.iinfo(f"int{kind.bit_width}")


def naive(value: Any) -> Any:
    """Timestamps without their zone, which is UTC, so that no time zone database is asked."""
    return as_type(as_type(value, TIMESTAMP), pa.timestamp("us"))


def numbers(value: Any) -> Array:
    """A column as NumPy values; those of NULLs are arbitrary."""
    if value.null_count:
        value = pc.fill_null(value, pa.scalar(0, value.type))
    array: Array = value.to_numpy(zero_copy_only=False)
    return array


def valid_rows(arguments: Sequence[Any]) -> Mask | None:
    """Which rows have no NULL in any argument; None means all rows. A constant that is NULL rules out every row."""
    valid: Mask | None = None
    for argument in arguments:
        if isinstance(argument, pa.Scalar):
            if not argument.is_valid:
                return np.zeros(_rows(arguments), np.bool_)
            continue
        here = validity(argument)
        valid = here if valid is None else valid if here is None else valid & here
    return valid


def _rows(arguments: Sequence[Any]) -> int:
    return next(len(argument) for argument in arguments if not isinstance(argument, pa.Scalar))


def with_nulls(values: Array, valid: Mask | None, kind: pa.DataType) -> Any:
    """A column of NumPy values that is NULL where not valid."""
    return pa.array(values, mask=None if valid is None else ~valid, from_pandas=False).cast(kind, safe=False)


def null_unless(condition: Any, value: Any) -> Any:
    """The value where the condition is true, else NULL."""
    return pc.if_else(pc.fill_null(condition, False), value, pa.scalar(None, value.type))
