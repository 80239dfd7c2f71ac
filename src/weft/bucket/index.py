"""Orders and indexes: how the rows of a bucket are found.

Guarantees: an `Index` lists every row whose key is not NULL exactly once, in the order of (hash, event time) for
equality and of the value for ranges; in the layout, rows that are equal in these are in the order of arrival. So the
rows of one key are neighbours in time order, and an equality with a time window is one contiguous range of the index.

The layout is an index without a permutation: its order is that of the rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from weft.bucket import directory
from weft.bucket.columns import collect_values
from weft.bucket.compiled import Array, Bytes, Ints, Longs, frozen
from weft.bucket.directory import HashSlots
from weft.bucket.memory import take, zeros
from weft.bucket.sort import (
    Hashes,
    arrange,
    extreme_hashes,
    hashes_of,
    merge_hashes,
    merge_values,
    sort_hashes,
    sort_values,
)
from weft.bucket.words import Column, Words, key_words, value_words
from weft.errors import StateError

__all__ = [
    "Index",
    "Order",
    "Sorted",
    "by_hash",
    "by_value",
    "make_index",
    "merge_by_hash",
    "merge_by_value",
    "sort_rows",
    "words_for",
]


_NO_ROWS = frozen(np.empty(0, np.int32))


@dataclass(frozen=True, slots=True)
class Order:
    """What rows are sorted by: the hash of columns (for equality) or the value of one (for ranges)."""

    kind: Literal["hash", "value"]
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.columns or (self.kind == "value" and len(self.columns) > 1):
            raise StateError(f"an order by {self.kind} cannot have {len(self.columns)} columns")

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})"


def by_hash(*columns: str) -> Order:
    """The order for equality on all the columns together."""
    return Order("hash", columns)


def by_value(column: str) -> Order:
    """The order for ranges and bands of a column."""
    return Order("value", (column,))


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """The rows that have a key, in order, with the directory."""

    rows: Ints
    directory: Ints
    hashes: Hashes | None = None  # the hashes of the rows, if the order is by hash
    origin: float = 0.0
    scale: float = 0.0
    slots: HashSlots | None = None  # of a directory for equality


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An order of a bucket's rows with its directory."""

    order: Order
    words: Words  # the words of every row of the bucket, in the order of the rows
    directory: Ints
    permutation: Ints | None = None  # None where the rows themselves are in this order
    tags: Bytes | None = None  # 8 hash bits per entry, if this is a permutation for equality
    origin: float = 0.0
    scale: float = 0.0
    slots: HashSlots | None = None  # of a directory for equality

    @property
    def rows(self) -> int:
        """How many rows it lists: those whose key is not NULL."""
        return int(self.directory[-1])

    @property
    def nbytes(self) -> int:
        """The memory it takes beyond that of the rows."""
        parts = (self.directory, self.permutation, self.tags, None if self.words.view else self.words.values)
        return sum(part.nbytes for part in parts if part is not None)


def words_for(order: Order, columns: Sequence[Column]) -> Words:
    """The words by which an order compares rows."""
    return key_words(columns) if order.kind == "hash" else value_words(columns[0])


def sort_rows(order: Order, words: Words, times: Longs | None) -> Sorted:
    """Sort rows that are in no order."""
    rows = _indexable(words)
    if order.kind == "value":
        return _by_value(sort_values(words.values, rows), words)
    slots = HashSlots.between(rows.size, *extreme_hashes(words.values, rows))
    return _by_slot(*sort_hashes(words.values, rows, slots), words, times, slots)


def merge_by_hash(
    words: Sequence[Array], kept: Sequence[Bytes], times: Sequence[Longs] | None
) -> tuple[Sorted, Longs]:
    """Merge the rows of runs in hash order: the directory, without rows, and where each row is (`collect_rows`).

    ``words`` and ``times`` are those of every run; of each run, only rows with a 1 in ``kept`` are taken, or all if
    that is empty.
    """
    size = sum(
        int(np.count_nonzero(mask)) if mask.size else run.size for run, mask in zip(words, kept, strict=True)
    )
    ends = np.asarray([run[row] for run in words if run.size for row in (0, -1)], np.int64)
    slots = HashSlots.between(size, *extreme_hashes(ends, frozen(np.arange(ends.size, dtype=np.int32))))
    finer = slots.finer  # with half as many rows in a slot, fewer have to be swapped
    places, starts, hashes = merge_hashes(words, kept, finer)
    ages = zeros(places.size, np.int64) if times is None else collect_values(times, places)
    arrange(places, starts, hashes, ages)
    return Sorted(_NO_ROWS, starts[::2], slots=slots), places


def merge_by_value(words: Sequence[Array], places: Longs, *, floats: bool) -> tuple[Sorted, Longs]:
    """Merge the rows at those places of runs in the order of values: the directory, without rows, and their places."""
    values = collect_values(words, places)
    rows = merge_values(values, frozen(np.arange(values.size, dtype=np.int32)))
    found = _by_value(rows, Words(frozen(values), None, True, False, floats))
    return Sorted(_NO_ROWS, found.directory, None, found.origin, found.scale), take(places, rows)


def make_index(order: Order, words: Words, found: Sorted, *, layout: bool) -> Index:
    """The index of sorted rows; if it is to be the layout, `words` must be those of the rows in their new order."""
    starts, where = frozen(found.directory), (found.origin, found.scale, found.slots)
    if layout:
        return Index(order, words, starts, None, None, *where)
    tags = None
    if found.hashes is not None and found.slots is not None:
        tags = frozen(directory.hash_tags(found.hashes, found.slots.shift))
    return Index(order, words, starts, frozen(found.rows), tags, *where)


def _indexable(words: Words) -> Ints:
    if words.valid is None:
        return frozen(np.arange(words.values.size, dtype=np.int32))
    return frozen(np.flatnonzero(words.valid).astype(np.int32))


def _by_slot(rows: Ints, starts: Ints, words: Words, times: Longs | None, slots: HashSlots) -> Sorted:
    hashes = hashes_of(words.values, rows)
    arrange(rows, starts, hashes, zeros(rows.size, np.int64) if times is None else take(times, rows))
    return Sorted(rows, starts, hashes, slots=slots)


def _by_value(rows: Ints, words: Words) -> Sorted:
    bits = directory.slot_bits(rows.size)
    rows = frozen(rows)
    origin, scale = directory.value_scale(words.values, rows, 1 << bits, words.floats)
    starts = directory.value_starts(words.values, rows, bits, origin, scale, words.floats)
    return Sorted(rows, starts, None, origin, scale)
