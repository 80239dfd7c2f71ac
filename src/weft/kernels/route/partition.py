"""Which partition a tuple goes to.

Guarantees: `by_hash` sends equal keys to the same partition, in every process; `split` keeps the order of arrival
inside a partition. The partition is taken from bits of the hash that the directories do not use, so that the keys of
one partition fill the slots of its buckets evenly. NULL keys join nothing; with ``nulls`` their tuples go to partition
0, for outer joins, and without it they are dropped.
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

__all__ = ["by_cell", "by_hash", "dealt", "group", "in_cells", "partitions", "split"]


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
        out[~words.valid] = 0 if nulls else -1
    return out


def by_cell(cells: Sequence[Column], count: int, *, nulls: bool = False) -> Ints:
    """The partition of every row by the number of its cell; neighbouring cells go to different partitions."""
    _check(count)
    words = key_words(cells)
    out = frozen((words.values % count).astype(np.int32))
    if words.valid is not None:
        out = np.where(words.valid, out, np.int32(0 if nulls else -1))
    return out


def in_cells(first: Column, last: Column, count: int) -> tuple[Ints, Ints]:
    """Every row in the partitions of all cells from its first to its last; in none if one of the two is NULL.

    The partition of every copy of a row, and which row it is a copy of.
    """
    _check(count)
    low, high = (key_words([side]) for side in (first, last))
    rows = low.values.size
    cells = np.minimum(high.values - low.values + 1, count)
    for side in (low, high):
        cells = cells if side.valid is None else np.where(side.valid, cells, 0)
    copies = np.maximum(cells, 0)
    owners = np.repeat(np.arange(rows, dtype=np.int32), copies)
    ahead = np.arange(owners.size) - np.repeat(np.cumsum(copies) - copies, copies)
    targets = ((low.values[owners] + ahead) % count).astype(np.int32)
    return targets, owners


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


_LOWER, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


@compiled
def _partition(words: Array, count: np.uint64, out: Ints) -> None:
    for i in range(words.size):
        out[i] = np.int32(((mix(np.int64(words[i])) & _LOWER) * count) >> _32)


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
