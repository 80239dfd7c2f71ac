"""The function CAST.

Guarantees: every cast that the expression language knows is done with Spark's results; a value that the other type
cannot represent becomes NULL. `parse_texts` says how texts are read and `print_texts` how they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.kernels.expr.arithmetic import narrow, round_half_up
from weft.kernels.expr.datum import as_type, limits_of, naive, numbers, valid_rows, with_nulls
from weft.kernels.expr.decimals import fit, labelled, whole_part, wide
from weft.kernels.expr.parse_texts import parse
from weft.kernels.expr.print_texts import render

__all__ = ["cast"]


def cast(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The values of a column as another type."""
    (value,) = args
    old = value.type
    if old == kind or pa.types.is_null(old):
        return as_type(value, kind)
    if pa.types.is_string(kind):
        return render(value)
    if pa.types.is_string(old):
        return parse(value, kind)
    if pa.types.is_boolean(kind):
        return pc.not_equal(value, pa.scalar(0, old))
    if pa.types.is_boolean(old):
        return cast([pc.cast(value, pa.int8())], kind)
    if pa.types.is_timestamp(kind):
        return as_type(value, kind)
    if pa.types.is_date(kind):
        return pc.cast(naive(value), kind, safe=False)
    return _number(value, kind)


def _number(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return _decimal(value, kind)
    if pa.types.is_floating(kind):
        return as_type(value, kind)
    if pa.types.is_floating(value.type):
        return _from_float(value, kind)
    if pa.types.is_decimal(value.type):
        return narrow(whole_part(wide(value)), kind)
    return pc.cast(value, kind) if kind.bit_width >= value.type.bit_width else narrow(value, kind)


def _from_float(value: Any, kind: pa.DataType) -> Any:
    whole = np.trunc(numbers(value).astype(np.float64))
    limits = limits_of(kind)
    inside = (whole >= float(limits.min)) & (whole < float(limits.max) + 1.0)
    valid = valid_rows([value])
    good = inside if valid is None else inside & valid
    return with_nulls(np.where(inside, whole, 0.0).astype(np.int64), good, kind)


def _decimal(value: Any, kind: pa.DataType) -> Any:
    if not pa.types.is_floating(value.type):
        return fit(wide(value), kind)
    values, valid = numbers(value).astype(np.float64), valid_rows([value])
    with np.errstate(invalid="ignore"):
        inside = np.abs(values) < 10.0 ** (kind.precision - kind.scale)
    values = np.where(inside & (np.abs(values) > _LEAST), values, 0.0)
    good = inside if valid is None else inside & valid
    if kind.scale <= 15 and np.abs(values).max(initial=0.0) < _SURE / 10.0**kind.scale:
        digits = np.rint(round_half_up(values, kind.scale) * 10.0**kind.scale).astype(np.int64)
        whole = wide(with_nulls(digits, good, pa.int64()))
        return fit(labelled(whole, whole.type.precision, kind.scale), kind)
    return parse(pc.cast(with_nulls(values, good, pa.float64()), pa.string()), kind)


_LEAST = 1e-40  # doubles below it are 0 in every decimal
_SURE = 2.0**49  # up to here, a double has all digits of a decimal that is rounded to whole numbers
