"""Comparisons as bounds that some inputs set to values of others, and pairs of bounds as ranges.

Guarantees: a `Limit` lets in every value for which its predicate is true; if its bound is `exact`, it lets in no other.
Constants are moved to the other side (`x + 5 < y` bounds x by y - 5), because stores are ordered by plain values. In
doing so whole numbers may overflow, and then the limit is the largest or smallest number of the type; floats are
rounded, and then the limit is wider by `slack`. In both cases the predicate still has to be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from weft.logical.expr.expression import Call, Expr, Literal, aliases
from weft.logical.expr.functions import call
from weft.logical.expr.user_functions import has_user_call
from weft.logical.schema import DataType

__all__ = [
    "FINE",
    "Bound",
    "Limit",
    "ValueRange",
    "bounds",
    "cell",
    "grid",
    "last_cell",
    "measured_in_cells",
    "ranges",
]

_LONG, _DOUBLE = DataType("long"), DataType("double")
_INVERSE = {"+": "-", "-": "+"}
_BITS = {"int": 31, "long": 63}
# The distance of neighbouring numbers of about 1.
_EPSILON = {"float": 2.0**-23, "double": 2.0**-52}
# Wider bands could overflow where a value is finite.
_WIDEST = 1e100
# The types whose values can be divided into cells of one width.
_MEASURED = frozenset({"byte", "short", "int", "long", "float", "double", "decimal", "timestamp", "date"})


# Into how many pieces the second width of a grid is divided.
FINE = 16


class Limit(NamedTuple):
    """A bound for a value: the value is above it if ``lower``, else below it, or equal to it unless ``open``.

    ``slack`` is by how much rounding may have moved the bound: a fraction of its size, and an amount in addition.
    """

    value: Expr
    lower: bool
    open: bool
    slack: tuple[float, float] = (0.0, 0.0)


class Bound(NamedTuple):
    """A predicate as a limit of the value ``stored``; without rounding, the limit is ``base`` plus ``shift``."""

    predicate: Expr
    stored: Expr
    limit: Limit
    exact: bool
    base: Expr
    shift: float


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A value between two bounds that are always the same ``width`` apart, in its own unit."""

    stored: Expr
    low: Bound
    high: Bound
    width: float


def bounds(predicates: Sequence[Expr], known: frozenset[str], inside: frozenset[str]) -> Iterator[Bound]:
    """The predicates that compare a value of the inputs ``inside`` with one of those ``known``."""
    for predicate in predicates:
        if not isinstance(predicate, Call) or predicate.function not in ("<", "<="):
            continue
        left, right = predicate.args
        for stored, value, lower in ((left, right, False), (right, left, True)):
            if has_user_call(stored):
                continue  # no store is ordered by it
            if aliases(stored) and aliases(stored) <= inside and aliases(value) <= known:
                yield _moved(predicate, stored, value, lower)


def ranges(found: Sequence[Bound]) -> Iterator[ValueRange]:
    """The values between two bounds of one width, in the order in which they are bounded."""
    highs: dict[tuple[Expr, Expr], list[Bound]] = {}
    for bound in found:
        if not bound.limit.lower:
            highs.setdefault((bound.stored, bound.base), []).append(bound)
    for low in found:
        if low.limit.lower and low.stored.type.name in _MEASURED:
            fitting = (
                high for high in highs.get((low.stored, low.base), ()) if 0 < high.shift - low.shift < _WIDEST
            )
            for high in islice(fitting, 1):
                yield ValueRange(low.stored, low, high, high.shift - low.shift)


def cell(value: Expr, width: float) -> Expr:
    """The number of the cell, of the given width, in which a value lies."""
    return Call("cell", (value, Literal(width, _DOUBLE)), _LONG)


def last_cell(limit: Limit, width: float) -> Expr:
    """The number of the lowest cell that a lower limit lets in, or the highest of an upper one, slack included."""
    part, more = (-size if limit.lower else size for size in limit.slack)
    if not part:
        return cell(limit.value, width)
    return Call("cell", (limit.value, *(Literal(size, _DOUBLE) for size in (width, part, more))), _LONG)


def measured_in_cells(expr: Expr) -> tuple[Expr, float] | None:
    """The value whose cell an expression numbers, and the width of the cells; None if it numbers none."""
    if not isinstance(expr, Call) or expr.function != "cell":
        return None
    value, width = expr.args[:2]
    return value, _amount(width) if isinstance(width, Literal) else 0.0


def grid(first: tuple[Expr, float], second: tuple[Expr, float]) -> Expr:
    """The place of two values in a grid: the cell of one, and within it the piece of a cell of the other."""
    (one, width), (other, fine) = first, second
    return Call("grid", (one, Literal(width, _DOUBLE), other, Literal(fine / FINE, _DOUBLE)), _LONG)


def _moved(predicate: Call, stored: Expr, value: Expr, lower: bool) -> Bound:
    exact, slack, moved = True, (0.0, 0.0), 0.0
    base, shift = _split(value)
    while (found := _shift(stored)) is not None and stored.type == value.type and isinstance(stored, Call):
        back, name = _INVERSE[stored.function], stored.type.name
        value = call(back, value, found)
        moved += abs(_amount(found))
        shift += _amount(found) if back == "+" else -_amount(found)
        stored = next(arg for arg in stored.args if arg is not found)
        if name in _BITS:
            last = 1 << _BITS[name]
            value = call("coalesce", value, Literal(-last if lower else last - 1, value.type))
        if name in _EPSILON:
            slack = (4 * _EPSILON[name], 8 * _EPSILON[name] * moved)
        exact = exact and name not in _BITS and name not in _EPSILON
    limit = Limit(value, lower, predicate.function == "<" and exact, slack)
    return Bound(predicate, _plain(stored), limit, exact, _plain(base), shift)


def _plain(expr: Expr) -> Expr:
    """The expression without a cast from float to double, which changes neither numbers nor their order."""
    if isinstance(expr, Call) and expr.function == "cast" and expr.type.name == "double":
        (inner,) = expr.args
        return inner if inner.type.name == "float" else expr
    return expr


def _split(value: Expr) -> tuple[Expr, float]:
    """An expression without the constants that are added to it, and the sum of these constants."""
    total = 0.0
    while (found := _shift(value)) is not None and isinstance(value, Call):
        total += _amount(found) if value.function == "+" else -_amount(found)
        value = next(arg for arg in value.args if arg is not found)
    return value, total


def _shift(expr: Expr) -> Literal | None:
    """The constant that is added to a value of the sum's type or subtracted from it; None if there is none."""
    if not isinstance(expr, Call) or expr.function not in _INVERSE:
        return None
    for place, (shift, other) in enumerate((expr.args[::-1], expr.args)):
        if place and expr.function == "-":
            return None  # a constant less a value falls where the value rises
        if isinstance(shift, Literal) and _plain_type(other, expr) and shift.value is not None:
            times = expr.type.name == "timestamp" and isinstance(shift.value, timedelta)
            whole = expr.type.name in _BITS and shift.type.is_integer
            rounded = expr.type.name in _EPSILON and isinstance(shift.value, int | float)
            if times or whole or (rounded and not isinstance(shift.value, bool)):
                return shift
    return None


def _plain_type(part: Expr, whole: Expr) -> bool:
    """Whether a part of a sum has its type, or is a float in a sum of doubles."""
    return part.type == whole.type or (part.type.name == "float" and whole.type.name == "double")


def _amount(literal: Literal) -> float:
    """A constant as a number; of times, in microseconds."""
    value = literal.value
    if isinstance(value, timedelta):
        return float(value // timedelta(microseconds=1))
    return float(value) if isinstance(value, int | float) else 0.0
