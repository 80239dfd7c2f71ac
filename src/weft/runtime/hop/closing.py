"""Closing rows of queries with outer, semi and anti joins, in one partition (design, section 3).

Guarantees: a row leaves once, in the first batch in which its tuples and the partners that semi joins ask for are there
and no partner can come any more for what it misses. It never leaves earlier, so no row is ever taken back. Which rows
leave is a function of the stores, of the clocks before the batch and in it (`BatchOrder.clocks`) and of the batch's
number. No other state is kept, so a replay, a restart and another plan give the same rows. If the query is also
executed by probes, these find the rows that miss nothing, and only the others are closed here.

The cost of a batch depends on what it brings and what it closes: it looks only at tuples that it brought or whose wait
ends in it, and at those that share a key with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Ints, Longs, Mask
from weft.bucket.index import by_hash
from weft.bucket.memory import take
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.select import Columns, evaluate, holds
from weft.kernels.outer.relation import AT_ONCE, FURTHEST_APART
from weft.kernels.outer.tree import JoinedRows, Relation, rows_of
from weft.kernels.probe.equality import in_order, probe_portions
from weft.kernels.query_sets.query_set import nonempty, only, sets_of
from weft.logical.expr.expression import Column, Expr, columns
from weft.logical.expr.expression import all_of as conjunction
from weft.runtime.model.batch_order import ENDED, BatchOrder, Clock
from weft.runtime.model.columns import BATCH, FOREVER, full, full_name
from weft.runtime.model.limits import PORTION_BYTES
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan, SweepPlan
from weft.runtime.state.stores import State

__all__ = ["close_rows", "own_rows"]

Masks = list[Mask]  # per run


def close_rows(
    program: ExecutableGraph,
    plan: SweepPlan,
    state: State,
    batch_order: BatchOrder,
    partition: int,
    portion: int = PORTION_BYTES,
) -> Iterator[tuple[pa.RecordBatch, Longs]]:
    """The rows of a query that leave in this batch, with the columns it selects, and their event times.

    They come in portions of about so many bytes.
    """
    clock = batch_order.clocks[plan.member.name]
    if (plan.everywhere and partition) or not plan.has_to_do(clock):
        return
    held = {alias: _Held.of(program, plan, store, alias, state) for alias, store in plan.homes.items()}
    chosen = _Choice(plan, held, clock, batch_order).chosen()
    if chosen is None:
        return
    picked = {alias: _Picked.of(one, chosen[alias]) for alias, one in held.items()}
    rows = rows_of(plan.closing.tree, _relations(plan, picked, batch_order.number), plan.waits, plan.choices)
    leaving = np.flatnonzero(_leaving(plan, rows, picked, clock, batch_order))
    size = max(1, portion // sum(map(_width, held.values())))
    for first in range(0, leaving.size, size):
        made = _selected(plan, rows, picked, leaving[first : first + size])
        if made is not None:
            yield made


def _width(held: _Held) -> int:
    """About how many bytes a tuple of an input takes in a row."""
    return max((int(run.batch.nbytes // run.bounds.rows) for run in held.runs if run.bounds.rows), default=8)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """What a partition holds of an input.

    ``runs`` are the runs of its store, and ``mine`` says which of their rows are for the query. The first ``old`` runs
    are of earlier batches, the others of this one.
    """

    store: StorePlan
    runs: Sequence[Bucket]
    mine: Sequence[Mask]
    old: int

    @classmethod
    def of(
        cls, program: ExecutableGraph, plan: SweepPlan, store: StorePlan, alias: str, state: State
    ) -> _Held:
        earlier_runs = list(state.earlier_runs(store))
        runs = [*earlier_runs, *state.added(store, alias)]
        return cls(store, runs, [own_rows(program, plan, run.batch) for run in runs], len(earlier_runs))

    def times(self, run: Bucket) -> Longs:
        return longs(column(run.batch, self.store.time))


def own_rows(program: ExecutableGraph, plan: SweepPlan, batch: pa.RecordBatch) -> Mask:
    """Which rows are for the query."""
    if not program.sets:
        return np.ones(batch.num_rows, np.bool_)
    sets = sets_of([column(batch, name) for name in program.sets])
    return nonempty(only(sets, (plan.member.slot,)))


@dataclass(frozen=True, slots=True)
class _Choice:
    """The choice of the tuples that a batch has to look at."""

    plan: SweepPlan
    held: Mapping[str, _Held]
    clock: Clock
    batch_order: BatchOrder

    def chosen(self) -> dict[str, Sequence[Mask]] | None:
        """For each input, the rows of its runs to look at; None if no row can leave in this batch."""
        whole = {alias: one.mine for alias, one in self.held.items()}
        if self._all:
            return whole
        seeds = {alias: self._seeds(alias) for alias in self.held}
        if not any(mask.any() for masks in seeds.values() for mask in masks):
            return None
        keyed = [alias for alias, one in self.held.items() if one.store.node.layout.by is not None]
        if any(mask.any() for alias, masks in seeds.items() if alias not in keyed for mask in masks):
            return whole
        return {**whole, **self._sharing(keyed, seeds)}

    @property
    def _all(self) -> bool:
        """Whether all tuples have to be looked at: in the last batch, and in the first of a query with backfill."""
        member = self.plan.member
        return self.clock.now >= ENDED or (member.backfill and self.batch_order.number == member.first)

    def _seeds(self, alias: str) -> Masks:
        """The tuples by which rows may leave in this batch: those whose wait for partners ends, and those it brought.

        The latter are left out where probes find all rows that they make, and where they can only keep rows from
        leaving: a row of a single anti join leaves when its wait ends, be it before it came.
        """
        one, probed = self.held[alias], self.plan.closing.walked and alias not in self.plan.completing
        if self.plan.is_table(alias):  # no row leaves because a table has become another
            return [np.zeros(mine.size, np.bool_) for mine in one.mine]
        waits = {w for (_, name), w in self.plan.waits.items() if name == alias and w is not None}
        found = []
        for number, (run, mine) in enumerate(zip(one.runs, one.mine, strict=True)):
            if number >= one.old and not probed:
                found.append(mine if self._lone_kind != "anti" else mine & self._too_late(alias, run))
                continue
            seeds = np.zeros(mine.size, np.bool_)
            first, last = run.bounds.min_time, run.bounds.max_time
            for wait in waits:
                low, high = self.clock.before - wait, self.clock.now - wait
                if first is None or last is None or (first < high and last >= low):
                    times = one.times(run)
                    seeds |= (times >= low) & (times < high)
            found.append(seeds & mine)
        return found

    @property
    def _lone_kind(self) -> str:
        """The kind of the only join, if there is but one; else an empty text."""
        tree = self.plan.closing.tree
        return tree.kind if isinstance(tree.left, str) and isinstance(tree.right, str) else ""

    def _too_late(self, alias: str, run: Bucket) -> Mask:
        """Which tuples of a run waited for no partner when they came: their wait was over, or they need none."""
        wait, times = self.plan.waits.get((0, alias)), self.held[alias].times(run)
        if alias != self.plan.closing.tree.left or wait is None:
            return np.zeros(times.size, np.bool_)
        if wait < -FURTHEST_APART:
            return np.ones(times.size, np.bool_)
        late: Mask = times < self.clock.now - wait
        return late

    def _sharing(self, keyed: Sequence[str], seeds: Mapping[str, Masks]) -> dict[str, Masks]:
        """The tuples that share a key with one of the seeds, and the seeds whose key is NULL.

        Rows of the left input of a single join do not depend on each other, but on those of the right one: there,
        seeds of the left input look for none of the left.
        """
        values = {alias: self._seed_keys(alias, seeds[alias]) for alias in keyed}
        alone = self.plan.closing.tree.left if self._lone_kind else None
        found: dict[str, Masks] = {}
        for alias in keyed:
            some = [one for other in keyed if not alias == other == alone for one in values[other]]
            found[alias] = self._near(alias, seeds[alias], some)
        return found

    def _seed_keys(self, alias: str, seeds: Masks) -> list[Any]:
        """The keys of the seeds of an input, run by run."""
        one = self.held[alias]
        return [
            taken(column(run.batch, one.store.key), np.flatnonzero(mask).astype(np.int32))
            for run, mask in zip(one.runs, seeds, strict=True)
            if mask.any()
        ]

    def _near(self, alias: str, seeds: Masks, values: Sequence[Any]) -> Masks:
        """The seeds of an input, and its tuples with one of these keys."""
        one, order = self.held[alias], by_hash(self.held[alias].store.key)
        keys = in_order([pa.concat_arrays(values)]) if values else None
        found = []
        for run, mine, mask in zip(one.runs, one.mine, seeds, strict=True):
            near = mask.copy()
            for _, rows in probe_portions(keys, run, order) if keys is not None else ():
                near[rows] = True
            found.append(near & mine)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Picked:
    """Chosen tuples of an input, numbered run by run.

    ``rows`` are the chosen rows of each run, ``firsts`` the number of the first of them, and last the number of all.
    The first ``old`` runs are of earlier batches.
    """

    store: StorePlan
    runs: Sequence[Bucket]
    rows: Sequence[Ints]
    firsts: Longs
    old: int

    @classmethod
    def of(cls, held: _Held, masks: Sequence[Mask]) -> _Picked:
        rows = [np.flatnonzero(mask).astype(np.int32) for mask in masks]
        firsts = np.cumsum([0, *(one.size for one in rows)]).astype(np.int64)
        return cls(held.store, held.runs, rows, firsts, held.old)

    @property
    def count(self) -> int:
        return int(self.firsts[-1])

    def numbers(self, name: str) -> Longs:
        """A column of times or whole numbers for all chosen tuples."""
        parts = [take(longs(column(run.batch, name)), rows) for run, rows in self._filled()]
        return np.concatenate(parts) if parts else full(0, 0)

    def arrived(self, number: int) -> Longs:
        """The batches in which the tuples came; where the store does not keep that, -1 for all earlier ones."""
        if BATCH in self.store.columns:
            return self.numbers(BATCH)
        arrived = full(self.count, number)
        arrived[: self.firsts[self.old]] = -1
        return arrived

    def column(self, item: Column) -> Any:
        """A column for all chosen tuples."""
        parts = [taken(column(run.batch, full_name(item)), rows) for run, rows in self._filled()]
        return _joined(parts, item)

    def _filled(self) -> Iterator[tuple[Bucket, Ints]]:
        return ((run, rows) for run, rows in zip(self.runs, self.rows, strict=True) if rows.size)

    def some(self, item: Column, numbers: Longs) -> Any:
        """A column for the tuples of these numbers; NULL where a number is -1."""
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        cuts = np.searchsorted(ordered, self.firsts)
        parts = [pa.nulls(int(cuts[0]), arrow_type(item.type))] if cuts[0] else []
        for place, (run, rows) in enumerate(zip(self.runs, self.rows, strict=True)):
            here = ordered[int(cuts[place]) : int(cuts[place + 1])] - self.firsts[place]
            if here.size:
                parts.append(taken(column(run.batch, full_name(item)), rows[here]))
        back = np.empty(order.size, np.int32)
        back[order] = np.arange(order.size, dtype=np.int32)
        return taken(_joined(parts, item), back)


def _joined(parts: list[Any], item: Column) -> Any:
    if not parts:
        return pa.nulls(0, arrow_type(item.type))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _relations(plan: SweepPlan, picked: Mapping[str, _Picked], number: int) -> dict[str, Relation]:
    read = _read(plan.compared)
    found = {}
    for alias, one in picked.items():
        named = {full_name(item): one.column(item) for item in read if item.alias == alias}
        batch = pa.RecordBatch.from_pydict(named)
        arrived = full(one.count, -1) if plan.is_table(alias) else one.arrived(number)
        found[alias] = Relation(batch, one.numbers(one.store.time), arrived, plan.windows[alias])
    return found


def _read(exprs: Iterable[Expr]) -> list[Column]:
    return list(dict.fromkeys(item for expr in exprs for item in columns(expr)))


def _leaving(
    plan: SweepPlan, rows: JoinedRows, picked: Mapping[str, _Picked], clock: Clock, batch_order: BatchOrder
) -> Mask:
    """Which rows leave: those that are complete or final by the clock of this batch, and were not before it."""
    member = plan.member
    before = (rows.arrived < batch_order.number) & (rows.final < clock.before)
    leaving: Mask = (rows.final < clock.now) & ~before
    lacking = rows.final > -FOREVER
    if plan.closing.walked:
        leaving &= lacking
    if member.first and not member.backfill:
        leaving &= rows.arrived >= member.first
    return leaving & (_provable(plan, rows, picked) | (rows.final <= AT_ONCE))


def _provable(plan: SweepPlan, rows: JoinedRows, picked: Mapping[str, _Picked]) -> Mask:
    """Which rows are so new that no partner of theirs can have been forgotten before the query came.

    Of versions only the latest matters, so what is older than the one that a row has may be forgotten.
    """
    seen = {s.alias: s.complete for s in plan.member.visibilities if s.complete is not None}
    provable = np.ones(len(rows), np.bool_)
    general = max((time for alias, time in seen.items() if alias not in plan.versions), default=None)
    for alias, numbers in rows.numbers.items():
        complete = seen.get(alias) if alias in plan.versions else general
        if complete is None or plan.is_table(alias):
            continue
        if alias in plan.versions:
            provable &= numbers >= 0
        reach, times = plan.reaches[alias], picked[alias].numbers(picked[alias].store.time)
        if not times.size:
            continue
        oldest = times[numbers] - reach if reach is not None else np.full(len(rows), -FOREVER)
        provable &= (numbers < 0) | (oldest >= complete)
    return provable


def _selected(
    plan: SweepPlan, rows: JoinedRows, picked: Mapping[str, _Picked], leaving: Longs
) -> tuple[pa.RecordBatch, Longs] | None:
    """The result's columns and event times for the leaving rows that fulfil WHERE; None if there are none."""
    where = plan.closing.where
    if where:
        condition = conjunction(where)
        kept = holds(condition, _columns([condition], rows, picked, leaving), leaving.size)
        leaving = leaving[kept]
        if not leaving.size:
            return None
    projection = plan.member.query.projection
    read = _columns([output.expr for output in projection], rows, picked, leaving)
    made = {output.name: evaluate(output.expr, read, leaving.size) for output in projection}
    return pa.RecordBatch.from_pydict(made), _newest(rows, picked, leaving)


def _newest(rows: JoinedRows, picked: Mapping[str, _Picked], chosen: Longs) -> Longs:
    """The event times of rows: the largest of their tuples'."""
    newest = full(chosen.size, -FOREVER)
    for alias, one in picked.items():
        times = one.numbers(one.store.time)
        if alias in rows.numbers and times.size:
            numbers = rows.numbers[alias][chosen]
            newest = np.maximum(newest, np.where(numbers < 0, -FOREVER, times[numbers]))
    return newest


def _columns(
    exprs: Iterable[Expr], rows: JoinedRows, picked: Mapping[str, _Picked], chosen: Longs
) -> Columns:
    return {
        (item.alias, item.name): picked[item.alias].some(item, rows.numbers[item.alias][chosen])
        for item in _read(exprs)
    }
