"""Groups in a hop: rows become partial groups where they are found, and groups leave where they are kept (design, D15).

Guarantees: a task sends partial groups, never the rows that they are made of. In `append`, a group leaves once, in the
first batch whose clock has passed the time at which it is complete; in `update`, a group leaves in every batch that
changed it, as it is then; a row of SELECT DISTINCT leaves when it is first seen. Groups of the stored past that a query
asks for are kept before its first batch, and leave as if they were of that batch. Which groups leave is a function of
the store, of the batch's rows and of the clocks in its plan; so a batch that is repeated gives the same.

Runs of a group store are combined as they are merged, so a group is in O(log) runs however often it changes. Sessions
are combined in every batch, since pieces of one say nothing of when all of it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, build, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.bucket.merge import expired
from weft.kernels.expr.arrow import TIMESTAMP
from weft.kernels.expr.select import evaluate, holds
from weft.kernels.groups.partials import CLOSES, HASH
from weft.kernels.route.partition import partitions as partitions_of
from weft.logical.query.grouping import APPEND, FIRST, GROUP
from weft.runtime.hop.outcome import Outcome, Parcel
from weft.runtime.model.batch_order import ENDED, BatchOrder, Clock
from weft.runtime.model.columns import concat
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.state.settling import FANOUT
from weft.runtime.state.stores import State

__all__ = ["run_groups", "send_groups"]

_NEW = "$new"


def send_groups(program: ExecutableGraph, outcome: Outcome, count: int) -> None:
    """Send the partial groups of all rows that a hop found to the partitions that keep them."""
    for name, rows in outcome.grouped.items():
        plan = program.groups[name]
        with outcome.failing([name]):
            groups = rows.take()
            if groups is not None and groups.num_rows:
                targets = partitions_of([column(groups, HASH)], count)
                outcome.send(Parcel(plan.edge.name, groups, targets), count)


def run_groups(
    program: ExecutableGraph,
    arrived: Mapping[str, Sequence[pa.RecordBatch]],
    state: State,
    batch_order: BatchOrder,
    partition: int,
    outcome: Outcome,
) -> None:
    """Add the partial groups that arrived in a partition to their stores, and give the groups that leave."""
    for plan in program.groups.values():
        batches = [batch for batch in arrived.get(plan.edge.name, ()) if batch.num_rows]
        if outcome.options.at_boundary and not batches:
            continue
        with outcome.failing([plan.name]):
            _GroupStore(plan, state, batch_order, partition, outcome).run(batches)


@dataclass
class _GroupStore:
    """A group store in a partition during a batch."""

    plan: GroupPlan
    state: State
    batch_order: BatchOrder
    partition: int
    outcome: Outcome
    earlier: Sequence[Bucket] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        return self.batch_order.clocks[self.plan.name]

    def run(self, batches: list[pa.RecordBatch]) -> None:
        added = self.plan.partials.combine(concat(batches)) if batches else None
        self.earlier = self.state.group_runs(self.plan)
        window = self.plan.grouping.window
        if window is not None and window.is_session:
            self._run_sessions(added)
            return
        if not self.outcome.options.at_boundary:
            self._give(self._leaving(added))
        runs = [*self.earlier, *([self._run(added)] if added is not None else [])]
        self._keep(runs, added is not None)

    def _run(self, groups: pa.RecordBatch) -> Bucket:
        return build(groups, layout=self.plan.order, event_time=self.plan.clock)

    def _leaving(self, added: pa.RecordBatch | None) -> pa.RecordBatch | None:
        mode = self.plan.grouping.mode
        if mode == APPEND:
            return self._complete(added)
        member = self.plan.member
        if member.backfill and self.batch_order.number == member.first:
            return self._all(added)
        if added is None:
            return self._of_no_rows(added)
        return self._changed(added, only_new=mode == FIRST)

    def _all(self, added: pa.RecordBatch | None) -> pa.RecordBatch | None:
        """All groups there are: in the first batch of a query that asked for the past, none has been given yet."""
        parts = [*(run.batch for run in self.earlier), *([added] if added is not None else [])]
        return self.plan.partials.combine(concat(parts)) if parts else None

    def _complete(self, added: pa.RecordBatch | None) -> pa.RecordBatch | None:
        """The groups that are complete in this batch, and were not before."""
        before, now = self.clock
        found = [] if added is None else [_between(added, before, now)]
        for run in self.earlier:
            bounds = run.bounds
            if bounds.min_time is not None and bounds.min_time <= now and (bounds.max_time or 0) > before:
                found.append(_between(run.batch, before, now))
        found = [batch for batch in found if batch.num_rows]
        if found:
            return self.plan.partials.combine(concat(found))
        return self._of_no_rows(added)

    def _of_no_rows(self, added: pa.RecordBatch | None) -> pa.RecordBatch | None:
        """The one group of aggregates without keys, if the input ends without a row."""
        ends = self.clock.before < ENDED <= self.clock.now
        if not ends or not self.plan.is_global or self.earlier or added is not None:
            return None
        group = self.plan.partials.empty(self.plan.row_types)
        home = partitions_of([column(group, HASH)], self.batch_order.partitions)
        return group if int(home[0]) == self.partition else None

    def _changed(self, added: pa.RecordBatch, *, only_new: bool) -> pa.RecordBatch:
        """The groups that the batch changed, as they are now; or those of them that it brought."""
        hashes = np.unique(longs(column(added, HASH)))
        parts = [_marked(added, 1)]
        for run in self.earlier:
            rows = _with_hash(run, hashes)
            if rows.size:
                parts.append(_marked(run.batch.take(pa.array(rows)), 0))
        every = concat(parts)
        numbered = self.plan.partials.number(every)
        is_new = np.zeros(numbered.count, np.int64)
        is_old = np.zeros(numbered.count, np.int64)
        marks = longs(column(every, _NEW))
        np.maximum.at(is_new, numbered.ids, marks)
        np.maximum.at(is_old, numbered.ids, 1 - marks)
        wanted = (is_new > 0) & ((is_old == 0) if only_new else True)
        rows = np.flatnonzero(wanted[numbered.ids])
        return self.plan.partials.combine(every.drop_columns([_NEW]).take(pa.array(rows)))

    def _give(self, groups: pa.RecordBatch | None) -> None:
        """Give groups as results: what the query selects of those that fulfil HAVING."""
        if groups is None or not groups.num_rows:
            return
        grouping, count = self.plan.grouping, groups.num_rows
        values = self.plan.partials.values(groups, TIMESTAMP)
        read = {(GROUP, name): values[name] for name in values}
        made = pa.RecordBatch.from_pydict({o.name: evaluate(o.expr, read, count) for o in grouping.outputs})
        closes = longs(column(groups, CLOSES))
        if grouping.having is not None:
            mask = holds(grouping.having, read, count)
            made, closes = made.filter(pa.array(mask)), closes[mask]
        if made.num_rows:
            self.outcome.close(self.plan.name, made, closes)

    def _run_sessions(self, added: pa.RecordBatch | None) -> None:
        """The same for sessions, of which there is one run."""
        now = self.clock.now
        parts = [*(run.batch for run in self.earlier), *([added] if added is not None else [])]
        if not parts or (added is None and not any((r.bounds.min_time or 0) <= now for r in self.earlier)):
            return
        every = self.plan.partials.combine(concat(parts))
        complete = longs(column(every, CLOSES)) <= now
        if not self.outcome.options.at_boundary:
            self._give(every.filter(pa.array(complete)))
            every = every.filter(pa.array(~complete))
        self.state.keep_groups(self.plan, [self._run(every)] if every.num_rows else [])

    def _keep(self, runs: Sequence[Bucket], changed: bool) -> None:
        """Leave the runs of the store as they are after the batch: few, and without groups that are complete."""
        now = -(1 << 63) if self.outcome.options.at_boundary else self.clock.now
        alive = [run for run in runs if not expired(run.bounds, now + 1)]
        first = _first_to_merge([run.bounds.rows for run in alive])
        if first is None:
            if changed or len(alive) < len(runs):
                self.state.keep_groups(self.plan, alive)
            return
        rest = [batch for run in alive[first:] if (batch := _after(run.batch, now)).num_rows]
        merged = [self._run(self.plan.partials.combine(concat(rest)))] if rest else []
        self.state.keep_groups(self.plan, [*alive[:first], *merged])


def _first_to_merge(rows: Sequence[int]) -> int | None:
    """The first of the runs, oldest first, that should be merged with all later ones; None if there are few enough.

    These are as many as there may be, of which none has more rows than all others together; so whenever a group is
    rewritten, what it lies in at least doubles.
    """
    total = largest = 0
    for first in range(len(rows) - 1, -1, -1):
        total, largest = total + rows[first], max(largest, rows[first])
        if len(rows) - first >= FANOUT and largest <= total / 2:
            return first
    return None


def _between(groups: pa.RecordBatch, before: int, now: int) -> pa.RecordBatch:
    """The groups that close after one time and not after another."""
    closes = longs(column(groups, CLOSES))
    return groups.filter(pa.array((closes > before) & (closes <= now)))


def _after(groups: pa.RecordBatch, now: int) -> pa.RecordBatch:
    closes = longs(column(groups, CLOSES))
    return groups if closes.size and closes.min() > now else groups.filter(pa.array(closes > now))


def _marked(groups: pa.RecordBatch, mark: int) -> pa.RecordBatch:
    return groups.append_column(_NEW, pa.array(np.full(groups.num_rows, mark, np.int64)))


def _with_hash(run: Bucket, hashes: Longs) -> Longs:
    """The rows of a run whose groups have one of the hashes, which are sorted."""
    found = longs(column(run.batch, HASH))
    places = np.minimum(np.searchsorted(hashes, found), hashes.size - 1)
    rows: Longs = np.flatnonzero(hashes[places] == found)
    return rows
