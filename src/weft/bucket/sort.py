"""Bringing rows into order, in linear time.

Guarantees: every sort is stable, so rows that compare equal stay in the order of their arrival. `sort_slots` and
`sort_values` are for rows in no order: counting sorts, digit by digit. `merge_slots` and `merge_values` are for rows
that come in a few sorted runs: they read and write every run front to back. `arrange` finishes the work inside a slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Array, Integer, Ints, compiled, frozen, mix
from weft.bucket.memory import fresh, zeros

__all__ = ["arrange", "merge_slots", "merge_values", "sort_slots", "sort_values"]

Packed = NDArray[np.uint64]  # the key in the upper 32 bits, the row in the lower

_DIGIT = 11  # 2048 counters and as many places being written to: what the first-level cache and the TLB hold
_FEW = 24  # up to so many, an insertion sort beats everything

_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_ROW = np.uint64(0xFFFFFFFF)


def sort_slots(words: Array, rows: Ints, bits: int) -> tuple[Ints, Ints]:
    """The rows by the slot of their word (the top bits of its hash), and where each slot starts."""
    packed = fresh(rows.size, np.uint64)
    _pack_slots(words, rows, np.uint64(64 - bits), packed)
    packed = _radix(packed, bits)
    starts = zeros((1 << bits) + 1, np.int32)
    order = fresh(rows.size, np.int32)
    _unpack(packed, order, starts)
    return order, starts


def sort_values(words: Array, rows: Ints) -> Ints:
    """The rows by their words."""
    least, span, ascending = _extent(words, rows)
    if ascending:
        return rows
    bits = int(span).bit_length()
    order, nothing = fresh(rows.size, np.int32), np.empty(0, np.int32)
    packed = fresh(rows.size, np.uint64)
    _pack_values(words, rows, least, _0, packed)
    _unpack(_radix(packed, min(bits, 32)), order, nothing)
    if bits > 32:
        _pack_values(words, frozen(order), least, _32, packed)
        order = fresh(rows.size, np.int32)
        _unpack(_radix(packed, bits - 32), order, nothing)
    return order


def merge_slots(words: Array, rows: Ints, bits: int) -> tuple[Ints, Ints]:
    """As `sort_slots`, in one pass, for rows in a few runs of ascending slots."""
    slots, places = fresh(rows.size, np.uint32), fresh((1 << bits) + 1, np.int32)
    order, starts = fresh(rows.size, np.int32), zeros((1 << bits) + 1, np.int32)
    _distribute(words, rows, np.uint64(64 - bits), slots, places, order, starts)
    return order, starts


def merge_values(words: Array, rows: Ints) -> Ints:
    """As `sort_values`, for rows in a few ascending runs: each is read log₂(runs) times."""
    order = fresh(rows.size, np.int32)
    order[:] = rows
    _merge_naturally(order, words, words, fresh(rows.size, np.int32))
    return order


def arrange(order: Ints, starts: Ints, words: Array, times: Array) -> None:
    """Sort every slot by (word, time), so that the rows of one key are neighbours in the order of time.

    `words` and `times` are those of the rows in `order`; all three are sorted in place.
    """
    longest = int(np.diff(starts).max(initial=0))
    some = longest if longest > _FEW else 0
    parts = (fresh(some, np.int32), fresh(some, np.int32), fresh(some, np.int32))
    _arrange(order, starts, words, times, *parts, fresh(some, words.dtype), fresh(some, times.dtype))


@compiled
def _pack_slots(words: Array, rows: Ints, shift: np.uint64, out: Packed) -> None:
    for i in range(rows.size):
        out[i] = ((mix(np.int64(words[rows[i]])) >> shift) << _32) | np.uint64(rows[i])


@compiled
def _pack_values(words: Array, rows: Ints, least: np.int64, shift: np.uint64, out: Packed) -> None:
    for i in range(rows.size):
        distance = np.uint64(np.int64(words[rows[i]])) - np.uint64(least)
        out[i] = ((distance >> shift) << _32) | np.uint64(rows[i])


@compiled
def _unpack(packed: Packed, order: Ints, starts: Ints) -> None:
    for i in range(packed.size):
        order[i] = np.int32(packed[i] & _ROW)
        if starts.size:
            starts[np.int64(packed[i] >> _32) + 1] += 1
    for slot in range(starts.size - 1):
        starts[slot + 1] += starts[slot]


def _radix(packed: Packed, bits: int) -> Packed:
    """The pairs by the lowest `bits` of their keys; `packed` is overwritten."""
    passes = -(-bits // _DIGIT)
    if not passes:
        return packed
    digit = -(-bits // passes)
    source, target = packed, fresh(packed.size, np.uint64)
    for number in range(passes):
        _scatter(source, target, np.uint64(32 + number * digit), digit)
        source, target = target, source
    return source


@compiled
def _scatter(source: Packed, target: Packed, shift: np.uint64, digit: int) -> None:
    mask = np.uint64((1 << digit) - 1)
    places = np.zeros((1 << digit) + 1, np.int32)
    for i in range(source.size):
        places[((source[i] >> shift) & mask) + _1] += 1
    for value in range(1 << digit):
        places[value + 1] += places[value]
    for i in range(source.size):
        key = (source[i] >> shift) & mask
        target[places[key]] = source[i]
        places[key] += 1


@compiled
def _extent(words: Array, rows: Ints) -> tuple[Any, Any, Any]:
    """(least word, distance to the greatest, whether they ascend already)."""
    least = greatest = np.int64(words[rows[0]]) if rows.size else np.int64(0)
    descents = 0
    for i in range(1, rows.size):
        word = np.int64(words[rows[i]])
        if word < np.int64(words[rows[i - 1]]):
            descents += 1
        least, greatest = min(least, word), max(greatest, word)
    return least, np.uint64(greatest) - np.uint64(least), descents == 0


@compiled
def _distribute(
    words: Array, rows: Ints, shift: np.uint64, slots: Any, places: Ints, order: Ints, starts: Ints
) -> None:
    for i in range(rows.size):
        slots[i] = np.uint32(mix(np.int64(words[rows[i]])) >> shift)
        starts[slots[i] + 1] += 1
    for slot in range(starts.size - 1):
        starts[slot + 1] += starts[slot]
        places[slot] = starts[slot]
    for i in range(rows.size):
        order[places[slots[i]]] = rows[i]
        places[slots[i]] += 1


@compiled
def _arrange(
    order: Ints,
    starts: Ints,
    words: Array,
    times: Array,
    local: Ints,
    scratch: Ints,
    old_order: Ints,
    old_words: Array,
    old_times: Array,
) -> None:
    for slot in range(starts.size - 1):
        low, high = starts[slot], starts[slot + 1]
        if high - low > _FEW:
            size = high - low
            local[:size] = np.arange(size)
            _merge_naturally(local[:size], words[low:high], times[low:high], scratch)
            old_order[:size], old_words[:size], old_times[:size] = (
                order[low:high],
                words[low:high],
                times[low:high],
            )
            for i in range(size):
                j = local[i]
                order[low + i], words[low + i], times[low + i] = old_order[j], old_words[j], old_times[j]
            continue
        for i in range(low + 1, high):
            row, word, time, j = order[i], words[i], times[i], i
            while j > low and (words[j - 1] > word or (words[j - 1] == word and times[j - 1] > time)):
                order[j], words[j], times[j] = order[j - 1], words[j - 1], times[j - 1]
                j -= 1
            order[j], words[j], times[j] = row, word, time


@compiled
def _after(words: Array, times: Array, one: Integer, other: Integer) -> Any:
    """Whether row `one` comes after row `other`: by word, then by time."""
    return words[one] > words[other] or (words[one] == words[other] and times[one] > times[other])


@compiled
def _merge_naturally(order: Ints, words: Array, times: Array, scratch: Ints) -> None:
    """Merge neighbouring runs, pair by pair, until one is left."""
    merged = True
    while merged:
        merged = False
        start = 0
        while start < order.size:
            middle = _run_end(order, start, words, times)
            if middle == order.size:
                scratch[start:middle] = order[start:middle]
                break
            end = _run_end(order, middle, words, times)
            _merge_two(order, start, middle, end, words, times, scratch)
            merged = True
            start = end
        if merged:
            order[:] = scratch[: order.size]


@compiled
def _run_end(order: Ints, start: int, words: Array, times: Array) -> int:
    end = start + 1
    while end < order.size and not _after(words, times, order[end - 1], order[end]):
        end += 1
    return end


@compiled
def _merge_two(
    order: Ints, start: int, middle: int, end: int, words: Array, times: Array, scratch: Ints
) -> None:
    left, right = start, middle
    for place in range(start, end):
        exhausted = left == middle
        if exhausted or (right < end and _after(words, times, order[left], order[right])):
            scratch[place] = order[right]
            right += 1
        else:
            scratch[place] = order[left]
            left += 1
