"""Samples of a column: the values with the least hashes, the most frequent ones, and some in their order.

Guarantees: the result depends on the column and the seed alone, and no Python runs per row. The hash of a value is that
of its word (`bucket/words.py`), so it is the same in every stream, task and process, whatever the width of the column:
samples of two columns keep the same values. Rows are drawn at random, since rows at equal distances may all have one
value, as from a generator that gives out its keys in turn. NULL is in none of the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from weft.bucket.compiled import Array, Floats, Ints, Longs, Mask, compiled, frozen, inner, mix
from weft.bucket.words import Column, flatten, key_words

__all__ = ["EVERY_HASH", "Frequent", "LeastHashes", "draw_rows", "frequent", "least_hashes", "ordered_values"]

Hashes = NDArray[np.uint64]

# The threshold of a sample that has all values.
EVERY_HASH = (1 << 64) - 1
_EVERY = np.uint64(EVERY_HASH)


class LeastHashes(NamedTuple):
    """The values of a column whose hashes are below ``threshold``: their hashes, ascending, and how many rows each has.

    ``rows`` is how many rows of the column have a value, and ``others`` how many have each of the other values that
    were asked for.
    """

    threshold: int
    hashes: Hashes
    counts: Longs
    rows: int
    others: Longs


class Frequent(NamedTuple):
    """The most frequent values of a column, the commonest first, with their hashes and counts among the rows drawn."""

    values: list[Any]
    hashes: list[int]
    counts: list[int]


def draw_rows(rows: int, most: int, seed: int) -> Ints | None:
    """The numbers of at most so many rows, ascending, one at random of each stretch of equal length; None: all rows."""
    if rows <= most:
        return None
    drawn = (np.arange(most) + np.random.default_rng(seed).random(most)) * (rows / most)
    return np.minimum(drawn.astype(np.int32), rows - 1)


def least_hashes(column: Column, most: int, others: Sequence[int] = ()) -> LeastHashes:
    """The values with the least hashes, at most so many, with exact counts of their rows; and those of other hashes.

    >>> found = least_hashes(pa.array([7, 8, 7, None, 7]), 10)
    >>> found.rows, sorted(found.counts.tolist()), found.threshold == EVERY_HASH
    (4, [1, 3], True)
    """
    words = key_words([column])
    valid = frozen(np.empty(0, np.bool_)) if words.valid is None else words.valid
    rows = words.values.size if words.valid is None else int(np.count_nonzero(words.valid))
    asked = np.array(others, np.uint64)
    threshold, hashes, counts, found = _least(words.values, valid, most, asked)
    return LeastHashes(int(threshold), hashes, counts, rows, found)


def frequent(column: Column, sample: int, most: int, seed: int) -> Frequent:
    """At most so many of the most frequent values among a ``sample`` of rows of a column.

    >>> frequent(pa.array([7, 8, 7, None, 7]), 10, 1, 0)[::2]
    ([7], [3])
    """
    array = flatten(column)
    drawn = draw_rows(len(array), sample, seed)
    array = (array if drawn is None else array.take(pa.array(drawn))).drop_null()
    counted = pc.value_counts(array)
    values, counts = counted.field("values"), counted.field("counts").to_numpy()
    if counts.size > most:  # only the most frequent values need to be sorted
        first = np.argpartition(-counts, most)[:most]
        values, counts = values.take(pa.array(first)), counts[first]
    hashes = _hashes(key_words([values]).values)
    order = np.lexsort((hashes, -counts))
    values = values.take(pa.array(order))
    return Frequent(values.to_pylist(), hashes[order].tolist(), counts[order].tolist())


def ordered_values(column: Column, most: int, seed: int) -> Floats:
    """Some values of a column of numbers or times as floats, ascending; of times, in microseconds or days."""
    array = flatten(column)
    drawn = draw_rows(len(array), most, seed)
    array = (array if drawn is None else array.take(pa.array(drawn))).drop_null()
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    found: Floats = np.sort(array.cast(pa.float64(), safe=False).to_numpy())
    return found


@compiled
def _hashes(words: Array) -> Hashes:
    out = np.empty(words.size, np.uint64)
    for i in range(words.size):
        out[i] = mix(np.int64(words[i]))
    return out


@compiled
def _least(words: Array, valid: Mask, most: int, others: Hashes) -> tuple[np.uint64, Hashes, Longs, Longs]:
    """The threshold, hashes and counts of the values with the least hashes, and the counts of others, in one pass.

    Values below the threshold are counted in a hash table. Whenever it has twice as many as are wanted, the threshold
    falls to where only the wanted ones remain. The threshold never rises, so a value that is below the last one has
    been counted from its first row on.
    """
    slots = 8
    while slots < 4 * most:
        slots *= 2
    mask = np.uint64(slots - 1)
    keys, counts = np.zeros(slots, np.uint64), np.zeros(slots, np.int64)
    threshold, found = _EVERY, 0
    asked, last, numbers = _places(others)
    for i in range(words.size):
        if valid.size and not valid[i]:
            continue
        hashed = mix(np.int64(words[i]))
        at = np.int64(hashed) & last
        while asked[at] >= 0:
            if others[asked[at]] == hashed:
                numbers[asked[at]] += 1
                break
            at = (at + 1) & last
        if hashed >= threshold:
            continue
        at = np.int64(hashed & mask)
        while counts[at] and keys[at] != hashed:
            at = (at + 1) & np.int64(slots - 1)
        if not counts[at]:
            keys[at] = hashed
            found += 1
        counts[at] += 1
        if found == 2 * most:
            kept, rows, threshold = _cut(keys, counts, most, threshold)
            for j in range(slots):
                counts[j] = 0
            for j in range(kept.size):
                at = np.int64(kept[j] & mask)
                while counts[at]:
                    at = (at + 1) & np.int64(slots - 1)
                keys[at], counts[at] = kept[j], rows[j]
            found = kept.size
    kept, rows, threshold = _cut(keys, counts, most, threshold)
    return threshold, kept, rows, numbers


@compiled
def _cut(keys: Hashes, counts: Longs, most: int, threshold: np.uint64) -> tuple[Hashes, Longs, np.uint64]:
    """The least keys of a table, ascending, with their counts, and the threshold below which they are all there are."""
    used = 0
    for at in range(counts.size):
        used += counts[at] != 0
    hashes, rows = np.empty(used, np.uint64), np.empty(used, np.int64)
    used = 0
    for at in range(counts.size):
        if counts[at]:
            hashes[used], rows[used] = keys[at], counts[at]
            used += 1
    _sort_pairs(hashes, rows)
    if used > most:
        threshold = hashes[most]
        hashes, rows = hashes[:most], rows[:most]
    return hashes, rows, threshold


@inner
def _sort_pairs(keys: Hashes, counts: Longs) -> None:
    """Sort two arrays by the first, by Shell's method: Numba takes seconds to compile NumPy's, and these are short."""
    gap = keys.size // 2
    while gap:
        for i in range(gap, keys.size):
            key, count, at = keys[i], counts[i], i
            while at >= gap and keys[at - gap] > key:
                keys[at], counts[at] = keys[at - gap], counts[at - gap]
                at -= gap
            keys[at], counts[at] = key, count
        gap = gap // 2 if gap == 2 else gap * 5 // 11


@compiled
def _places(hashes: Hashes) -> tuple[Longs, np.int64, Longs]:
    """A hash table of the places of some hashes, its last slot, and a count for each of the hashes, all 0."""
    slots = 8
    while slots < 8 * hashes.size:
        slots *= 2
    last = np.int64(slots - 1)
    table = np.full(slots, -1, np.int64)
    for i in range(hashes.size):
        at = np.int64(hashes[i]) & last
        while table[at] >= 0:
            at = (at + 1) & last
        table[at] = i
    return table, last, np.zeros(hashes.size, np.int64)
