"""Compiled loops that walk through JSON texts.

Guarantees: a text is JSON where Spark's parser takes it as such: strings in single or double quotes, control characters
inside of them, and anything after the first value. No text is walked by recursion: open brackets are kept in an array,
and what is nested deeper than `DEPTH` is no JSON.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Integer, Longs, Mask, compiled, inner

__all__ = [
    "count_elements",
    "decode_character",
    "find_keys",
    "find_values",
    "number_end",
    "string_end",
]

DEPTH = 1000
_BAD = np.int64(-1)


@inner
def _blank(text: Bytes, at: Any, end: Integer) -> Any:
    """Where the next byte stands that is no white space."""
    while at < end and (text[at] == 32 or (9 <= text[at] <= 13 and text[at] != 11 and text[at] != 12)):
        at += 1
    return at


@inner
def _digit(text: Bytes, at: Integer, end: Integer) -> bool:
    return bool(at < end and 48 <= text[at] <= 57)


@inner
def _hex(byte: Integer) -> Any:
    """The value of a hexadecimal digit, -1 of any other byte."""
    if 48 <= byte <= 57:
        return np.int64(byte) - 48
    low = np.int64(byte) | 32
    return low - 87 if 97 <= low <= 102 else _BAD


@inner
def _unit(text: Bytes, at: Integer, end: Integer) -> Any:
    """The sixteen bits that four hexadecimal digits stand for; -1 if there are not four."""
    value = np.int64(0)
    for j in range(at, at + 4):
        digit = _hex(text[j]) if j < end else _BAD
        if digit < 0:
            return _BAD
        value = value << 4 | digit
    return value


@inner
def string_end(text: Bytes, at: Any, end: Integer) -> Any:
    """The end of a string, after its quote; -1 if it has none, or an escape that is none."""
    quote = text[at]
    at += 1
    while at < end:
        if text[at] == quote:
            return at + 1
        if text[at] != 92:
            at += 1
            continue
        if at + 1 >= end:
            return _BAD
        known = text[at + 1]
        if known == 117:
            if _unit(text, at + 2, end) < 0:
                return _BAD
            at += 6
        elif known in (34, 39, 47, 92, 98, 102, 110, 114, 116):
            at += 2
        else:
            return _BAD
    return _BAD


@inner
def number_end(text: Bytes, at: Any, end: Integer) -> Any:
    """The end of a number; -1 if it is none."""
    at += np.int64(text[at] == 45)
    if not _digit(text, at, end) or (text[at] == 48 and _digit(text, at + 1, end)):
        return _BAD
    while _digit(text, at, end):
        at += 1
    if at < end and text[at] == 46:
        at += 1
        if not _digit(text, at, end):
            return _BAD
        while _digit(text, at, end):
            at += 1
    if at < end and text[at] | 32 == 101:
        at += 1
        at += np.int64(at < end and (text[at] == 43 or text[at] == 45))
        if not _digit(text, at, end):
            return _BAD
        while _digit(text, at, end):
            at += 1
    return at


@inner
def _word(text: Bytes, at: Integer, end: Integer) -> Any:
    """The end of true, false or null; -1 if it is none of them."""
    size = np.int64(0)
    while at + size < end and 97 <= text[at + size] <= 122:
        size += 1
    first = text[at]
    if size == 4 and first == 116:
        good = text[at + 1] == 114 and text[at + 2] == 117 and text[at + 3] == 101
    elif size == 4 and first == 110:
        good = text[at + 1] == 117 and text[at + 2] == 108 and text[at + 3] == 108
    elif size == 5 and first == 102:
        good = text[at + 1] == 97 and text[at + 2] == 108 and text[at + 3] == 115 and text[at + 4] == 101
    else:
        good = False
    return at + size if good else _BAD


@inner
def _scalar(text: Bytes, at: Integer, end: Integer) -> Any:
    """The end of a value that is neither a list nor an object; -1 if there is none."""
    if text[at] == 34 or text[at] == 39:
        return string_end(text, at, end)
    after = number_end(text, at, end) if text[at] == 45 or _digit(text, at, end) else _word(text, at, end)
    if after >= 0 and after < end:  # what follows must not look like more of it
        byte = text[after]
        if not (byte <= 32 or byte == 44 or byte == 93 or byte == 125 or byte == 58):
            return _BAD
    return after


@inner
def decode_character(text: Bytes, at: Any, end: Integer, piece: Bytes) -> Any:
    """The bytes of a character inside a string, into `piece`: how many there are, and where the next one stands.

    Half of a pair of escapes becomes three bytes that are no UTF-8, and so equal to no name.
    """
    if text[at] >= 0xF0 and at + 4 <= end:
        piece[:] = text[at : at + 4]
        return 4, at + 4
    if text[at] != 92:
        piece[0] = text[at]
        return 1, at + 1
    known = text[at + 1]
    if known != 117:
        code = np.int64(known)
        if known == 98:
            code = np.int64(8)
        elif known == 102:
            code = np.int64(12)
        elif known == 110:
            code = np.int64(10)
        elif known == 114:
            code = np.int64(13)
        elif known == 116:
            code = np.int64(9)
        piece[0] = code
        return 1, at + 2
    code, after = _unit(text, at + 2, end), at + 6
    if 0xD800 <= code < 0xDC00 and after + 6 <= end and text[after] == 92 and text[after + 1] == 117:
        second = _unit(text, after + 2, end)
        if 0xDC00 <= second < 0xE000:
            code, after = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00), after + 6
    if code < 0x80:
        piece[0] = code
        return 1, after
    if code < 0x800:
        piece[0], piece[1] = 0xC0 | code >> 6, 0x80 | code & 63
        return 2, after
    if code < 0x10000:
        piece[0], piece[1], piece[2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 63, 0x80 | code & 63
        return 3, after
    piece[0], piece[1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
    piece[2], piece[3] = 0x80 | code >> 6 & 63, 0x80 | code & 63
    return 4, after


@inner
def _is_name(text: Bytes, at: Any, end: Integer, name: Bytes, low: Any, high: Integer, piece: Bytes) -> bool:
    """Whether what stands between quotes is a name."""
    while at < end:
        size, at = decode_character(text, at, end, piece)
        for j in range(size):
            if low >= high or piece[j] != name[low]:
                return False
            low += 1
    return bool(low == high)


@inner
def _walk(
    text: Bytes,
    at: Any,
    end: Integer,
    steps: Longs,
    name_starts: Longs,
    names: Bytes,
    objects: Mask,
    places: Longs,
    piece: Bytes,
    found: Longs,
) -> bool:
    """Walk through the first value of a text; whether it is JSON.

    A step of a path is a place in a list, or -1 for the next name. `found` becomes where the value at the end of the
    path begins and ends, and how many elements or keys the outermost value has.
    """
    found[0], found[1], found[2] = -1, -1, 0
    depth, chain, target = np.int64(0), np.int64(0), np.int64(-1)
    keyed = True  # whether the value that comes next is one that the path leads to
    at = _blank(text, at, end)
    while True:
        if at >= end:
            return False
        byte = text[at]
        chosen = keyed and depth == chain and depth == steps.size and found[0] < 0
        if byte == 91 or byte == 123:
            if depth == DEPTH:
                return False
            if chosen:
                found[0], target = at, depth
            if keyed and depth == chain and depth < steps.size and (steps[depth] < 0) == (byte == 123):
                chain += 1
            objects[depth], places[depth] = byte == 123, 0
            depth += 1
            at = _blank(text, at + 1, end)
            closing = at < end and text[at] == (125 if byte == 123 else 93)
        else:
            after = _scalar(text, at, end)
            if after < 0:
                return False
            if chosen and (byte != 110 or depth == 0 or not objects[depth - 1]):
                found[0], found[1] = at, after
            at = after
            closing = False
            if depth == 0:
                return True
            at = _blank(text, at, end)
            if at < end and text[at] == 44:
                places[depth - 1] += 1
                at = _blank(text, at + 1, end)
            else:
                places[depth - 1] += 1
                closing = True
        while closing:
            if at >= end or text[at] != (125 if objects[depth - 1] else 93):
                return False
            depth -= 1
            at += 1
            chain = min(chain, depth)
            if target == depth:
                found[1], target = at, np.int64(-1)
            if depth == 0:
                found[2] = places[0]
                return True
            at = _blank(text, at, end)
            places[depth - 1] += 1
            if at < end and text[at] == 44:
                at = _blank(text, at + 1, end)
                closing = False
        keyed = bool(chain == depth and depth <= steps.size)
        if objects[depth - 1]:
            if at >= end or (text[at] != 34 and text[at] != 39):
                return False
            after = string_end(text, at, end)
            if after < 0:
                return False
            if keyed:
                step = -steps[depth - 1] - 1
                low, high = name_starts[step], name_starts[step + 1]
                keyed = _is_name(text, at + 1, after - 1, names, low, high, piece)
            at = _blank(text, after, end)
            if at >= end or text[at] != 58:
                return False
            at = _blank(text, at + 1, end)
        elif keyed:
            keyed = places[depth - 1] == steps[depth - 1]


@compiled
def find_values(
    starts: Array, text: Bytes, steps: Longs, name_starts: Longs, names: Bytes, low: Longs, high: Longs
) -> None:
    """Where the value that a path leads to begins and ends in each text; -1 where there is none.

    A step is a place in a list, or -1 - n for the n-th name.
    """
    objects, places = np.zeros(DEPTH, np.bool_), np.zeros(DEPTH, np.int64)
    piece, found = np.zeros(4, np.uint8), np.zeros(3, np.int64)
    for i in range(low.size):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        good = _walk(text, at, end, steps, name_starts, names, objects, places, piece, found)
        low[i], high[i] = (found[0], found[1]) if good else (_BAD, _BAD)


@compiled
def count_elements(starts: Array, text: Bytes, out: Longs) -> None:
    """How many elements each text has that is a list; -1 of others."""
    objects, places = np.zeros(DEPTH, np.bool_), np.zeros(DEPTH, np.int64)
    piece, found = np.zeros(4, np.uint8), np.zeros(3, np.int64)
    none = np.zeros(0, np.int64)
    for i in range(out.size):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        good = _walk(text, at, end, none, none, piece, objects, places, piece, found)
        out[i] = found[2] if good and text[found[0]] == 91 else -1


@compiled
def find_keys(starts: Array, text: Bytes, sizes: Longs, low: Longs, high: Longs) -> None:
    """Where the keys of objects begin and end, without their quotes, and how many each text has; -1 if it is none.

    With empty `low`, only how many there are.
    """
    objects, places = np.zeros(DEPTH, np.bool_), np.zeros(DEPTH, np.int64)
    piece, found = np.zeros(4, np.uint8), np.zeros(3, np.int64)
    none = np.zeros(0, np.int64)
    seen = 0
    for i in range(sizes.size):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        good = _walk(text, at, end, none, none, piece, objects, places, piece, found)
        sizes[i] = found[2] if good and text[found[0]] == 123 else -1
        if not low.size or sizes[i] < 0:
            continue
        at, end, depth, key = found[0] + 1, found[1], 1, True
        while at < end:
            byte = text[at]
            if byte == 34 or byte == 39:
                after = string_end(text, at, end)
                if key and depth == 1:
                    low[seen], high[seen] = at + 1, after - 1
                    seen, key = seen + 1, False
                at = after
                continue
            depth += int(byte == 91 or byte == 123) - int(byte == 93 or byte == 125)
            key = key or (byte == 44 and depth == 1)
            at += 1
