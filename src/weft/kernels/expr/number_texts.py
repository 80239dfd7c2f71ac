"""Compiled: numbers as texts in the forms of Spark.

Guarantees: `java_doubles` turns the shortest digits that Arrow prints into the form of Java's Double.toString;
`plain_decimals` puts the point into the digits of decimals. Both write row after row and never more than the caller's
room: the length of the input and 16 or 48 bytes a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Longs, compiled, inner

__all__ = ["java_doubles", "plain_decimals"]

_MINUS, _POINT, _ZERO, _E = ord("-"), ord("."), ord("0"), ord("E")
_NAN = np.frombuffer(b"NaN", np.uint8)
_INFINITY = np.frombuffer(b"Infinity", np.uint8)


@inner
def _put(out: Bytes, place: Any, text: Bytes) -> Any:
    for i in range(text.size):
        out[place + i] = text[i]
    return place + text.size


@compiled
def java_doubles(starts: Array, text: Bytes, out_starts: Longs, out: Bytes) -> None:
    """Doubles as Java prints them."""
    digits = np.empty(32, np.uint8)
    place = np.int64(0)
    for i in range(out_starts.size - 1):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        if at < end and text[at] == _MINUS:
            out[place] = _MINUS
            place, at = place + 1, at + 1
        if at < end and text[at] == ord("n"):
            place = _put(out, place, _NAN)
        elif at < end and text[at] == ord("i"):
            place = _put(out, place, _INFINITY)
        elif at < end:
            count, exponent = _scan(text, at, end, digits)
            place = _print(digits, count, exponent, out, place)
        out_starts[i + 1] = place


@inner
def _scan(text: Bytes, at: Any, end: Any, digits: Bytes) -> tuple[Any, Any]:
    """The significant digits of a number, and the exponent of the first."""
    count: Any = 0
    exponent: Any = 0
    scale: Any = 0
    seen_point = False
    while at < end and text[at] != ord("e"):
        if text[at] == _POINT:
            seen_point = True
        else:
            scale -= np.int64(seen_point)
            if count or text[at] != _ZERO:
                digits[count] = text[at]
                count += 1
        at += 1
    if at < end:
        negative = text[at + 1] == _MINUS
        for j in range(at + 2 if text[at + 1] in (_MINUS, ord("+")) else at + 1, end):
            exponent = exponent * 10 + text[j] - _ZERO
        exponent = -exponent if negative else exponent
    exponent += scale + count - 1
    while count > 1 and digits[count - 1] == _ZERO:
        count -= 1
    if not count:
        digits[0], count, exponent = _ZERO, 1, 0
    return count, exponent


@inner
def _print(digits: Bytes, count: Any, exponent: Any, out: Bytes, place: Any) -> Any:
    plain = -3 <= exponent < 7
    before = max(exponent, 0) + 1 if plain else 1
    for j in range(before):
        out[place + j] = (
            digits[j + min(exponent, 0) * plain] if 0 <= j + min(exponent, 0) * plain < count else _ZERO
        )
    out[place + before] = _POINT
    place += before + 1
    first = 1 + exponent if plain else 1  # the digit that follows the point
    for j in range(first, max(count, first + 1)):
        out[place] = digits[j] if 0 <= j < count else _ZERO
        place += 1
    return place if plain else _print_exponent(exponent, out, place)


@inner
def _print_exponent(exponent: Any, out: Bytes, place: Any) -> Any:
    out[place] = _E
    place += 1
    if exponent < 0:
        out[place] = _MINUS
        place, exponent = place + 1, -exponent
    power = 100 if exponent >= 100 else 10 if exponent >= 10 else 1
    while power:
        out[place] = _ZERO + exponent // power % 10
        place, power = place + 1, power // 10
    return place


@compiled
def plain_decimals(starts: Array, text: Bytes, scale: int, out_starts: Longs, out: Bytes) -> None:
    """Whole numbers as decimals with `scale` digits after the point."""
    place = np.int64(0)
    for i in range(out_starts.size - 1):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        if at < end and text[at] == _MINUS:
            out[place] = _MINUS
            place, at = place + 1, at + 1
        size = end - at
        digits = max(size, np.int64(scale + 1)) if size else np.int64(0)
        for j in range(digits):
            left = digits - j  # digits still to write, this one included
            if left == scale and scale:
                out[place] = _POINT
                place += 1
            out[place] = text[end - left] if left <= size else _ZERO
            place += 1
        out_starts[i + 1] = place
