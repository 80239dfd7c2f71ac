"""Merging runs, cutting them by hash, and dropping rows that are too old.

Guarantees: `merge` keeps every row that is not older than `since`, once, and every order of the runs. The layout is
merged: each run is read front to back, and rows that compare equal stay in the order of the runs, which is that of age.
Every column is copied once, from the runs to where it stays (`weft.bucket.columns`). Permutations are sorted anew, by
the same counting sort that built them: it is linear too, and reads the rows in their new order instead of following the
old permutations here and there.

`between` gives the part of a bucket laid out by hash that is in a range of hashes: a bucket that is probed, merged and
written like any other. Rows whose key is NULL are with the greatest hashes, so the parts of a bucket have all of its
rows, each once. Columns, words and the layout's directory are views or short copies; of other orders, the permutation
is copied without the other rows. What is known of times is what is known of the whole bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bounds import PLACES, Bounds
from weft.bucket.bucket import Bucket, event_times, finish, rows_with_key, words_of
from weft.bucket.columns import collect_rows, collect_values
from weft.bucket.compiled import Array, Bytes, Ints, Longs, compiled, frozen, mix
from weft.bucket.directory import HashSlots
from weft.bucket.index import Index, Order, Sorted, make_index, merge_by_hash, merge_by_value, sort_rows
from weft.bucket.memory import concatenate, fresh
from weft.bucket.words import Words
from weft.errors import StateError

__all__ = ["between", "expired", "merge"]

_EVERY = frozen(np.empty(0, np.uint8))  # stands for a mask of ones


def expired(run: Bounds, since: int) -> bool:
    """Whether every row of a run is older than `since`."""
    return run.rows == 0 or (run.max_time is not None and run.max_time < since)


def merge(runs: Sequence[Bucket], since: int | None = None) -> Bucket:
    """The rows of the runs, oldest first, as one run; without those older than `since`."""
    _check(runs, since)
    first = runs[0]
    kept = [_kept(run, since) for run in runs]
    if first.layout is None:
        places = _all_places(runs, kept, [0] * len(runs))
        return _with_indexes(runs, places, ())
    listed = [run.index(first.layout).rows for run in runs]
    found, places = _merged(runs, first.layout, kept, listed)
    return _with_indexes(runs, concatenate([places, _all_places(runs, kept, listed)]), (found,))


def _merged(
    runs: Sequence[Bucket], layout: Order, kept: Sequence[Bytes], listed: Sequence[int]
) -> tuple[Sorted, Longs]:
    """The rows that have a key, in the order of the layout: the directory and their places."""
    words = [run.index(layout).words for run in runs]
    values = [part.values[:rows] for part, rows in zip(words, listed, strict=True)]
    masks = [mask[:rows] for mask, rows in zip(kept, listed, strict=True)]
    if layout.kind == "hash":
        times = None if runs[0].event_time is None else [_times(run) for run in runs]
        return merge_by_hash(values, masks, times)
    rows = _all_places(runs, kept, [0] * len(runs), listed)
    return merge_by_value(values, rows, floats=words[0].floats)


def _with_indexes(runs: Sequence[Bucket], places: Longs, layout: tuple[Sorted, ...]) -> Bucket:
    """The bucket of the rows at those places, with all orders of the runs; the layout is merged already."""
    first = runs[0]
    batch = collect_rows([run.batch for run in runs], places)
    times = None if first.event_time is None else event_times(batch, first.event_time)
    indexes = []
    for order in first.orders:
        words = _collected_words(runs, order, batch, places)
        if order == first.layout:
            indexes.append(make_index(order, words, layout[0], layout=True))
        else:
            indexes.append(make_index(order, words, sort_rows(order, words, times), layout=False))
    return finish(batch, tuple(indexes), first.event_time)


def _check(runs: Sequence[Bucket], since: int | None) -> None:
    if not runs:
        raise StateError("there is nothing to merge")
    first = runs[0]
    if since is not None and first.event_time is None:
        raise StateError("rows without an event time cannot expire")
    for run in runs[1:]:
        if (run.orders, run.layout, run.event_time) != (first.orders, first.layout, first.event_time):
            raise StateError("runs of different orders cannot be merged", hint=_describe(first, run))
        if not run.batch.schema.equals(first.batch.schema):
            raise StateError(f"runs of different columns cannot be merged: {run.batch.schema}")


def _describe(*runs: Bucket) -> str:
    return " against ".join(", ".join(map(str, run.orders)) or "none" for run in runs)


def _times(run: Bucket) -> Longs:
    return event_times(run.batch, run.event_time or "")


def _kept(run: Bucket, since: int | None) -> Bytes:
    """Which rows of a run are not older than `since`, as ones and zeros; nothing if all are."""
    oldest = run.bounds.min_time
    if since is None or oldest is None or oldest >= since:
        return _EVERY
    return frozen((_times(run) >= since).view(np.uint8))


def _all_places(
    runs: Sequence[Bucket], kept: Sequence[Bytes], begins: Sequence[int], ends: Sequence[int] | None = None
) -> Longs:
    """The places of the rows that are kept of each run, from one row on and up to another, run by run."""
    parts = []
    for number, (run, mask, begin) in enumerate(zip(runs, kept, begins, strict=True)):
        end = run.batch.num_rows if ends is None else ends[number]
        rows = np.arange(begin, end) if not mask.size else begin + np.flatnonzero(mask[begin:end])
        parts.append(rows.astype(np.int64) | np.int64(number << 32))
    return concatenate(parts)


def _collected_words(runs: Sequence[Bucket], order: Order, batch: pa.RecordBatch, places: Longs) -> Words:
    """The words of the merged rows; stored ones are copied, not hashed again."""
    words = [run.index(order).words for run in runs]
    if words[0].view:
        return words_of(batch, order)
    values = frozen(collect_values([part.values for part in words], places))
    return Words(values, rows_with_key(batch, order), words[0].exact, False, words[0].floats)


_NO_TAGS = frozen(np.empty(0, np.uint8))


def between(bucket: Bucket, low: int, high: int) -> Bucket:
    """The rows of a bucket with hashes from ``low`` on and before ``high``."""
    layout = _layout(bucket)
    begin, end = _first_at(layout, low), _first_at(layout, high)
    if high >= PLACES:
        end = bucket.batch.num_rows
    batch = bucket.batch.slice(begin, end - begin)
    indexes = tuple(
        _part_of_layout(index, low, high, begin, end)
        if index is layout
        else _part_of_order(index, begin, end)
        for index in bucket.indexes
    )
    return Bucket(batch, indexes, bucket.event_time, _bounds(bucket.bounds, end - begin, low, high))


def _layout(bucket: Bucket) -> Index:
    layout = next((index for index in bucket.indexes if index.permutation is None), None)
    if layout is None or layout.slots is None:
        raise StateError("only what is laid out by hash has parts by hash")
    return layout


def _first_at(layout: Index, place: int) -> int:
    """The first row with a key whose hash is no less than ``place``."""
    if place >= PLACES:
        return layout.rows
    return int(_first_no_less(layout.words.values, layout.rows, np.uint64(place)))


def _bounds(whole: Bounds, rows: int, low: int, high: int) -> Bounds:
    size = whole.bytes * rows // whole.rows if whole.rows else 0
    return replace(whole, rows=rows, bytes=size, low=low, high=high)


def _part_of_layout(index: Index, low: int, high: int, begin: int, end: int) -> Index:
    """The layout's index of the rows from one on and before another, which are those of a range of hashes."""
    slots = index.slots or HashSlots(63, 0, 2)
    last = min(max(((high - 1) >> slots.shift) - slots.first, 0), slots.count - 1)
    first = min(max((low >> slots.shift) - slots.first, 0), last)
    starts = np.clip(index.directory[first : last + 2], begin, min(end, index.rows)) - begin
    starts[0] = 0
    here = HashSlots(slots.shift, slots.first + first, last - first + 1)
    return replace(index, words=_words(index.words, begin, end), directory=frozen(starts), slots=here)


def _part_of_order(index: Index, begin: int, end: int) -> Index:
    """Another order's index of the rows from one on and before another."""
    if index.permutation is None:
        raise StateError("a bucket has one layout")
    rows, starts = fresh(index.permutation.size, np.int32), fresh(index.directory.size, np.int32)
    tags = fresh(0 if index.tags is None else index.tags.size, np.uint8)
    old = _NO_TAGS if index.tags is None else index.tags
    count = int(
        _keep(index.permutation, index.directory, old, np.int32(begin), np.int32(end), rows, starts, tags)
    )
    return replace(
        index,
        words=_words(index.words, begin, end),
        directory=frozen(starts),
        permutation=frozen(rows[:count]),
        tags=None if index.tags is None else frozen(tags[:count]),
    )


def _words(words: Words, begin: int, end: int) -> Words:
    valid = None if words.valid is None else frozen(words.valid[begin:end])
    return replace(
        words, values=frozen(words.values[begin:end]), valid=None if valid is None or valid.all() else valid
    )


@compiled
def _first_no_less(words: Array, rows: int, place: np.uint64) -> Any:
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if mix(np.int64(words[middle])) < place:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _keep(
    permutation: Ints,
    directory: Ints,
    old_tags: Bytes,
    begin: np.int32,
    end: np.int32,
    rows: Ints,
    starts: Ints,
    tags: Bytes,
) -> Any:
    """Copy the entries of rows in a range, as rows of the part, and return how many there are."""
    kept = 0
    for slot in range(directory.size - 1):
        starts[slot] = kept
        for entry in range(directory[slot], directory[slot + 1]):
            row = permutation[entry]
            if begin <= row < end:
                rows[kept] = row - begin
                if old_tags.size:
                    tags[kept] = old_tags[entry]
                kept += 1
    starts[directory.size - 1] = kept
    return kept
