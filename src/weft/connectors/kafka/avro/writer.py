"""Rows written as values of Avro by compiled code.

Guarantees: it runs twice, first to measure and then to write, and both go the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Integer, compiled

__all__ = ["write_rows"]

_ONE, _SEVEN, _LOW, _MORE = np.uint64(1), np.uint64(7), np.uint64(127), np.uint64(128)
_NUMBER, _BYTE, _FOUR, _EIGHT, _SIZED = range(5)


@compiled
def _write_number(written: Bytes, at: Integer, number: Integer, really: bool) -> int:
    """Write a number of variable length; gives the place behind it."""
    value = np.int64(number)
    bits = (np.uint64(value) << _ONE) ^ np.uint64(value >> 63)
    while bits >= _MORE:
        if really:
            written[at] = np.uint8((bits & _LOW) | _MORE)
        at += 1
        bits >>= _SEVEN
    if really:
        written[at] = np.uint8(bits)
    return at + 1


@compiled
def write_rows(prefix: Bytes, forms: Array, cells: Any, offsets: Array, written: Bytes, really: bool) -> None:
    """Write rows, or only find out where each begins, into ``offsets``.

    ``forms`` has for each field how it is written, the branch of its values (-1: no union), and that of NULL; ``cells``
    are the numbers of all fields, which of them are there, where texts stand in the data, and the data.
    """
    numbers, valid, places, data = cells
    at = 0
    for row in range(len(offsets) - 1):
        offsets[row] = at
        for place in range(len(prefix)):
            if really:
                written[at + place] = prefix[place]
        at += len(prefix)
        for field in range(len(forms)):
            form, branch, null = forms[field, 0], forms[field, 1], forms[field, 2]
            if not valid[field, row]:
                if branch >= 0 or null > 0:
                    at = _write_number(written, at, null, really)
                continue
            if branch >= 0:
                at = _write_number(written, at, branch, really)
            if form == _NUMBER:
                at = _write_number(written, at, numbers[field, row], really)
                continue
            size = 1 if form == _BYTE else 4 if form == _FOUR else 8
            if form == _SIZED:
                begin = places[field, row]
                size = places[field, row + 1] - begin
                at = _write_number(written, at, size, really)
                if really:
                    for place in range(size):
                        written[at + place] = data[begin + place]
            elif really:
                bits = np.uint64(numbers[field, row])
                for place in range(size):
                    written[at + place] = np.uint8((bits >> np.uint64(8 * place)) & np.uint64(255))
            at += size
    offsets[len(offsets) - 1] = at
