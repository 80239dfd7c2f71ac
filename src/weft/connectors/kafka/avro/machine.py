"""Values of Avro decoded by compiled code, many at once.

Guarantees: no byte outside a value's own is read, whatever stands there; a value that is not of the schema gets a code
that says why, and harms no other. Nothing is allocated per value, no count in a value makes it loop longer than it has
bytes, and nesting that is too deep ends with a code.

A schema is a table of nodes (`KIND`, `ACTION`, two numbers, a factor); a union's branches and a record's fields are
ranges of ``children``. What becomes of a field is its node's action: numbers are stored in a row per column, of
texts and bytes it is noted where they stand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Integer, Longs, compiled

__all__ = [
    "decimals",
    "decode_records",
    "gather",
]

# Kinds of nodes.
NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, FIXED, ENUM, UNION, RECORD, ARRAY, MAP = range(13)
# What becomes of a value.
REFUSE, NOTHING, NUMBER, AS_DOUBLE, BITS, SPAN, SYMBOL, WHOLE = range(8)
# Why a value is bad; 0: it is not.
ENDS, BRANCH, TRUTH, SYMBOLS, UNFIT, LEFT, VARINT, LENGTH, DEEP, RANGE = range(1, 11)

DEEPEST = 60
_END = np.int64(-2)
_SIGN = np.int64(-1)
_ZERO, _HIGH, _LOWER = np.uint64(0), np.uint64(5421010862427522170), np.uint64(687399551400673280)  # 10³⁸
_SEVEN, _ONE, _LOW, _MORE = np.uint64(7), np.uint64(1), np.uint64(0x7F), np.uint64(0x80)


@compiled
def _varint(data: Bytes, at: Integer, end: Integer) -> tuple[Any, Any]:
    """A number, and the place behind it; a place below zero is minus a code."""
    bits, shift = np.uint64(0), np.uint64(0)
    for _ in range(10):
        if at >= end:
            return 0, -ENDS
        byte = np.uint64(data[at])
        at += 1
        bits |= (byte & _LOW) << shift
        if byte < _MORE:
            value = np.int64(bits >> _ONE)
            return (value if bits & _ONE == 0 else _SIGN - value), at
        shift += _SEVEN
    return 0, -VARINT


@compiled
def _forward(at: Integer, size: Integer, end: Integer) -> Any:
    """The place behind so many bytes."""
    if size < 0:
        return -LENGTH
    return -ENDS if size > end - at else at + size


@compiled
def _leaf(data: Bytes, at: Any, end: Any, kind: Any, fixed: Any) -> tuple[Any, Any, Any]:
    """A value of a type that is not nested: its number, where its own bytes begin, and the place behind it."""
    number: Any = np.int64(0)
    size: Any = np.int64(0)
    if kind in (INT, LONG, ENUM, BYTES):
        number, at = _varint(data, at, end)
        size = number if kind == BYTES else size
    elif kind == FIXED:
        size = fixed
    elif kind == BOOLEAN:
        size = 1
    elif kind == FLOAT:
        size = 4
    elif kind == DOUBLE:
        size = 8
    if at < 0:
        return 0, 0, at
    behind = _forward(at, size, end)
    if kind == INT and (number < -2147483648 or number > 2147483647):
        return 0, 0, -VARINT
    if behind >= 0 and kind == BOOLEAN:
        number = np.int64(data[at])
        if number > 1:
            return 0, 0, -TRUTH
    return number, at, behind


@compiled
def _push(stack: Array, depth: Any, node: Any) -> Any:
    """Begin with a value inside another one; gives the new depth, or minus a code."""
    if depth >= DEEPEST:
        return -DEEP
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = node, 0, -1
    return depth + 1


@compiled
def _next_item(data: Bytes, at: Any, end: Any, kind: Any, place: Array) -> Any:
    """Go to the next item of an array or a map, of which ``place[1]`` are left in a block; gives where it begins.

    ``place[2]`` is where the last one began, or `_END` if there is none. Items without bytes are not counted, however
    many there are said to be.
    """
    if place[1] > 0 and at == place[2]:
        place[1] = 0
    while place[1] == 0:
        number, at = _varint(data, at, end)
        if at < 0:
            return at
        if number == 0:
            place[2] = _END
            return at
        if number > 0:
            place[1] = number
        else:
            size, at = _varint(data, at, end)
            at = at if at < 0 else _forward(at, size, end)
            if at < 0:
                return at
    place[1] -= 1
    place[2] = at
    if kind == MAP:
        size, at = _varint(data, at, end)
        at = at if at < 0 else _forward(at, size, end)
    return at


@compiled
def _skip(data: Bytes, at: Any, end: Any, node: Any, nodes: Array, children: Longs, stack: Array) -> Any:
    """The place behind a value of any type. What it is inside of is in ``stack``: Numba cannot cache recursion."""
    depth = _push(stack, 0, node)
    while depth > 0 and at >= 0:
        place = stack[depth - 1]
        kind, first, count = nodes[place[0], 0], nodes[place[0], 2], nodes[place[0], 3]
        if kind == RECORD:
            if place[1] == count:
                depth -= 1
            else:
                place[1] += 1
                depth = _push(stack, depth, children[first + place[1] - 1])
        elif kind == UNION:
            branch, at = _varint(data, at, end)
            if at >= 0 and (branch < 0 or branch >= count):
                return -BRANCH
            if at >= 0:
                depth = _push(stack, depth - 1, children[first + branch])
        elif kind in (ARRAY, MAP):
            at = _next_item(data, at, end, kind, place)
            if at >= 0:
                depth = depth - 1 if place[2] == _END else _push(stack, depth, first)
        else:
            _, _, at = _leaf(data, at, end, kind, first)
            depth -= 1
    return depth if depth < 0 else at


@compiled
def _scaled(value: Any, factor: Any) -> tuple[Any, Any]:
    """A number times a factor, or divided by minus the factor; whether it still fits."""
    if factor == 1:
        return value, True
    if factor < 0:
        return value // -factor, True
    limit = np.int64(9223372036854775807) // factor
    return value * factor, -limit <= value <= limit


@compiled
def _little(data: Bytes, at: Any, size: Any) -> Any:
    """The number that so many bytes are, the last one highest."""
    bits = np.uint64(0)
    for place in range(size):
        bits |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return np.int64(bits)


@compiled
def _bits(data: Bytes, at: Any, kind: Any, singles: Array, doubles: Array) -> Any:
    """The bits of a double that a float or a double stands for."""
    if kind == DOUBLE:
        return _little(data, at, 8)
    singles[0] = np.int32(_little(data, at, 4))
    doubles[0] = np.float64(singles.view(np.float32)[0])
    return doubles.view(np.int64)[0]


@compiled
def _read(data: Bytes, at: Any, end: Any, node: Any, tables: Any, cells: Any, row: int, spare: Any) -> Any:
    """Decode a field into the cell of its row; gives the place behind it."""
    nodes, children, symbols = tables
    values, until, valid = cells
    if nodes[node, 0] == UNION:
        branch, at = _varint(data, at, end)
        if at < 0:
            return at
        if branch < 0 or branch >= nodes[node, 3]:
            return -BRANCH
        node = children[nodes[node, 2] + branch]
    kind, action = nodes[node, 0], nodes[node, 1]
    if action == NOTHING:
        return at
    if action == REFUSE:
        return -UNFIT
    number, begin, at = _leaf(data, at, end, kind, nodes[node, 2])
    if at < 0:
        return at
    if action == NUMBER:
        values[row], fits = _scaled(number, nodes[node, 4])
        if not fits:
            return -RANGE
    elif action == AS_DOUBLE:
        spare[1][0] = number
        values[row] = spare[1].view(np.int64)[0]
    elif action == BITS:
        values[row] = _bits(data, begin, kind, spare[0], spare[1])
    elif action == SPAN:
        values[row], until[row] = begin, at
    else:
        if number < 0 or number >= nodes[node, 3]:
            return -SYMBOLS
        symbol = nodes[node, 2] + number
        values[row], until[row] = symbols[symbol], symbols[symbol + 1]
    valid[row] = True
    return at


@compiled
def decode_records(data: Bytes, bounds: Any, fields: Array, tables: Any, cells: Any, codes: Array) -> None:
    """Decode records into cells: ``values``, ``until`` and ``valid``, which have a row per column.

    ``bounds`` are where records start and end; ``fields`` has the node and the column of each field (-1: it is not
    asked for); ``tables`` are nodes, children, and where the symbols of enums stand, which follow the records in the
    data. Of texts and bytes ``values`` and ``until`` say where they stand. ``codes`` gets for each record why it is
    bad, and by which field.
    """
    starts, ends = bounds
    values, until, valid = cells
    nodes, children, _ = tables
    spare, stack = (np.empty(1, np.int32), np.empty(1, np.float64)), np.empty((DEEPEST, 3), np.int64)
    for row in range(len(starts)):
        at, end = starts[row], ends[row]
        for field in range(len(fields)):
            node, column, begin = fields[field, 0], fields[field, 1], at
            if column < 0 or nodes[node, 1] == WHOLE:
                at = _skip(data, at, end, node, nodes, children, stack)
                if at >= 0 and column >= 0:
                    values[column, row], until[column, row], valid[column, row] = begin, at, True
            else:
                cell = (values[column], until[column], valid[column])
                at = _read(data, at, end, node, tables, cell, row, spare)
            if at < 0:
                codes[row, 0], codes[row, 1] = -at, field
                break
        if at >= 0 and at != end:
            codes[row, 0] = LEFT


@compiled
def gather(data: Bytes, starts: Longs, ends: Longs, valid: Array, offsets: Array, found: Bytes) -> None:
    """Copy pieces of the data one behind the other; ``offsets`` say where each is to begin."""
    for row in range(len(starts)):
        if valid[row]:
            to, begin = offsets[row], starts[row]
            for place in range(ends[row] - begin):
                found[to + place] = data[begin + place]


@compiled
def decimals(data: Bytes, starts: Longs, ends: Longs, valid: Array, words: Array, bad: Array) -> None:
    """Numbers of two's complement, the highest byte first, as pairs of words of 64 bits, the lower first.

    Those that have more than 38 digits are bad.
    """
    for row in range(len(starts)):
        if not valid[row]:
            continue
        begin, end = starts[row], ends[row]
        if begin == end:
            bad[row] = True
            continue
        sign = np.uint8(255) if data[begin] >= 128 else np.uint8(0)
        while end - begin > 16 and data[begin] == sign:
            begin += 1
        if end - begin > 16 or (data[begin] >= 128) != (sign == 255):
            bad[row] = True
            continue
        low = high = np.uint64(0) if sign == 0 else ~np.uint64(0)
        for place in range(begin, end):
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[place])
        words[row, 0], words[row, 1] = np.int64(low), np.int64(high)
        if sign == 255:
            low, high = ~low + _ONE, ~high + (_ONE if low == 0 else _ZERO)
        bad[row] = high > _HIGH or (high == _HIGH and low >= _LOWER)
