"""Bringing results into order: sorting the rows of a partition, and merging the sorted rows of several.

Guarantees: rows are compared by several columns of whole numbers, the first deciding. `sort_rows` is stable and takes
linear time: digit by digit, the last column first. `merge_runs` is a tree of mergers (SplitJoin, section 5.2): sorted
runs are merged two by two, never sorted again; of rows that compare equal, those of the earlier run come first. Both
give row numbers only; columns are gathered once, at the end. Where rows share few keys, `counted_places` sorts by
counting, and `place_segments` moves rows of one key together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Ints, Longs, compiled, frozen, inner
from weft.bucket.memory import fresh
from weft.bucket.sort import sort_values

__all__ = ["counted_places", "merge_runs", "place", "place_segments", "sort_rows"]


def sort_rows(keys: Sequence[Longs]) -> Ints | None:
    """The numbers of the rows in the order of their keys; None if the rows are in that order already."""
    rows = first = frozen(np.arange(keys[0].size, dtype=np.int32))
    for key in reversed(keys):
        found = sort_values(frozen(key), rows)
        rows = rows if found is rows else frozen(found)
    return None if rows is first else rows


def merge_runs(keys: Longs, splits: Sequence[int]) -> Ints | None:
    """The numbers of the rows of all runs in one sorted order; None if the runs, one after the other, are sorted.

    ``keys`` has a row for every column and ends where the last run does; runs begin at ``splits``.
    """
    keys = frozen(keys)
    cuts = [int(cut) for cut in splits if cut < keys.shape[1]]
    bounds = np.array([*dict.fromkeys(cuts), keys.shape[1]], np.int64)
    if _is_sorted(keys, bounds):
        return None
    rows, room = fresh(keys.shape[1], np.int32), fresh(keys.shape[1], np.int32)
    rows[:] = np.arange(keys.shape[1], dtype=np.int32)
    while bounds.size > 2:
        _merge_pairs(keys, bounds, rows, room)
        rows, room = room, rows
        bounds = np.array([*bounds[:-1:2], bounds[-1]], np.int64)
    return rows


def counted_places(keys: Longs, rows: Ints) -> tuple[Ints, Longs, Ints] | None:
    """The place of every row in the order of their keys, the distinct keys, and how many rows have each.

    The key of row i is `keys[rows[i]]`. None means that the keys are too far apart to be counted.
    """
    least, most = (int(keys.min()), int(keys.max())) if keys.size else (0, 0)
    if most - least > _ROOM + 4 * rows.size:
        return None
    near, counts = (keys - least).astype(np.int32), np.zeros(most - least + 1, np.int32)
    _count(frozen(near), frozen(rows), counts)
    places, nexts = fresh(rows.size, np.int32), np.cumsum(counts, dtype=np.int32) - counts
    _place_counted(frozen(near), frozen(rows), nexts, places)
    some = np.flatnonzero(counts)
    return places, some + least, counts[some]


_ROOM = 1 << 16


@compiled
def _count(keys: Ints, rows: Ints, counts: Ints) -> None:
    for i in range(rows.size):
        counts[keys[rows[i]]] += 1


@compiled
def _place_counted(keys: Ints, rows: Ints, nexts: Ints, places: Ints) -> None:
    for i in range(rows.size):
        key = keys[rows[i]]
        places[i] = nexts[key]
        nexts[key] += 1


def place_segments(values: Array, lengths: Ints, places: Ints, out: Array) -> None:
    """Copy values that come in segments of these lengths, each segment to its place in `out`."""
    _place_segments(values, frozen(lengths), frozen(places), out)


@compiled
def _place_segments(values: Array, lengths: Ints, places: Ints, out: Array) -> None:
    at = 0
    for i in range(lengths.size):
        start = places[i]
        for j in range(lengths[i]):
            out[start + j] = values[at + j]
        at += lengths[i]


def place(values: Array, rows: Ints, places: Ints, out: Array) -> None:
    """Copy the values at some rows, each to its place in `out`."""
    _place(values, frozen(rows), frozen(places), out)


@compiled
def _place(values: Array, rows: Ints, places: Ints, out: Array) -> None:
    for i in range(rows.size):
        out[places[i]] = values[rows[i]]


@inner
def _after(keys: Array, one: Any, other: Any) -> Any:
    """Whether row `one` comes after row `other`."""
    for column in range(keys.shape[0]):
        if keys[column, one] != keys[column, other]:
            return keys[column, one] > keys[column, other]
    return False


@compiled
def _is_sorted(keys: Array, bounds: Longs) -> Any:
    """Whether no run begins with a smaller key than the run before it ends with."""
    descents = 0
    for run in range(1, bounds.size - 1):
        descents += int(_after(keys, bounds[run] - 1, bounds[run]))
    return descents == 0


@compiled
def _merge_pairs(keys: Array, bounds: Longs, rows: Ints, out: Ints) -> None:
    """Do one level of the tree: merge the first run with the second, the third with the fourth, and so on."""
    for pair in range(0, bounds.size - 1, 2):
        start, middle = bounds[pair], bounds[pair + 1]
        end = bounds[pair + 2] if pair + 2 < bounds.size else middle
        if middle == end or not _after(keys, rows[middle - 1], rows[middle]):
            out[start:end] = rows[start:end]
        else:
            _merge_two(keys, start, middle, end, rows, out)


@inner
def _merge_two(keys: Array, start: Any, middle: Any, end: Any, rows: Ints, out: Ints) -> None:
    left, right = start, middle
    for at in range(start, end):
        if left == middle or (right < end and _after(keys, rows[left], rows[right])):
            out[at] = rows[right]
            right += 1
        else:
            out[at] = rows[left]
            left += 1
