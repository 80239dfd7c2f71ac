"""The keys of a query that joins all its inputs on one key without windows (SOPJ), counted as their tuples come.

Guarantees: a key is seen when its first tuple has come, and complete when every input has one; both are counted once.
A key that would have more results than the limit keeps those it has: the tuples of the batch that would add to them are
set aside for the query, and reported with the key and with how many tuples every input would then have of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.bucket import Bucket, column
from weft.bucket.compiled import Longs, Mask
from weft.bucket.index import Order, by_hash
from weft.bucket.words import flatten
from weft.kernels.probe.equality import Keys, equal_ranges, in_order, probe_portions
from weft.kernels.query_sets.query_set import columns_of, only, sets_of
from weft.runtime.hop.closing import own_rows
from weft.runtime.model.columns import values_of
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan, SweepPlan
from weft.runtime.state.stores import State

__all__ = ["Census", "TooMany", "count_keys"]

REPORTED_KEYS = 5  # at most so many keys with too many results are reported per batch and partition

Arrivals = Mapping[str, list[pa.RecordBatch]]  # by input


@dataclass(frozen=True, slots=True)
class TooMany:
    """A key with too many results, and how many tuples of every input would have it."""

    key: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Census:
    """What a batch brought in a partition.

    ``seen`` is how many keys are new, ``complete`` how many became complete, and ``aside`` how many tuples were set
    aside because their keys have too many results; ``too_many`` are some of these keys.
    """

    seen: int = 0
    complete: int = 0
    aside: int = 0
    too_many: tuple[TooMany, ...] = field(default=())

    def plus(self, more: Census) -> Census:
        """Both together."""
        sums = (self.seen + more.seen, self.complete + more.complete, self.aside + more.aside)
        return Census(*sums, (*self.too_many, *more.too_many))


def count_keys(
    program: ExecutableGraph, plan: SweepPlan, arrived: Arrivals, state: State, limit: int
) -> tuple[Census, dict[str, list[pa.RecordBatch]]]:
    """Count the keys of tuples that arrive for a query; return the census and the tuples that are not set aside.

    A key may have no more than ``limit`` results.
    """
    names = [alias for alias, batches in arrived.items() if batches]
    own = {a: np.concatenate([own_rows(program, plan, b) for b in arrived[a]]) for a in names}
    values = {
        a: pa.concat_arrays([flatten(values_of(b, plan.homes[a].by)) for b in arrived[a]]) for a in names
    }
    keys = _Distinct.of([values[alias] for alias in names], [own[alias] for alias in names])
    if not keys.count:
        return Census(), dict(arrived)
    places = dict(zip(names, keys.places, strict=True))
    before = {a: _stored(program, plan, store, keys, state) for a, store in plan.homes.items()}
    came = {a: keys.counted(places[a]) if a in places else keys.none() for a in plan.homes}
    results = np.prod([np.maximum(before[a] + came[a], 1).astype(np.float64) for a in plan.homes], axis=0)
    large = results > limit
    found = _census(plan, keys, before, came, large)
    if not large.any():
        return found, dict(arrived)
    return found, {a: _without(program, plan, arrived[a], places.get(a), large) for a in arrived}


@dataclass(frozen=True, slots=True, eq=False)
class _Distinct:
    """The different keys among some columns.

    ``values`` are the keys, ``keys`` the same prepared for a probe, and ``places`` has, for each column, the number of
    every row's key in ``values``; -1 where it is NULL or not for the query.
    """

    values: Any
    keys: Keys
    places: Sequence[Longs]

    @property
    def count(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, columns: Sequence[Any], own: Sequence[Mask]) -> _Distinct:
        if not columns:
            return cls(pa.nulls(0), in_order([pa.nulls(0, pa.int64())]), ())
        every, usable = pa.concat_arrays(columns), np.concatenate(own)
        if not usable.all():
            every = pc.if_else(pa.array(usable), every, pa.scalar(None, every.type))
        encoded = every.dictionary_encode()
        places = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        cuts = np.cumsum([len(column) for column in columns])[:-1]
        values = encoded.dictionary
        return cls(values, in_order([values]), np.split(places, cuts))

    def counted(self, places: Longs) -> Longs:
        """How often each key is among some places."""
        return np.bincount(places[places >= 0], minlength=self.count).astype(np.int64)

    def none(self) -> Longs:
        return np.zeros(self.count, np.int64)


def _stored(
    program: ExecutableGraph, plan: SweepPlan, store: StorePlan, keys: _Distinct, state: State
) -> Longs:
    """How many tuples of each key an input has from earlier batches."""
    order, counts = by_hash(store.key), keys.none()
    for run in state.earlier_runs(store):
        if run.bounds.rows:
            counts += _in_run(program, plan, keys, run, order)
    return counts


def _in_run(program: ExecutableGraph, plan: SweepPlan, keys: _Distinct, run: Bucket, order: Order) -> Longs:
    if not program.sets:
        ranges = equal_ranges(keys.keys, run, order)
        sizes = (ranges.stop - ranges.start).astype(np.float64)
        return np.bincount(ranges.probe, weights=sizes, minlength=keys.count).astype(np.int64)
    mine, counts = own_rows(program, plan, run.batch), keys.none()
    for probes, rows in probe_portions(keys.keys, run, order):
        counts += np.bincount(probes[mine[rows]], minlength=keys.count)
    return counts


def _census(
    plan: SweepPlan, keys: _Distinct, before: Mapping[str, Longs], came: Mapping[str, Longs], large: Mask
) -> Census:
    kept = {alias: np.where(large, 0, count) for alias, count in came.items()}
    seen = np.any([count > 0 for count in before.values()], axis=0)
    now = np.any([before[a] + kept[a] > 0 for a in plan.homes], axis=0)
    full = np.all([count > 0 for count in before.values()], axis=0)
    after = np.all([before[a] + kept[a] > 0 for a in plan.homes], axis=0)
    too_many = tuple(
        TooMany(str(keys.values[int(n)]), {a: int(before[a][n] + came[a][n]) for a in plan.homes})
        for n in np.flatnonzero(large)[:REPORTED_KEYS]
    )
    aside = sum(int(count[large].sum()) for count in came.values())
    return Census(int((now & ~seen).sum()), int((after & ~full).sum()), aside, too_many)


def _without(
    program: ExecutableGraph,
    plan: SweepPlan,
    batches: list[pa.RecordBatch],
    places: Longs | None,
    large: Mask,
) -> list[pa.RecordBatch]:
    """The batches without what is set aside.

    Rows that are set aside are removed or, if tuples carry query-sets, no longer have this query in theirs.
    """
    if places is None:
        return batches
    aside = (places >= 0) & large[np.maximum(places, 0)]
    found, first = [], 0
    for batch in batches:
        mask, first = aside[first : first + batch.num_rows], first + batch.num_rows
        found.append(_kept(program, plan, batch, mask) if mask.any() else batch)
    return found


def _kept(program: ExecutableGraph, plan: SweepPlan, batch: pa.RecordBatch, aside: Mask) -> pa.RecordBatch:
    if not program.sets:
        return batch.filter(pa.array(~aside))
    sets = sets_of([column(batch, name) for name in program.sets])
    others = [member.slot for member in program.members.values() if member is not plan.member]
    sets = np.where(aside, only(sets, others), sets)
    for name, values in columns_of(np.ascontiguousarray(sets)).items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, values)
    return batch
