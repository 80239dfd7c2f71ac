"""Merging sorted runs into one, by a tree of mergers (`weft.kernels.order.sort`).

Guarantees: a run is a batch sorted by its first columns, its keys; the result of merging runs is sorted alike. Rows of
one run with the same key form a group, which is compared once and moved as a whole: the more results a tuple has, the
less there is to merge. Runs that already follow each other in order are not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Array, Ints, Longs, frozen
from weft.bucket.memory import fresh, take
from weft.kernels.order.sort import merge_runs, place_segments

__all__ = ["bits_of", "merge"]

_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def merge(runs: Sequence[pa.RecordBatch], keys: int, *, keep: bool = False) -> list[pa.RecordBatch]:
    """Merge sorted runs into one, of one or several batches; its key columns are dropped, unless ``keep`` is set."""
    some = [run for run in runs if run.num_rows]
    some.sort(key=lambda run: [longs(run.column(at))[0] for at in range(keys)])
    first = 0 if keep else keys
    rest = [_without(run, first) for run in some]
    if not some:
        return []
    groups = [_groups(run, keys) for run in some]
    heads = np.stack([_joined(some, groups, at) for at in range(keys)])
    lengths = np.concatenate([sizes for _, sizes in groups])
    splits = np.cumsum([0, *(starts.size for starts, _ in groups)]).tolist()
    order = merge_runs(heads, splits)
    if order is None:
        return rest
    ordered = take(frozen(lengths), order)
    places = fresh(order.size, np.int32)
    places[order] = np.cumsum(ordered, dtype=np.int32) - ordered
    parts = [slice(begin, end) for begin, end in pairwise(splits)]
    columns = [_moved(rest, at, lengths, places, parts) for at in range(rest[0].num_columns)]
    return [pa.RecordBatch.from_arrays(columns, schema=rest[0].schema)]


def _without(run: pa.RecordBatch, first: int) -> pa.RecordBatch:
    fields = [run.schema.field(at) for at in range(first, run.num_columns)]
    return pa.RecordBatch.from_arrays(run.columns[first:], schema=pa.schema(fields))


def _groups(run: pa.RecordBatch, keys: int) -> tuple[Ints, Ints]:
    """For every key of a run, the first of its rows and their number."""
    changes = np.zeros(run.num_rows, np.bool_)
    changes[0] = True
    for at in range(keys):
        values = longs(run.column(at))
        changes[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(changes).astype(np.int32)
    return starts, np.diff(starts, append=np.int32(run.num_rows))


def _joined(runs: Sequence[pa.RecordBatch], groups: Sequence[tuple[Ints, Ints]], at: int) -> Longs:
    """The key column of that number, with one value for every group of all runs."""
    parts = zip(runs, groups, strict=True)
    return np.concatenate([take(longs(run.column(at)), starts) for run, (starts, _) in parts])


def _moved(runs: Sequence[pa.RecordBatch], at: int, lengths: Ints, places: Ints, parts: list[slice]) -> Any:
    """A column of the merged rows: every group, of its length, goes to its place."""
    values = [run.column(at) for run in runs]
    rows = sum(map(len, values))
    bits = [bits_of(one) for one in values]
    known = [one for one in bits if one is not None]
    if len(known) == len(values):
        out = fresh(rows, known[0].dtype)
        for one, part in zip(known, parts, strict=True):
            place_segments(one, lengths[part], places[part], out)
        return pa.Array.from_buffers(values[0].type, rows, [None, pa.py_buffer(out)])
    order = fresh(rows, np.int32)
    place_segments(frozen(np.arange(rows, dtype=np.int32)), lengths, places, order)
    return taken(pa.concat_arrays(values), order)


def bits_of(values: Any) -> Array | None:
    """The bits of a column of numbers or times, none of them NULL, without a copy; None if it is no such column."""
    kind = values.type
    if values.null_count or not pa.types.is_primitive(kind) or pa.types.is_boolean(kind):
        return None
    dtype = _WORDS.get(kind.bit_width)
    if dtype is None or not len(values):
        return None
    width = kind.bit_width // 8
    return frozen(np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * width))
