"""The compiled heart of the band probe.

Guarantees: for every tuple, the range of entries whose words lie between its bounds. Entries are in the order of their
words; those of other slots are all smaller or all greater, so counting the smaller ones among `WIDTH` neighbours gives
a bound without a branch. Longer slots are searched by halving. The rules for fast loops in `equal` apply here too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Ints, Longs, compiled, inner
from weft.bucket.directory import value_slot
from weft.kernels.probe.equal import BLOCK, WIDTH, Places, fetch

__all__ = ["bounds", "nonempty", "order_by_slot"]


@compiled
def order_by_slot(
    words: Array, rows: Places, slots: int, origin: float, scale: float, floats: bool, bits: int, out: Places
) -> None:
    """Sort the tuples by the top bits of their slots, which is near the order of their words. Empty `rows`: all."""
    places = np.zeros((1 << bits) + 1, np.uint32)
    drop = max(0, _width(slots) - bits)
    keys = np.empty(out.size, np.uint16)
    for i in range(out.size):
        row = rows[i] if rows.size else np.uint32(i)
        keys[i] = value_slot(words[row], origin, scale, slots, floats) >> drop
        places[keys[i] + np.uint16(1)] += 1
    for value in range(1 << bits):
        places[value + 1] += places[value]
    for i in range(out.size):
        out[places[keys[i]]] = rows[i] if rows.size else np.uint32(i)
        places[keys[i]] += 1


@inner
def _width(slots: int) -> int:
    bits = 0
    while (1 << bits) < slots:
        bits += 1
    return bits


@compiled
def bounds(
    words: Array,
    rows: Places,
    after: bool,
    stored: Array,
    permutation: Places,
    directory: Places,
    origin: float,
    scale: float,
    floats: bool,
    out: Places,
) -> None:
    """Write, for each tuple, how many entries are smaller than its word or, with `after`, smaller or equal."""
    base, end, wanted = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.int64)
    near = np.empty(BLOCK * WIDTH, np.int64)
    size = directory[directory.size - 1]
    simple = permutation.size == 0 and size >= WIDTH
    for first in range(0, rows.size, BLOCK):
        block = min(BLOCK, rows.size - first)
        for i in range(block):
            wanted[i] = words[rows[first + i]]
        for i in range(block):
            slot = np.uint64(value_slot(wanted[i], origin, scale, directory.size - 1, floats))
            base[i], end[i] = directory[slot], directory[slot + np.uint64(1)]
        if simple:
            _count(block, np.uint32(size - np.uint32(WIDTH)), after, stored, base, wanted, near, out[first:])
        for i in range(block):
            if not simple or end[i] > base[i] + np.uint32(WIDTH):
                out[first + i] = _bound(stored, permutation, base[i], end[i], wanted[i], after)


@inner
def _count(
    block: int,
    last: np.uint32,
    after: bool,
    stored: Array,
    base: Places,
    wanted: Longs,
    near: Longs,
    out: Places,
) -> None:
    for i in range(block):
        fetch(stored, np.uint64(min(base[i], last)), near, np.uint64(i * WIDTH))
    for i in range(block):
        smaller = np.uint32(0)
        for j in range(WIDTH):
            other = near[np.uint64(i * WIDTH + j)]
            smaller += np.uint32(other <= wanted[i]) if after else np.uint32(other < wanted[i])
        out[i] = min(base[i], last) + smaller


@inner
def _bound(stored: Array, permutation: Places, low: Any, high: Any, word: Any, after: bool) -> Any:
    while low < high:
        middle = np.uint32((low + high) >> np.uint32(1))
        other = stored[permutation[middle]] if permutation.size else stored[middle]
        if other < word or (after and other == word):
            low = np.uint32(middle + np.uint32(1))
        else:
            high = middle
    return low


@compiled
def nonempty(rows: Places, low: Places, high: Places, probe: Ints, start: Ints, stop: Ints) -> Any:
    """Write the ranges that hold an entry to `probe`, `start` and `stop`, and return how many there are."""
    found: Any = np.uint64(0)
    for i in range(rows.size):
        probe[found], start[found], stop[found] = rows[i], low[i], high[i]
        found += np.uint64(high[i] > low[i])
    return found
