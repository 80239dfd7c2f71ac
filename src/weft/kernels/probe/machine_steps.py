"""The steps of the `machine`: loops over one block, short enough for the compiler to vectorise each.

Guarantees: truth values are 0 or 1. Where a step has no result (overflow, division by zero), it clears the flag of
validity, and the value that it leaves means nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import (
    Bytes,
    Floats,
    Ints,
    Longs,
    inner,
    load_f32,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
)

__all__ = [
    "BLOCK",
    "absolute",
    "arithmetic",
    "both",
    "compare",
    "compare_doubles",
    "divide_doubles",
    "doubles",
    "either",
    "fits",
    "load",
    "remainder",
]

BLOCK = 512


@inner
def load(column: Longs, rows: Ints, out: Longs, out_float: Floats, truth: Bytes, known: Bytes) -> None:
    """Load the values at rows of a column: (side, width, address, address of the validity, offset of both)."""
    width, address, validity, offset = column[1], column[2], column[3], column[4]
    if width == 8:
        for i in range(rows.size):
            out[i] = load_i64(address, np.int64(rows[i]) + offset)
    elif width == 4:
        for i in range(rows.size):
            out[i] = load_i32(address, np.int64(rows[i]) + offset)
    elif width == 2:
        for i in range(rows.size):
            out[i] = load_i16(address, np.int64(rows[i]) + offset)
    elif width == 1:
        for i in range(rows.size):
            out[i] = load_i8(address, np.int64(rows[i]) + offset)
    elif width == 0:
        _load_bits(address, offset, rows, truth)
    else:
        for i in range(rows.size):
            out_float[i] = load_f32(address, np.int64(rows[i]) + offset)
    if validity:
        _load_bits(validity, offset, rows, known)
    else:
        known[:] = 1


@inner
def _load_bits(address: Any, offset: Any, rows: Ints, out: Bytes) -> None:
    for i in range(rows.size):
        row = np.int64(rows[i]) + offset
        out[i] = load_i8(address, row >> 3) >> (row & 7) & 1


@inner
def both(one: Bytes, other: Bytes, out: Bytes) -> None:
    """Mark a result as known where both operands are."""
    for i in range(BLOCK):
        out[i] = one[i] & other[i]


@inner
def arithmetic(operation: Any, left: Longs, right: Longs, out: Longs, known: Bytes) -> None:
    """Sum (1), difference (2) or product (3); unknown where it needs more than 64 bits.

    The numbers are computed as unsigned, since the compiler assumes that signed ones never overflow and would drop the
    checks.
    """
    if operation == 1:
        for i in range(BLOCK):
            total = np.int64(np.uint64(left[i]) + np.uint64(right[i]))
            known[i] &= np.uint8(((left[i] ^ total) & (right[i] ^ total)) >= 0)
            out[i] = total
    elif operation == 2:
        for i in range(BLOCK):
            rest = np.int64(np.uint64(left[i]) - np.uint64(right[i]))
            known[i] &= np.uint8(((left[i] ^ right[i]) & (left[i] ^ rest)) >= 0)
            out[i] = rest
    else:
        for i in range(BLOCK):
            product = np.int64(np.uint64(left[i]) * np.uint64(right[i]))
            known[i] &= np.uint8(_product_fits(left[i], right[i], product))
            out[i] = product


@inner
def _product_fits(left: Any, right: Any, product: Any) -> Any:
    if abs(np.float64(left) * np.float64(right)) < 4e18:
        return True
    if right == -1:
        return left != product
    if left == -1:
        return right != product
    return left == 0 or (product // left == right and product % left == 0)


@inner
def remainder(left: Longs, right: Longs, out: Longs, known: Bytes) -> None:
    """The remainder, with the sign of the dividend; unknown where the divisor is zero."""
    for i in range(BLOCK):
        divisor = right[i]
        if divisor == 0 or divisor == -1:
            out[i] = 0
            known[i] &= np.uint8(divisor != 0)
            continue
        rest = left[i] % divisor
        out[i] = rest - divisor if rest != 0 and (left[i] < 0) != (divisor < 0) else rest


@inner
def absolute(values: Longs, out: Longs) -> None:
    """The absolute value; the least integer has none, and stays negative."""
    for i in range(BLOCK):
        out[i] = abs(values[i])


@inner
def fits(bits: Any, natural: Any, values: Longs, known: Bytes) -> None:
    """Mark a value as unknown where it needs more bits than its type has or, with `natural`, where it is negative."""
    high = (np.int64(1) << (bits - 1)) - np.int64(1)
    low = np.int64(0) if natural else -high - np.int64(1)
    for i in range(BLOCK):
        known[i] &= np.uint8((values[i] >= low) & (values[i] <= high))


@inner
def doubles(operation: Any, left: Floats, right: Floats, out: Floats) -> None:
    """Sum (1), difference (2), product (3) or absolute value."""
    if operation == 1:
        for i in range(BLOCK):
            out[i] = left[i] + right[i]
    elif operation == 2:
        for i in range(BLOCK):
            out[i] = left[i] - right[i]
    elif operation == 3:
        for i in range(BLOCK):
            out[i] = left[i] * right[i]
    else:
        for i in range(BLOCK):
            out[i] = abs(left[i])


@inner
def divide_doubles(quotient: Any, left: Floats, right: Floats, out: Floats, known: Bytes) -> None:
    """Quotient or remainder; unknown where the divisor is zero."""
    for i in range(BLOCK):
        out[i] = left[i] / right[i] if quotient else np.fmod(left[i], right[i])
        known[i] &= np.uint8(right[i] != 0)


@inner
def compare(operation: Any, left: Longs, right: Longs, out: Bytes) -> None:
    """Equal (0), less (1) or less or equal (2)."""
    if operation == 0:
        for i in range(BLOCK):
            out[i] = np.uint8(left[i] == right[i])
    elif operation == 1:
        for i in range(BLOCK):
            out[i] = np.uint8(left[i] < right[i])
    else:
        for i in range(BLOCK):
            out[i] = np.uint8(left[i] <= right[i])


@inner
def compare_doubles(operation: Any, left: Floats, right: Floats, out: Bytes) -> None:
    """Do what `compare` does, in the order in which NaN equals NaN and comes last."""
    if operation == 0:
        for i in range(BLOCK):
            nan = (left[i] != left[i]) & (right[i] != right[i])
            out[i] = np.uint8((left[i] == right[i]) | nan)
    elif operation == 1:
        for i in range(BLOCK):
            nan = (left[i] == left[i]) & (right[i] != right[i])
            out[i] = np.uint8((left[i] < right[i]) | nan)
    else:
        for i in range(BLOCK):
            out[i] = np.uint8((left[i] <= right[i]) | (right[i] != right[i]))


@inner
def either(
    disjunction: Any, left: Bytes, right: Bytes, known: Bytes, other: Bytes, out: Bytes, result: Bytes
) -> None:
    """OR with ``disjunction``, else AND; one operand can decide alone where the other is NULL."""
    if disjunction:
        for i in range(BLOCK):
            decided = (known[i] & left[i]) | (other[i] & right[i])
            result[i] = (known[i] & other[i]) | decided
            out[i] = decided
    else:
        for i in range(BLOCK):
            refuted = (known[i] & (left[i] ^ 1)) | (other[i] & (right[i] ^ 1))
            result[i] = (known[i] & other[i]) | refuted
            out[i] = refuted ^ 1
