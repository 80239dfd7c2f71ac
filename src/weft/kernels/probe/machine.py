"""A small machine that computes predicates on pairs of rows, a block of pairs at a time.

Guarantees: the same truth as `select.holds` on the gathered columns, without gathering them and without a call per
operation and column: every instruction is a loop over one block, whose registers stay in the first- and second-level
cache. `pair_program` writes the programs.

An instruction is (operation, result, left, right, extra). A register is a block of 64-bit values, integers or doubles
as the operation takes them, or of truth values. It has flags that say which of its values are not NULL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Bytes, Floats, Ints, Longs, compiled, inner
from weft.kernels.probe.expand import compact
from weft.kernels.probe.machine_steps import (
    BLOCK,
    absolute,
    arithmetic,
    both,
    compare,
    compare_doubles,
    divide_doubles,
    doubles,
    either,
    fits,
    load,
    remainder,
)

__all__ = ["OPERATIONS", "Banks", "run"]

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
        both(good, banks[3][answer], good)
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
        load(columns[left], rows, banks[0][out], banks[1][out], banks[2][out], banks[3][out])
    elif operation < _FLOAT:
        _integer_step(operation, extra, banks, out, left, right)
    elif operation < _EQUAL:
        _double_step(operation, banks, out, left, right)
    elif operation < _EQUAL_FLOAT:
        compare(operation - _EQUAL, banks[0][left], banks[0][right], banks[2][out])
        both(banks[3][left], banks[3][right], banks[3][out])
    elif operation < _AND:
        compare_doubles(operation - _EQUAL_FLOAT, banks[1][left], banks[1][right], banks[2][out])
        both(banks[3][left], banks[3][right], banks[3][out])
    else:
        _logic_step(operation, banks, out, left, right)


@inner
def _integer_step(operation: Any, bits: Any, banks: Banks, out: Any, left: Any, right: Any) -> None:
    integers, valid = banks[0], banks[3]
    both(valid[left], valid[right], valid[out])
    if operation == _REMAINDER:
        remainder(integers[left], integers[right], integers[out], valid[out])
    elif operation == _ABSOLUTE:
        absolute(integers[left], integers[out])
    elif operation == _WITHIN:
        integers[out][:] = integers[left]
    elif operation == _NUMBER:
        integers[out][:] = banks[2][left]
    else:
        arithmetic(operation, integers[left], integers[right], integers[out], valid[out])
    if bits < 64 or operation == _ABSOLUTE:
        fits(bits, operation == _ABSOLUTE, integers[out], valid[out])


@inner
def _double_step(operation: Any, banks: Banks, out: Any, left: Any, right: Any) -> None:
    floats, valid = banks[1], banks[3]
    both(valid[left], valid[right], valid[out])
    if operation == _FLOAT:
        floats[out][:] = banks[0][left]
    elif operation in (_DIVIDE, _DIVIDE + 1):
        divide_doubles(operation == _DIVIDE, floats[left], floats[right], floats[out], valid[out])
    else:
        doubles(operation - _FLOAT, floats[left], floats[right], floats[out])


@inner
def _logic_step(operation: Any, banks: Banks, out: Any, left: Any, right: Any) -> None:
    truth, valid = banks[2], banks[3]
    if operation in (_AND, _OR):
        either(operation == _OR, truth[left], truth[right], valid[left], valid[right], truth[out], valid[out])
    elif operation == _NOT:
        for i in range(BLOCK):
            truth[out, i] = truth[left, i] ^ 1
        valid[out][:] = valid[left]
    else:
        for i in range(BLOCK):
            truth[out, i] = valid[left, i] ^ 1
        valid[out][:] = 1
