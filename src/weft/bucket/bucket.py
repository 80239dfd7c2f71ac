"""Buckets: the unit of data (design, D1).

Guarantees: a bucket is an immutable Arrow record batch of one relation, laid out in the order of a key, with its
indexes and its bounds. Rows whose key is NULL are at the end and in no index, so they join nothing. A second key is a
second permutation of the same rows, never a second copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.bounds import Bounds
from weft.bucket.compiled import Array, Ints, Longs, Mask, frozen
from weft.bucket.index import Index, Order, Sorted, make_index, sort_rows, words_for
from weft.bucket.memory import take
from weft.bucket.words import Words, flatten, key_words, validity
from weft.errors import StateError, nearest

__all__ = [
    "FARTHEST",
    "Bucket",
    "build",
    "column",
    "finish",
    "gather",
    "lay_out",
    "rows_with_key",
    "words_of",
]


# In microseconds, some 36,000 years. Four such times can be added up in 64 bits, so no window overflows.
FARTHEST = 1 << 60


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """A sorted, indexed run of tuples."""

    batch: pa.RecordBatch
    indexes: tuple[Index, ...]
    event_time: str | None
    bounds: Bounds

    @property
    def layout(self) -> Order | None:
        """The order in which the rows are laid out; None means the order of arrival."""
        return next((index.order for index in self.indexes if index.permutation is None), None)

    @property
    def orders(self) -> tuple[Order, ...]:
        """Every order the rows can be probed in."""
        return tuple(index.order for index in self.indexes)

    @property
    def times(self) -> Longs | None:
        """The event time of every row, in microseconds."""
        return None if self.event_time is None else event_times(self.batch, self.event_time)

    def index(self, order: Order) -> Index:
        """The index for that order; it must exist."""
        for index in self.indexes:
            if index.order == order:
                return index
        raise StateError(f"the bucket has no index {order}", hint=nearest(str(order), map(str, self.orders)))


def build(
    batch: pa.RecordBatch,
    *,
    layout: Order | None = None,
    indexes: Sequence[Order] = (),
    event_time: str | None = None,
) -> Bucket:
    """A bucket of the rows of a batch, which are in the order of their arrival."""
    if batch.num_rows >= 2**31:
        raise StateError(f"a bucket cannot hold {batch.num_rows} rows", hint="make batches smaller")
    batch = _plain(batch)
    if layout is None:
        return assemble(batch, (), indexes, event_time)
    times = None if event_time is None else event_times(batch, event_time)
    words = words_of(batch, layout)
    found = sort_rows(layout, words, times)
    rows = found.rows
    if words.valid is not None:
        rows = np.concatenate([rows, np.flatnonzero(~words.valid).astype(np.int32)])
    batch, index = lay_out(batch, layout, words, found, rows)
    return assemble(batch, (index,), (layout, *indexes), event_time)


def assemble(
    batch: pa.RecordBatch,
    known: Sequence[Index],
    orders: Sequence[Order],
    event_time: str | None,
) -> Bucket:
    """A bucket of rows that are laid out already; of its orders, those that have no index yet get one."""
    times = None if event_time is None else event_times(batch, event_time)
    found = {index.order: index for index in known}
    for order in orders:
        if order not in found:
            words = words_of(batch, order)
            found[order] = make_index(order, words, sort_rows(order, words, times), layout=False)
    return finish(batch, tuple(found[order] for order in dict.fromkeys(orders)), event_time)


def finish(batch: pa.RecordBatch, indexes: tuple[Index, ...], event_time: str | None) -> Bucket:
    """The bucket that has these rows and indexes; its bounds are computed."""
    size = batch.nbytes + sum(index.nbytes for index in indexes)
    times = None if event_time is None else _extremes(event_times(batch, event_time))
    if times is not None and max(-times[0], times[1]) > FARTHEST:
        raise StateError(
            f"event time {event_time!r} goes from {times[0]} to {times[1]} microseconds after 1970"
        )
    bounds = Bounds(batch.num_rows, size, *(times or (None, None)))
    return Bucket(batch, indexes, event_time, bounds)


def lay_out(
    batch: pa.RecordBatch, order: Order, words: Words, found: Sorted, rows: Ints
) -> tuple[pa.RecordBatch, Index]:
    """A batch with its rows laid out in an order, and the index that this layout is.

    `found` are the sorted rows that have a key; `rows` are these, followed by the rows whose key is NULL.
    """
    batch = gather(batch, rows)
    if words.view:
        words = words_of(batch, order)
    else:
        valid = None if words.valid is None else frozen(words.valid[rows])
        words = Words(frozen(take(words.values, rows)), valid, words.exact, False, words.floats)
    return batch, make_index(order, words, found, layout=True)


def gather(batch: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    """A batch of the rows with those numbers, in that order."""
    indices = pa.array(rows)
    columns = [pc.take(values, indices, boundscheck=False) for values in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def words_of(batch: pa.RecordBatch, order: Order) -> Words:
    """The words of a batch's rows for an order."""
    return words_for(order, [column(batch, name) for name in order.columns])


def rows_with_key(batch: pa.RecordBatch, order: Order) -> Mask | None:
    """Which rows have no NULL in the columns of an order; None where all have a key."""
    valid: Mask | None = None
    for name in order.columns:
        here = validity(column(batch, name))
        valid = here if valid is None else valid if here is None else frozen(valid & here)
    return valid


def column(batch: pa.RecordBatch, name: str) -> Any:
    """The column of that name; it must exist."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        raise StateError(f"there is no column {name!r}", hint=nearest(name, batch.schema.names))
    return batch.column(place)


def event_times(batch: pa.RecordBatch, name: str) -> Longs:
    """The event times of a batch's rows, in microseconds."""
    values = column(batch, name)
    plain = pa.types.is_int64(values.type) or (
        pa.types.is_timestamp(values.type) and values.type.unit == "us"
    )
    if not plain or values.null_count:
        raise StateError(
            f"event time {name!r} is a {values.type} with {values.null_count} NULLs",
            hint="it must be a timestamp in microseconds, and rows without one set aside before",
        )
    return key_words([values]).values


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with dictionary codes replaced by values, since a code may mean another value in another batch."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns = [flatten(values) for values in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _extremes(values: Array) -> tuple[int, int] | None:
    return (int(values.min()), int(values.max())) if values.size else None
