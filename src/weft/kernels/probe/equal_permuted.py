"""The equality probe of an index that is a permutation of the rows, not their layout.

Guarantees: the same ranges as `equal.find`, of entries of the permutation. An entry has a tag, 8 bits of its hash. Its
row, which may be anywhere in memory, is read only where the tag agrees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Ints, Longs, compiled, inner, mix
from weft.kernels.probe.equal import BLOCK, WIDTH, Places, append, locate, lowest, search, sort_out, windows

__all__ = ["find_permuted"]

_1, _8 = np.uint64(1), np.uint64(8)


@compiled
def find_permuted(
    words: Longs,
    rows: Places,
    stored: Array,
    permutation: Places,
    tags: Bytes,
    directory: Places,
    shift: np.uint64,
    times: Longs,
    lows: Longs,
    highs: Longs,
    before: int,
    after: int,
    probe: Ints,
    start: Ints,
    stop: Ints,
) -> Any:
    """Do what `find` does, but compare tags first, and keys only where tags agree."""
    base, end, masks = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint8)
    hits, crowded = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    low, high = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    early, late = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    near = np.empty(BLOCK * 2, np.int64)
    found: Any = 0
    for first in range(0, words.size, BLOCK):
        last = min(first + BLOCK, words.size)
        some, their_rows = words[first:last], rows[first:last]
        locate(some, directory, shift, base, end)
        _compare_tags(some, tags, shift, base, masks)
        hit, crowd = sort_out(some.size, directory, base, end, masks, hits, crowded)
        _read_ahead(hits[:hit], permutation, base, masks, stored, times, near)
        windows(hits[:hit], their_rows, lows, highs, before, after, early, late)
        _follow(hits[:hit], some, stored, permutation, times, base, masks, early, late, low, high)
        found = append(hits[:hit], their_rows, low, high, found, probe, start, stop)
        windows(crowded[:crowd], their_rows, lows, highs, before, after, early, late)
        search(crowded[:crowd], some, stored, permutation, times, base, end, early, late, low, high)
        found = append(crowded[:crowd], their_rows, low, high, found, probe, start, stop)
    return found


@inner
def _compare_tags(words: Longs, tags: Bytes, shift: np.uint64, base: Places, masks: Bytes) -> None:
    """Write, as bits, which of the entries at `base` have the tag of the tuple."""
    if tags.size < WIDTH:
        masks[:] = 0
        return
    for i in range(words.size):
        at, tag = np.uint64(base[i]), np.uint8(mix(words[i]) >> (shift - _8))
        low = np.uint8(tags[at] == tag) | np.uint8(tags[at + _1] == tag) << 1
        at += np.uint64(2)
        high = np.uint8(tags[at] == tag) | np.uint8(tags[at + _1] == tag) << 1
        masks[i] = low | high << 2


@inner
def _read_ahead(
    hits: Places, permutation: Places, base: Places, masks: Bytes, stored: Array, times: Longs, near: Longs
) -> None:
    """Read the key and the time of the first entry whose tag agrees; most have no second."""
    for k in range(hits.size):
        i = hits[k]
        near[k] = permutation[base[i] + lowest(np.uint32(masks[i]))]
    for k in range(hits.size):
        near[k + BLOCK] = stored[np.uint32(near[k])]
    if times.size:
        for k in range(hits.size):
            near[k + BLOCK] ^= times[np.uint32(near[k])]


@inner
def _follow(
    hits: Places,
    words: Longs,
    stored: Array,
    permutation: Places,
    times: Longs,
    base: Places,
    masks: Bytes,
    early: Longs,
    late: Longs,
    low: Places,
    high: Places,
) -> None:
    """Write the ranges of the entries whose tag agrees, whose key is equal and whose time is inside the window."""
    for k in range(hits.size):
        i = hits[k]
        low[k] = high[k] = base[i]
        for step in range(WIDTH):
            entry = base[i] + np.uint32(step)
            j = permutation[entry]
            if masks[i] >> step & 1 and stored[j] == words[i]:
                if times.size and (times[j] < early[k] or times[j] > late[k]):
                    continue
                if low[k] == high[k]:
                    low[k] = entry
                high[k] = entry + np.uint32(1)
