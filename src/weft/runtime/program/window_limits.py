"""Which queries a result is for, where they see the same inputs through different windows.

Guarantees: probing for many queries at once keeps every match that is inside the widest of their windows; here each
query gets those that are inside its own, by the definition (design, section 3): τmax − τ(t) ≤ W for every tuple t of an
input with a `RANGE` window, and for one with `ROWS n`, that t is among the last n when the result's last tuple arrives.
The check costs one lookup in sorted thresholds per result and input, whatever the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.kernels.query_sets.query_set import all_of, by_thresholds, thresholds
from weft.logical.query.window import Range, Rows, Window
from weft.plan.physical.graph import Member
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import MAX, View, micros, seq_name

__all__ = ["WindowLimits", "limits_of", "refine_query_sets"]

Columns = Callable[[str], Any]


@dataclass(frozen=True, slots=True, eq=False)
class WindowBounds:
    """The windows of several queries on one input, as `weft.kernels.query_sets.query_set.thresholds` makes them.

    ``values`` are the different widths in ascending order, in microseconds or tuples; ``table`` has, for each of them,
    the query-set of the queries whose window is at least so wide, and last that of the queries without a bound.
    """

    values: Longs
    table: Longs


@dataclass(frozen=True, slots=True, eq=False)
class WindowLimits:
    """The windows that results have to be checked for, by input: those of times, and those that count tuples."""

    ranges: Mapping[str, WindowBounds]
    rows: Mapping[str, WindowBounds]


def limits_of(
    users: Sequence[Member], windows: Mapping[str, frozenset[Window]], words: int, stored: bool
) -> WindowLimits:
    """The windows of some queries that have to be checked on results.

    ``windows`` are all windows that inputs are probed with: where they are equal, nothing has to be checked, unless
    ``stored`` says that there are stored intermediate results. These may have been made for wider windows of queries
    that have stopped since. ``words`` is how many 64-bit words a query-set has.
    """
    ranges: dict[str, WindowBounds] = {}
    rows: dict[str, WindowBounds] = {}
    aliases = users[0].query.aliases
    for alias in aliases if len(aliases) > 1 else ():  # a tuple alone is its own newest
        mine = {member.slot: member.query.input(alias).window for member in users}
        if not words or (len(windows[alias]) == 1 and not stored):
            continue
        if any(isinstance(window, Range) for window in mine.values()):
            ranges[alias] = _bounds(mine, words)
        elif any(isinstance(window, Rows) for window in mine.values()):
            rows[alias] = _bounds(mine, words)
    return WindowLimits(ranges, rows)


def _bounds(windows: Mapping[int, Window], words: int) -> WindowBounds:
    return WindowBounds(*thresholds({slot: _bound(window) for slot, window in windows.items()}, words))


def _bound(window: Window) -> int | None:
    if isinstance(window, Range):
        return micros(window.duration)
    return window.count if isinstance(window, Rows) else None


def refine_query_sets(
    limits: WindowLimits, view: View, sets: Longs, of: Columns, batch_order: BatchOrder, start: str
) -> Longs:
    """Take queries whose windows a result is outside of out of its query-set.

    The results were found by tuples of ``start``; ``of`` gives a column of them by its name.
    """
    if limits.ranges:
        newest = longs(of(MAX))
        for alias, bounds in limits.ranges.items():
            age = newest - longs(of(view.times[alias]))
            sets = all_of(sets, by_thresholds(age, bounds.values, bounds.table))
    for alias, bounds in limits.rows.items():
        since = batch_order.arrived(alias, start) - longs(of(seq_name(alias)))
        sets = all_of(sets, by_thresholds(np.ascontiguousarray(since), bounds.values, bounds.table))
    return sets
