"""Merging runs, and dropping rows that are too old.

Guarantees: `merge` keeps every row that is not older than `since`, once, and every order of the runs. The layout is
merged: each run is read front to back, and rows that compare equal stay in the order of the runs, which is that of age.
Every column is copied once, from the runs to where it stays (`weft.bucket.columns`). Permutations are sorted anew, by
the same counting sort that built them: it is linear too, and reads the rows in their new order instead of following the
old permutations here and there.

`first_to_merge` keeps runs few: it merges the newest ones as soon as there are `fanout` of which none is larger than
all the others together. So whenever a row is rewritten, its run at least doubles in size, and a store has O(log rows)
runs for a probe to touch. A run that covers `reach` of event time is closed: it is not merged any more, so that it can
expire as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from weft.bucket.bounds import Bounds
from weft.bucket.bucket import Bucket, event_times, finish, rows_with_key, words_of
from weft.bucket.columns import collect_rows, collect_values
from weft.bucket.compiled import Bytes, Longs, frozen
from weft.bucket.index import Order, Sorted, make_index, merge_by_hash, merge_by_value, sort_rows
from weft.bucket.memory import concatenate
from weft.bucket.words import Words
from weft.errors import StateError

__all__ = ["expired", "first_to_merge", "merge"]

_EVERY = frozen(np.empty(0, np.uint8))  # stands for a mask of ones


def first_to_merge(runs: Sequence[Bounds], *, fanout: int = 4, reach: int | None = None) -> int | None:
    """The first of the runs (oldest first) that should be merged with all later ones now; None if there are few enough.

    >>> [first_to_merge([Bounds(rows, 0) for rows in sizes]) for sizes in ([900, 9, 9, 9], [900, 9, 9, 9, 9])]
    [None, 1]
    """
    total = largest = 0
    first = len(runs)
    while first and not _closed(runs[first - 1], reach):
        first -= 1
        total, largest = total + runs[first].rows, max(largest, runs[first].rows)
        if len(runs) - first >= fanout and largest <= total / 2:
            return _with_smaller(runs, first, total, reach)
    return None


def _with_smaller(runs: Sequence[Bounds], first: int, total: int, reach: int | None) -> int:
    """The first run to merge, moved back as long as the next older run is small beside those merged anyway."""
    while first and not _closed(runs[first - 1], reach) and runs[first - 1].rows <= total:
        first -= 1
        total += runs[first].rows
    return first


def _closed(run: Bounds, reach: int | None) -> bool:
    if reach is None or run.min_time is None or run.max_time is None:
        return False
    return run.max_time - run.min_time >= reach


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
