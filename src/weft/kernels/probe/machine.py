"""A small machine that computes predicates on pairs of rows, a block of pairs at a time.

Guarantees: the same truth as `select.holds` on the gathered columns, without gathering them and without a call per
operation and column: every instruction is a loop over one block, whose registers stay in the first- and second-level
cache. `pair_program` writes the programs.

An instruction is (operation, result, left, right, extra). A register is a block of 64-bit values, integers or doubles
as the operation takes them, or of truth values. It has flags that say which of its values are not NULL. Truth values
are 0 or 1. Where a step has no result (overflow, division by zero), it clears the flag of validity, and the value that
it leaves means nothing. The steps are loops over one block, short enough for the compiler to vectorise each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import (
    Bytes,
    Floats,
    Ints,
    Longs,
    compiled,
    inner,
    load_f32,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
)
from weft.kernels.probe.ranges import compact

__all__ = ["BLOCK", "OPERATIONS", "Banks", "run"]


BLOCK = 512


@inner
def _load(column: Longs, rows: Ints, out: Longs, out_float: Floats, truth: Bytes, known: Bytes) -> None:
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
def _both(one: Bytes, other: Bytes, out: Bytes) -> None:
    """Mark a result as known where both operands are."""
    for i in range(BLOCK):
        out[i] = one[i] & other[i]


@inner
def _arithmetic(operation: Any, left: Longs, right: Longs, out: Longs, known: Bytes) -> None:
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
def _remainder(left: Longs, right: Longs, out: Longs, known: Bytes) -> None:
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
def _absolute(values: Longs, out: Longs) -> None:
    """The absolute value; the least integer has none, and stays negative."""
    for i in range(BLOCK):
        out[i] = abs(values[i])


@inner
def _fits(bits: Any, natural: Any, values: Longs, known: Bytes) -> None:
    """Mark a value as unknown where it needs more bits than its type has or, with `natural`, where it is negative."""
    high = (np.int64(1) << (bits - 1)) - np.int64(1)
    low = np.int64(0) if natural else -high - np.int64(1)
    for i in range(BLOCK):
        known[i] &= np.uint8((values[i] >= low) & (values[i] <= high))


@inner
def _doubles(operation: Any, left: Floats, right: Floats, out: Floats) -> None:
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
def _divide_doubles(quotient: Any, left: Floats, right: Floats, out: Floats, known: Bytes) -> None:
    """Quotient or remainder; unknown where the divisor is zero."""
    for i in range(BLOCK):
        out[i] = left[i] / right[i] if quotient else np.fmod(left[i], right[i])
        known[i] &= np.uint8(right[i] != 0)


@inner
def _compare(operation: Any, left: Longs, right: Longs, out: Bytes) -> None:
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
def _compare_doubles(operation: Any, left: Floats, right: Floats, out: Bytes) -> None:
    """Do what `_compare` does, in the order in which NaN equals NaN and comes last."""
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
def _either(
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


_NAMES = (
    *("load", "add", "subtract", "multiply", "remainder", "absolute", "within", "number"),
    *(
        "float",
        "add_float",
        "subtract_float",
        "multiply_float",
        "divide",
        "remainder_float",
        "absolute_float",
    ),
    *("equal", "less", "less_equal", "equal_float", "less_float", "less_equal_float"),
    *("and", "or", "not", "is_null"),
)
OPERATIONS = {name: number for number, name in enumerate(_NAMES)}

_LOAD, _REMAINDER, _ABSOLUTE, _WITHIN, _NUMBER, _FLOAT, _DIVIDE, _EQUAL, _EQUAL_FLOAT, _AND, _OR, _NOT = (
    OPERATIONS[name]
    for name in (
        *("load", "remainder", "absolute", "within", "number", "float", "divide"),
        *("equal", "equal_float", "and", "or", "not"),
    )
)

Code = NDArray[np.int64]  # one instruction a row
Banks = tuple[Longs, Floats, Bytes, Bytes]  # integers and doubles (the same memory), truth, validity


@compiled
def run(
    code: Code, columns: Code, banks: Banks, probe: Ints, stored: Ints, out_probe: Ints, out_stored: Ints
) -> Any:
    """Keep the pairs for which the last instruction gives true, and count them; `banks` must hold the constants."""
    kept: Any = np.uint64(0)
    answer = code[-1, 1]
    for first in range(0, probe.size, BLOCK):
        last = min(first + BLOCK, probe.size)
        for step in range(code.shape[0]):
            _step(code[step], columns, banks, probe[first:last], stored[first:last])
        good = banks[2][answer]
        _both(good, banks[3][answer], good)
        kept = _collect(good, probe[first:last], stored[first:last], kept, out_probe, out_stored)
    return kept


@inner
def _collect(good: Bytes, probe: Ints, stored: Ints, kept: Any, out_probe: Ints, out_stored: Ints) -> Any:
    """Append the good pairs; eight neighbouring pairs of which none is good are skipped at once."""
    eights = good.view(np.uint64)
    for eight in range(eights.size):
        if eights[eight]:
            low, high = eight * 8, min(eight * 8 + 8, probe.size)
            kept = compact(good[low:high], probe[low:high], stored[low:high], kept, out_probe, out_stored)
    return kept


@inner
def _step(instruction: Longs, columns: Code, banks: Banks, probe: Ints, stored: Ints) -> None:
    operation, out, left, right, extra = instruction
    if operation == _LOAD:
        rows = probe if columns[left, 0] == 0 else stored
        _load(columns[left], rows, banks[0][out], banks[1][out], banks[2][out], banks[3][out])
    elif operation < _FLOAT:
        _integer_step(operation, extra, banks, out, left, right)
    elif operation < _EQUAL:
        _double_step(operation, banks, out, left, right)
    elif operation < _EQUAL_FLOAT:
        _compare(operation - _EQUAL, banks[0][left], banks[0][right], banks[2][out])
        _both(banks[3][left], banks[3][right], banks[3][out])
    elif operation < _AND:
        _compare_doubles(operation - _EQUAL_FLOAT, banks[1][left], banks[1][right], banks[2][out])
        _both(banks[3][left], banks[3][right], banks[3][out])
    else:
        _logic_step(operation, banks, out, left, right)


@inner
def _integer_step(operation: Any, bits: Any, banks: Banks, out: Any, left: Any, right: Any) -> None:
    integers, valid = banks[0], banks[3]
    _both(valid[left], valid[right], valid[out])
    if operation == _REMAINDER:
        _remainder(integers[left], integers[right], integers[out], valid[out])
    elif operation == _ABSOLUTE:
        _absolute(integers[left], integers[out])
    elif operation == _WITHIN:
        for i in range(BLOCK):
            integers[out, i] = integers[left, i]
    elif operation == _NUMBER:
        for i in range(BLOCK):
            integers[out, i] = banks[2][left, i]
    else:
        _arithmetic(operation, integers[left], integers[right], integers[out], valid[out])
    if bits < 64 or operation == _ABSOLUTE:
        _fits(bits, operation == _ABSOLUTE, integers[out], valid[out])


@inner
def _double_step(operation: Any, banks: Banks, out: Any, left: Any, right: Any) -> None:
    floats, valid = banks[1], banks[3]
    _both(valid[left], valid[right], valid[out])
    if operation == _FLOAT:
        for i in range(BLOCK):
            floats[out, i] = banks[0][left, i]
    elif operation in (_DIVIDE, _DIVIDE + 1):
        _divide_doubles(operation == _DIVIDE, floats[left], floats[right], floats[out], valid[out])
    else:
        _doubles(operation - _FLOAT, floats[left], floats[right], floats[out])


@inner
def _logic_step(operation: Any, banks: Banks, out: Any, left: Any, right: Any) -> None:
    truth, valid = banks[2], banks[3]
    if operation in (_AND, _OR):
        _either(
            operation == _OR, truth[left], truth[right], valid[left], valid[right], truth[out], valid[out]
        )
    elif operation == _NOT:
        for i in range(BLOCK):
            truth[out, i], valid[out, i] = truth[left, i] ^ 1, valid[left, i]
    else:
        for i in range(BLOCK):
            truth[out, i], valid[out, i] = valid[left, i] ^ 1, 1
