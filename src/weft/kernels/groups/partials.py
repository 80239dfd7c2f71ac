"""Rows of a join as partial groups, and partial groups as one: what group stores keep and tasks send (design, D15).

Guarantees: `combine` gives one row for each group, whatever rows it had before; combining in any order, in any
portions, gives the same groups. Beside its keys, the edges of its window and its states, a partial group has the hash
of its keys (`HASH`), which decides where it is kept, and the time by the query's clock at which it is complete
(`CLOSES`).

Rows are first combined by the greatest span of time that is wholly inside or wholly outside of every window, so a row
of windows that overlap is aggregated once; what comes of it is then copied into each of its windows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import FARTHEST, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.bucket.words import flatten
from weft.kernels.groups.numbering import Groups, group_hashes, normal_key, number_groups
from weft.kernels.groups.repeated import repeat_states
from weft.kernels.groups.states import AggregateState

__all__ = ["CLOSES", "END", "HASH", "START", "PartialGroups", "TimeWindow"]

HASH, CLOSES, START, END = "$hash", "$closes", "$start", "$end"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Windows of time in microseconds, by a column of the join; without a ``slide`` they are sessions."""

    column: str
    size: int
    slide: int | None

    @property
    def pane(self) -> int:
        """The greatest span of time that no window cuts."""
        return gcd(self.size, self.slide or self.size)


@dataclass(frozen=True, slots=True)
class PartialGroups:
    """How the partial groups of a query are made and combined.

    ``keys`` are columns of the join. ``states`` are by the name of the aggregate, each with the column it is over, None
    if all rows count. A group closes when the clock has passed, of each of ``ends``, the earliest of its times: a
    column of partial groups plus microseconds; None: never.
    """

    keys: tuple[str, ...]
    window: TimeWindow | None
    states: Mapping[str, tuple[AggregateState, str | None]]
    ends: Sequence[Sequence[tuple[str, int]]] | None

    def lift(
        self, rows: pa.RecordBatch, repeats: Longs | None = None, of: Collection[str | None] | None = None
    ) -> pa.RecordBatch:
        """The partial groups of rows of the join; a row whose time is NULL is in no window.

        ``repeats`` says how often each row is there, at least once; None: once. ``of`` are the arguments whose
        aggregates the rows add to, None among them for COUNT(*), because others stand for the same rows of the join.
        """
        if self.window is not None:
            times = flatten(column(rows, self.window.column))
            if times.null_count:
                valid = times.is_valid()
                rows = rows.filter(valid)
                repeats = None if repeats is None else repeats[valid.to_numpy(zero_copy_only=False)]
        return self._windowed(self._combined(self._of_rows(rows, repeats, of)))

    def _of_rows(
        self, rows: pa.RecordBatch, repeats: Longs | None = None, of: Collection[str | None] | None = None
    ) -> pa.RecordBatch:
        """Every row as a group of its own."""
        found: dict[str, Any] = {name: normal_key(column(rows, name)) for name in self.keys}
        found = {HASH: pa.array(group_hashes(list(found.values()), rows.num_rows)), **found}
        if self.window is not None:
            times = longs(flatten(column(rows, self.window.column)))
            if self.window.slide is None:
                found |= {START: pa.array(times), END: pa.array(times + self.window.size)}
            else:
                pane = times // self.window.pane * self.window.pane
                found |= {START: pa.array(pane), END: pa.array(pane)}
        for name, (state, argument) in self.states.items():
            values = found[HASH] if argument is None else flatten(column(rows, argument))
            if of is not None and argument not in of:
                values = pa.nulls(rows.num_rows, values.type)
            lifted = state.lift(values)
            if repeats is not None:
                lifted = repeat_states(state, lifted, repeats)
            found |= {f"{name}.{suffix}": values for suffix, values in lifted.items()}
        found[CLOSES] = pa.array(np.full(rows.num_rows, FARTHEST))
        return pa.RecordBatch.from_pydict(found)

    def _windowed(self, panes: pa.RecordBatch) -> pa.RecordBatch:
        """Partial groups by pane, copied into the windows that they are in."""
        window = self.window
        if window is None or window.slide is None:
            return self._with_closes(panes)
        pane, rows = longs(column(panes, START)), np.arange(panes.num_rows)
        last = pane // window.slide * window.slide
        starts = [last - number * window.slide for number in range(-(-window.size // window.slide))]
        inside = [start + window.size > pane for start in starts]
        copies = np.concatenate([rows[mask] for mask in inside])
        begins = np.concatenate([start[mask] for start, mask in zip(starts, inside, strict=True)])
        found = panes.take(pa.array(copies))
        found = _replaced(found, {START: begins, END: begins + window.size})
        return self._with_closes(found)

    def _with_closes(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        """Partial groups with the times at which they are complete."""
        if self.ends is None:
            return groups
        closes = np.full(groups.num_rows, -FARTHEST)
        for alternatives in self.ends:
            earliest = np.full(groups.num_rows, FARTHEST)
            for name, after in alternatives:
                np.minimum(earliest, self._times(groups, name) + after, out=earliest)
            np.maximum(closes, earliest, out=closes)
        return _replaced(groups, {CLOSES: closes})

    def _times(self, groups: pa.RecordBatch, name: str) -> Longs:
        """The first times after those that a column has; where it has none, the farthest."""
        if name == END:  # which is after its window; but a session goes on if a row comes just when it ends
            return longs(column(groups, END)) + (self.window is not None and self.window.slide is None)
        times = flatten(column(groups, name))
        found: Longs = np.where(times.is_valid(), longs(times.fill_null(0)), FARTHEST - 1) + 1
        return found

    def combine(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each group of some partial groups."""
        return self._with_closes(self._combined(groups))

    def _combined(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        numbered = self.number(groups)
        firsts = pa.array(numbered.firsts)
        named = [HASH, *self.keys, *((START, END) if self.window is not None else ()), CLOSES]
        found = {name: column(groups, name).take(firsts) for name in named}
        if self.window is not None and self.window.slide is None:
            ends = np.full(numbered.count, -FARTHEST)
            np.maximum.at(ends, numbered.ids, longs(column(groups, END)))
            found[END] = pa.array(ends)
        found |= self._merged(groups, numbered)
        return pa.RecordBatch.from_pydict(found).select(groups.schema.names)

    def _merged(self, groups: pa.RecordBatch, numbered: Groups) -> dict[str, Any]:
        """The states of groups, each merged of those of its rows."""
        found: dict[str, Any] = {}
        for name, (state, _) in self.states.items():
            merged = state.merge(_states(groups, name), numbered)
            found |= {f"{name}.{suffix}": values for suffix, values in merged.items()}
        return found

    def number(self, groups: pa.RecordBatch) -> Groups:
        """Which rows are of one group."""
        keys = [column(groups, name) for name in self.keys]
        if self.window is None:
            return number_groups(keys, groups.num_rows)
        if self.window.slide is not None:
            return number_groups([*keys, column(groups, START)], groups.num_rows)
        return self._sessions(number_groups(keys, groups.num_rows).ids, groups)

    def _sessions(self, keyed: Longs, groups: pa.RecordBatch) -> Groups:
        """Of rows with the same keys, those whose sessions touch each other are of one group."""
        times = np.concatenate([longs(column(groups, START)), longs(column(groups, END))])
        ranks = np.unique(times, return_inverse=True)[1]  # small, however far apart times are
        starts, ends = np.split(ranks, 2)
        order = np.lexsort((starts, keyed))
        key, start, end = keyed[order], starts[order], ends[order]
        if not order.size:
            return Groups(keyed, keyed)
        base = int(end.max()) + 1  # keeps the ends of different keys apart
        reached = np.maximum.accumulate(end + key * base)
        begins = np.ones(order.size, np.bool_)
        begins[1:] = start[1:] + key[1:] * base > reached[:-1]
        ids = np.empty(order.size, np.int64)
        ids[order] = np.cumsum(begins) - 1
        return Groups(ids, order[begins].astype(np.int64))

    def empty(self, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        """The one group of no rows, for aggregates without keys; ``types`` are those of the columns of the join."""
        none = pa.RecordBatch.from_pydict({name: pa.array([], kind) for name, kind in types.items()})
        lifted = self._of_rows(none)
        one = Groups(np.zeros(0, np.int64), np.zeros(1, np.int64))
        found: dict[str, Any] = {HASH: pa.array([0], pa.int64()), CLOSES: pa.array([FARTHEST], pa.int64())}
        found |= self._merged(lifted, one)
        return pa.RecordBatch.from_pydict(found).select(lifted.schema.names)

    def values(self, groups: pa.RecordBatch, time: pa.DataType) -> dict[str, Any]:
        """The columns of groups by name: keys, ``start`` and ``end``, of the given type, and aggregates."""
        found: dict[str, Any] = {name: column(groups, name) for name in self.keys}
        if self.window is not None:
            found |= {"start": column(groups, START).cast(time), "end": column(groups, END).cast(time)}
        for name, (state, _) in self.states.items():
            found[name] = state.value(_states(groups, name))
        return found


def _states(groups: pa.RecordBatch, name: str) -> dict[str, Any]:
    """The columns of an aggregate's states, by their suffixes."""
    parts = ((full, *full.partition(".")[::2]) for full in groups.schema.names)
    return {
        suffix: flatten(column(groups, full)) for full, owner, suffix in parts if owner == name and suffix
    }


def _replaced(batch: pa.RecordBatch, columns: Mapping[str, Longs]) -> pa.RecordBatch:
    names: Sequence[str] = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[name]) if name in columns else batch.column(name) for name in names], names=names
    )
