"""Decimal arithmetic.

Guarantees: results are exact, then rounded half up to the scale of their type; NULL where they do not fit its
precision, for a division by zero, and for the remainder of a quotient of more than 37 digits.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.kernels.expr.datum import null_unless

__all__ = ["calculate", "fit", "wide"]


def wide(value: Any) -> Any:
    """A number as a decimal of twice the width, so that nothing overflows on the way."""
    kind = value.type
    if pa.types.is_decimal(kind):
        return pc.cast(value, pa.decimal256(kind.precision, kind.scale))
    return pc.cast(value, pa.decimal256(20, 0))


def fit(value: Any, kind: pa.DataType) -> Any:
    """A decimal rounded and cut to a type; NULL where it does not fit."""
    scale = value.type.scale
    value = pc.cast(value, pa.decimal256(76, scale))  # a digit more, should rounding need it
    if scale > kind.scale:
        value = pc.round(value, kind.scale, "half_towards_infinity")
    value = pc.cast(value, pa.decimal256(76, kind.scale), safe=False)
    limit = pa.scalar(Decimal(10) ** (kind.precision - kind.scale), value.type)
    return pc.cast(null_unless(pc.less(pc.abs(value), limit), value), kind, safe=False)


def calculate(operator: str, left: Any, right: Any, kind: pa.DataType) -> Any:
    """`+`, `-`, `*`, `/` or `%` of two numbers."""
    left, right = _narrow(wide(left)), _narrow(wide(right))
    if operator in ("/", "%"):
        right = null_unless(pc.not_equal(right, pa.scalar(0, right.type)), right)
    if operator == "+":
        return fit(pc.add(left, right), kind)
    if operator == "-":
        return fit(pc.subtract(left, right), kind)
    if operator == "*":
        return fit(pc.multiply(left, right), kind)
    if operator == "%":
        whole = fit(pc.trunc(pc.divide(left, right)), pa.decimal256(37, 0))
        return fit(pc.subtract(left, pc.multiply(right, whole)), kind)
    return fit(pc.divide(_deepened(left, right, kind.scale + 1), right), kind)


def _narrow(value: Any) -> Any:
    """The value with at most 37 digits: a product of two operands of 38 would have 77, and Arrow's limit is 76."""
    if value.type.precision < 38:
        return value
    return fit(value, pa.decimal256(37, min(37, value.type.scale)))


def _deepened(left: Any, right: Any, scale: int) -> Any:
    """The dividend with zeros behind it, so that the quotient has at least `scale` digits after the point."""
    given = max(4, left.type.scale + right.type.precision - right.type.scale + 1)
    more = max(0, min(scale - given, 75 - left.type.precision - right.type.precision))
    return pc.cast(left, pa.decimal256(left.type.precision + more, left.type.scale + more))
