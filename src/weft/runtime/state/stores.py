"""What a partition keeps between batches: stores, each of a few sorted runs.

Guarantees: a run holds tuples of earlier batches, or what one input added in this batch; so a probe sees all rows of a
run or none (design, D5). `settle` keeps the runs few and forgets only rows that no tuple that is on time can reach.

A hop uses a partition through the protocol `State` alone: `PartitionState` has the segments that a manifest names and
what earlier hops of the same batch added; `HeldState`, for tests, holds all of it in memory.

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

from weft.bucket.bounds import Bounds
from weft.bucket.bucket import Bucket, build, column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Longs, Mask
from weft.bucket.merge import expired, first_to_merge, merge
from weft.bucket.words import flatten
from weft.kernels.query_sets.query_set import nonempty, only, sets_of
from weft.runtime.model.columns import BATCH, full, key_name, values_of
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.ranks import ranks_within

__all__ = [
    "FANOUT",
    "Forget",
    "HeldState",
    "State",
    "Superseded",
    "is_settled",
    "kept_versions",
    "make_run",
    "settle",
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


FANOUT = 4


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


@dataclass
class HeldState:
    """A partition held in memory: ``runs`` by the store's identity, ``fresh`` ones also by the adding input."""

    runs: dict[str, tuple[Bucket, ...]] = field(default_factory=dict)
    fresh: dict[tuple[str, str], list[Bucket]] = field(default_factory=dict)

    def earlier_runs(self, plan: StorePlan) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        return self.runs.get(plan.identity, ())

    def added(self, plan: StorePlan, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch."""
        return self.fresh.get((plan.identity, start), ())

    def add(self, plan: StorePlan, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        self.fresh.setdefault((plan.identity, start), []).append(run)

    def commit(self, plan: StorePlan, order: Sequence[str], forget: Forget) -> None:
        """End the batch for one store: what was added becomes runs of earlier batches, and dead rows are forgotten."""
        added = [run for start in order for run in self.fresh.pop((plan.identity, start), ())]
        self.runs[plan.identity] = settle(plan, (*self.earlier_runs(plan), *added), forget)


def make_run(plan: StorePlan, batch: pa.RecordBatch, number: int) -> Bucket:
    """Make a run of what arrives at a store in a batch: with the columns it keeps and computes, and its orders."""
    if BATCH in plan.columns and BATCH not in batch.schema.names:
        batch = batch.append_column(BATCH, pa.array(full(batch.num_rows, number)))
    kept = {name: column(batch, name) for name in plan.columns}
    kept |= {key_name(expr): values_of(batch, expr) for expr in plan.computed}
    layout = plan.orders[0] if plan.orders else None
    rows = pa.RecordBatch.from_pydict(kept)
    return build(rows, layout=layout, indexes=plan.orders[1:], event_time=plan.clock)


def settle(
    plan: StorePlan, runs: Sequence[Bucket], forget: Forget, fanout: int = FANOUT
) -> tuple[Bucket, ...]:
    """The runs of a store, oldest first, after a batch; runs that did not change are the same objects."""
    since = forget.since
    alive = [run for run in runs if not expired(run.bounds, since if since is not None else -(1 << 63))]
    bounds = [run.bounds for run in alive]
    first = first_to_merge(bounds, fanout=fanout, reach=_reach(bounds, forget))
    if first is None:
        return tuple(alive)
    some = [kept for run in alive[first:] if (kept := _without_dead(plan, run, forget.numbers)) is not None]
    merged = [_newest(plan, merge(some, since), forget.newest)] if some else []
    merged = [_current(plan, run, forget) for run in merged]
    return (*alive[:first], *(run for run in merged if run.bounds.rows))


def is_settled(runs: Sequence[Bounds], forget: Forget, fanout: int = FANOUT) -> bool:
    """Whether `settle` would leave runs with these bounds as they are, so that none of them need be opened."""
    since = forget.since if forget.since is not None else -(1 << 63)
    if any(expired(bounds, since) for bounds in runs):
        return False
    return first_to_merge(runs, fanout=fanout, reach=_reach(runs, forget)) is None


def _reach(runs: Sequence[Bounds], forget: Forget) -> int | None:
    """How much time a run may cover and still be merged.

    If there are many runs that are too long to be merged, which disorder in time can cause, it is at least twice the
    time that the last run covers.
    """
    if forget.reach is None or len(runs) <= 3 * FANOUT:
        return forget.reach
    bounds = runs[-1]
    span = 0 if bounds.min_time is None or bounds.max_time is None else bounds.max_time - bounds.min_time
    return max(forget.reach, 2 * span)


def _without_dead(plan: StorePlan, run: Bucket, numbers: Mapping[str, int]) -> Bucket | None:
    """A run of an intermediate result without rows whose tuples have left their `ROWS` windows."""
    alive = np.ones(run.bounds.rows, np.bool_)
    for name, oldest in numbers.items():
        alive &= longs(column(run.batch, name)) >= oldest
    return _only(plan, run, alive) if alive.any() else None


def _newest(plan: StorePlan, run: Bucket, count: int | None) -> Bucket:
    """A run with only the last ``count`` tuples of each key; all of it if ``count`` is None."""
    if count is None or plan.per_key is None:
        return run
    return _only(plan, run, ranks_within(plan, run.batch) <= count)


def _current(plan: StorePlan, run: Bucket, forget: Forget) -> Bucket:
    """A run without versions that nobody asks for any more."""
    if not forget.superseded or not run.bounds.rows:
        return run
    return _only(
        plan,
        run,
        kept_versions(run.batch, plan.time, plan.sets, forget.superseded, forget.since_others),
    )


def _only(plan: StorePlan, run: Bucket, alive: Mask) -> Bucket:
    if alive.all():
        return run
    rows = np.flatnonzero(alive).astype(np.int32)
    columns = {
        name: taken(values, rows)
        for name, values in zip(run.batch.schema.names, run.batch.columns, strict=True)
    }
    batch = pa.RecordBatch.from_pydict(columns)
    return build(batch, layout=run.layout, indexes=plan.orders[1:], event_time=plan.clock)
