"""What becomes of a store's runs at the end of a batch: few, without dead rows, merged within a budget (design, D13).

Guarantees: `settle` keeps the runs few and forgets only rows that no tuple that is on time can reach. What it merges
follows `weft.runtime.state.merge_plan`: of stores laid out by hash, pieces of bounded size, as far as the budget of the
task goes; so no batch pays for a merge of everything. What was merged when changes no result, so that another attempt
at a batch may merge something else.

Stores whose rows are forgotten by key (`PER key`, versions) or which are laid out by value are merged as a whole, since
a key may be anywhere in them; what is laid out by arrival is not merged once it has the bytes of a piece, since whoever
probes it looks at all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from weft.bucket.bounds import PLACES, Bounds
from weft.bucket.bucket import Bucket, build, column
from weft.bucket.columns import longs, taken
from weft.bucket.compiled import Mask
from weft.bucket.merge import between, expired, merge
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.merge_plan import PIECE, Extent, MergePlan, RangeMerge, plan_merges
from weft.runtime.state.ranks import ranks_within
from weft.runtime.state.stores import Forget, kept_versions

__all__ = ["EVERYWHERE", "FANOUT", "MergeBudget", "MergeSpeed", "due_merges", "settle"]

FANOUT = 4
FREE = 1 << 20  # merges of so few bytes are done whatever the budget is
EVERYWHERE = (0, PLACES)

_LONG_AGO = -(1 << 63)
_WHOLE = 1 << 62  # bytes of a piece, where runs are merged as a whole
_USUAL = 3e8  # bytes a second, as long as nothing was measured
_RECENT = 0.2  # the part that the last merges have in the speed


@dataclass
class MergeSpeed:
    """How many bytes a process merges in a second, as measured lately."""

    bytes_per_second: float = _USUAL

    def measured(self, merged: int, seconds: float) -> None:
        """Learn from a merge; small ones tell little."""
        if merged > FREE and seconds > 0:
            self.bytes_per_second += _RECENT * (merged / seconds - self.bytes_per_second)

    def budget(self, seconds: float) -> MergeBudget:
        """What can be merged in so many seconds."""
        return MergeBudget(int(seconds * self.bytes_per_second), self)


@dataclass
class MergeBudget:
    """How many bytes a task may still merge in a batch, how many it has ``merged``, and those it left: the ``debt``."""

    bytes: int = _WHOLE
    speed: MergeSpeed | None = None
    merged: int = 0
    debt: int = 0

    def spend(self, plan: MergePlan, seconds: float) -> None:
        """Count merges that took so long."""
        size = sum(one.bytes for one in plan.merges)
        self.merged += size
        self.bytes -= sum(one.bytes for one in plan.merges if one.bytes >= FREE)
        if self.speed is not None:
            self.speed.measured(size, seconds)


class _Run(Protocol):
    """A run of which the bounds and the layout are known, whether it is open or not."""

    @property
    def bounds(self) -> Bounds:
        """What is known of it."""
        ...

    @property
    def layout(self) -> object:
        """The order it was written in; as text that is the one of `Order`."""
        ...


R = TypeVar("R", bound=_Run)


def _opened(run: Any) -> Bucket:
    found: Bucket = run
    return found


def _rest(run: Any, part: Bucket) -> Any:  # noqa: ARG001
    return part


def settle(
    plan: StorePlan,
    runs: Sequence[R],
    forget: Forget,
    budget: MergeBudget | None = None,
    *,
    places: tuple[int, int] = EVERYWHERE,
    opened: Callable[[R], Bucket] = _opened,
    rest: Callable[[R, Bucket], R] = _rest,
) -> tuple[R | Bucket, ...]:
    """The runs of a store, oldest first, after a batch; runs that did not change are the same objects.

    ``places`` is the range of hashes that the store has here. ``opened`` opens a run, and ``rest`` makes a run of a
    part of one, which is what is left of it after a merge took the others. Bounds of a run that was written in another
    layout than the plan's are hashes of that one: in the plan's, its rows may be anywhere.
    """
    alive = [run for run in runs if not _is_expired(run.bounds, forget)]
    budget = MergeBudget() if budget is None else budget
    bounds = [_bounds_in(plan, run) for run in alive]
    planned = due_merges(plan, bounds, forget, budget, places)
    budget.debt += planned.debt
    if not planned.merges:
        return tuple(alive)
    began = perf_counter()
    merged = [(one, _merged(plan, alive, one, forget, opened)) for one in planned.merges]
    budget.spend(planned, perf_counter() - began)
    found: list[R | Bucket] = []
    for number, run in enumerate(alive):
        for one, bucket in merged:
            found += bucket if one.runs[0] == number else []
        merges = [one for one in planned.merges if number in one.runs]
        left = _left_of(run, bounds[number], merges, opened, rest)
        found.extend(left)
    return tuple(run for run in found if run.bounds.rows)


def due_merges(
    plan: StorePlan,
    runs: Sequence[Bounds],
    forget: Forget,
    budget: MergeBudget,
    places: tuple[int, int] = EVERYWHERE,
) -> MergePlan:
    """What `settle` merges of runs with these bounds, none of which need be opened to know it."""
    if len(runs) < FANOUT:
        return MergePlan()
    in_pieces = bool(plan.orders) and plan.orders[0].kind == "hash" and not _by_key(plan, forget)
    numbers = [n for n, run in enumerate(runs) if plan.orders or run.bytes < PIECE]
    extents = [_extent(runs[n], places) for n in numbers]
    found = plan_merges(
        extents,
        max(0, budget.bytes),
        piece=PIECE if in_pieces else _WHOLE,
        fanout=FANOUT,
        reach=_reach(runs, forget, places),
        at_least_one=not budget.merged,
        free=FREE,
    )
    return replace(found, merges=tuple(_as_planned(one, numbers, places) for one in found.merges))


def _as_planned(one: RangeMerge, numbers: Sequence[int], places: tuple[int, int]) -> RangeMerge:
    """A merge of some of the runs; at the ends of the places it takes all rows beyond, which have no place here."""
    low = 0 if one.low == places[0] else one.low
    high = PLACES if one.high == places[1] else one.high
    return RangeMerge(low, high, tuple(numbers[n] for n in one.runs), one.bytes)


def _is_expired(bounds: Bounds, forget: Forget) -> bool:
    return expired(bounds, _LONG_AGO if forget.since is None else forget.since)


def _by_key(plan: StorePlan, forget: Forget) -> bool:
    return plan.per_key is not None or bool(forget.superseded) or bool(plan.versions)


def _bounds_in(plan: StorePlan, run: _Run) -> Bounds:
    """What is known of a run in the layout of a plan."""
    is_so = str(run.layout or "") == (str(plan.orders[0]) if plan.orders else "")
    return run.bounds if is_so else replace(run.bounds, low=0, high=PLACES)


def _extent(run: Bounds, places: tuple[int, int]) -> Extent:
    low, high = max(run.low, places[0]), min(run.high, places[1])
    return Extent(low, high, run)


def _merged(
    plan: StorePlan, runs: Sequence[R], one: RangeMerge, forget: Forget, opened: Callable[[R], Bucket]
) -> list[Bucket]:
    """The rows of a merge as one run, without the dead ones; none if all are dead."""
    parts = [_part(opened(runs[number]), one.low, one.high) for number in one.runs]
    alive = [kept for run in parts if (kept := _without_dead(plan, run, forget.numbers)) is not None]
    if not alive:
        return []
    merged = _current(plan, _newest(plan, merge(alive, forget.since), forget.newest), forget)
    return [replace(merged, bounds=replace(merged.bounds, low=one.low, high=one.high))]


def _left_of(
    run: R,
    bounds: Bounds,
    merges: Sequence[RangeMerge],
    opened: Callable[[R], Bucket],
    rest: Callable[[R, Bucket], R],
) -> list[R]:
    """What is left of a run, with those bounds in the plan's layout, after merges took some ranges of it."""
    if not merges:
        return [run]
    found: list[R] = []
    low, high = bounds.low, bounds.high
    for begin, end in [*sorted((one.low, one.high) for one in merges), (high, high)]:
        if low < begin:
            found.append(rest(run, between(opened(run), low, begin)))
        low = max(low, end)
    return found


def _part(run: Bucket, low: int, high: int) -> Bucket:
    whole = low <= run.bounds.low and run.bounds.high <= high
    return run if whole else between(run, low, high)


def _reach(runs: Sequence[Bounds], forget: Forget, places: tuple[int, int]) -> int | None:
    """How much time a run may cover and still be merged.

    If many runs lie over each other that are too long to be merged, which disorder in time can cause, it is at least
    twice the time that the last run covers.
    """
    if forget.reach is None:
        return None
    extents = [_extent(run, places) for run in runs]
    if sum(one.high - one.low for one in extents) <= 3 * FANOUT * (places[1] - places[0]):
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
