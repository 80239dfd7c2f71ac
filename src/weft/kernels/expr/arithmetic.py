"""Arithmetic on numbers, and sums of points in time and the spans between them.

Guarantees: a result that does not exist is NULL: that of a division by zero, one that does not fit its type, the
logarithm of a number that is not positive. Where Spark SQL (in its default, ANSI mode) gives a value, it is the same
value; where it would stop the query, which one tuple must not do to a stream, it is NULL (as with Spark's `try_`
functions). Rounding is half up, away from zero, on the decimal digits that a double prints as, as in Spark. Times are
instants in UTC with a resolution of a microsecond. A time or an interval that its type cannot hold is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Floats
from weft.errors import QueryError
from weft.kernels.expr.arrow import TIMESTAMP
from weft.kernels.expr.datum import (
    ColumnFunction,
    as_array,
    as_type,
    limits_of,
    null_unless,
    numbers,
    valid_rows,
    with_nulls,
)
from weft.kernels.expr.decimals import calculate, fit, round_to, whole_part, wide

__all__ = ["FUNCTIONS", "add_times", "multiply_interval", "narrow", "round_half_up"]


def _rows(args: Sequence[Any]) -> int:
    return next(len(arg) for arg in args if isinstance(arg, pa.Array))


def _operation(name: str, unchecked: Callable[..., Any], checked: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        if pa.types.is_decimal(kind):
            return calculate(name, args[0], args[1], kind)
        left, right = (as_type(arg, kind) for arg in args)
        if pa.types.is_floating(kind):
            return unchecked(left, right)
        try:
            return checked(left, right)
        except pa.ArrowInvalid:  # a value overflows: compute again and find which rows
            rows = _rows(args)
            return _or_null(name, as_array(left, rows), as_array(right, rows), kind)

    return rule


def _or_null(name: str, left: Any, right: Any, kind: pa.DataType) -> Any:
    """Integer arithmetic with NULL where the result does not fit."""
    valid = valid_rows([left, right])
    wide_left, wide_right = numbers(left).astype(np.int64), numbers(right).astype(np.int64)
    with np.errstate(over="ignore"):
        result, good = _WRAPPING[name](wide_left, wide_right)
    limits = limits_of(kind)
    good &= (result >= limits.min) & (result <= limits.max)
    return with_nulls(result, good if valid is None else good & valid, kind)


def _add_wrapping(left: Array, right: Array) -> tuple[Array, Array]:
    result = left + right
    return result, ((left ^ result) & (right ^ result)) >= 0


def _subtract_wrapping(left: Array, right: Array) -> tuple[Array, Array]:
    result = left - right
    return result, ((left ^ right) & (left ^ result)) >= 0


def _multiply_wrapping(left: Array, right: Array) -> tuple[Array, Array]:
    result = left * right
    turned = (left == -1) & (right == np.iinfo(np.int64).min)  # the one division below that overflows
    divisor = np.where((left == 0) | turned, 1, left)
    return result, ((result // divisor == right) & (result % divisor == 0) & ~turned) | (left == 0)


_WRAPPING = {"+": _add_wrapping, "-": _subtract_wrapping, "*": _multiply_wrapping}


def _divide(args: Sequence[Any], kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return calculate("/", args[0], args[1], kind)
    left, right = (as_type(arg, kind) for arg in args)
    return pc.divide(left, _not_zero(right))


def _not_zero(value: Any) -> Any:
    return null_unless(pc.not_equal(value, pa.scalar(0, pa.int8()).cast(value.type)), value)


def _remainder(args: Sequence[Any], kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return calculate("%", args[0], args[1], kind)
    left, right = (as_array(as_type(arg, kind), _rows(args)) for arg in args)
    valid, divisor = valid_rows([left, right]), numbers(right)
    good = divisor != 0 if valid is None else (divisor != 0) & valid
    with np.errstate(invalid="ignore"):  # the remainder of an infinity is NaN
        rest = np.fmod(numbers(left), np.where(divisor == 0, 1, divisor))  # with the sign of the dividend
    return with_nulls(rest, good, kind)


def _negate(args: Sequence[Any], kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return _operation("-", pc.subtract, pc.subtract_checked)([pa.scalar(0, kind), args[0]], kind)
    return pc.negate(args[0])


def _abs(args: Sequence[Any], kind: pa.DataType) -> Any:
    if not pa.types.is_integer(kind):
        return pc.abs(args[0])
    fits = pc.not_equal(args[0], pa.scalar(int(limits_of(kind).min), kind))
    return pc.abs(null_unless(fits, args[0]))


def _to_long(up: bool) -> ColumnFunction:
    """Ceiling or floor; doubles beyond 64 bits give the greatest or least number, and NaN 0, as in Java."""

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        (value,) = args
        if pa.types.is_integer(value.type):
            return as_type(value, kind)
        if pa.types.is_decimal(value.type):
            return fit(whole_part(wide(value), 1 if up else -1), kind)
        rounded = (np.ceil if up else np.floor)(numbers(as_type(value, pa.float64())))
        return with_nulls(saturate(rounded), valid_rows(args), kind)

    return rule


def saturate(values: Floats) -> Array:
    """Doubles as 64-bit integers, as Java converts them."""
    inside = np.where(np.isnan(values) | (np.abs(values) >= 2.0**63), 0.0, values).astype(np.int64)
    inside[values >= 2.0**63] = np.iinfo(np.int64).max
    inside[values <= -(2.0**63)] = np.iinfo(np.int64).min
    return inside


def _sign(args: Sequence[Any], kind: pa.DataType) -> Any:
    return pc.cast(pc.sign(args[0]), kind)


def _round(args: Sequence[Any], kind: pa.DataType) -> Any:
    value = args[0]
    places = args[1] if len(args) > 1 else pa.scalar(0)
    if not isinstance(places, pa.Scalar) or not places.is_valid:
        raise QueryError("ROUND needs a constant number of places")
    digits = int(places.as_py())
    if pa.types.is_decimal(kind):
        return fit(round_to(wide(value), digits), kind)
    if pa.types.is_floating(kind):
        rounded = round_half_up(numbers(value).astype(np.float64), digits)
        return with_nulls(rounded, valid_rows([value]), kind)
    return value if digits >= 0 else narrow(round_to(wide(value), digits), kind)


def narrow(value: Any, kind: pa.DataType) -> Any:
    """Whole numbers as integers of a type; NULL where they do not fit."""
    limits = limits_of(kind)
    low, high = pa.scalar(int(limits.min), value.type), pa.scalar(int(limits.max), value.type)
    inside = pc.and_kleene(pc.greater_equal(value, low), pc.less_equal(value, high))
    return pc.cast(null_unless(inside, value), kind)


def round_half_up(values: Floats, digits: int) -> Floats:
    """Round doubles at a decimal digit; a double that prints as a tie (2.675) is rounded as a tie."""
    power = 10.0 ** min(abs(digits), 22)  # the powers of ten that doubles hold exactly
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.abs(values) * power if digits >= 0 else np.abs(values) / power
        whole = np.floor(scaled)
        tie = (whole + 0.5) / power if digits >= 0 else (whole + 0.5) * power
        whole += np.abs(values) >= tie
        rounded = np.copysign(whole / power if digits >= 0 else whole * power, values) + 0.0  # no -0.0
    rounded = np.where(np.isfinite(values), rounded, values)
    unsure = np.isfinite(values) & ((scaled >= _SURE) | (abs(digits) > 22))
    if unsure.any():
        distinct, places = np.unique(values[unsure], return_inverse=True)
        rounded[unsure] = np.array([_rounded_text(one, digits) for one in distinct.tolist()])[places]
    return rounded


_SURE = (
    2.0**49
)  # below it, products and quotients of a double and a power of ten err by less than what decides a tie


def _rounded_text(value: float, digits: int) -> float:
    """A double rounded by the digits that it prints as."""
    printed = Decimal(repr(value))
    if digits >= -int(printed.as_tuple().exponent):
        return value + 0.0
    if digits < -_WIDEST:
        return 0.0
    return float(printed.quantize(Decimal(1).scaleb(-digits, _EXACT), ROUND_HALF_UP, _EXACT)) + 0.0


_WIDEST = 310  # digits that a double may have before the point, and one more
_EXACT = Context(prec=1000, rounding=ROUND_HALF_UP)


def _double(function: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        return function(*(as_type(arg, kind) for arg in args))

    return rule


def _logarithm(value: Any) -> Any:
    positive = pc.or_kleene(pc.greater(value, 0.0), pc.is_nan(value))
    return pc.ln(null_unless(positive, value))


def _power(base: Any, exponent: Any) -> Any:
    """A power as Java has it: NaN with an exponent that is NaN, and for 1 and -1 to the power of an infinity."""
    undecided = pc.and_kleene(pc.is_inf(exponent), pc.equal(pc.abs(base), 1.0))
    unknown = pc.or_kleene(pc.is_nan(exponent), undecided)
    known = pc.and_kleene(pc.is_valid(base), pc.is_valid(exponent))
    nan = pa.scalar(float("nan"), pa.float64())
    return pc.if_else(pc.and_kleene(known, unknown), nan, pc.power(base, exponent))


def add_times(operator: str, args: Sequence[Any]) -> Any:
    """`+` or `-` where an argument is a time or an interval."""
    left, right = (arg if pa.types.is_duration(arg.type) else as_type(arg, TIMESTAMP) for arg in args)
    moment = pa.types.is_timestamp(left.type) != pa.types.is_timestamp(right.type)
    micros = [pc.cast(arg, pa.int64()) for arg in (left, right)]
    return pc.cast(FUNCTIONS[operator](micros, pa.int64()), TIMESTAMP if moment else _INTERVAL)


def multiply_interval(args: Sequence[Any]) -> Any:
    """An interval times a whole number, in any order."""
    return pc.cast(FUNCTIONS["*"]([pc.cast(arg, pa.int64()) for arg in args], pa.int64()), _INTERVAL)


_INTERVAL = pa.duration("us")


FUNCTIONS: dict[str, ColumnFunction] = {
    "+": _operation("+", pc.add, pc.add_checked),
    "-": _operation("-", pc.subtract, pc.subtract_checked),
    "*": _operation("*", pc.multiply, pc.multiply_checked),
    "/": _divide,
    "%": _remainder,
    "neg": _negate,
    "abs": _abs,
    "ceil": _to_long(True),
    "floor": _to_long(False),
    "sign": _sign,
    "round": _round,
    "exp": _double(pc.exp),
    "ln": _double(_logarithm),
    "sqrt": _double(pc.sqrt),
    "power": _double(_power),
}
