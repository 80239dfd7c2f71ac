"""Compiled loops for functions of texts.

Guarantees: texts are UTF-8 and are counted in characters. A text argument is its offsets, its bytes and a step: 1 for a
column, 0 for a constant, which is then the same in every row. Loops that make texts run twice: with an empty `out`,
they only compute where each text ends, into `out_starts`; then they write.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Integer, Longs, compiled, inner

__all__ = [
    "decode_hex",
    "encode_hex",
    "first_codes",
    "index_parts",
    "locate",
    "pad",
    "places_in_lists",
    "translate",
]


@inner
def _after(text: Bytes, at: Integer, end: Integer) -> Any:
    """Where the character after the one at `at` starts."""
    after = np.int64(at) + 1
    while after < end and text[after] & 0xC0 == 0x80:
        after += 1
    return after


@inner
def _matches(text: Bytes, at: Integer, end: Integer, part: Bytes, low: Integer, size: Integer) -> bool:
    """Whether a part stands at a place."""
    if at + size > end:
        return False
    same: Any = 0
    while same < size and text[at + same] == part[low + same]:
        same += 1
    return bool(same == size)


@compiled
def locate(
    starts: Array,
    text: Bytes,
    step: int,
    part_starts: Array,
    part: Bytes,
    part_step: int,
    first: Longs,
    out: Any,
) -> None:
    """At which character from `first` on, counted from 1, a part first stands; 0 if nowhere, or if `first` is 0."""
    for i in range(out.size):
        at, end = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        low = np.int64(part_starts[i * part_step])
        size = np.int64(part_starts[i * part_step + 1]) - low
        place = np.int64(1)
        while at < end and place < first[i]:
            at, place = _after(text, at, end), place + 1
        out[i] = 1 if size == 0 and first[i] >= 1 else 0
        if size > 0 and first[i] >= 1 and place == first[i]:
            while at <= end - size:
                if _matches(text, at, end, part, low, size):
                    out[i] = place
                    break
                at, place = _after(text, at, end), place + 1


@compiled
def pad(
    starts: Array,
    text: Bytes,
    step: int,
    pad_starts: Array,
    filling: Bytes,
    pad_step: int,
    sizes: Longs,
    left: bool,
    out_starts: Longs,
    out: Bytes,
) -> None:
    """Each text cut or filled to so many characters, on its left or its right side."""
    place = np.int64(0)
    for i in range(out_starts.size - 1):
        begin, end = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        low, high = np.int64(pad_starts[i * pad_step]), np.int64(pad_starts[i * pad_step + 1])
        at, count = begin, np.int64(0)
        while at < end and count < sizes[i]:
            at, count = _after(text, at, end), count + 1
        if not left:
            place = _copied(text, begin, at, out, place)
        if low < high:
            filled = low
            for _ in range(sizes[i] - count):
                after = _after(filling, filled, high)
                place = _copied(filling, filled, after, out, place)
                filled = low if after == high else after
        if left:
            place = _copied(text, begin, at, out, place)
        out_starts[i + 1] = place


@inner
def _copied(text: Bytes, low: Integer, high: Integer, out: Bytes, place: Integer) -> Any:
    """Copy bytes to a place, unless `out` is empty, and say where they end."""
    if out.size:
        for j in range(low, high):
            out[place + j - low] = text[j]
    return np.int64(place) + np.int64(high) - np.int64(low)


@compiled
def first_codes(starts: Array, text: Bytes, out: Any) -> None:
    """The code point of the first character of each text; 0 of an empty one."""
    for i in range(out.size):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        out[i] = _code(text, at, _after(text, at, end)) if at < end else 0


@inner
def _code(text: Bytes, at: Integer, after: Integer) -> Any:
    """The code point of the character between two places."""
    size = np.int64(after) - np.int64(at)
    code = np.int64(text[at])
    if size == 1:
        return code
    code &= 0xFF >> (size + 1)
    for j in range(at + 1, after):
        code = code << 6 | np.int64(text[j] & 0x3F)
    return code


@compiled
def translate(
    starts: Array,
    text: Bytes,
    codes: Longs,
    new_starts: Longs,
    new: Bytes,
    out_starts: Longs,
    out: Bytes,
) -> None:
    """Characters replaced: the one whose code is `codes[j]` (they are sorted) by the bytes from `new_starts[j]` on."""
    place = np.int64(0)
    for i in range(out_starts.size - 1):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        while at < end:
            after = _after(text, at, end)
            code = _code(text, at, after)
            j = np.searchsorted(codes, code)
            if j < codes.size and codes[j] == code:
                place = _copied(new, new_starts[j], new_starts[j + 1], out, place)
            else:
                place = _copied(text, at, after, out, place)
            at = after
        out_starts[i + 1] = place


@compiled
def index_parts(
    starts: Array,
    text: Bytes,
    step: int,
    mark_starts: Array,
    mark: Bytes,
    mark_step: int,
    counts: Longs,
    part: bool,
    low: Longs,
    high: Longs,
) -> None:
    """Where the text before the n-th mark lies (negative: after the n-th from the end), or only the n-th part of it."""
    for i in range(low.size):
        begin, end = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        first = np.int64(mark_starts[i * mark_step])
        size = np.int64(mark_starts[i * mark_step + 1]) - first
        low[i], high[i] = begin, begin
        if counts[i] == 0 or (size == 0 and not part):
            continue
        if size == 0:
            if counts[i] == 1 or counts[i] == -1:
                high[i] = end
            continue
        if counts[i] > 0:
            _from_left(text, begin, end, mark, first, size, counts[i], part, low, high, i)
        else:
            _from_right(text, begin, end, mark, first, size, -counts[i], part, low, high, i)


@inner
def _from_left(
    text: Bytes,
    begin: Any,
    end: Any,
    mark: Bytes,
    first: Any,
    size: Any,
    count: Any,
    part: bool,
    low: Longs,
    high: Longs,
    i: Any,
) -> None:
    at, seen, last = begin, np.int64(0), begin
    while at <= end - size:
        if _matches(text, at, end, mark, first, size):
            seen += 1
            if seen == count:
                low[i], high[i] = last if part else begin, at
                return
            at += size
            last = at
        else:
            at += 1
    low[i], high[i] = begin, end
    if part:
        low[i], high[i] = (last, end) if seen == count - 1 else (begin, begin)


@inner
def _from_right(
    text: Bytes,
    begin: Any,
    end: Any,
    mark: Bytes,
    first: Any,
    size: Any,
    count: Any,
    part: bool,
    low: Longs,
    high: Longs,
    i: Any,
) -> None:
    if part:  # marks are found from the left, also where they overlap
        total, at = np.int64(1), begin
        while at <= end - size:
            if _matches(text, at, end, mark, first, size):
                total, at = total + 1, at + size
            else:
                at += 1
        if count <= total:
            _from_left(text, begin, end, mark, first, size, total - count + 1, True, low, high, i)
        return
    at, seen = end - size, np.int64(0)
    low[i], high[i] = begin, end
    while at >= begin:
        if _matches(text, at, end, mark, first, size):
            seen += 1
            if seen == count:
                low[i] = at + size
                return
            at -= size
        else:
            at -= 1


@compiled
def places_in_lists(
    starts: Array, text: Bytes, step: int, list_starts: Array, lists: Bytes, list_step: int, out: Any
) -> None:
    """Which part of a list with commas a text is, from 1; 0 if none, or if it has a comma itself."""
    for i in range(out.size):
        low, high = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        at, end = np.int64(list_starts[i * list_step]), np.int64(list_starts[i * list_step + 1])
        out[i] = 0
        place, begin = np.int64(1), at
        for j in range(low, high):
            if text[j] == 44:
                place = np.int64(-1)
        if place < 0:
            continue
        while at <= end:
            if at == end or lists[at] == 44:
                if at - begin == high - low and _matches(lists, begin, end, text, low, high - low):
                    out[i] = place
                    break
                place, begin = place + 1, at + 1
            at += 1


@compiled
def encode_hex(content: Bytes, out: Bytes) -> None:
    """Two digits for every byte."""
    for i in range(content.size):
        for j in range(2):
            digit = (content[i] >> 4) if j == 0 else (content[i] & 15)
            out[2 * i + j] = digit + (48 if digit < 10 else 55)


@inner
def _digit(char: Integer) -> Any:
    if 48 <= char <= 57:
        return np.int64(char) - 48
    if 65 <= char <= 70:
        return np.int64(char) - 55
    return np.int64(char) - 87 if 97 <= char <= 102 else np.int64(-1)


@compiled
def decode_hex(starts: Array, text: Bytes, out_starts: Longs, out: Bytes, good: Any) -> None:
    """The bytes that pairs of digits stand for; a single first digit is a byte; `good` says where all are digits."""
    place = np.int64(0)
    for i in range(out_starts.size - 1):
        at, end = np.int64(starts[i]), np.int64(starts[i + 1])
        good[i] = True
        if (end - at) % 2 == 1:
            first = _digit(text[at])
            good[i] = first >= 0
            out[place] = max(first, 0)
            at, place = at + 1, place + 1
        while at < end:
            one, other = _digit(text[at]), _digit(text[at + 1])
            if one < 0 or other < 0:
                good[i] = False
            out[place] = (max(one, 0) << 4) | max(other, 0)
            at, place = at + 2, place + 1
        out_starts[i + 1] = place
