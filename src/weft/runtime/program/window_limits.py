"""Which queries a result is for, where they see the same inputs through different windows.

Guarantees: probing for many queries at once keeps every match that is inside the widest of their windows; here each
query gets those that are inside its own, by the definition (design, section 3): τmax − τ(t) ≤ W for every tuple t of an
input with a `RANGE` window, and for one with `ROWS n`, that t is among the last n when the result's last tuple arrives.
What is checked costs one look into sorted thresholds per input, whatever the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.kernels.query_sets.query_set import all_of, by_thresholds, thresholds
from weft.logical.window import Range, Rows, Window
from weft.plan.graph import Member
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.columns import MAX, View, micros, seq_name

__all__ = ["Limits", "limits_of", "refine_query_sets"]

Columns = Callable[[str], Any]


@dataclass(frozen=True, slots=True, eq=False)
class WindowBounds:
    """Sorted bounds, and the queries that allow what is no more than each."""

    values: Longs
    table: Longs


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Per input whose windows differ: how old its tuples may be, or how many may have come since, by query."""

    ranges: Mapping[str, WindowBounds]
    rows: Mapping[str, WindowBounds]


def limits_of(
    users: Sequence[Member], windows: Mapping[str, frozenset[Window]], words: int, stored: bool
) -> Limits:
    """What has to be checked for some queries, given all windows that inputs may have been probed with.

    ``stored`` says whether intermediate results are: they may have been made for others that have gone since.
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
    return Limits(ranges, rows)


def _bounds(windows: Mapping[int, Window], words: int) -> WindowBounds:
    return WindowBounds(*thresholds({slot: _bound(window) for slot, window in windows.items()}, words))


def _bound(window: Window) -> int | None:
    if isinstance(window, Range):
        return micros(window.duration)
    return window.count if isinstance(window, Rows) else None


def refine_query_sets(
    limits: Limits, view: View, sets: Longs, of: Columns, batch_order: BatchOrder, start: str
) -> Longs:
    """The query-sets of results that tuples of ``start`` found; ``of`` gives the columns of the results."""
    if limits.ranges:
        newest = longs(of(MAX))
        for alias, bounds in limits.ranges.items():
            age = newest - longs(of(view.times[alias]))
            sets = all_of(sets, by_thresholds(age, bounds.values, bounds.table))
    for alias, bounds in limits.rows.items():
        since = batch_order.arrived(alias, start) - longs(of(seq_name(alias)))
        sets = all_of(sets, by_thresholds(np.ascontiguousarray(since), bounds.values, bounds.table))
    return sets
