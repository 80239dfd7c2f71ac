"""Theta probes: any predicate over a probe tuple and a stored row.

Guarantees: every pair inside the window for which the predicate is true (not false, not NULL) is found once; pairs come
run by run, and inside a run grouped by probe tuple. Candidate pairs are made a bounded number at a time, with only the
columns that the predicate names. Where a run is indexed by its event time, the window chooses the candidates; otherwise
every row is one. A user's function is called only for the pairs that all other conditions let through; if its
arguments all come from one side of the pairs, it is computed once for each row of that side that is in a pair, when it
first is, and not once per pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.bucket import Bucket, column
from weft.bucket.columns import taken
from weft.bucket.compiled import Ints, frozen
from weft.bucket.index import by_value
from weft.kernels.expr.select import ColumnKey, evaluate, holds
from weft.kernels.probe.band import Band, band_ranges
from weft.kernels.probe.pair_program import program
from weft.kernels.probe.ranges import Matches, Ranges, Window, join_matches, pairs, reachable
from weft.logical.expr.expression import Call, Column, Expr, columns, conjuncts
from weft.logical.expr.user_functions import has_user_call, is_user_call

__all__ = ["CANDIDATES", "Sides", "candidates", "residual", "theta", "theta_portions"]


# Pairs per block: enough to make the cost of calling Arrow negligible, and few enough that their values stay in the
# second-level cache.
CANDIDATES = 1 << 16

_COMPILED, _COLUMNS, _USERS = range(3)  # the ways to compute a condition, the fastest first

Pairs = tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class Sides:
    """For every column of a predicate, the column of the probe batch or of the stored batches that holds it."""

    probe: Mapping[ColumnKey, str]
    stored: Mapping[ColumnKey, str]


def theta(
    predicate: Expr,
    sides: Sides,
    probes: pa.RecordBatch,
    runs: Sequence[Bucket],
    *,
    window: Window | None = None,
) -> Matches:
    """All matches of the tuples in the runs."""
    return join_matches(theta_portions(predicate, sides, probes, run, window=window) for run in runs)


def theta_portions(
    predicate: Expr,
    sides: Sides,
    probes: pa.RecordBatch,
    run: Bucket,
    *,
    window: Window | None = None,
    portion: int = CANDIDATES,
) -> Iterator[Pairs]:
    """The matches in one run, found among a bounded number of candidates at a time."""
    if not probes.num_rows or not reachable(run, window):
        return
    ranges, checked = candidates(probes.num_rows, run, window)
    found = pairs(ranges, run, window=None if checked else window, portion=portion)
    yield from residual(predicate, sides, probes, run, found)


def residual(
    predicate: Expr, sides: Sides, probes: pa.RecordBatch, run: Bucket, found: Iterable[Pairs]
) -> Iterator[Pairs]:
    """Those of the pairs, however they were found, for which a predicate is true."""
    named = dict.fromkeys((found.alias, found.name) for found in columns(predicate))
    ours = {key: column(probes, sides.probe[key]) for key in named if key in sides.probe}
    theirs = {key: column(run.batch, sides.stored[key]) for key in named if key in sides.stored}
    stages = [_stage(part, ours, theirs) for part in conjuncts(predicate)]
    for probe, stored in found:
        kept = (probe, stored)
        for stage in sorted(stages, key=_Stage.rank):
            kept = stage.keep(*kept)
        if kept[0].size:
            yield kept


@dataclass(slots=True)
class _Stage:
    """One condition of several that must all hold; those that reject more, so far, come first.

    Users' functions come last, in the order of what they reject per second.
    """

    check: Callable[[Ints, Ints], Pairs]
    kind: int
    seen: int = 0
    passed: int = 0
    seconds: float = 0.0

    def keep(self, probe: Ints, stored: Ints) -> Pairs:
        """The pairs for which it holds."""
        if not probe.size:
            return probe, stored
        began = perf_counter()
        kept = self.check(probe, stored)
        self.seen, self.passed = self.seen + probe.size, self.passed + kept[0].size
        self.seconds += perf_counter() - began
        return kept

    def rank(self) -> tuple[int, float]:
        """Its place among the conditions."""
        passed = self.passed / max(1, self.seen)
        if self.kind < _USERS:
            return self.kind, passed
        return self.kind, (passed - 1) / max(1e-12, self.seconds / max(1, self.seen))


def _stage(condition: Expr, ours: Mapping[ColumnKey, Any], theirs: Mapping[ColumnKey, Any]) -> _Stage:
    """A condition as a program of the machine or, if it has none, by the evaluator of columns."""
    found = program(condition)
    if found is not None:
        return _Stage(found.bind(ours, theirs).keep, _COMPILED)
    calls = has_user_call(condition)
    rest, computed = _one_sided(condition, ours, theirs) if calls else (condition, {})
    named = {(part.alias, part.name) for part in columns(rest)}

    def check(probe: Ints, stored: Ints) -> Pairs:
        values = {key: taken(here, probe) for key, here in ours.items() if key in named}
        values |= {key: taken(here, stored) for key, here in theirs.items() if key in named}
        values |= {key: one.at(probe if one.probe else stored) for key, one in computed.items()}
        true = holds(rest, values, probe.size, counted=condition if calls else None)
        return probe[true], stored[true]

    return _Stage(check, _USERS if calls else _COLUMNS)


def candidates(probes: int, run: Bucket, window: Window | None) -> tuple[Ranges, bool]:
    """Ranges that hold every pair that can match, and whether all their pairs are inside the window."""
    if window is not None and run.event_time is not None and by_value(run.event_time) in run.orders:
        order = by_value(run.event_time)
        kind = column(run.batch, run.event_time).type
        low, high = (pa.array(side).view(kind) for side in (window.earliest, window.latest))
        return band_ranges(Band(low, high), run, order), True
    rows = np.arange(probes, dtype=np.int32)
    nothing, everything = np.zeros(probes, np.int32), np.full(probes, run.batch.num_rows, np.int32)
    return Ranges(frozen(rows), frozen(nothing), frozen(everything), None), False


@dataclass(slots=True, eq=False)
class _OneSided:
    """A call over the columns of one side, and the values it has had so far."""

    call: Call
    probe: bool  # whether its side is the probe's
    columns: Mapping[ColumnKey, Any]
    place: Ints  # for each row of its side, where its value is among the values; -1 if not computed yet
    values: list[Any] = field(default_factory=list)

    def at(self, rows: Ints) -> Any:
        """Its values at those rows."""
        missing = np.unique(rows[self.place[rows] < 0])
        if missing.size:
            found = {key: taken(column, missing) for key, column in self.columns.items()}
            known = len(self.values[0]) if self.values else 0
            made = evaluate(self.call, found, missing.size)
            self.values = [pa.concat_arrays([*self.values, made])]
            self.place[missing] = np.arange(known, known + missing.size, dtype=np.int32)
        return taken(self.values[0], self.place[rows])


def _one_sided(
    condition: Expr, ours: Mapping[ColumnKey, Any], theirs: Mapping[ColumnKey, Any]
) -> tuple[Expr, dict[ColumnKey, _OneSided]]:
    """The condition with columns in place of such calls, and what these columns stand for."""
    found: dict[Call, Column] = {}

    def changed(expr: Expr) -> Expr:
        if not isinstance(expr, Call) or not has_user_call(expr):
            return expr
        named = _named(expr)
        if is_user_call(expr) and named and (named <= ours.keys() or named <= theirs.keys()):
            return found.setdefault(expr, Column("", str(len(found)), expr.type))
        return Call(expr.function, tuple(map(changed, expr.args)), expr.type)

    rest = changed(condition)
    return rest, {("", column.name): _side(call, ours, theirs) for call, column in found.items()}


def _named(expr: Expr) -> set[ColumnKey]:
    return {(part.alias, part.name) for part in columns(expr)}


def _side(call: Call, ours: Mapping[ColumnKey, Any], theirs: Mapping[ColumnKey, Any]) -> _OneSided:
    named = _named(call)
    probe = named <= ours.keys()
    here = {key: column for key, column in (ours if probe else theirs).items() if key in named}
    rows = len(next(iter(here.values())))
    return _OneSided(call, probe, here, np.full(rows, -1, np.int32))
