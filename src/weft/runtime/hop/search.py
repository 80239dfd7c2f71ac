"""The search of one probe: how its access path is executed for a batch.

Guarantees: a search finds the pairs of a batch with the runs it is given for which all equalities, predicates and
windows hold, each pair once, in bounded portions. Where ranges of an index hold nothing but such pairs, the ranges can
be had, so that matches can be counted without being made (design, D9 and D14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import longs
from weft.bucket.compiled import Ints, Longs, Mask, frozen
from weft.bucket.memory import take
from weft.bucket.words import validity
from weft.kernels.expr.datum import numbers, with_nulls
from weft.kernels.probe.band import Band, band_portions, band_ranges
from weft.kernels.probe.equality import Keys, equal_ranges, in_order, probe_portions
from weft.kernels.probe.factors import Factor, FactorisedMatches, RangeColumn
from weft.kernels.probe.grid import Grid, grid, grid_ranges
from weft.kernels.probe.ranges import NO_INTS, PORTION, Ranges, Window, pairs, reachable
from weft.kernels.probe.theta import CANDIDATES, Sides, candidates, residual, theta_portions
from weft.logical.expr.bounds import FINE, Limit
from weft.logical.expr.expression import BOOLEAN, Expr, Literal, columns
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import (
    FOREVER,
    UNTIL,
    full,
    full_name,
    longest,
    newest,
    seq_name,
    shortest_range,
    until,
    values_of,
)
from weft.runtime.program.access_paths import Access
from weft.runtime.program.store_plans import Step

__all__ = ["FEW", "Search", "factorise"]

Portions = Iterator[tuple[Ints, Ints]]

NO_RANGES = Ranges(NO_INTS, NO_INTS, NO_INTS, None)

_TRUE = Literal(True, BOOLEAN)

FEW = 4  # partners of a tuple in the first of several stores, from which on matches stay ranges


@dataclass
class Search:
    """The search of a batch in stores: what is prepared once for the batch, and used for every run.

    The ``keys`` may be given, if another search has brought them into order, and then need not be those of all rows.
    """

    step: Step
    batch: pa.RecordBatch
    batch_order: BatchOrder
    keys: Keys | None = None

    def __post_init__(self) -> None:
        self.view, rule = self.step.view, self.step.rule
        self.newest = newest(self.view, self.batch, rule.known)
        self.until = until(self.view, self.batch, rule.known)
        self.window = self._window()
        self.keys = _keys(self.step.access, self.batch) if self.keys is None else self.keys
        self.band = _band(self.step.access, self.batch)
        self.grid = _grid(self.step.access, self.batch)

    def pairs(self, run: Bucket, portion: int) -> Portions:
        """The pairs of the batch with one run, at most so many at a time."""
        access, step = self.step.access, self.step
        some, window = min(PORTION, portion), self.window
        if access.grid:
            found = self._in_grid(run, min(CANDIDATES, portion))
        elif self.keys is not None and access.order is not None:
            found = probe_portions(self.keys, run, access.order, window=window, portion=some)
        elif self.band is not None and access.order is not None:
            found = band_portions(self.band, run, access.order, window=window, portion=some)
        else:
            predicate, few = access.rest or _TRUE, min(CANDIDATES, portion)
            sides = _sides(predicate, step)
            return self._inside(
                theta_portions(predicate, sides, self.batch, run, window=window, portion=few), run
            )
        if access.rest is not None:
            found = residual(access.rest, _sides(access.rest, step), self.batch, run, found)
        return self._inside(found, run)

    def _in_grid(self, run: Bucket, portion: int) -> Portions:
        order = self.step.access.order
        if self.grid is None or order is None or not reachable(run, self.window):
            return iter(())
        return pairs(grid_ranges(self.grid, run, order), run, window=self.window, portion=portion)

    def ranges(self, run: Bucket) -> Ranges | None:
        """The pairs with one run as ranges of its index; None if pairs in the ranges would still have to be checked."""
        if self.step.access.rest is not None or next(self._checks(run), None) is not None:
            return None
        if not self.batch.num_rows or not reachable(run, self.window):
            return NO_RANGES
        if self.keys is not None:
            return self.key_ranges(run) if self.keys.exact else None
        if self.grid is not None or self.step.access.grid:
            return None
        if self.band is not None and (order := self.step.access.order) is not None:
            exact = self.window is None and run.index(order).words.exact
            return band_ranges(self.band, run, order) if exact else None
        found, checked = candidates(self.batch.num_rows, run, self.window)
        return found if checked or self.window is None else None

    def key_ranges(self, run: Bucket) -> Ranges:
        """The stored rows of one run with the key of each probe tuple, inside its window."""
        order = self.step.access.order
        if self.keys is None or order is None or not self.keys.rows.size:
            return NO_RANGES
        if not reachable(run, self.window):
            return NO_RANGES
        return equal_ranges(self.keys, run, order, self.window)

    def _window(self) -> Window | None:
        """The bounds on the store's clock, by windows and by predicates; None if there are none."""
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
        return 0 if rows is None else self.batch_order.oldest(alias, rows, self.step.rule.start)

    def _inside(self, pairs: Portions, run: Bucket) -> Portions:
        """The pairs that are inside windows also where the bounds on the clock do not say it."""
        checks = list(self._checks(run))
        if not checks:
            return pairs
        return _filtered(pairs, checks)

    def _checks(self, run: Bucket) -> Iterator[_Check]:
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
    """A comparison of a number of the stored row with one of the probe tuple."""

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
    """The bound that each tuple sets, widened by the error that rounding may have caused; infinity bounds nothing."""
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
    """The first or last time that a predicate's bound lets through; where the bound is NULL, it lets none through."""
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


Runs = Callable[[Step], Sequence[Bucket]]


def factorise(
    search: Search, first: Sequence[Bucket], chain: Sequence[Step], runs: Runs
) -> FactorisedMatches | None:
    """The matches of a search and of those that follow it, as ranges (design, D9); None if they should be made.

    That is so if pairs have to be looked at, or if the tuples have few partners in the first store (`FEW`): then to
    probe once per match is no more work than to probe once per tuple.

    ``first`` are the runs that the search sees, and ``runs`` gives those that a step sees. Only tuples that have
    partners in all stores before go on to the next, and if none has, the factors that follow are empty.
    """
    tuples, factors = search.batch.num_rows, list[Factor]()
    alive: Mask = np.ones(tuples, np.bool_)
    for number, step in enumerate(chain):
        if number:
            search = Search(step, search.batch, search.batch_order, _keys_for(step, search, alive))
        seen = first if number == 0 else [run for run in runs(step) if run.bounds.rows]
        factor = _factor(search, seen)
        if factor is None:
            return None
        factors.append(factor)
        found = factor.counts(tuples)
        alive = found > 0
        if number == 0 and found.sum() < FEW * alive.sum():
            return None
        if not alive.any():
            break
    factors += [Factor(())] * (len(chain) - len(factors))
    return FactorisedMatches(tuples, search.newest, tuple(factors))


def _keys_for(step: Step, before: Search, alive: Mask) -> Keys | None:
    """The keys of the tuples that are left, in order, if the search before has them; None if they are others."""
    keys = before.keys
    if keys is None or step.access.keys != before.step.access.keys:
        return None
    left = alive[keys.rows]
    if left.all():
        return keys
    return replace(keys, words=frozen(keys.words[left]), rows=frozen(keys.rows[left]))


def _factor(search: Search, runs: Sequence[Bucket]) -> Factor | None:
    """What a search finds; None if ranges do not say it."""
    store = search.step.store
    columns = list(_columns(search, runs))
    if any(column is None for column in columns):
        return None
    window = shortest_range(search.view, store.node.aliases)
    return Factor(tuple(column for column in columns if column is not None and column.stop.any()), window)


def _columns(search: Search, runs: Sequence[Bucket]) -> Iterator[RangeColumn | None]:
    for run in runs:
        ranges = search.ranges(run)
        yield None if ranges is None else RangeColumn.of(ranges, search.batch.num_rows, run)
