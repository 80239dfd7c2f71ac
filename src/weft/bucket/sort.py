"""Bringing rows into order, in linear time.

Guarantees: every sort is stable, so rows that compare equal stay in the order of their arrival. `sort_hashes` and
`sort_values` are for rows in no order: counting sorts, digit by digit. `merge_hashes` and `merge_values` are for rows
that come in a few sorted runs: they read and write every run front to back. `arrange` finishes the work inside a slot.

No loop reads memory in random order and also counts or stores by what it read (`kernels/probe/equal.py` says why).
Rows are copied by loops, not by assigning slices: the machine code is the same, and Numba compiles it in half the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Array, Bytes, Ints, Longs, compiled, frozen, inner, mix
from weft.bucket.directory import HashSlots
from weft.bucket.memory import fresh, zeros

__all__ = [
    "arrange",
    "extreme_hashes",
    "hashes_of",
    "merge_hashes",
    "merge_values",
    "sort_hashes",
    "sort_values",
]

Packed = NDArray[np.uint64]  # the key in the upper 32 bits, the row in the lower
Hashes = NDArray[np.uint64]
Places = NDArray[np.uint32]

_DIGIT = 11  # 2048 counters and as many places being written to: what the first-level cache and the TLB hold
_FEW = 24  # for up to so many rows, an insertion sort is the fastest
_SPARE = 4  # rows are sorted by so many bits beyond the slot, which leaves `arrange` few rows to swap

_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_ROW = np.uint64(0xFFFFFFFF)


def sort_hashes(words: Array, rows: Ints, slots: HashSlots) -> tuple[Ints, Ints]:
    """The rows sorted by the slots of their hashes, and where each slot starts."""
    bits = (slots.count - 1).bit_length()
    passes = -(-(bits + _SPARE) // _DIGIT)
    spare = min(min(32, passes * _DIGIT) - bits, slots.shift)
    packed = fresh(rows.size, np.uint64)
    _pack_hashes(words, rows, np.uint64(slots.first << slots.shift), np.uint64(slots.shift - spare), packed)
    packed = _radix(packed, bits + spare)
    starts = zeros(slots.count + 1, np.int32)
    order = fresh(rows.size, np.int32)
    _unpack(packed, order)
    _count_slots(packed, np.uint64(32 + spare), starts)
    return order, starts


def extreme_hashes(words: Array, rows: Ints) -> tuple[int, int]:
    """The least and the greatest hash of rows; the range of all hashes if there are none."""
    if not rows.size:
        return 0, (1 << 64) - 1
    least, greatest = _extreme_hashes(words, rows)
    return int(least), int(greatest)


def sort_values(words: Array, rows: Ints) -> Ints:
    """The rows sorted by their words."""
    least, span, ascending = _extent(words, rows)
    if ascending:
        return rows
    bits = int(span).bit_length()
    order = fresh(rows.size, np.int32)
    packed = fresh(rows.size, np.uint64)
    _pack_values(words, rows, least, _0, packed)
    _unpack(_radix(packed, min(bits, 32)), order)
    if bits > 32:
        _pack_values(words, frozen(order), least, _32, packed)
        order = fresh(rows.size, np.int32)
        _unpack(_radix(packed, bits - 32), order)
    return order


def merge_hashes(
    words: Sequence[Array], kept: Sequence[Bytes], slots: HashSlots
) -> tuple[Longs, Ints, Hashes]:
    """The places of the rows of runs with ascending hashes, sorted by slot; where slots start; and the hashes.

    A place is the number of a run in the upper 32 bits and a row in the lower. Inside a slot, rows are in the order of
    the runs. Of each run, only rows with a 1 in ``kept`` are there, or all if that is empty.
    """
    where = np.uint64(slots.shift), np.uint64(slots.first)
    starts, next_ = zeros(slots.count + 1, np.int32), fresh(slots.count + 1, np.int32)
    for run, some in zip(words, kept, strict=True):
        _count_run(run, some, *where, starts)
    size = _begin_slots(starts, next_)
    places, hashes = fresh(size, np.int64), fresh(size, np.uint64)
    for number, (run, some) in enumerate(zip(words, kept, strict=True)):
        _place_run(run, some, np.int64(number), *where, next_, hashes, places)
    return places, starts, hashes


def merge_values(words: Array, rows: Ints) -> Ints:
    """Do what `sort_values` does, for rows that come in a few ascending runs; each row is read log₂(runs) times."""
    order = fresh(rows.size, np.int32)
    order[:] = rows
    no_times = zeros(words.size, np.int64)
    _merge_naturally(order, words, no_times, fresh(rows.size, np.int32))
    return order


def hashes_of(words: Array, order: Ints) -> Hashes:
    """The hashes of rows in an order."""
    out = fresh(order.size, np.uint64)
    _hash_rows(words, order, out)
    return out


def arrange(order: Array, starts: Ints, hashes: Hashes, times: Array) -> None:
    """Sort every slot by (hash, time), so that the rows of one key are neighbours in the order of time.

    `hashes` and `times` are those of the rows in `order`; all three are sorted in place.
    """
    longest = int(np.diff(starts).max(initial=0))
    some = longest if longest > _FEW else 0
    parts = (fresh(some, np.int32), fresh(some, np.int32), fresh(some, order.dtype))
    _arrange(order, starts, hashes, times, *parts, fresh(some, hashes.dtype), fresh(some, times.dtype))


@compiled
def _pack_hashes(words: Array, rows: Ints, least: np.uint64, shift: np.uint64, out: Packed) -> None:
    for i in range(rows.size):
        row = np.uint32(rows[i])
        out[i] = (((mix(np.int64(words[row])) - least) >> shift) << _32) | np.uint64(row)


@compiled
def _extreme_hashes(words: Array, rows: Ints) -> tuple[Any, Any]:
    least = greatest = mix(np.int64(words[np.uint32(rows[0])]))
    for i in range(1, rows.size):
        key = mix(np.int64(words[np.uint32(rows[i])]))
        least, greatest = min(least, key), max(greatest, key)
    return least, greatest


@compiled
def _pack_values(words: Array, rows: Ints, least: np.int64, shift: np.uint64, out: Packed) -> None:
    for i in range(rows.size):
        row = np.uint32(rows[i])
        distance = np.uint64(np.int64(words[row])) - np.uint64(least)
        out[i] = ((distance >> shift) << _32) | np.uint64(row)


@compiled
def _unpack(packed: Packed, order: Ints) -> None:
    for i in range(packed.size):
        order[i] = np.int32(packed[i] & _ROW)


@compiled
def _count_slots(packed: Packed, shift: np.uint64, starts: Ints) -> None:
    for i in range(packed.size):
        starts[(packed[i] >> shift) + _1] += 1
    for slot in range(starts.size - 1):
        starts[slot + 1] += starts[slot]


def _radix(packed: Packed, bits: int) -> Packed:
    """The pairs sorted by the lowest `bits` of their keys; `packed` is overwritten."""
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
    places = np.zeros((1 << digit) + 1, np.uint32)
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
    """The least word, its distance to the greatest, and whether the words ascend already."""
    least = greatest = np.int64(words[rows[0]]) if rows.size else np.int64(0)
    descents = 0
    for i in range(1, rows.size):
        word = np.int64(words[rows[i]])
        if word < np.int64(words[rows[i - 1]]):
            descents += 1
        least, greatest = min(least, word), max(greatest, word)
    return least, np.uint64(greatest) - np.uint64(least), descents == 0


@compiled
def _count_run(words: Array, kept: Bytes, shift: np.uint64, first: np.uint64, starts: Ints) -> None:
    if kept.size:
        for i in range(words.size):
            starts[(mix(np.int64(words[i])) >> shift) - first + _1] += np.int32(kept[i])
        return
    for i in range(words.size):
        starts[(mix(np.int64(words[i])) >> shift) - first + _1] += 1


@compiled
def _begin_slots(starts: Ints, next_: Ints) -> Any:
    """Turn counts into where slots start, write this to `next_` too, and return how many rows there are."""
    for slot in range(starts.size - 1):
        starts[slot + 1] += starts[slot]
        next_[slot] = starts[slot]
    return starts[starts.size - 1]


@compiled
def _place_run(
    words: Array,
    kept: Bytes,
    number: Any,
    shift: np.uint64,
    first: np.uint64,
    next_: Ints,
    hashes: Hashes,
    places: Longs,
) -> None:
    """Put the rows of a run at the next places of their slots."""
    run = number << np.int64(32)
    for i in range(words.size):
        if kept.size and not kept[i]:
            continue
        key = mix(np.int64(words[i]))
        slot = (key >> shift) - first
        place = np.uint32(next_[slot])
        hashes[place], places[place] = key, run | np.int64(i)
        next_[slot] = np.int32(place + np.uint32(1))


@compiled
def _hash_rows(words: Array, order: Ints, out: Hashes) -> None:
    for i in range(order.size):
        out[i] = mix(np.int64(words[np.uint32(order[i])]))


@compiled
def _arrange(
    order: Ints,
    starts: Ints,
    hashes: Hashes,
    times: Array,
    local: Ints,
    scratch: Ints,
    old_order: Ints,
    old_hashes: Hashes,
    old_times: Array,
) -> None:
    if (
        not local.size
    ):  # no slot is long; rows of different slots are in order, so slots need not be told apart
        for i in range(1, order.size):
            if hashes[i - 1] > hashes[i] or (hashes[i - 1] == hashes[i] and times[i - 1] > times[i]):
                _insert(order, hashes, times, 0, i)
        return
    for slot in range(starts.size - 1):
        low, high = starts[slot], starts[slot + 1]
        if high - low > _FEW:
            size = high - low
            for i in range(size):
                local[i], old_order[i] = i, order[low + i]
                old_hashes[i], old_times[i] = hashes[low + i], times[low + i]
            _merge_naturally(local[:size], old_hashes, old_times, scratch)
            for i in range(size):
                j = local[i]
                order[low + i], hashes[low + i], times[low + i] = old_order[j], old_hashes[j], old_times[j]
            continue
        for i in range(low + 1, high):
            if hashes[i - 1] > hashes[i] or (hashes[i - 1] == hashes[i] and times[i - 1] > times[i]):
                _insert(order, hashes, times, low, i)


@inner
def _insert(order: Ints, hashes: Hashes, times: Array, low: Any, i: Any) -> None:
    """Move row i back to its place among the sorted rows from `low` on."""
    row, key, time, j = order[i], hashes[i], times[i], i
    while j > low and (hashes[j - 1] > key or (hashes[j - 1] == key and times[j - 1] > time)):
        order[j], hashes[j], times[j] = order[j - 1], hashes[j - 1], times[j - 1]
        j -= 1
    order[j], hashes[j], times[j] = row, key, time


@inner
def _after(keys: Array, times: Array, one: Any, other: Any) -> Any:
    """Whether row `one` comes after row `other`: by key, then by time."""
    return keys[one] > keys[other] or (keys[one] == keys[other] and times[one] > times[other])


@compiled
def _merge_naturally(order: Ints, keys: Array, times: Array, scratch: Ints) -> None:
    """Merge neighbouring runs, pair by pair, until one is left."""
    merged = True
    while merged:
        merged = False
        start = 0
        while start < order.size:
            middle = _run_end(order, start, keys, times)
            if middle == order.size:
                for i in range(start, middle):
                    scratch[i] = order[i]
                break
            end = _run_end(order, middle, keys, times)
            _merge_two(order, start, middle, end, keys, times, scratch)
            merged = True
            start = end
        if merged:
            for i in range(order.size):
                order[i] = scratch[i]


@inner
def _run_end(order: Ints, start: int, keys: Array, times: Array) -> int:
    end = start + 1
    while end < order.size and not _after(keys, times, order[end - 1], order[end]):
        end += 1
    return end


@inner
def _merge_two(
    order: Ints, start: int, middle: int, end: int, keys: Array, times: Array, scratch: Ints
) -> None:
    left, right = start, middle
    for place in range(start, end):
        exhausted = left == middle
        if exhausted or (right < end and _after(keys, times, order[left], order[right])):
            scratch[place] = order[right]
            right += 1
        else:
            scratch[place] = order[left]
            left += 1
