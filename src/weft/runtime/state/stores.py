"""What a partition keeps between batches: stores, each of a few sorted runs.

Guarantees: a run holds tuples of earlier batches, or what one input added in this batch; so a probe sees all rows of a
run or none (design, D5).

A hop uses a partition through the protocol `State` alone: `PartitionState` has the segments that a manifest names and
what earlier hops of the same batch added. Runs are kept few at the
end of a batch (`weft.runtime.state.settling`).

Of a store that joins with the latest version read (`weft.logical.outer.asof`), `kept_versions` keeps of each key the
newest version before the time up to which rows have left, with all others of its time, and every version from that time
on: no row that is still to leave, or to come on time, asks for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, build, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Longs, Mask
from weft.bucket.words import flatten
from weft.kernels.query_sets.query_set import nonempty, only, sets_of
from weft.runtime.model.columns import BATCH, full, key_name, values_of
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import StorePlan

__all__ = [
    "Forget",
    "State",
    "Superseded",
    "kept_versions",
    "make_run",
]


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
        wanted = np.ones(batch.num_rows, np.bool_)
        if sets:
            wanted = nonempty(only(sets_of([column(batch, name) for name in sets]), (need.slot,)))
        kept |= wanted & (times >= need.clock)
        old = np.flatnonzero(wanted & (times < need.clock))
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


class State(Protocol):
    """A partition's stores, as a hop uses them."""

    def earlier_runs(self, plan: StorePlan) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        ...

    def added(self, plan: StorePlan, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch, in this hop and in those before."""
        ...

    def add(self, plan: StorePlan, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        ...

    def group_runs(self, plan: GroupPlan) -> Sequence[Bucket]:
        """The runs of a group store that earlier batches left, oldest first."""
        ...

    def keep_groups(self, plan: GroupPlan, runs: Sequence[Bucket]) -> None:
        """Leave these runs of a group store; those of earlier batches are the same objects."""
        ...


@dataclass(frozen=True, slots=True)
class Forget:
    """Which rows a store need not keep.

    These are rows whose clock is below ``since``; rows that have a tuple numbered below ``numbers``, which is by the
    column of an input's numbers; and, where tuples are counted per key, all but the ``newest`` of each key. Runs that
    cover more time than ``reach`` are not merged any more, so that they can expire as a whole. ``superseded`` are the
    versions that queries need, if nothing else is needed but rows at or after ``since_others``.
    """

    since: int | None = None
    reach: int | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    newest: int | None = None
    superseded: tuple[Superseded, ...] = ()
    since_others: int | None = None

    @property
    def forgotten_before(self) -> int | None:
        """The clock below which rows may be forgotten; None if none are."""
        return max((need.clock for need in self.superseded), default=self.since)


def make_run(plan: StorePlan, batch: pa.RecordBatch, number: int) -> Bucket:
    """Make a run of what arrives at a store in a batch: with the columns it keeps and computes, and its orders."""
    if BATCH in plan.columns and BATCH not in batch.schema.names:
        batch = batch.append_column(BATCH, pa.array(full(batch.num_rows, number)))
    kept = {name: column(batch, name) for name in plan.columns}
    kept |= {key_name(expr): values_of(batch, expr) for expr in plan.computed}
    layout = plan.orders[0] if plan.orders else None
    rows = pa.RecordBatch.from_pydict(kept)
    return build(rows, layout=layout, indexes=plan.orders[1:], event_time=plan.clock)
