"""One probe, executed on whole batches.

Guarantees: the matches of a batch with the runs it is given, each once: all equalities, predicates and windows hold.
Row numbers first, columns last, and of those only what is read later (design, D9).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.compiled import Ints, Longs, Mask
from weft.bucket.memory import take
from weft.bucket.words import validity
from weft.kernels.band import Band, band_portions
from weft.kernels.datum import numbers, with_nulls
from weft.kernels.grid import Grid, grid, grid_ranges
from weft.kernels.materialise import stored_column, taken
from weft.kernels.probe import Keys, in_order, probe_portions
from weft.kernels.query_set import bits_of, columns_of, compact, meet, nonempty, only, sets_of
from weft.kernels.ranges import Matches, Window, join_matches, pairs, reachable
from weft.kernels.theta import CANDIDATES, Sides, residual, theta_portions
from weft.logical.expr import BOOLEAN, Expr, Literal, columns
from weft.logical.limits import FINE, Limit
from weft.runtime.access import Access
from weft.runtime.batch import (
    FOREVER,
    MAX,
    UNTIL,
    full,
    full_name,
    longest,
    longs,
    newest,
    per_key,
    seq_name,
    shortest_range,
    until,
    values_of,
)
from weft.runtime.counting import ranks_of
from weft.runtime.prepared import Step
from weft.runtime.turn import Turn

__all__ = ["Found", "execute"]

Portions = Iterator[tuple[Ints, Ints]]

_TRUE = Literal(True, BOOLEAN)


def execute(
    step: Step, batch: pa.RecordBatch, runs: Sequence[Bucket], turn: Turn
) -> tuple[int, Found | None]:
    """How many rows of a batch probed, and their matches in the runs they may see; None if there are none."""
    runs = [run for run in runs if run.bounds.rows]
    rows, probes = _of_use(step, batch)
    if not probes.num_rows or not runs:
        return probes.num_rows, None
    search = _Search(step, probes, turn)
    matches = join_matches(search.found(run) for run in runs)
    if not len(matches):
        return probes.num_rows, None
    found: Found | None = Found(search, batch, rows, matches, runs)
    if found is not None and step.sets:
        found = found.shared()
    if found is not None and step.store.per_key is not None:
        found = found.recent()
    return probes.num_rows, found


def _of_use(step: Step, batch: pa.RecordBatch) -> tuple[Ints | None, pa.RecordBatch]:
    """The rows that are for any of the step's queries, if not all, and what is searched by of them."""
    if not step.sets or not batch.num_rows:
        return None, batch
    sets = sets_of([column(batch, name) for name in step.sets])
    kept = nonempty(only(sets, step.slots))
    if kept.all():
        return None, batch
    rows = np.flatnonzero(kept).astype(np.int32)
    names = [name for name in step.searched if name in batch.schema.names]
    return rows, pa.RecordBatch.from_pydict({name: taken(column(batch, name), rows) for name in names})


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The matches of a probe: row numbers, from which columns are made when something reads them (design, D9).

    ``rows`` says which rows of the batch the probe tuples of the matches are; None: they are numbered alike.
    """

    search: _Search
    batch: pa.RecordBatch
    rows: Ints | None
    matches: Matches
    runs: Sequence[Bucket]
    sets: Longs | None = None
    ranks: Longs | None = (
        None  # where tuples are counted per key: how many of theirs have come since, and they
    )

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return len(self.matches)

    def shared(self) -> Found | None:
        """Those that are for some query, with the queries they are for."""
        step, matches = self.search.step, self.matches
        sets = np.empty((len(step.sets), len(matches)), np.int64)
        for word, name in enumerate(step.sets):
            mine = longs(column(self.batch, name))
            mine = mine if self.rows is None else take(mine, self.rows)
            for number, run in enumerate(self.runs):
                part = slice(matches.splits[number], matches.splits[number + 1])
                meet(mine, longs(column(run.batch, name)), *matches.of(number), sets[word, part])
        probe, stored = matches.probe.copy(), matches.stored.copy()
        splits = compact(sets, bits_of(step.slots, len(step.sets)), probe, stored, matches.splits)
        if not splits[-1]:
            return None
        kept = Matches(probe[: splits[-1]], stored[: splits[-1]], tuple(splits))
        return replace(self, matches=kept, sets=np.ascontiguousarray(sets[:, : splits[-1]]))

    def recent(self) -> Found | None:
        """Those whose stored tuple is among the last of its key that the probe sees."""
        (alias,) = self.search.step.store.node.aliases
        window = per_key(self.search.view, alias)
        if window is None:
            return self
        ranks = ranks_of(self.search.step.store, self.matches, self.runs)
        rows = np.flatnonzero(ranks <= window[0]).astype(np.int32)
        if not rows.size:
            return None
        sets = None if self.sets is None else np.ascontiguousarray(self.sets[:, rows])
        return replace(self, matches=_only(self.matches, rows), sets=sets, ranks=take(ranks, rows))

    def column(self, name: str, rows: Ints | None = None) -> Any:
        """A column of the matches, or of some of them, in order."""
        if self.ranks is not None and name == seq_name(self.search.step.store.node.aliases[0]):
            return self._number(self.ranks if rows is None else take(self.ranks, rows))
        if name == MAX:
            newest = self._newest()
            return pa.array(newest if rows is None else take(newest, rows))
        matches = self.only(rows)
        if name in self.batch.schema.names:
            return taken(column(self.batch, name), self.origins(matches))
        return stored_column(matches, self.runs, name)

    def _number(self, ranks: Longs) -> Any:
        """The numbers that tuples counted per key would have if no others had come since: so windows are told alike."""
        search = self.search
        (alias,) = search.step.store.node.aliases
        return pa.array(search.turn.arrived(alias, search.step.rule.start) - ranks)

    def only(self, rows: Ints | None) -> Matches:
        """All matches, or some of them, given by ascending numbers."""
        return self.matches if rows is None else _only(self.matches, rows)

    def origins(self, matches: Matches) -> Ints:
        """The rows of the batch that matches are of."""
        return matches.probe if self.rows is None else take(self.rows, matches.probe)

    def _newest(self) -> Longs:
        store = self.search.step.store
        stored = longs(stored_column(self.matches, self.runs, store.time))
        return np.maximum(take(self.search.newest, self.matches.probe), stored)

    def gathered(self) -> pa.RecordBatch:
        """The matches with the columns that are read later, by more than results."""
        step = self.search.step
        found = {name: self.column(name) for name in (*step.from_probe, *step.from_store)}
        if MAX in step.hidden:
            found[MAX] = self.column(MAX)
        if UNTIL in step.hidden:
            found[UNTIL] = pa.array(self._until())
        if self.sets is not None:
            found |= columns_of(self.sets)
        return pa.RecordBatch.from_pydict(found)

    def _until(self) -> Longs:
        store, until_ = self.search.step.store, self.search.until
        mine = None if until_ is None else take(until_, self.matches.probe)
        shortest = shortest_range(self.search.view, store.node.aliases)
        if UNTIL in store.columns:
            theirs = longs(stored_column(self.matches, self.runs, UNTIL))
        elif len(store.node.aliases) == 1 and shortest is not None:
            theirs = longs(stored_column(self.matches, self.runs, store.time)) + shortest
        else:
            return full(len(self.matches), FOREVER) if mine is None else mine
        return theirs if mine is None else np.minimum(mine, theirs)


def _only(matches: Matches, rows: Ints) -> Matches:
    """Some of the matches, given by ascending numbers."""
    splits = np.searchsorted(rows, np.asarray(matches.splits)).tolist()
    return Matches(take(matches.probe, rows), take(matches.stored, rows), tuple(splits))


@dataclass
class _Search:
    """A probe of one batch: what is prepared once, and used for every run."""

    step: Step
    batch: pa.RecordBatch
    turn: Turn

    def __post_init__(self) -> None:
        self.view, rule = self.step.view, self.step.rule
        self.newest = newest(self.view, self.batch, rule.known)
        self.until = until(self.view, self.batch, rule.known)
        self.window = self._window()
        self.keys, self.band = _keys(self.step.access, self.batch), _band(self.step.access, self.batch)
        self.grid = _grid(self.step.access, self.batch)

    def found(self, run: Bucket) -> Portions:
        """The pairs of one run."""
        access, step = self.step.access, self.step
        if access.grid:
            found = self._in_grid(run)
        elif self.keys is not None and access.order is not None:
            found = probe_portions(self.keys, run, access.order, window=self.window)
        elif self.band is not None and access.order is not None:
            found = band_portions(self.band, run, access.order, window=self.window)
        else:
            predicate = access.rest or _TRUE
            sides = _sides(predicate, step)
            return self._inside(theta_portions(predicate, sides, self.batch, run, window=self.window), run)
        if access.rest is not None:
            found = residual(access.rest, _sides(access.rest, step), self.batch, run, found)
        return self._inside(found, run)

    def _in_grid(self, run: Bucket) -> Portions:
        order = self.step.access.order
        if self.grid is None or order is None or not reachable(run, self.window, None):
            return iter(())
        return pairs(grid_ranges(self.grid, run, order), run, window=self.window, portion=CANDIDATES)

    def _window(self) -> Window | None:
        """The bounds on the store's clock: the windows' and those of predicates."""
        store = self.step.store
        low, high = None, self.until
        if store.counted:
            low, high = full(self.batch.num_rows, self._oldest(store.node.aliases[0])), None
        elif (shortest := shortest_range(self.view, store.node.aliases)) is not None:
            low = self.newest - shortest
        for limit in self.step.access.times:
            bound = _bound(limit, self.batch)
            if limit.lower:
                low = bound if low is None else np.maximum(low, bound)
            else:
                high = bound if high is None else np.minimum(high, bound)
        if low is None and high is None:
            return None
        size = self.batch.num_rows
        return Window(
            full(size, -FOREVER) if low is None else low, full(size, FOREVER) if high is None else high
        )

    def _oldest(self, alias: str) -> int:
        rows = longest(self.view, alias)
        return 0 if rows is None else self.turn.oldest(alias, rows, self.step.rule.start)

    def _inside(self, pairs: Portions, run: Bucket) -> Portions:
        """The pairs that fulfil what the window on the clock does not say."""
        checks = list(self._checks(run))
        if not checks:
            return pairs
        return _filtered(pairs, checks)

    def _checks(self, run: Bucket) -> Iterator[Any]:
        store = self.step.store
        names = store.node.aliases
        if store.counted:
            if self.until is not None:
                yield _Check(longs(column(run.batch, store.time)), self.until, "<=")
            return
        if UNTIL in store.columns:
            yield _Check(longs(column(run.batch, UNTIL)), self.newest, ">=")
        for alias in names:
            if len(names) > 1 and longest(self.view, alias) is not None:
                oldest = full(self.batch.num_rows, self._oldest(alias))
                yield _Check(longs(column(run.batch, seq_name(alias))), oldest, ">=")


@dataclass(frozen=True, slots=True)
class _Check:
    """A stored number compared with one of the probe tuple."""

    stored: Longs
    probe: Longs
    operator: str

    def __call__(self, probes: Ints, rows: Ints) -> Mask:
        here, there = take(self.stored, rows), take(self.probe, probes)
        result: Mask = here <= there if self.operator == "<=" else here >= there
        return result


def _filtered(pairs: Portions, checks: list[_Check]) -> Portions:
    for probes, rows in pairs:
        for check in checks:
            kept = check(probes, rows)
            probes, rows = probes[kept], rows[kept]
        if probes.size:
            yield probes, rows


def _keys(access: Access, batch: pa.RecordBatch) -> Keys | None:
    return in_order([values_of(batch, key) for key in access.keys]) if access.keys else None


def _band(access: Access, batch: pa.RecordBatch) -> Band | None:
    if not access.limits:
        return None
    sides: dict[bool, Any] = {limit.lower: _limits(limit, batch) for limit in access.limits}
    is_open = {limit.lower: limit.open for limit in access.limits}
    return Band(sides.get(True), sides.get(False), is_open.get(True, False), is_open.get(False, False))


def _grid(access: Access, batch: pa.RecordBatch) -> Grid | None:
    if not access.grid:
        return None
    first, second = access.grid
    bounds = [tuple(_limits(end.limit, batch) for end in (one.low, one.high)) for one in (first, second)]
    return grid(bounds[0], first.width, bounds[1], second.width / FINE)


def _limits(limit: Limit, batch: pa.RecordBatch) -> Any:
    """The bound that each tuple sets, moved by what rounding may have cost; from infinity, without end."""
    values = values_of(batch, limit.value)
    if limit.slack == (0.0, 0.0):
        return values
    part, more = limit.slack
    plain = numbers(values).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = plain + (np.abs(plain) * part + more) * (-1 if limit.lower else 1)
    moved = np.where(np.isfinite(plain), moved, -np.inf if limit.lower else np.nan)
    return with_nulls(moved, validity(values), pa.float64())


def _bound(limit: Limit, batch: pa.RecordBatch) -> Longs:
    """The first or last time that a predicate's bound lets in; where that is NULL, none is."""
    values = values_of(batch, limit.value)
    valid, times = validity(values), longs(values)
    if limit.open:
        times = times + (1 if limit.lower else -1)
    return times if valid is None else np.where(valid, times, FOREVER if limit.lower else -FOREVER)


def _sides(predicate: Expr, step: Step) -> Sides:
    named = {(item.alias, item.name): full_name(item) for item in columns(predicate)}
    inside = step.store.node.aliases
    return Sides(
        {key: name for key, name in named.items() if key[0] not in inside},
        {key: name for key, name in named.items() if key[0] in inside},
    )
