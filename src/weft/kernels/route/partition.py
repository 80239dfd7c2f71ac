"""Which partition a tuple goes to.

Guarantees: `by_hash` sends equal keys to the same partition, in every process; `split` keeps the order of arrival
inside a partition. A partition is a range of hashes (`range_of`), as large as any other, so that a partition's part of
a run in hash order is a slice of it. NULL keys join nothing; with ``nulls`` their tuples go to the last partition, for
outer joins, and without it they are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.bucket.bucket import column, gather
from weft.bucket.compiled import Array, Ints, compiled, frozen, mix
from weft.bucket.memory import fresh
from weft.bucket.words import Column, key_words
from weft.errors import StateError

__all__ = ["by_hash", "dealt", "group", "in_cells", "partitions", "range_of", "split"]

MANY = 4  # a row that reaches more than so many cells for each partition goes to all partitions


def by_hash(
    batch: pa.RecordBatch, keys: Sequence[str], count: int, *, nulls: bool = False
) -> list[pa.RecordBatch]:
    """The batch split into `count` partitions by the hash of its key columns."""
    found = partitions([column(batch, name) for name in keys], count, nulls=nulls)
    return split(batch, found, count)


def dealt(rows: int, count: int, first: int = 0) -> Ints:
    """The partition of every row if rows are dealt out one by one, beginning with partition `first`."""
    _check(count)
    found: Ints = ((np.arange(rows, dtype=np.int64) + first) % count).astype(np.int32)
    return found


def partitions(keys: Sequence[Column], count: int, *, nulls: bool = False) -> Ints:
    """The partition of every row; -1 for a NULL key that is not to be kept."""
    _check(count)
    words = key_words(keys)
    out = fresh(words.values.size, np.int32)
    _partition(words.values, np.uint64(count), out)
    if words.valid is not None:
        out[~words.valid] = count - 1 if nulls else -1
    return out


def range_of(partition: int, count: int) -> tuple[int, int]:
    """The hashes of a partition: from the first one on, and before the second.

    >>> [range_of(partition, 2) == (partition << 63, (partition + 1) << 63) for partition in range(2)]
    [True, True]
    """
    low, high = (-(-(number << 32) // count) << 32 for number in (partition, partition + 1))
    return low, high


def in_cells(first: Column, last: Column, count: int) -> tuple[Ints, Ints]:
    """Every row in the partitions of all cells from its first to its last; in none if one of the two is NULL.

    The partition of every copy of a row, and which row it is a copy of.
    """
    _check(count)
    low, high = (key_words([side]) for side in (first, last))
    rows = low.values.size
    cells = np.minimum(high.values - low.values + 1, MANY * count)
    for side in (low, high):
        cells = cells if side.valid is None else np.where(side.valid, cells, 0)
    copies = np.maximum(cells, 0)
    owners = np.repeat(np.arange(rows, dtype=np.int64), copies)
    ahead = np.arange(owners.size) - np.repeat(np.cumsum(copies) - copies, copies)
    targets = partitions([pa.array(low.values[owners].astype(np.int64) + ahead)], count)
    far = copies[owners] == MANY * count
    targets = np.where(far, ahead % count, targets)
    once = np.unique(owners * count + targets)
    return (once % count).astype(np.int32), (once // count).astype(np.int32)


def split(
    batch: pa.RecordBatch, partition: Ints, count: int, owners: Ints | None = None
) -> list[pa.RecordBatch]:
    """One batch per partition, given the partition of every row; a row with a negative one is in none of them.

    With ``owners``, `partition` has an entry for every copy of a row, and ``owners`` says which row it is a copy of.
    """
    grouped, starts = group(batch, partition, count, owners)
    return [grouped.slice(starts[i], starts[i + 1] - starts[i]) for i in range(count)]


def group(
    batch: pa.RecordBatch, partition: Ints, count: int, owners: Ints | None = None
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """The rows as `split` has them, in one batch; and where each partition starts in it, and the last one ends."""
    _check(count)
    starts, order = np.zeros(count + 2, np.int64), fresh(partition.size, np.int32)
    _group(frozen(partition), starts, order)
    if count == 1 and owners is None and starts[1] == batch.num_rows:
        return batch, starts[:2]
    rows = order[: starts[count]]
    return gather(batch, frozen(rows if owners is None else owners[rows])), starts[: count + 1]


def _check(count: int) -> None:
    if count < 1:
        raise StateError(f"there cannot be {count} partitions")


_32 = np.uint64(32)


@compiled
def _partition(words: Array, count: np.uint64, out: Ints) -> None:
    for i in range(words.size):
        out[i] = np.int32(((mix(np.int64(words[i])) >> _32) * count) >> _32)


@compiled
def _group(partition: Ints, starts: NDArray[np.int64], order: Ints) -> None:
    """Sort the rows by partition, by counting; `starts` then has where each partition starts, and the last ends."""
    count = starts.size - 2
    for i in range(partition.size):
        if partition[i] >= 0:
            starts[partition[i] + 2] += 1
    for p in range(count):
        starts[p + 2] += starts[p + 1]
    for i in range(partition.size):
        if partition[i] >= 0:
            order[starts[partition[i] + 1]] = i
            starts[partition[i] + 1] += 1
