"""Equality probes: tuples against runs that are indexed by the hash of the same key.

Guarantees: every pair of a probe tuple and a stored row with equal keys, inside the window, is found once. Pairs come
run by run and inside a run grouped by probe tuple, the rows of one tuple in the order of their event time (of equal
times: of arrival). NULL keys match nothing; NaN matches NaN; -0.0 matches 0.0. Keys that were hashed are compared again
as values, so no two different keys ever match; values compare equal where `weft.bucket.words` gives equal keys equal
words, and neither the width of an integer nor chunks, offsets or dictionaries matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.compiled import Array, Bytes, Ints, Longs, Mask, compiled, frozen, load64
from weft.bucket.index import Order
from weft.bucket.memory import fresh
from weft.bucket.words import Column, decimal_halves, family, flatten, key_words, text_buffers
from weft.errors import StateError
from weft.kernels.probe.equal import find, find_permuted, order_probes
from weft.kernels.probe.ranges import (
    NO_INTS,
    NO_LONGS,
    PORTION,
    Matches,
    Ranges,
    Window,
    join_matches,
    pairs,
    reachable,
    time_check,
)

__all__ = ["Keys", "check_types", "equal_ranges", "equal_values", "in_order", "probe", "probe_portions"]


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The keys of probe tuples in hash order; `rows` says which tuple each is of."""

    words: Longs
    rows: Ints
    columns: tuple[Any, ...]  # in the order of the tuples, to compare the values where words are hashes
    exact: bool


def in_order(columns: Sequence[Column]) -> Keys:
    """The keys of tuples in any order, brought into hash order; NULLs are left out."""
    arrays = tuple(map(flatten, columns))
    words = key_words(arrays)
    rows = NO_INTS if words.valid is None else frozen(np.flatnonzero(words.valid).astype(np.int32))
    size = words.values.size if words.valid is None else rows.size
    if words.valid is not None and not size:
        return Keys(NO_LONGS, NO_INTS, arrays, words.exact)
    out_words, out_rows = fresh(size, np.int64), fresh(size, np.int32)
    order_probes(words.values, rows.view(np.uint32), _digit(size), out_words, out_rows)
    return Keys(frozen(out_words), frozen(out_rows), arrays, words.exact)


def check_types(ours: Any, theirs: Any, order: Order) -> None:
    """Refuse types of different families: their words are never equal, so a probe would silently find nothing."""
    if family(ours) != family(theirs) and not pa.types.is_null(ours) and not pa.types.is_null(theirs):
        raise StateError(
            f"{ours} cannot be compared with the {theirs} of {order}", hint="CAST one to the other"
        )


def _digit(size: int) -> int:
    """How many hash bits to order so many tuples by, so that the entries one group of them probes stay in the cache."""
    return max(1, min(10, size.bit_length() - 5))


def probe(
    keys: Keys,
    runs: Sequence[Bucket],
    order: Order,
    *,
    window: Window | None = None,
) -> Matches:
    """All matches of the tuples in the runs."""
    found = (probe_portions(keys, run, order, window=window) for run in runs)
    return join_matches(found)


def probe_portions(
    keys: Keys,
    run: Bucket,
    order: Order,
    *,
    window: Window | None = None,
    portion: int = PORTION,
) -> Iterator[tuple[Ints, Ints]]:
    """The matches in one run, a bounded number at a time."""
    if not keys.rows.size or not reachable(run, window):
        return
    ranges = equal_ranges(keys, run, order, window)
    if keys.exact:
        yield from pairs(ranges, run, portion=portion)
        return
    stored = [flatten(column(run.batch, name)) for name in order.columns]
    for probes, rows in pairs(ranges, run, portion=portion):
        same = equal_values(keys.columns, stored, probes, rows)
        yield (probes, rows) if same.all() else (probes[same], rows[same])


def equal_ranges(keys: Keys, run: Bucket, order: Order, window: Window | None = None) -> Ranges:
    """For one run, the range of index entries with the key of each tuple and an event time inside its window.

    Where keys are hashed (`Keys.exact` is false) a range may, once in 2⁶⁴, also hold an entry with another key.
    """
    index = run.index(order)
    for ours, name in zip(keys.columns, order.columns, strict=True):
        check_types(ours.type, column(run.batch, name).type, order)
    out = [fresh(keys.rows.size, np.int32) for _ in range(3)]
    where: list[Any] = [index.words.values[: index.rows], NO_INTS.view(np.uint32)]
    search: Callable[..., int] = find
    if index.permutation is not None:
        entries = index.permutation.view(np.uint32)
        where, search = [index.words.values, entries, index.tags], find_permuted
    if index.slots is None:
        raise StateError(f"the index {order} is not for equality")
    where += [index.directory.view(np.uint32), np.uint64(index.slots.shift), np.uint64(index.slots.first)]
    found = search(keys.words, keys.rows.view(np.uint32), *where, *time_check(run, window), *out)
    probes, start, stop = (part[:found] for part in out)
    return Ranges(probes, start, stop, index.permutation)


def equal_values(left: Sequence[Column], right: Sequence[Column], left_rows: Ints, right_rows: Ints) -> Mask:
    """Whether the values of paired rows are equal in every column; none of them is NULL."""
    same = fresh(left_rows.size, np.bool_)
    same.fill(True)
    for one, other in zip(left, right, strict=True):
        for here, there in zip(_parts(flatten(one)), _parts(flatten(other)), strict=True):
            if isinstance(here, tuple):
                (starts, content), (other_starts, other_content) = here, there
                _same_texts(starts, content, other_starts, other_content, left_rows, right_rows, same)
            else:
                _same_words(here, there, left_rows, right_rows, same)
    return same


def _parts(array: Any) -> list[Any]:
    """The arrays that decide about equality: words, or the offsets and bytes of texts."""
    if pa.types.is_decimal(array.type) and array.type.precision > 18:
        halves = decimal_halves(array)
        return [np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])]
    words = key_words([array])
    return [words.values] if words.exact else [text_buffers(array)]


@compiled
def _same_words(left: Array, right: Array, left_rows: Ints, right_rows: Ints, same: Mask) -> None:
    for i in range(same.size):
        same[i] &= np.int64(left[left_rows[i]]) == np.int64(right[right_rows[i]])


@compiled
def _same_texts(
    left_starts: Array,
    left: Bytes,
    right_starts: Array,
    right: Bytes,
    left_rows: Ints,
    right_rows: Ints,
    same: Mask,
) -> None:
    for i in range(same.size):
        here, there = np.int64(left_starts[left_rows[i]]), np.int64(right_starts[right_rows[i]])
        size = np.int64(left_starts[left_rows[i] + 1]) - here
        equal = same[i] and size == np.int64(right_starts[right_rows[i] + 1]) - there
        at = 0
        while equal and at + 8 <= size:
            equal = load64(left, here + at) == load64(right, there + at)
            at += 8
        while equal and at < size:
            equal = left[here + at] == right[there + at]
            at += 1
        same[i] = equal
