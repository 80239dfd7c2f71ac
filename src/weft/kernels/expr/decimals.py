"""Decimal arithmetic.

Guarantees: results are exact, then rounded half up to the scale of their type, whatever the types of the operands; NULL
where they do not fit the precision of their type, and for a division by zero. Nothing here raises.

A decimal is computed with as its digits without the point: a whole number of up to 76 digits, for which 256 bits have
room. Two things of Arrow's are worked around, both shown by `tests/unit/kernels/test_edge_values.py`. It refuses types
by what their precision allows, not by what values need (a product of two decimals of 38 digits would have 77), so
digits are labelled with a precision that it accepts. And its division by more than 32 bits is wrong for some numbers,
such as 9223372036854775807 · 10^18 by 5 · 10^17; so digits are dropped nine at a time, and quotients are checked by
what is left.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.words import flatten
from weft.kernels.expr.datum import as_array, null_unless

__all__ = ["calculate", "fit", "labelled", "round_to", "whole_part", "wide"]

_MOST = 76  # digits of a decimal of 256 bits
_OPERAND = 38  # digits of a decimal of 128 bits
_FEWEST = 4  # zeros that Arrow appends to every dividend, at least
_AT_ONCE = 9  # digits that can be dropped by a division by less than 32 bits


def wide(value: Any) -> Any:
    """A number as a decimal of the most digits, so that nothing overflows on the way."""
    scale = value.type.scale if pa.types.is_decimal(value.type) else 0
    return pc.cast(value, pa.decimal256(_MOST, scale))


def round_to(value: Any, places: int) -> Any:
    """A `wide` operand rounded half up to so many places after the point, or before it if negative."""
    dropped = min(value.type.scale - places, _OPERAND + 1)
    if dropped <= 0:
        return value
    return labelled(_shifted(_rounded(_digits(value), dropped), dropped), _MOST, value.type.scale)


def whole_part(value: Any, toward: int = 0) -> Any:
    """A `wide` operand as a whole number: the next one below (``toward`` -1), above (1) or towards zero (0)."""
    found = _dropped(_digits(value), value.type.scale)
    back = _shifted(found, value.type.scale)
    if toward < 0:
        return _plus(found, pc.less(_digits(value), back), -1)
    return _plus(found, pc.greater(_digits(value), back), 1) if toward else found


def fit(value: Any, kind: pa.DataType) -> Any:
    """A decimal rounded and cut to a type; NULL where it does not fit."""
    whole, dropped = kind.precision - kind.scale, value.type.scale - kind.scale
    digits = _digits(_below(labelled(value, _MOST, value.type.scale), whole))
    digits = _rounded(digits, dropped) if dropped > 0 else _shifted(digits, -dropped)
    return pc.cast(_below(labelled(digits, _MOST, kind.scale), whole), kind, safe=False)


def _below(value: Any, whole: int) -> Any:
    """The value where it has at most so many digits before the point, else NULL."""
    if whole + value.type.scale >= _MOST:  # no value has more
        return value
    limit = pa.scalar(Decimal(10) ** whole, value.type)
    return null_unless(pc.less(pc.abs(value), limit), value)


def calculate(operator: str, left: Any, right: Any, kind: pa.DataType) -> Any:
    """`+`, `-`, `*`, `/` or `%` of two numbers, of which at least one is an array."""
    rows = next(len(arg) for arg in (left, right) if isinstance(arg, pa.Array))
    left, right = (wide(as_array(arg, rows)) for arg in (left, right))
    if operator in ("/", "%"):
        right = null_unless(pc.not_equal(right, pa.scalar(0, right.type)), right)
    deeper = max(left.type.scale, right.type.scale)
    match operator:
        case "*":
            found, scale = _times(_digits(left), _digits(right)), left.type.scale + right.type.scale
        case "/":
            return _quotient(left, right, kind)
        case "%":
            found, scale = _remainder(left, right), deeper
        case _:
            add = _sum if operator == "+" else _minus
            found, scale = add(*(_aligned(side, deeper) for side in (left, right))), deeper
    return fit(labelled(found, _MOST, scale), kind)


def _quotient(left: Any, right: Any, kind: pa.DataType) -> Any:
    """The quotient, by its digits up to the scale of its type and what is left then."""
    dividend, divisor = pc.abs(_digits(left)), pc.abs(_digits(right))
    lengthened = kind.scale + right.type.scale - left.type.scale
    # A quotient that is too large is NULL before it is computed, so that the dividend has room for its zeros.
    more = kind.precision - lengthened
    fits = pc.less(_shifted(dividend, max(0, -more)), _shifted(divisor, max(0, more)))
    zeros = max(_FEWEST, lengthened)
    found, rest = _divided(null_unless(fits, dividend), divisor, zeros)
    if zeros == lengthened:
        found = _plus(found, pc.greater_equal(_times(rest, _constant(2)), divisor), 1)
    negative = pc.not_equal(*(pc.less(_digits(side), _constant(0)) for side in (left, right)))
    found = pc.if_else(negative, pc.negate(found), found)
    return fit(labelled(found, _MOST, kind.scale + zeros - lengthened), kind)


def _remainder(left: Any, right: Any) -> Any:
    """What is left of one decimal after taking off another as often as possible, in the digits of the longer scale."""
    deeper = max(left.type.scale, right.type.scale)
    dividend, divisor, zeros = (
        pc.abs(_digits(left)),
        pc.abs(_aligned(right, deeper)),
        deeper - left.type.scale,
    )
    found, _ = _divided(dividend, divisor, max(_FEWEST, zeros))
    times = _dropped(found, max(0, _FEWEST - zeros))
    rest = _minus(_shifted(dividend, zeros), _times(times, divisor))
    return pc.if_else(pc.less(_digits(left), _constant(0)), pc.negate(rest), rest)


def _divided(dividend: Any, divisor: Any, zeros: int) -> tuple[Any, Any]:
    """The digits of a quotient of numbers that are not negative, where the dividend gets so many zeros, and the rest.

    Whatever Arrow makes of it, the rest says how far off that is; the rest is divided again until nothing is off.
    """
    whole = _shifted(dividend, zeros)
    found = _arrow_quotient(dividend, divisor, zeros)
    rest = _minus(whole, _times(found, divisor))
    while _any(off := pc.or_(pc.less(rest, _constant(0)), pc.greater_equal(rest, divisor))):
        step = _dropped(_arrow_quotient(pc.abs(rest), divisor, _FEWEST), _FEWEST)
        step = pc.if_else(pc.less(rest, _constant(0)), pc.negate(_plus(step, off, 1)), step)
        # A step of 0 where something is off would go on for ever.
        step = pc.if_else(pc.and_(off, pc.equal(step, _constant(0))), _constant(1), step)
        found = pc.if_else(off, _sum(found, step), found)
        rest = _minus(whole, _times(found, divisor))
    return found, rest


def _arrow_quotient(dividend: Any, divisor: Any, zeros: int) -> Any:
    """Arrow's quotient; it appends a zero to the dividend for each digit that the label of the divisor allows."""
    return _digits(pc.divide(labelled(dividend, _MOST - zeros), labelled(divisor, zeros - 1)))


def _any(truths: Any) -> bool:
    return bool(pc.any(truths, min_count=0).as_py())


def _rounded(digits: Any, dropped: int) -> Any:
    """The digits without so many at the end, rounded half up: one more digit decides it."""
    longer = _dropped(digits, dropped - 1)
    half = pc.if_else(pc.less(longer, _constant(0)), _constant(-5), _constant(5))
    return _dropped(_sum(longer, half), 1)


def _dropped(digits: Any, count: int) -> Any:
    """The digits without so many at the end."""
    while count > 0:
        now = min(count, _AT_ONCE)
        digits = pc.cast(labelled(digits, _MOST, now), pa.decimal256(_MOST, 0), safe=False)
        count -= now
    return digits


def _digits(value: Any) -> Any:
    return labelled(value, _MOST)


def _aligned(value: Any, scale: int) -> Any:
    """The digits of a decimal with zeros up to a scale."""
    return _shifted(_digits(value), scale - value.type.scale)


def _shifted(digits: Any, zeros: int) -> Any:
    return _times(digits, _constant(10**zeros)) if zeros else digits


def _times(one: Any, other: Any) -> Any:
    return _digits(pc.multiply(labelled(one, 37), labelled(other, 38)))


def _sum(one: Any, other: Any) -> Any:
    return _digits(pc.add(labelled(one, 75), labelled(other, 75)))


def _minus(one: Any, other: Any) -> Any:
    return _digits(pc.subtract(labelled(one, 75), labelled(other, 75)))


def _plus(digits: Any, where: Any, one: int) -> Any:
    return _sum(digits, pc.if_else(where, _constant(one), _constant(0)))


def _constant(number: int) -> Any:
    return pa.scalar(Decimal(number), pa.decimal256(_MOST, 0))


def labelled(value: Any, precision: int, scale: int = 0) -> Any:
    """The same digits under another type; no digit is looked at."""
    kind = pa.decimal256(precision, scale)
    if value.type == kind:
        return value
    if isinstance(value, pa.Scalar):
        return labelled(pa.array([value.as_py()], value.type), precision, scale)[0]
    value = flatten(value)
    return pa.Array.from_buffers(kind, len(value), value.buffers(), value.null_count, value.offset)
