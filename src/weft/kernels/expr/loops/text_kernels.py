"""Compiled loops over texts.

Guarantees: texts are UTF-8 and are counted in characters (code points), as Spark counts them. A text argument is its
offsets, its bytes and a step: 1 for a column, 0 for a constant, which is then the same in every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Integer, Longs, Mask, compiled, inner

__all__ = ["copy_pieces", "distances", "like", "pieces", "relate", "replace"]


@inner
def _equal(left: Bytes, at: Integer, right: Bytes, other: Integer, size: Integer) -> bool:
    same: Any = 0
    while same < size and left[at + same] == right[other + same]:
        same += 1
    return bool(same == size)


@inner
def _find(text: Bytes, start: Integer, end: Integer, part: Bytes, at: Integer, size: Integer) -> Any:
    """Where a part first occurs at or after `start`; -1 if it does not."""
    for i in range(start, end - size + 1):
        if _equal(text, i, part, at, size):
            return np.int64(i)
    return np.int64(-1)


@compiled
def relate(
    starts: Array,
    text: Bytes,
    step: int,
    part_starts: Array,
    part: Bytes,
    part_step: int,
    how: int,
    out: Mask,
) -> None:
    """Whether each text starts with (0), ends with (1) or contains (2) its part."""
    for i in range(out.size):
        low, high = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        at, size = np.int64(part_starts[i * part_step]), np.int64(part_starts[i * part_step + 1])
        size -= at
        if how == 2:
            out[i] = _find(text, low, high, part, at, size) >= 0
        elif size > high - low:
            out[i] = False
        else:
            out[i] = _equal(text, low if how == 0 else high - size, part, at, size)


@inner
def _next(text: Bytes, at: Integer, end: Integer) -> Any:
    """Where the character after the one at `at` starts."""
    after = np.int64(at) + 1
    while after < end and text[after] & 0xC0 == 0x80:
        after += 1
    return after


@compiled
def like(
    starts: Array, text: Bytes, step: int, pattern_starts: Array, pattern: Bytes, pattern_step: int, out: Mask
) -> None:
    """SQL's LIKE: % is any text, _ any character, \\ makes the next character itself."""
    for i in range(out.size):
        low, high = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        at, end = np.int64(pattern_starts[i * pattern_step]), np.int64(pattern_starts[i * pattern_step + 1])
        out[i] = _like(text, low, high, pattern, at, end)


@inner
def _like(text: Bytes, low: Any, high: Any, pattern: Bytes, at: Any, end: Any) -> bool:
    retry_at, retry_low = np.int64(-1), np.int64(0)  # the pattern after the last %, and the rest of its text
    while low < high:
        if at < end and pattern[at] == ord("%"):
            at += 1
            retry_at, retry_low = at, low
            continue
        if at < end and pattern[at] == ord("_"):
            at, low = at + 1, _next(text, low, high)
            continue
        literal = at + 1 if at + 1 < end and pattern[at] == ord("\\") else at
        if literal < end and pattern[literal] == text[low]:
            at, low = literal + 1, low + 1
            continue
        if retry_at < 0:
            return False
        retry_low = _next(text, retry_low, high)
        at, low = retry_at, retry_low
    while at < end and pattern[at] == ord("%"):
        at += 1
    return bool(at == end)


@compiled
def pieces(
    starts: Array, text: Bytes, step: int, first: Longs, count: Longs, low: Longs, high: Longs
) -> None:
    """Where the substring of `count` characters from `first` (1-based; negative: from the end) lies in the bytes."""
    for i in range(low.size):
        at, end = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        begin = first[i] - 1 if first[i] > 0 else np.int64(0)
        if first[i] < 0:
            begin = first[i]
            for j in range(at, end):
                begin += np.int64(text[j] & 0xC0 != 0x80)
        until = begin + max(np.int64(0), count[i])
        seen = np.int64(0)
        while at < end and seen < begin:
            at, seen = _next(text, at, end), seen + 1
        low[i] = at
        while at < end and seen < until:
            at, seen = _next(text, at, end), seen + 1
        high[i] = at


@compiled
def copy_pieces(text: Bytes, low: Longs, high: Longs, out_starts: Longs, out: Bytes) -> None:
    """Copy the bytes low to high of every row to `out`, one after the other."""
    for i in range(low.size):
        place = out_starts[i]
        for j in range(low[i], high[i]):
            out[place + j - low[i]] = text[j]


@compiled
def replace(
    starts: Array,
    text: Bytes,
    step: int,
    old_starts: Array,
    old: Bytes,
    old_step: int,
    new_starts: Array,
    new: Bytes,
    new_step: int,
    out_starts: Longs,
    out: Bytes,
) -> None:
    """Replace every occurrence of `old`; with empty `out` only compute the lengths, into `out_starts`."""
    place = np.int64(0)
    for i in range(out_starts.size - 1):
        at, end = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        old_at, old_size = np.int64(old_starts[i * old_step]), np.int64(old_starts[i * old_step + 1])
        new_at, new_end = np.int64(new_starts[i * new_step]), np.int64(new_starts[i * new_step + 1])
        old_size -= old_at
        while at < end:
            hit = _find(text, at, end, old, old_at, old_size) if old_size else np.int64(-1)
            until = hit if hit >= 0 else end
            if out.size:
                out[place : place + until - at] = text[at:until]
            place += until - at
            at = until
            if hit >= 0:
                if out.size:
                    out[place : place + new_end - new_at] = new[new_at:new_end]
                place += new_end - new_at
                at += old_size
        out_starts[i + 1] = place


@compiled
def distances(
    starts: Array, text: Bytes, step: int, other_starts: Array, other: Bytes, other_step: int, out: Any
) -> None:
    """The Levenshtein distance of each pair of texts."""
    masks = np.zeros(128, np.uint64)
    for i in range(out.size):
        low, high = np.int64(starts[i * step]), np.int64(starts[i * step + 1])
        at, end = np.int64(other_starts[i * other_step]), np.int64(other_starts[i * other_step + 1])
        while low < high and at < end and text[low] == other[at] and text[low] < 128:
            low, at = low + 1, at + 1
        if high - low > end - at:  # the shorter one is the pattern
            out[i] = _distance(other, at, end, text, low, high, masks)
        else:
            out[i] = _distance(text, low, high, other, at, end, masks)


@inner
def _distance(short: Bytes, low: Any, high: Any, long: Bytes, at: Any, end: Any, masks: Any) -> Any:
    ascii_only = high - low <= 64
    for j in range(low, high):
        ascii_only = ascii_only and short[j] < 128
    for j in range(at, end):
        ascii_only = ascii_only and long[j] < 128
    if high == low:
        return _length(long, at, end)
    if ascii_only:
        return _bit_parallel(short, low, high, long, at, end, masks)
    return _by_rows(short, low, high, long, at, end)


@inner
def _length(text: Bytes, at: Any, end: Any) -> Any:
    size = np.int64(0)
    for j in range(at, end):
        size += np.int64(text[j] & 0xC0 != 0x80)
    return size


_ONE = np.uint64(1)


@inner
def _bit_parallel(short: Bytes, low: Any, high: Any, long: Bytes, at: Any, end: Any, masks: Any) -> Any:
    """The distance by the algorithm of Myers (1999) in the form of Hyyrö (2003): two machine words hold a column."""
    for j in range(low, high):
        masks[short[j]] |= _ONE << np.uint64(j - low)
    up, down = ~np.uint64(0), np.uint64(0)
    last = _ONE << np.uint64(high - low - 1)
    distance = high - low
    for j in range(at, end):
        equal = masks[long[j]]
        diagonal = (((equal & up) + up) ^ up) | equal | down
        rise, fall = down | ~(diagonal | up), up & diagonal
        distance += np.int64(rise & last != 0) - np.int64(fall & last != 0)
        rise = (rise << _ONE) | _ONE
        up, down = (fall << _ONE) | ~(diagonal | rise), rise & diagonal
    for j in range(low, high):
        masks[short[j]] = 0
    return distance


@inner
def _by_rows(short: Bytes, low: Any, high: Any, long: Bytes, at: Any, end: Any) -> Any:
    """The distance by filling the matrix row by row, for texts that are long or not ASCII."""
    one, other = _characters(short, low, high), _characters(long, at, end)
    row = np.arange(one.size + 1)
    for j in range(other.size):
        diagonal, row[0] = row[0], j + 1
        for i in range(one.size):
            cost = min(diagonal + (one[i] != other[j]), row[i] + 1, row[i + 1] + 1)
            diagonal, row[i + 1] = row[i + 1], cost
    return row[one.size]


@inner
def _characters(text: Bytes, at: Any, end: Any) -> Any:
    """The characters as numbers; a number is the bytes of its character, packed together."""
    out = np.zeros(_length(text, at, end), np.int64)
    place = -1
    for j in range(at, end):
        if text[j] & 0xC0 != 0x80:
            place += 1
        out[place] = out[place] << 8 | text[j]
    return out
