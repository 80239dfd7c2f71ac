"""Merging runs, and dropping rows that are too old.

Guarantees: `merge` keeps every row that is not older than `since`, once, and every order of the runs. The layout is
merged: each run is read front to back, and rows that compare equal stay in the order of the runs, which is that of age.
Permutations are sorted anew, by the same counting sort that built them: it is linear too, and reads the rows in their
new order instead of following the old permutations here and there.

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
from weft.bucket.bucket import Bucket, event_times, finish, gather, lay_out, words_of
from weft.bucket.compiled import Array, Ints, frozen
from weft.bucket.index import Index, Order, make_index, merge_rows, sort_rows
from weft.bucket.memory import concatenate, take
from weft.bucket.words import Words
from weft.errors import StateError

__all__ = ["expired", "first_to_merge", "merge"]


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
    batch = _joined([run.batch for run in runs])
    kept = _kept(batch, first.event_time, since)
    if first.layout is None:
        rows: Ints = np.flatnonzero(np.ones(batch.num_rows) if kept is None else kept).astype(np.int32)
        batch = batch if kept is None else gather(batch, rows)
        return _with_indexes(runs, batch, rows, ())
    words = _joined_words(runs, first.layout, batch)
    times = None if first.event_time is None else event_times(batch, first.event_time)
    listed, others = _listed(runs, first.layout, kept)
    found = merge_rows(first.layout, words, times, frozen(listed))
    rows = concatenate([found.rows, others])
    batch, index = lay_out(batch, first.layout, words, found, rows)
    return _with_indexes(runs, batch, rows, (index,))


def _with_indexes(
    runs: Sequence[Bucket], batch: pa.RecordBatch, rows: Ints, layout: tuple[Index, ...]
) -> Bucket:
    """The bucket of merged rows with the other orders of the runs too; `rows` says where each row was."""
    first = runs[0]
    times = None if first.event_time is None else event_times(batch, first.event_time)
    indexes = list(layout)
    for order in first.orders:
        if order != first.layout:
            words = _moved_words(runs, order, batch, rows)
            indexes.append(make_index(order, words, sort_rows(order, words, times), layout=False))
    return finish(batch, tuple(indexes), first.event_time)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches as one."""
    columns = [
        pa.concat_arrays(list(parts)) for parts in zip(*(batch.columns for batch in batches), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


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


def _kept(batch: pa.RecordBatch, event_time: str | None, since: int | None) -> Array | None:
    if since is None or event_time is None:
        return None
    kept = event_times(batch, event_time) >= since
    return None if kept.all() else kept


def _joined_words(runs: Sequence[Bucket], order: Order, batch: pa.RecordBatch) -> Words:
    """The words of the runs' rows one after the other; stored ones are copied, not hashed again."""
    words = [run.index(order).words for run in runs]
    if words[0].view:
        return words_of(batch, order)
    valid = None
    if any(part.valid is not None for part in words):
        parts = [np.ones(part.values.size, np.bool_) if part.valid is None else part.valid for part in words]
        valid = frozen(np.concatenate(parts))
    values = frozen(concatenate([part.values for part in words]))
    return Words(values, valid, words[0].exact, False, words[0].floats)


def _moved_words(runs: Sequence[Bucket], order: Order, batch: pa.RecordBatch, rows: Ints) -> Words:
    if runs[0].index(order).words.view:
        return words_of(batch, order)
    old = _joined_words(runs, order, batch)
    valid = None if old.valid is None else frozen(old.valid[rows])
    return Words(frozen(take(old.values, rows)), valid, old.exact, False, old.floats)


def _listed(runs: Sequence[Bucket], layout: Order, kept: Array | None) -> tuple[Ints, Ints]:
    """The rows with a key and the rows without, run by run, numbered as if the runs were one batch."""
    listed, others, offset = [], [], 0
    for run in runs:
        end = offset + run.batch.num_rows
        middle = offset + run.index(layout).rows
        listed.append(np.arange(offset, middle, dtype=np.int32))
        others.append(np.arange(middle, end, dtype=np.int32))
        offset = end
    rows, rest = np.concatenate(listed), np.concatenate(others)
    return (rows, rest) if kept is None else (rows[kept[rows]], rest[kept[rest]])
