"""The compiled heart of the equality probe.

Guarantees: for every probe tuple with a partner, one range of the index: the entries of its key whose event time is
inside the window. Both sides are in hash order, so memory is touched front to back.

How it is fast: a slot holds one to two rows, so a tuple is compared with `WIDTH` neighbouring entries at once, without
a branch; entries of other slots cannot be equal, so where the slot ends does not matter. The steps of a block of tuples
are done together in short loops, so that their cache misses overlap. Tuples whose slot holds more (a key with many
rows) are set aside and done at the end of the block: counting in slots of up to `_MANY`, else a binary search.

Three rules keep these loops fast, each worth a factor of up to two when broken. A loop that reads what may not be in
the cache does little else, so that many reads are under way at once; reading ahead beats asking with prefetches. It
never stores at a place that depends on what it read: loops that did were many times slower where this was written
(perhaps because the host forbids speculative store bypass; the cause was not isolated). And indices are unsigned,
because Numba gives signed ones a meaning when they are negative.

`find` probes an index that is the layout of the rows, `find_permuted` one that is a permutation of them, and gives
ranges of entries of that permutation. There an entry has a tag, 8 bits of its hash. Its row, which may be anywhere in
memory, is read only where the tag agrees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Array, Bytes, Ints, Longs, compiled, inner, mix

__all__ = ["BLOCK", "WIDTH", "Places", "fetch", "find", "find_permuted", "order_probes"]


Places = NDArray[np.uint32]

BLOCK = 512
WIDTH = 4
_MANY = 32
_1, _2, _3, _63 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(63)
_ONE = np.uint8(1)


@compiled
def order_probes(words: Array, rows: Places, bits: int, out_words: Longs, out_rows: Ints) -> None:
    """Sort the probe tuples by the top bits of their hash, so that caches see them in the order of the stored rows.

    Empty `rows` stands for all tuples.
    """
    shift = np.uint64(64 - bits)
    places = np.zeros((1 << bits) + 1, np.uint32)
    size = out_words.size
    for i in range(size):
        row = rows[i] if rows.size else np.uint32(i)
        places[(mix(np.int64(words[row])) >> shift) + _1] += 1
    for value in range(1 << bits):
        places[value + 1] += places[value]
    for i in range(size):
        row = rows[i] if rows.size else np.uint32(i)
        word = np.int64(words[row])
        key = mix(word) >> shift
        out_words[places[key]] = word
        out_rows[places[key]] = row
        places[key] += 1


@compiled
def find(
    words: Longs,
    rows: Places,
    stored: Array,
    nothing: Places,
    directory: Places,
    shift: np.uint64,
    least: np.uint64,
    times: Longs,
    lows: Longs,
    highs: Longs,
    before: int,
    after: int,
    probe: Ints,
    start: Ints,
    stop: Ints,
) -> Any:
    """Write the ranges of the tuples that have any, and return how many there are. Empty `times` means no window.

    `nothing` stands for the permutation, and is empty because entries are rows.
    """
    base, end, masks = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint8)
    hits, crowded = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    low, high = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    early, late = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    near = np.empty(BLOCK * WIDTH, np.int64)
    found: Any = 0
    for first in range(0, words.size, BLOCK):
        last = min(first + BLOCK, words.size)
        some, their_rows = words[first:last], rows[first:last]
        _locate(some, directory, shift, least, base, end)
        _compare(some, stored, base, near, masks)
        hit, crowd = _sort_out(some.size, directory, base, end, masks, hits, crowded)
        if times.size:
            _windows(hits[:hit], their_rows, lows, highs, before, after, early, late)
            _check_times(hits[:hit], times, base, early, late, near, masks)
        _as_ranges(hits[:hit], base, masks, low, high)
        found = _append(hits[:hit], their_rows, low, high, found, probe, start, stop)
        _windows(crowded[:crowd], their_rows, lows, highs, before, after, early, late)
        _read_ahead(crowded[:crowd], stored, times, base, end, near)
        _search(crowded[:crowd], some, stored, nothing, times, base, end, early, late, low, high)
        found = _append(crowded[:crowd], their_rows, low, high, found, probe, start, stop)
    return found


@inner
def _locate(
    words: Longs, directory: Places, shift: np.uint64, least: np.uint64, base: Places, end: Places
) -> None:
    """Write where every tuple's slot begins, moved back if fewer than `WIDTH` entries would follow, and ends.

    A hash outside of the slots, of which `least` is the first, is in none of the entries, and may look at any of them.
    """
    size = directory[directory.size - 1]
    last = size - np.uint32(WIDTH) if size >= WIDTH else size
    slots = np.uint64(directory.size - 2)
    for i in range(words.size):
        slot = min((mix(words[i]) >> shift) - least, slots)
        base[i] = min(directory[slot], last)
        end[i] = directory[slot + _1]


@inner
def _compare(words: Longs, stored: Array, base: Places, near: Longs, masks: Bytes) -> None:
    """Write, as bits, which of the `WIDTH` entries from `base` on equal the tuple."""
    if stored.size < WIDTH:
        masks[:] = 0
        return
    for i in range(words.size):
        fetch(stored, np.uint64(base[i]), near, np.uint64(i * WIDTH))
    for i in range(words.size):
        at, word = np.uint64(i * WIDTH), words[i]
        low = np.uint8(near[at] == word) | np.uint8(near[at + _1] == word) << 1
        high = np.uint8(near[at + _2] == word) | np.uint8(near[at + _3] == word) << 1
        masks[i] = low | high << 2


@inner
def fetch(values: Array, at: np.uint64, near: Longs, place: np.uint64) -> None:
    """Copy the `WIDTH` values from `at` on into the block `near`, which stays in the cache."""
    near[place], near[place + _1] = values[at], values[at + _1]
    near[place + _2], near[place + _3] = values[at + _2], values[at + _3]


@inner
def _sort_out(
    size: int, directory: Places, base: Places, end: Places, masks: Bytes, hits: Places, crowded: Places
) -> tuple[Any, Any]:
    """List the tuples that equal an entry, and those whose slot is longer than what was compared; count both."""
    compared = np.uint32(WIDTH if directory[directory.size - 1] >= WIDTH else 0)
    crowd: Any = np.uint64(0)
    for i in range(size):
        many = np.uint8(end[i] > base[i] + compared)
        masks[i] &= many - _ONE
        crowded[crowd] = i
        crowd += np.uint64(many)
    hit: Any = np.uint64(0)
    for i in range(size):
        hits[hit] = i
        hit += np.uint64(masks[i] != 0)
    return hit, crowd


@inner
def _windows(
    chosen: Places,
    rows: Places,
    lows: Longs,
    highs: Longs,
    before: int,
    after: int,
    early: Longs,
    late: Longs,
) -> None:
    """Write the first and the last time of each chosen tuple's window; nothing if there are no windows."""
    if lows.size:
        for k in range(chosen.size):
            early[k] = lows[rows[chosen[k]]] - before
        for k in range(chosen.size):
            late[k] = highs[rows[chosen[k]]] + after


@inner
def _check_times(
    hits: Places, times: Longs, base: Places, early: Longs, late: Longs, near: Longs, masks: Bytes
) -> None:
    """Clear the bits of entries outside the window; a negative difference of times tells them."""
    for k in range(hits.size):
        fetch(times, np.uint64(base[hits[k]]), near, np.uint64(k * WIDTH))
    for k in range(hits.size):
        outside = np.uint64(0)
        for j in range(WIDTH):
            time = near[np.uint64(k * WIDTH + j)]
            outside |= (np.uint64((time - early[k]) | (late[k] - time)) >> _63) << np.uint64(j)
        masks[hits[k]] &= ~np.uint8(outside)


@inner
def _read_ahead(chosen: Places, stored: Array, times: Longs, base: Places, end: Places, near: Longs) -> None:
    """Read the first and the last entry of long slots, so that `_search` finds them in the cache."""
    for k in range(chosen.size):
        i = chosen[k]
        near[k] = np.int64(stored[base[i]]) ^ np.int64(stored[end[i] - np.uint32(1)])
    if times.size:
        for k in range(chosen.size):
            i = chosen[k]
            near[k] ^= times[base[i]] ^ times[end[i] - np.uint32(1)]


@inner
def _as_ranges(hits: Places, base: Places, masks: Bytes, low: Places, high: Places) -> None:
    """Turn bits into ranges of entries; equal entries are neighbours, and so are their bits."""
    for k in range(hits.size):
        mask = np.uint32(masks[hits[k]])
        low[k] = base[hits[k]] + _lowest(mask)
        high[k] = low[k] + (mask & 1) + (mask >> 1 & 1) + (mask >> 2 & 1) + (mask >> 3)


@inner
def _lowest(mask: Any) -> Any:
    """The number of the lowest of four bits that is set."""
    return np.uint32((mask & 1) == 0) + np.uint32((mask & 3) == 0) + np.uint32((mask & 7) == 0)


@inner
def _append(
    chosen: Places, rows: Places, low: Places, high: Places, found: Any, probe: Ints, start: Ints, stop: Ints
) -> Any:
    """Append the ranges that are not empty to the result, and return its new length."""
    for k in range(chosen.size):
        probe[found], start[found], stop[found] = rows[chosen[k]], low[k], high[k]
        found += np.int64(high[k] > low[k])
    return found


@inner
def _search(
    chosen: Places,
    words: Longs,
    stored: Array,
    permutation: Places,
    times: Longs,
    base: Places,
    end: Places,
    early: Longs,
    late: Longs,
    low: Places,
    high: Places,
) -> None:
    """Write the ranges of (word, early) to (word, late), in slots of any length that are sorted by (hash, time)."""
    for k in range(chosen.size):
        i = chosen[k]
        wanted = mix(words[i])
        if end[i] - base[i] > _MANY:
            low[k] = _bound(wanted, stored, permutation, times, base[i], end[i], early[k], False)
            high[k] = _bound(wanted, stored, permutation, times, low[k], end[i], late[k], True)
            continue
        below, upto = np.uint32(0), np.uint32(0)
        for entry in range(base[i], end[i]):
            j = permutation[entry] if permutation.size else np.uint32(entry)
            key = mix(np.int64(stored[j]))
            smaller, equal = np.uint32(key < wanted), np.uint32(key == wanted)
            below += smaller | (equal & np.uint32(times.size and times[j] < early[k]))
            upto += smaller | (equal & np.uint32(times.size == 0 or times[j] <= late[k]))
        low[k], high[k] = base[i] + below, base[i] + upto


@inner
def _bound(
    wanted: Any, stored: Array, permutation: Places, times: Longs, low: Any, high: Any, time: Any, after: bool
) -> Any:
    """The first of entries low to high that is not smaller than (hash, time) or, with `after`, that is greater."""
    while low < high:
        middle = np.uint32((low + high) >> np.uint32(1))
        j = permutation[middle] if permutation.size else middle
        key = mix(np.int64(stored[j]))
        smaller = key < wanted or (after and key == wanted)
        if key == wanted and times.size:
            smaller = times[j] < time or (after and times[j] == time)
        if smaller:
            low = np.uint32(middle + np.uint32(1))
        else:
            high = middle
    return low


_8 = np.uint64(8)


@compiled
def find_permuted(
    words: Longs,
    rows: Places,
    stored: Array,
    permutation: Places,
    tags: Bytes,
    directory: Places,
    shift: np.uint64,
    least: np.uint64,
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
        _locate(some, directory, shift, least, base, end)
        _compare_tags(some, tags, shift, base, masks)
        hit, crowd = _sort_out(some.size, directory, base, end, masks, hits, crowded)
        _read_tagged_ahead(hits[:hit], permutation, base, masks, stored, times, near)
        _windows(hits[:hit], their_rows, lows, highs, before, after, early, late)
        _follow(hits[:hit], some, stored, permutation, times, base, masks, early, late, low, high)
        found = _append(hits[:hit], their_rows, low, high, found, probe, start, stop)
        _windows(crowded[:crowd], their_rows, lows, highs, before, after, early, late)
        _search(crowded[:crowd], some, stored, permutation, times, base, end, early, late, low, high)
        found = _append(crowded[:crowd], their_rows, low, high, found, probe, start, stop)
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
def _read_tagged_ahead(
    hits: Places, permutation: Places, base: Places, masks: Bytes, stored: Array, times: Longs, near: Longs
) -> None:
    """Read the key and the time of the first entry whose tag agrees; most have no second."""
    for k in range(hits.size):
        i = hits[k]
        near[k] = permutation[base[i] + _lowest(np.uint32(masks[i]))]
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
