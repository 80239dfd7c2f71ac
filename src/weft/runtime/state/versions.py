"""Which versions of a store are still of use to joins with the latest version (`weft.logical.query.asof`).

Guarantees: of each key, the newest version before the time up to which rows have left is kept, with all others of its
time, and every version from that time on; no row that is still to leave, or to come on time, asks for another. What is
kept is so bounded by the number of keys and of recent versions, but for what was not merged yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import column
from weft.bucket.columns import longs
from weft.bucket.compiled import Longs, Mask
from weft.bucket.words import flatten
from weft.kernels.query_sets.query_set import nonempty, only, sets_of

__all__ = ["Superseded", "kept_versions"]


@dataclass(frozen=True, slots=True)
class Superseded:
    """The versions that a query needs: of each value of ``keys``, columns, the newest before ``clock``, and all later.

    ``slot`` is the query's place in query-sets.
    """

    slot: int
    keys: tuple[str, ...]
    clock: int


def kept_versions(
    batch: pa.RecordBatch, time: str, sets: Sequence[str], needs: Sequence[Superseded], since: int | None
) -> Mask:
    """Which rows of a store must be kept: those that some query needs, and those at or after ``since`` for others."""
    times = longs(column(batch, time))
    kept: Mask = np.zeros(batch.num_rows, np.bool_) if since is None else times >= since
    for need in needs:
        mine = np.ones(batch.num_rows, np.bool_)
        if sets:
            mine = nonempty(only(sets_of([column(batch, name) for name in sets]), (need.slot,)))
        kept |= mine & (times >= need.clock)
        old = np.flatnonzero(mine & (times < need.clock))
        if old.size:
            groups = _groups(batch, need.keys, old)
            newest = np.full(int(groups.max()) + 1, np.iinfo(np.int64).min)
            np.maximum.at(newest, groups, times[old])
            kept[old[times[old] == newest[groups]]] = True
    return kept


def _groups(batch: pa.RecordBatch, keys: Sequence[str], rows: Longs) -> Longs:
    """A number for every row that rows with the same key, NULL included, have in common."""
    groups = np.zeros(rows.size, np.int64)
    for name in keys:
        values = flatten(column(batch, name)).take(pa.array(rows)).dictionary_encode().indices
        codes = values.fill_null(-1).to_numpy().astype(np.int64)
        _, groups = np.unique(groups * (codes.max() + 2) + codes + 1, return_inverse=True)
    return groups.astype(np.int64)
