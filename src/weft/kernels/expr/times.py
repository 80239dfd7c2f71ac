"""Points in time and spans between them.

Guarantees: times are instants in UTC with a resolution of a microsecond; a date is its midnight. Adding months keeps
the day, or takes the last day of a shorter month. A time or an interval that its type cannot hold is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.kernels.expr.arithmetic import FUNCTIONS as FUNCTIONS_OF_NUMBERS
from weft.kernels.expr.arrow import TIMESTAMP
from weft.kernels.expr.datum import ColumnFunction, as_array, as_type, naive, numbers, valid_rows, with_nulls

__all__ = ["FUNCTIONS", "add_times"]


def add_times(operator: str, args: Sequence[Any]) -> Any:
    """`+` or `-` where an argument is a time or an interval."""
    left, right = (arg if pa.types.is_duration(arg.type) else as_type(arg, TIMESTAMP) for arg in args)
    moment = pa.types.is_timestamp(left.type) != pa.types.is_timestamp(right.type)
    micros = [pc.cast(arg, pa.int64()) for arg in (left, right)]
    return pc.cast(FUNCTIONS_OF_NUMBERS[operator](micros, pa.int64()), TIMESTAMP if moment else _INTERVAL)


def multiply_interval(args: Sequence[Any]) -> Any:
    """An interval times a whole number, in any order."""
    return pc.cast(
        FUNCTIONS_OF_NUMBERS["*"]([pc.cast(arg, pa.int64()) for arg in args], pa.int64()), _INTERVAL
    )


_INTERVAL = pa.duration("us")


def _part(extract: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        return pc.cast(extract(naive(args[0])), kind)

    return rule


def _add_months(args: Sequence[Any], kind: pa.DataType) -> Any:
    rows = next(len(arg) for arg in args if isinstance(arg, pa.Array))
    dates, months = as_array(args[0], rows), as_array(args[1], rows)
    days = numbers(as_type(dates, kind).view(pa.int32())).astype("M8[D]")
    first, count = days.astype("M8[M]"), numbers(months).astype(np.int64)
    target = first + np.clip(count, -_MOST_MONTHS, _MOST_MONTHS).astype("m8[M]")
    last = (target + np.timedelta64(1, "M")).astype("M8[D]") - np.timedelta64(1, "D")
    moved = np.minimum(target.astype("M8[D]") + (days - first.astype("M8[D]")), last).astype(np.int64)
    valid, fits = valid_rows([dates, months]), np.abs(moved) < 2**31
    return with_nulls(
        np.where(fits, moved, 0).astype(np.int32), fits if valid is None else fits & valid, kind
    )


_MOST_MONTHS = 2**28  # more than dates of 32 bits are apart


def _micros(args: Sequence[Any], _kind: pa.DataType) -> Any:
    return as_type(args[0], TIMESTAMP).view(pa.int64())


FUNCTIONS: dict[str, ColumnFunction] = {
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "add_months": _add_months,
    "unix_micros": _micros,
}
