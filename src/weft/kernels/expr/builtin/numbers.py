"""Functions of numbers and of bits.

Guarantees: what Java's mathematics gives, up to a few units in the last place; a logarithm that does not exist is NULL,
any other result that does not exist NaN. Bits are those of two's complement; shifts count modulo the width, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Floats
from weft.kernels.expr.arithmetic import FUNCTIONS as ARITHMETIC
from weft.kernels.expr.datum import (
    ColumnFunction,
    as_type,
    columns_of,
    null_unless,
    numbers,
    valid_rows,
    with_nulls,
)

__all__ = ["FUNCTIONS"]


def _double(function: Callable[..., Any], exists: Callable[..., Any] | None = None) -> ColumnFunction:
    """A function of doubles; NULL where an argument is, and where it does not exist."""

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        columns = columns_of([as_type(arg, pa.float64()) for arg in args])
        values = [numbers(column) for column in columns]
        valid = valid_rows(columns)
        with np.errstate(all="ignore"):
            if exists is not None:
                there = exists(*values)
                valid = there if valid is None else valid & there
            return with_nulls(function(*values), valid, kind)

    return rule


def _atanh(x: Floats) -> Any:
    return 0.5 * (np.log1p(x) - np.log1p(-x))


def _above(limit: float) -> Callable[..., Any]:
    return lambda x: ~(x <= limit)


def _log(base: Floats, x: Floats) -> Any:
    return np.log(x) / np.log(base)


_FACTORIALS = np.array([1, *np.cumprod(np.arange(1, 21, dtype=np.int64))])


def _factorial(args: Sequence[Any], kind: pa.DataType) -> Any:
    column = args[0]
    values, valid = numbers(column).astype(np.int64), valid_rows(args)
    inside = (values >= 0) & (values <= 20)
    found = _FACTORIALS[np.where(inside, values, 0)]
    return with_nulls(found, inside if valid is None else inside & valid, kind)


def _width_bucket(args: Sequence[Any], kind: pa.DataType) -> Any:
    """In which of some buckets of equal width a number lies; NULL where there are no buckets."""
    columns = columns_of(args)
    value, low, high = (numbers(as_type(column, pa.float64())) for column in columns[:3])
    count = numbers(columns[3]).astype(np.int64)
    with np.errstate(all="ignore"):
        exists = (count > 0) & (count < 2**63 - 1) & (low != high) & ~np.isnan(value)
        exists &= np.isfinite(low) & np.isfinite(high)
        place = np.trunc(count * ((value - low) / (high - low)))
        inside = np.where(np.isfinite(place), place, 0.0).astype(np.int64) + 1
    up = low < high
    below, beyond = np.where(up, value < low, value > low), np.where(up, value >= high, value <= high)
    found = np.where(below, 0, np.where(beyond, count + 1, inside))
    valid = valid_rows(columns)
    return with_nulls(found, exists if valid is None else exists & valid, kind)


def _divide_whole(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The quotient of whole numbers towards 0; NULL by 0, and where 64 bits do not hold it."""
    columns = columns_of(args)
    one, other = (numbers(column).astype(np.int64) for column in columns)
    exists = (other != 0) & ~((one == np.iinfo(np.int64).min) & (other == -1))
    divisor = np.where(exists, other, 1)
    quotient = one // divisor
    quotient += (one % divisor != 0) & ((one < 0) != (divisor < 0))
    valid = valid_rows(columns)
    return with_nulls(quotient, exists if valid is None else exists & valid, kind)


def _positive_remainder(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The remainder with the sign of the divisor, as Spark's pmod has it."""
    columns = columns_of(args)
    rest = ARITHMETIC["%"](columns, kind)
    moved = ARITHMETIC["%"]([ARITHMETIC["+"]([rest, columns[1]], _wider(kind)), columns[1]], kind)
    negative = pc.less(pc.cast(pc.sign(rest), pa.float64()), 0.0)
    return pc.if_else(pc.fill_null(negative, False), moved, rest)


def _wider(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else kind


def _bitwise(function: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        return function(*(as_type(arg, kind) for arg in args))

    return rule


def _shift(function: Callable[[Array, Array, int], Any]) -> ColumnFunction:
    """A shift of 32 or 64 bits by a number of places modulo the width."""

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        columns = columns_of(args)
        width = 64 if kind == pa.int64() else 32
        values = numbers(columns[0]).astype(f"int{width}")
        places = numbers(columns[1]).astype(np.int64) & (width - 1)
        return with_nulls(function(values, places.astype(values.dtype), width), valid_rows(columns), kind)

    return rule


def _shift_unsigned(values: Array, places: Array, width: int) -> Any:
    unsigned = values.view(f"uint{width}")
    return (unsigned >> places.view(f"uint{width}")).view(values.dtype)


def _bit_count(args: Sequence[Any], kind: pa.DataType) -> Any:
    words = numbers(as_type(args[0], pa.int64())).astype(np.int64).view(np.uint64)
    return with_nulls(np.bitwise_count(words), valid_rows(args), kind)


def _bit_get(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The bit at a place; NULL where there is no such place."""
    columns = columns_of(args)
    width, place = columns[0].type.bit_width, numbers(columns[1]).astype(np.int64)
    exists = (place >= 0) & (place < width)
    bits = (numbers(columns[0]).astype(np.int64) >> np.where(exists, place, 0)) & 1
    valid = valid_rows(columns)
    return with_nulls(bits, exists if valid is None else exists & valid, kind)


def _digits(bits: int) -> ColumnFunction:
    """The digits of a whole number in base 2 or 16, as two's complement without leading zeros."""
    alphabet = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    count = 64 // bits
    shifts = np.arange(count - 1, -1, -1, dtype=np.uint64) * np.uint64(bits)

    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        words = numbers(as_type(args[0], pa.int64())).astype(np.int64).view(np.uint64)
        places = (words[:, None] >> shifts) & np.uint64((1 << bits) - 1)
        content = alphabet[places.astype(np.int64)].tobytes()
        offsets = pa.py_buffer(np.arange(words.size + 1, dtype=np.int64) * count)
        texts = pa.Array.from_buffers(pa.large_string(), words.size, [None, offsets, pa.py_buffer(content)])
        texts = pc.utf8_ltrim(texts.cast(pa.string()), characters="0")
        texts = pc.if_else(pc.equal(texts, ""), "0", texts)
        return null_unless(pc.is_valid(args[0]), texts)

    return rule


def _is_nan(args: Sequence[Any], _kind: pa.DataType) -> Any:
    return pc.fill_null(pc.is_nan(as_type(args[0], pa.float64())), False)


def _unless_nan(args: Sequence[Any], kind: pa.DataType) -> Any:
    one, other = (as_type(arg, kind) for arg in args)
    return pc.if_else(pc.fill_null(pc.is_nan(one), False), other, one)


FUNCTIONS: dict[str, ColumnFunction] = {
    "acos": _double(np.arccos),
    "acosh": _double(np.arccosh),
    "asin": _double(np.arcsin),
    "asinh": _double(np.arcsinh),
    "atan": _double(np.arctan),
    "atan2": _double(lambda y, x: np.arctan2(y + 0.0, x + 0.0)),
    "atanh": _double(_atanh),
    "cbrt": _double(np.cbrt),
    "cos": _double(np.cos),
    "cosh": _double(np.cosh),
    "cot": _double(lambda x: 1.0 / np.tan(x)),
    "csc": _double(lambda x: 1.0 / np.sin(x)),
    "degrees": _double(lambda x: x * 57.29577951308232),
    "expm1": _double(np.expm1),
    "hypot": _double(np.hypot),
    "log": _double(_log, lambda base, x: ~(base <= 0.0) & ~(x <= 0.0)),
    "log10": _double(np.log10, _above(0.0)),
    "log1p": _double(np.log1p, _above(-1.0)),
    "log2": _double(lambda x: np.log(x) / np.log(2.0), _above(0.0)),
    "radians": _double(lambda x: x * 0.017453292519943295),
    "rint": _double(np.rint),
    "sec": _double(lambda x: 1.0 / np.cos(x)),
    "sin": _double(np.sin),
    "sinh": _double(np.sinh),
    "tan": _double(np.tan),
    "tanh": _double(np.tanh),
    "factorial": _factorial,
    "width_bucket": _width_bucket,
    "div": _divide_whole,
    "pmod": _positive_remainder,
    "&": _bitwise(pc.bit_wise_and),
    "|": _bitwise(pc.bit_wise_or),
    "^": _bitwise(pc.bit_wise_xor),
    "~": _bitwise(pc.bit_wise_not),
    "shiftleft": _shift(lambda values, places, _: values << places),
    "shiftright": _shift(lambda values, places, _: values >> places),
    "shiftrightunsigned": _shift(_shift_unsigned),
    "bit_count": _bit_count,
    "bit_get": _bit_get,
    "bin": _digits(1),
    "hex_of_number": _digits(4),
    "isnan": _is_nan,
    "nanvl": _unless_nan,
}
