"""A compiled loop that writes values of JSON texts.

Guarantees: values are written as Spark's generator does: without white space, strings in double quotes with capital
hexadecimal digits in their escapes, and characters beyond the Basic Multilingual Plane as two escapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Integer, Longs, Mask, compiled, inner
from weft.kernels.expr.loops.json_walk import decode_character, number_end, string_end

__all__ = ["copy_values"]


@inner
def _escaped(byte: Integer, out: Bytes, place: Any) -> Any:
    """Write a byte of a string as JSON has it; where the next one goes. With empty `out`, only count."""
    short = np.int64(0)
    if byte == 34 or byte == 92:
        short = np.int64(byte)
    elif byte == 8:
        short = np.int64(98)
    elif byte == 9:
        short = np.int64(116)
    elif byte == 10:
        short = np.int64(110)
    elif byte == 12:
        short = np.int64(102)
    elif byte == 13:
        short = np.int64(114)
    elif byte < 32:
        if out.size:
            out[place], out[place + 1], out[place + 2], out[place + 3] = 92, 117, 48, 48
            out[place + 4] = 48 + (byte >> 4)
            out[place + 5] = 48 + (byte & 15) if byte & 15 < 10 else 55 + (byte & 15)
        return place + 6
    if short:
        if out.size:
            out[place], out[place + 1] = 92, short
        return place + 2
    if out.size:
        out[place] = byte
    return place + 1


@inner
def _unit(unit: Integer, out: Bytes, place: Any) -> Any:
    """Write sixteen bits as an escape; where the next byte goes."""
    if out.size:
        out[place], out[place + 1] = 92, 117
        for j in range(4):
            digit = (unit >> (12 - 4 * j)) & 15
            out[place + 2 + j] = 48 + digit if digit < 10 else 55 + digit
    return place + 6


@inner
def _pair(piece: Bytes, out: Bytes, place: Any) -> Any:
    """Write a character of four bytes as the two escapes that Java has for it; where the next one goes."""
    code = (np.int64(piece[0]) & 7) << 18 | (np.int64(piece[1]) & 63) << 12
    code = (code | (np.int64(piece[2]) & 63) << 6 | (np.int64(piece[3]) & 63)) - 0x10000
    return _unit(0xDC00 + (code & 0x3FF), out, _unit(0xD800 + (code >> 10), out, place))


@inner
def _is_half(piece: Bytes, size: Integer) -> bool:
    """Whether a character is half of a pair of escapes, which no UTF-8 has."""
    return bool(size == 3 and piece[0] == 0xED and piece[1] >= 0xA0)


@inner
def _inside(text: Bytes, at: Any, end: Integer, piece: Bytes, out: Bytes, place: Any) -> Any:
    """Write what stands between quotes, escaped; where the next byte goes."""
    while at < end:
        size, at = decode_character(text, at, end, piece)
        if size == 4:
            place = _pair(piece, out, place)
        elif _is_half(piece, size):
            place = _unit(0xD000 | (np.int64(piece[1]) & 63) << 6 | (np.int64(piece[2]) & 63), out, place)
        else:
            for j in range(size):
                place = _escaped(piece[j], out, place)
    return place


@inner
def _unquoted(text: Bytes, at: Any, end: Integer, piece: Bytes, out: Bytes, place: Any) -> Any:
    """Write what stands between quotes as it is; where the next byte goes, and whether half a pair became `?`."""
    broken = False
    while at < end:
        size, at = decode_character(text, at, end, piece)
        if _is_half(piece, size):
            size, piece[0], broken = 1, 63, True
        if out.size:
            out[place : place + size] = piece[:size]
        place += size
    return place, broken


@compiled
def copy_values(
    text: Bytes,
    low: Longs,
    high: Longs,
    fractions: Longs,
    fraction_starts: Array,
    fraction_text: Bytes,
    broken: Mask,
    out_starts: Longs,
    out: Bytes,
) -> int:
    """Write values without white space, a string as what it says; with empty `out`, only their sizes in `out_starts`.

    Numbers with a point or an exponent are written as others have printed them, `fraction_text`; where there are no
    such texts yet, the places of these numbers are put into `fractions`, two for each. Their count is returned.
    A string is `broken` if it has half of a pair of escapes.
    """
    piece = np.zeros(4, np.uint8)
    place, seen = np.int64(0), np.int64(0)
    for i in range(low.size):
        at, end = low[i], high[i]
        if at >= 0 and (text[at] == 34 or text[at] == 39):
            place, broken[i] = _unquoted(text, at + 1, end - 1, piece, out, place)
            at = end
        while at < end:
            byte = text[at]
            if byte == 34 or byte == 39:
                after = string_end(text, at, end)
                if out.size:
                    out[place] = 34
                place = _inside(text, at + 1, after - 1, piece, out, place + 1)
                if out.size:
                    out[place] = 34
                place, at = place + 1, after
            elif byte == 45 or 48 <= byte <= 57:
                after, whole = number_end(text, at, end), True
                for j in range(at, after):
                    whole = whole and (text[j] == 45 or 48 <= text[j] <= 57)
                if not whole:
                    if fraction_starts.size:
                        for j in range(fraction_starts[seen], fraction_starts[seen + 1]):
                            if out.size:
                                out[place] = fraction_text[j]
                            place += 1
                    elif fractions.size:
                        fractions[2 * seen], fractions[2 * seen + 1] = at, after
                    seen += 1
                else:
                    at += np.int64(after - at == 2 and byte == 45 and text[at + 1] == 48)  # -0 is 0
                    for j in range(at, after):
                        if out.size:
                            out[place] = text[j]
                        place += 1
                at = after
            else:
                if byte > 32:
                    if out.size:
                        out[place] = byte
                    place += 1
                at += 1
        out_starts[i + 1] = place
    return int(seen)
