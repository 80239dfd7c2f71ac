"""Of all versions that a row matches, the latest.

Guarantees: of every left row's matches one is kept: that of the largest time and, of several such, the one whose row
has the largest values, column by column in the order of their names, NULL before all others. So it does not depend on
the order of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Ints, Longs, Mask, frozen
from weft.bucket.words import flatten
from weft.kernels.outer.relation import Relation

__all__ = ["latest_matches"]


def latest_matches(left: Ints, right: Ints, versions: Relation) -> tuple[Ints, Ints]:
    """The matches, given as row numbers of both sides, with only the latest version of each left row."""
    if not left.size:
        return left, right
    times = versions.times[right]
    newest = np.full(int(left.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, left, times)
    kept: Mask = times == newest[left]
    left, right = left[kept], right[kept]
    counts = np.bincount(left)
    if counts.max() > 1:
        left, right = _largest(left, right, versions)
    return frozen(left.astype(np.int32)), frozen(right.astype(np.int32))


def _largest(left: Ints, right: Ints, versions: Relation) -> tuple[Ints, Ints]:
    """Of several matches of a left row, the one whose version has the largest values."""
    rows = np.unique(right)
    order = np.lexsort((_ranks(versions, rows)[np.searchsorted(rows, right)], left))
    left, right = left[order], right[order]
    last = np.append(left[1:] != left[:-1], True)
    return left[last], right[last]


def _ranks(versions: Relation, rows: Ints) -> Longs:
    """The places of some versions among each other by their values; NULL is before every value, and NaN after."""
    ranks: list[Longs] = [np.zeros(rows.size, np.int64)]
    for name in sorted(versions.batch.schema.names, reverse=True):
        values = flatten(versions.batch.column(name)).take(pa.array(rows))
        if not pa.types.is_null(values.type):
            ranks.append(_codes(values))
    places = np.empty(rows.size, np.int64)
    places[np.lexsort(ranks)] = np.arange(rows.size)
    return places


def _codes(values: Any) -> Longs:
    """For every value its place among the different ones; -1 for NULL."""
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    places = np.empty(order.size + 1, np.int64)
    places[order], places[-1] = np.arange(order.size), -1
    found: Longs = places[encoded.indices.fill_null(order.size).to_numpy()]
    return found
