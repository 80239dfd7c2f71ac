"""Ranks of stored tuples that are counted per key: which of them are the last n of their key.

Guarantees: the rank of a stored tuple is how many tuples with its key, itself included, came no earlier, among all that
are given; so it is inside `[ROWS n PER key]` iff its rank is at most n. No counters are kept: the store holds all
tuples of a key, also those that no query wants, with the numbers that they got as they arrived, and ranks are worked
out from the runs that a probe sees. A tuple that is stored twice, because queries were regrouped, counts once. NULL is
a key of its own, and NaN equals NaN.

Only the keys of a probe's matches are looked up, so the work grows with the matches and not with the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Ints, Longs, Mask
from weft.bucket.index import by_hash
from weft.bucket.memory import take
from weft.bucket.words import flatten, validity
from weft.kernels.probe.equality import in_order, probe
from weft.kernels.probe.ranges import Matches
from weft.runtime.model.columns import seq_name
from weft.runtime.program.store_plans import StorePlan

__all__ = ["ranks_of", "ranks_within"]


def ranks_within(plan: StorePlan, batch: pa.RecordBatch) -> Longs:
    """The ranks of all rows of a run among themselves."""
    names = () if plan.per_key is None else plan.per_key[1]
    keys = _numbered([flatten(column(batch, name)) for name in names])
    return _ranked(keys, _numbers(plan, batch))


def ranks_of(plan: StorePlan, matches: Matches, runs: Sequence[Bucket]) -> Longs:
    """The ranks of the stored rows of matches among all rows of the runs."""
    names = () if plan.per_key is None else plan.per_key[1]
    used = [np.unique(matches.of_run(number)[1], return_inverse=True) for number in range(len(runs))]
    keys = [
        pa.chunked_array(
            [taken(column(run.batch, name), rows) for run, (rows, _) in zip(runs, used, strict=True)]
        )
        for name in names
    ]
    first = _distinct([flatten(key) for key in keys])
    found = _lookup([flatten(key.take(pa.array(first))) for key in keys], names, runs)
    stored = [_numbers(plan, run.batch) for run in runs]
    numbers = [take(own, rows) for own, (_, rows) in zip(stored, found, strict=True)]
    ranks = _ranked(np.concatenate([key for key, _ in found]), np.concatenate(numbers))
    parts, start = [], 0
    for (_, rows), (wanted, places) in zip(found, used, strict=True):
        order = np.argsort(rows, kind="stable")
        at = order[np.searchsorted(rows[order], wanted)]
        parts.append(ranks[start : start + rows.size][at][places])
        start += rows.size
    return np.concatenate(parts)


def _lookup(keys: list[Any], names: Sequence[str], runs: Sequence[Bucket]) -> list[tuple[Longs, Ints]]:
    """For each run, the numbers of the keys that its rows have, and these rows."""
    matches = probe(in_order(keys), runs, by_hash(*names))
    missing = ~_complete(keys)
    found = []
    for number, run in enumerate(runs):
        which, rows = matches.of_run(number)
        parts = [(which.astype(np.int64), rows)]
        if missing.any():
            parts.append(_lookup_nulls(keys, missing, [flatten(column(run.batch, name)) for name in names]))
        found.append((np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts])))
    return found


def _lookup_nulls(keys: list[Any], missing: Mask, stored: list[Any]) -> tuple[Longs, Ints]:
    """The same as `_lookup` for keys that have a NULL, which an index does not hold."""
    mine = np.flatnonzero(missing).astype(np.int32)
    theirs = np.flatnonzero(~_complete(stored)).astype(np.int32)
    both = [
        pa.concat_arrays([taken(key, mine), taken(other, theirs)])
        for key, other in zip(keys, stored, strict=True)
    ]
    numbers = _numbered(both)
    order = np.argsort(numbers[: mine.size])
    own = numbers[: mine.size][order]
    places = np.minimum(np.searchsorted(own, numbers[mine.size :]), own.size - 1)
    same = own[places] == numbers[mine.size :]
    return mine[order][places[same]].astype(np.int64), theirs[same]


def _complete(columns: Sequence[Any]) -> Mask:
    """The rows that have no NULL."""
    found = np.ones(len(columns[0]), np.bool_)
    for array in columns:
        valid = validity(array)
        if valid is not None:
            found &= valid
    return found


def _distinct(columns: Sequence[Any]) -> Longs:
    """The first row of every key."""
    first: Longs = np.unique(_numbered(columns), return_index=True)[1]
    return first


def _numbered(columns: Sequence[Any]) -> Longs:
    """Keys as numbers: equal ones have the same number, NULLs too."""
    found = np.zeros(len(columns[0]), np.int64)
    for array in columns:
        codes = _plain(array).dictionary_encode(null_encoding="encode").indices.to_numpy()
        found = found * (1 + int(codes.max(initial=0))) + codes
        found = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return found


def _plain(array: Any) -> Any:
    """Floats in which -0 is 0 and all NaN are the same; other values as they are."""
    if not pa.types.is_floating(array.type):
        return array
    zero = pa.scalar(0.0, array.type)
    nan = pa.scalar(float("nan"), array.type)
    return pc.if_else(pc.is_nan(array), nan, pc.add(array, zero))


def _numbers(plan: StorePlan, batch: pa.RecordBatch) -> Longs:
    return longs(column(batch, seq_name(plan.node.aliases[0])))


def _ranked(keys: Longs, numbers: Longs) -> Longs:
    """For each row, how many different numbers with its key are no smaller than its own."""
    order = np.lexsort((-numbers, keys))
    key, number = keys[order], numbers[order]
    begins = np.ones(key.size, np.bool_)
    begins[1:] = key[1:] != key[:-1]
    new = begins.copy()
    new[1:] |= number[1:] != number[:-1]
    count = np.cumsum(new)
    before = np.maximum.accumulate(np.where(begins, count - 1, 0))
    ranks = np.empty(key.size, np.int64)
    ranks[order] = count - before
    return ranks
