"""Compiled loops that turn ranges into pairs, and keep the pairs that pass a check.

Guarantees: `fill` writes the pairs in the order of the ranges; `keep_passing` keeps that order. For speed (see
`equal`), neither has a loop that both reads what may not be in the cache and stores at a place that depends on it: one
loop computes flags, another moves the pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.bucket.compiled import Bytes, Ints, Longs, compiled, inner

__all__ = ["compact", "fill", "keep_passing"]

_BLOCK = 1024

Places = NDArray[np.uint32]


@compiled
def fill(
    range_probe: Ints,
    range_start: Ints,
    range_stop: Ints,
    permutation: Ints,
    at: Longs,
    probe: Ints,
    stored: Ints,
) -> None:
    """Write the next pairs, as many as there is room for; `at` is the range, and the place in it, that come next."""
    i, offset = np.uint64(at[0]), at[1]
    place = np.uint64(0)
    while place < probe.size:
        start = range_start[i] + offset
        count = min(np.int64(probe.size - place), range_stop[i] - start)
        for j in range(count):
            probe[place + np.uint64(j)] = range_probe[i]
        for j in range(count):
            stored[place + np.uint64(j)] = start + j
        place += np.uint64(count)
        offset += count
        if range_start[i] + offset == range_stop[i]:
            i, offset = i + np.uint64(1), np.int64(0)
    at[0], at[1] = i, offset
    if permutation.size:
        for j in range(stored.size):
            stored[j] = permutation[np.uint32(stored[j])]


@compiled
def keep_passing(
    probe: Places,
    stored: Places,
    times: Longs,
    low: Longs,
    high: Longs,
    before: int,
    after: int,
) -> Any:
    """Move the pairs inside the window to the front, and say how many they are."""
    good = np.empty(_BLOCK, np.uint8)
    kept: Any = np.uint64(0)
    for first in range(0, probe.size, _BLOCK):
        size = min(_BLOCK, probe.size - first)
        ours, theirs = probe[first : first + size], stored[first : first + size]
        for i in range(size):
            time = times[theirs[i]]
            good[i] = np.uint8((time >= low[ours[i]] - before) & (time <= high[ours[i]] + after))
        kept = compact(good[:size], ours, theirs, kept, probe, stored)
    return kept


@inner
def compact(good: Bytes, probe: Any, stored: Any, kept: Any, out_probe: Any, out_stored: Any) -> Any:
    """Append the pairs that are good (1, not 0) to a result, which may be the front of the same arrays."""
    for i in range(good.size):
        out_probe[kept] = probe[i]
        out_stored[kept] = stored[i]
        kept += np.uint64(good[i])
    return kept
