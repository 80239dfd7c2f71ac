"""How a probe finds its partners: chosen once per graph, from what it asks.

Guarantees: whatever the choice, the pairs found are those that fulfil all equalities and predicates; a predicate is
either part of the search or part of `rest`, never of both and never of none. In order of preference:

1. equalities: one index over all of them together, so that a key that is not selective alone costs nothing;
2. a column of the store between two bounds: the order of its values;
3. a window, or a predicate that bounds the store's event time: the order of time;
4. a column of the store with one bound: the order of its values;
5. every pair.

Bounds on the store's event time join the window in every case, where they cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from weft.bucket.index import Order, by_hash, by_value
from weft.logical.expr import Call, Expr, Literal, aliases, all_of
from weft.logical.functions import call
from weft.logical.user_functions import has_user_call
from weft.plan.rules import ProbeRule
from weft.runtime.batch import key_name

__all__ = ["Access", "Limit", "choose"]


class Limit(NamedTuple):
    """A bound that a probe tuple sets: the stored value is above (`lower`) or below it, or equal unless `open`."""

    value: Expr
    lower: bool
    open: bool


@dataclass(frozen=True, slots=True)
class Access:
    """How to search: by an index (None: all rows), with `times` narrowing the window and `rest` filtering pairs.

    ``stored`` are the values the index is of, ``keys`` what a probe tuple is looked up by, ``limits`` its bounds.
    """

    order: Order | None
    stored: tuple[Expr, ...]
    keys: tuple[Expr, ...]
    limits: tuple[Limit, ...]
    times: tuple[Limit, ...]
    rest: Expr | None

    @property
    def kind(self) -> str:
        """``equality``, ``band`` or ``theta``."""
        return "equality" if self.keys else "band" if self.limits else "theta"


class _Comparison(NamedTuple):
    predicate: Expr
    stored: Expr
    limit: Limit
    exact: bool  # whether the limit says all that the predicate says


def choose(rule: ProbeRule, inside: frozenset[str], clock: str, time: Expr | None, windowed: bool) -> Access:
    """The access path of a probe.

    ``clock`` is the column that windows are checked on, ``time`` the expression that it is, if it is one, and
    ``windowed`` says whether the query's windows bound it.
    """
    found = list(_comparisons(rule.predicates, frozenset(rule.known), inside))
    timely = [one for one in found if time is not None and one.stored == time]
    times, used = tuple(one.limit for one in timely), _said(timely)
    if rule.equalities:
        stored = tuple(equality.stored for equality in rule.equalities)
        keys = tuple(equality.probe for equality in rule.equalities)
        order: Order | None = by_hash(*map(key_name, stored))
        return Access(order, stored, keys, (), times, _rest(rule, used))
    return _by_value(rule, [one for one in found if one not in timely], clock, times, used, windowed)


def _by_value(
    rule: ProbeRule,
    found: list[_Comparison],
    clock: str,
    times: tuple[Limit, ...],
    used: list[Expr],
    windowed: bool,
) -> Access:
    band = _best_band(found)
    if band and (len(band) == 2 or not (windowed or times)):
        order = by_value(key_name(band[0].stored))
        used = used + _said(band)
        limits = tuple(one.limit for one in band)
        return Access(order, (band[0].stored,), (), limits, times, _rest(rule, used))
    by_time = by_value(clock) if windowed or times else None
    return Access(by_time, (), (), (), times, _rest(rule, used))


def _said(found: list[_Comparison]) -> list[Expr]:
    return [one.predicate for one in found if one.exact]


def _best_band(found: list[_Comparison]) -> list[_Comparison]:
    """A lower and an upper bound of one value; else one of them; else nothing."""
    for first in found:
        for second in found:
            if first.stored == second.stored and first.limit.lower and not second.limit.lower:
                return [first, second]
    return found[:1]


def _rest(rule: ProbeRule, used: Sequence[Expr]) -> Expr | None:
    rest = [predicate for predicate in rule.predicates if predicate not in used]
    return all_of(rest) if rest else None


def _comparisons(
    predicates: Sequence[Expr], known: frozenset[str], inside: frozenset[str]
) -> Iterator[_Comparison]:
    """The predicates that compare a value of the store with one of the probe tuple."""
    for predicate in predicates:
        if not isinstance(predicate, Call) or predicate.function not in ("<", "<="):
            continue
        left, right = predicate.args
        for stored, value, lower in ((left, right, False), (right, left, True)):
            if has_user_call(stored):
                continue  # nothing is stored by it
            if aliases(stored) and aliases(stored) <= inside and aliases(value) <= known:
                here, there, exact = _moved(stored, value, lower)
                yield _Comparison(predicate, here, Limit(there, lower, predicate.function == "<"), exact)


_INVERSE = {"+": "-", "-": "+"}
_BITS = {"int": 31, "long": 63}


def _moved(stored: Expr, value: Expr, lower: bool) -> tuple[Expr, Expr, bool]:
    """Constants brought over to the probe's side: `ts + 5 s < x` is `ts < x - 5 s`, and only that has an order.

    Whole numbers may overflow on the way: the limit is then the last number there is, and the predicate is checked.
    """
    exact = True
    while (shift := _shift(stored)) is not None and stored.type == value.type and isinstance(stored, Call):
        value = call(_INVERSE[stored.function], value, shift)
        stored = next(arg for arg in stored.args if arg is not shift)
        if stored.type.name in _BITS:
            last = 1 << _BITS[stored.type.name]
            value = call("coalesce", value, Literal(-last if lower else last - 1, stored.type))
            exact = False
    return stored, value, exact


def _shift(stored: Expr) -> Literal | None:
    """The constant that is added to, or subtracted from, what has the type of the whole."""
    if not isinstance(stored, Call) or stored.function not in _INVERSE:
        return None
    for place, (shift, other) in enumerate((stored.args[::-1], stored.args)):
        if place and stored.function == "-":
            return None  # a constant less a value falls where the value rises
        if isinstance(shift, Literal) and other.type == stored.type and shift.value is not None:
            times = stored.type.name == "timestamp" and isinstance(shift.value, timedelta)
            if times or (stored.type.name in _BITS and shift.type.is_integer):
                return shift
    return None
