"""The access path of a probe: how it finds its partners, chosen once per graph from its equalities and predicates.

Guarantees: whatever the choice, the pairs found are those that fulfil all equalities and predicates. Every predicate is
either answered by the search itself or part of `rest`, never both. The paths, in order of preference:

1. equalities: one index over all of them together, so that a key that is not selective alone costs nothing;
2. two columns of the store, each between two bounds of one width: the order of a grid over both
(`kernels/probe/grid.py`);
3. a column of the store between two bounds: the order of its values;
4. a window, or a predicate that bounds the store's event time: the order of time;
5. a column of the store with one bound: the order of its values;
6. every pair.

Where several columns would do, `plan/physical/search.py` chooses among them. Bounds on the store's event time narrow
the window in every case, since a window is checked anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.bucket.index import Order, by_hash, by_value
from weft.logical.expr.bounds import Bound, Limit, ValueRange, bounds, grid
from weft.logical.expr.expression import Expr, all_of
from weft.plan.physical.rules import ProbeRule
from weft.plan.physical.search import band_of, grid_of, time_bounds
from weft.runtime.model.columns import key_name

__all__ = ["Access", "choose_access"]


@dataclass(frozen=True, slots=True)
class Access:
    """How to search a store.

    ``order`` is the index that is searched; None if all rows are looked at. ``stored`` are the expressions whose values
    the index holds, ``keys`` the expressions of a probe tuple that have to be equal to them, ``limits`` the bounds that
    a probe tuple sets to them, and ``grid`` the two ranges of a grid. ``times`` are bounds on the store's event time,
    which narrow the window. ``rest`` is the condition that pairs still have to fulfil.
    """

    order: Order | None
    stored: tuple[Expr, ...]
    keys: tuple[Expr, ...]
    limits: tuple[Limit, ...]
    times: tuple[Limit, ...]
    rest: Expr | None
    grid: tuple[ValueRange, ...] = ()

    @property
    def kind(self) -> str:
        """``equality``, ``grid``, ``band`` or ``theta``."""
        return "equality" if self.keys else "grid" if self.grid else "band" if self.limits else "theta"


def choose_access(
    rule: ProbeRule, inside: frozenset[str], clock: str, time: Expr | None, windowed: bool
) -> Access:
    """Choose the access path of a probe of a store with the inputs ``inside``.

    ``clock`` is the column that windows are checked on. ``time`` is the event time whose values it holds, or None if it
    holds something else. ``windowed`` says whether windows of the queries bound it.
    """
    found = list(bounds(rule.predicates, frozenset(rule.known), inside))
    bounded = time_bounds(found, time)
    times, used = tuple(one.limit for one in bounded), _said(bounded)
    if rule.equalities:
        stored = tuple(equality.stored for equality in rule.equalities)
        keys = tuple(equality.probe for equality in rule.equalities)
        order: Order | None = by_hash(*map(key_name, stored))
        return Access(order, stored, keys, (), times, _rest(rule, used))
    return _by_value(rule, [one for one in found if one not in bounded], clock, times, used, windowed)


def _by_value(
    rule: ProbeRule,
    found: list[Bound],
    clock: str,
    times: tuple[Limit, ...],
    used: list[Expr],
    windowed: bool,
) -> Access:
    both = grid_of(found)
    if both:
        stored = grid(*((one.stored, one.width) for one in both))
        return Access(by_value(key_name(stored)), (stored,), (), (), times, _rest(rule, used), both)
    band = band_of(found, windowed or bool(times))
    if band:
        order = by_value(key_name(band[0].stored))
        used = used + _said(band)
        limits = tuple(one.limit for one in band)
        return Access(order, (band[0].stored,), (), limits, times, _rest(rule, used))
    by_time = by_value(clock) if windowed or times else None
    return Access(by_time, (), (), (), times, _rest(rule, used))


def _said(found: Sequence[Bound]) -> list[Expr]:
    return [one.predicate for one in found if one.exact]


def _rest(rule: ProbeRule, used: Sequence[Expr]) -> Expr | None:
    rest = [predicate for predicate in rule.predicates if predicate not in used]
    return all_of(rest) if rest else None
