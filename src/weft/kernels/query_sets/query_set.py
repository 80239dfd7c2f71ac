"""Query-sets: for every row, the queries it is of use to, as a bitmap.

Guarantees: a query has a slot; query-sets of n rows are an array of (words, n) 64-bit words, in which bit s % 64 of
word s // 64 says whether the query in slot s is in the set. As columns of a batch they are `$q0`, `$q1`, … and are not
copied. No Python runs per row; counting or listing the rows of every query takes time by the bits that are set, not by
rows times queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Ints, Longs, Mask, compiled, frozen, inner
from weft.bucket.words import Column, flatten
from weft.errors import StateError
from weft.kernels.query_sets.cells import BLOCK, under

__all__ = [
    "BITS",
    "all_of",
    "bits_of",
    "by_thresholds",
    "columns_of",
    "compact",
    "count_per_query",
    "lowest_bit",
    "meet",
    "nonempty",
    "only",
    "rows_per_query",
    "set_bit",
    "set_names",
    "sets_of",
    "thresholds",
    "words_for",
]

BITS = 64


def words_for(slots: int) -> int:
    """How many words hold that many slots; at least one.

    >>> words_for(0), words_for(64), words_for(65)
    (1, 1, 2)
    """
    return max(1, -(-slots // BITS))


def set_names(words: int) -> tuple[str, ...]:
    """The names of the columns.

    >>> set_names(2)
    ('$q0', '$q1')
    """
    return tuple(f"$q{word}" for word in range(words))


def columns_of(sets: Longs) -> dict[str, Any]:
    """Query-sets as columns, in the same memory."""
    return dict(zip(set_names(len(sets)), map(pa.array, np.ascontiguousarray(sets)), strict=True))


def sets_of(columns: Sequence[Column]) -> Longs:
    """Query-sets from their columns, by word; a single column is not copied and cannot be written to."""
    words: list[Longs] = [flatten(column).to_numpy() for column in columns]
    return words[0].reshape(1, -1) if len(words) == 1 else np.stack(words)


def bits_of(slots: Sequence[int], words: int) -> Longs:
    """The set of these queries, as words."""
    bits = np.zeros(words, np.uint64)
    for slot in slots:
        if not 0 <= slot < words * BITS:
            raise StateError(f"slot {slot} does not fit into query-sets of {words} words")
        bits[slot // BITS] |= np.uint64(1 << slot % BITS)
    return bits.view(np.int64)


def all_of(one: Longs, other: Longs, out: Longs | None = None) -> Longs:
    """The queries that are in both sets of a row; `out` may be either of them."""
    common: Longs = np.bitwise_and(one, other, out=out)
    return common


def only(sets: Longs, slots: Sequence[int]) -> Longs:
    """Every row's set, reduced to these queries."""
    return all_of(sets, bits_of(slots, len(sets))[:, None])


def nonempty(sets: Longs) -> Mask:
    """Which rows are of use to any query."""
    either = sets[0] if len(sets) == 1 else np.bitwise_or.reduce(sets, axis=0)
    used: Mask = either != 0
    return used


def meet(mine: Longs, theirs: Longs, probes: Ints, rows: Ints, out: Longs) -> None:
    """Write, for every pair, one word of the queries that both its probe tuple and its stored row are for."""
    _meet(mine, theirs, probes, rows, out)


def compact(sets: Longs, wanted: Longs, probes: Ints, rows: Ints, splits: Sequence[int]) -> list[int]:
    """Remove the pairs that are for none of the wanted queries, in place; return where those of each run then end."""
    ends = np.array(splits, np.int64)
    _compact(sets, wanted, probes, rows, ends)
    found: list[int] = ends.tolist()
    return found


def set_bit(sets: Longs, slot: int, mask: Mask) -> None:
    """Put a query into the sets of the rows of the mask, in place, and take it out of those of all others."""
    if not sets.flags.writeable:
        raise StateError("these query-sets are a view of stored columns", hint="copy them first")
    if mask.shape != sets.shape[1:] or not 0 <= slot < len(sets) * BITS:
        raise StateError(f"{mask.size} rows in slot {slot} do not fit into query-sets of shape {sets.shape}")
    _put(sets[slot // BITS], np.uint64(slot % BITS), frozen(mask))


def count_per_query(sets: Longs, slots: Sequence[int]) -> Longs:
    """In how many rows' sets the query of each slot is."""
    counts: Longs = _count(frozen(sets), bits_of(slots, len(sets)))[np.asarray(slots, np.int64)]
    return counts


def rows_per_query(sets: Longs, slots: Sequence[int]) -> tuple[Longs, Ints]:
    """The rows of every slot's query, ascending: those of `slots[i]` are from `offsets[i]` to `offsets[i + 1]`."""
    if len(set(slots)) < len(slots):
        raise StateError(f"slots repeat: {list(slots)}")
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(count_per_query(sets, slots))))
    cursors = np.zeros(len(sets) * BITS, np.int64)
    cursors[np.asarray(slots, np.int64)] = offsets[:-1]
    rows = np.empty(offsets[-1], np.int32)
    _list(frozen(sets), bits_of(slots, len(sets)), cursors, rows)
    return offsets, rows


def thresholds(bounds: Mapping[int, int | None], words: int) -> tuple[Longs, Longs]:
    """The sorted bounds and the table that `by_thresholds` uses, given each slot's bound; None means no bound."""
    steps = sorted({bound for bound in bounds.values() if bound is not None})
    places = {bound: place for place, bound in enumerate(steps)}
    table = np.zeros((words, len(steps) + 1), np.int64)
    for slot, bound in bounds.items():
        within = len(steps) if bound is None else places[bound]
        table[slot // BITS, : within + 1] |= bits_of([slot], words)[slot // BITS]
    return np.array(steps, np.int64), table


def by_thresholds(values: Longs, bounds: Longs, table: Longs) -> Longs:
    """For every value the queries whose bound is not below it, looked up in the table of `thresholds`."""
    sets = np.empty((len(table), values.size), np.int64)
    _look_up(frozen(values), frozen(bounds), frozen(table), sets)
    return sets


@compiled
def _put(word: Longs, bit: Any, mask: Mask) -> None:
    keep = ~(np.uint64(1) << bit)
    for i in range(word.size):
        word[i] = np.int64((np.uint64(word[i]) & keep) | (np.uint64(mask[i]) << bit))


@inner
def lowest_bit(bits: Any) -> Any:
    """The number of the lowest bit that is set; counting the bits below it takes one instruction."""
    ones = ~bits & (bits - np.uint64(1))
    ones -= (ones >> np.uint64(1)) & np.uint64(0x5555555555555555)
    ones = (ones & np.uint64(0x3333333333333333)) + ((ones >> np.uint64(2)) & np.uint64(0x3333333333333333))
    ones = (ones + (ones >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (ones * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def _count(sets: Longs, wanted: Longs) -> Longs:
    counts = np.zeros(sets.shape[0] * BITS, np.int64)
    for word in range(sets.shape[0]):
        base = np.uint64(word * BITS)
        for row in range(sets.shape[1]):
            bits = np.uint64(sets[word, row] & wanted[word])
            while bits:
                counts[base + lowest_bit(bits)] += 1
                bits &= bits - np.uint64(1)
    return counts


@compiled
def _list(sets: Longs, wanted: Longs, cursors: Longs, rows: Ints) -> None:
    for word in range(sets.shape[0]):
        base = np.uint64(word * BITS)
        for row in range(sets.shape[1]):
            bits = np.uint64(sets[word, row] & wanted[word])
            while bits:
                slot = base + lowest_bit(bits)
                rows[np.uint64(cursors[slot])] = row
                cursors[slot] += 1
                bits &= bits - np.uint64(1)


@compiled
def _meet(mine: Longs, theirs: Longs, probes: Ints, rows: Ints, out: Longs) -> None:
    for i in range(probes.size):
        out[i] = mine[probes[i]] & theirs[rows[i]]


@compiled
def _compact(sets: Longs, wanted: Longs, probes: Ints, rows: Ints, splits: Longs) -> None:
    words, at, begin = sets.shape[0], 0, 0
    for part in range(1, splits.size):
        end = splits[part]
        for i in range(begin, end):
            used = np.int64(0)
            for word in range(words):
                used |= sets[word, i] & wanted[word]
            if used != 0:
                for word in range(words):
                    sets[word, at] = sets[word, i]
                probes[at] = probes[i]
                rows[at] = rows[i]
                at += 1
        begin = end
        splits[part] = at


@compiled
def _look_up(values: Longs, bounds: Longs, table: Longs, sets: Longs) -> None:
    places = np.empty(BLOCK, np.uint32)
    for first in range(0, values.size, BLOCK):
        size = min(BLOCK, values.size - first)
        under(bounds, values[first : first + size], places[:size])
        for word in range(table.shape[0]):
            for i in range(size):
                sets[word, first + i] = table[word, places[i]]
