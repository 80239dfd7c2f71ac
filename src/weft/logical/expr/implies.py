"""Whether one condition makes another superfluous.

Guarantees: what `is_implied` says follows does follow. It recognises equal conditions and bounds by constants, and may
say no where other conditions follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.logical.expr.expression import Call, Expr, Literal

__all__ = ["is_implied"]


class _Bound(NamedTuple):
    expr: Expr
    upper: bool
    value: Any
    open: bool


def is_implied(wanted: Iterable[Expr], known: Iterable[Expr]) -> bool:
    """Whether every wanted condition follows from the known ones.

    A tuple with x < 3 has x < 5, so a store of all tuples with x < 5 holds all those with x < 3.
    """
    given = tuple(known)
    return all(one in given or any(_follows(one, other) for other in given) for one in wanted)


def _follows(one: Expr, other: Expr) -> bool:
    wanted, known = _bound(one), _bound(other)
    if wanted is None:
        return False
    if known is None:
        return _fixed(other, wanted)
    if (wanted.expr, wanted.upper) != (known.expr, known.upper):
        return False
    if known.value == wanted.value:
        return wanted.open <= known.open
    return bool(known.value < wanted.value) == wanted.upper


def _fixed(known: Expr, wanted: _Bound) -> bool:
    """Whether a condition fixes an expression to a constant that is within a bound."""
    if not (isinstance(known, Call) and known.function == "=" and len(known.args) == 2):
        return False
    for one, other in (known.args, known.args[::-1]):
        if one == wanted.expr and isinstance(other, Literal) and _comparable(other.value):
            inside = other.value < wanted.value if wanted.upper else other.value > wanted.value
            return bool(inside) or (other.value == wanted.value and not wanted.open)
    return False


def _bound(expr: Expr) -> _Bound | None:
    if not (isinstance(expr, Call) and expr.function in ("<", "<=")):
        return None
    left, right = expr.args
    is_open = expr.function == "<"
    if isinstance(right, Literal) and not isinstance(left, Literal) and _comparable(right.value):
        return _Bound(left, True, right.value, is_open)
    if isinstance(left, Literal) and not isinstance(right, Literal) and _comparable(left.value):
        return _Bound(right, False, left.value, is_open)
    return None


def _comparable(value: object) -> bool:
    """Whether a value is a whole number: these compare in Python as in SQL, whatever the other side is."""
    return isinstance(value, int) and not isinstance(value, bool)
