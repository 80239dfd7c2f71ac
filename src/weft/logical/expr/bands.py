"""Bounds on the distance of two times, recognised in every spelling.

Guarantees: `a.ts <= b.ts + d`, `a.ts - d <= b.ts` and `a.ts - b.ts <= d` are one value, the first of them, whatever
timestamp columns of two inputs a.ts and b.ts are. A distance of more than 100,000 days stays as it is written: it
could not be read back.
"""

from __future__ import annotations

from datetime import timedelta

from weft.logical.expr.node import BOOLEAN, Call, Column, Expr, Literal
from weft.logical.schema import DataType

__all__ = ["LONGEST", "Band", "Term", "band", "read_band", "read_term"]

LONGEST = timedelta(days=100_000)

# (ts, d): a column plus a constant.
Term = tuple[Column, timedelta]
# (low, high, d): low is at most, or less than, high plus d.
Band = tuple[Column, Column, timedelta]

_TIMESTAMP, _INTERVAL = DataType("timestamp"), DataType("interval")


def band(function: str, left: Expr, right: Expr) -> Call | None:
    """The normal form of a comparison (< or <=) that says only how far apart two times are."""
    found = read_band(left, right)
    if found is None or abs(found[2]) > LONGEST:
        return None
    low, high, shift = found
    return Call(function, (low, _shifted(high, shift)), BOOLEAN)


def _shifted(column: Column, by: timedelta) -> Expr:
    if not by:
        return column
    return Call("+" if by > timedelta(0) else "-", (column, Literal(abs(by), _INTERVAL)), _TIMESTAMP)


def read_band(left: Expr, right: Expr) -> Band | None:
    """The bound that `left <= right` sets to the distance of two times; None if it says anything else."""
    low, high = read_term(left), read_term(right)
    if low and high:
        return _of_two(low, high)
    limit, difference = _span(right), _difference(left)
    if limit is not None and difference:
        (one, ahead), (other, behind) = difference
        return _of_two((one, ahead), (other, behind + limit))
    limit, difference = _span(left), _difference(right)
    if limit is not None and difference:
        (one, ahead), (other, behind) = difference
        return _of_two((other, behind + limit), (one, ahead))
    return None


def _of_two(low: Term, high: Term) -> Band | None:
    return (low[0], high[0], high[1] - low[1]) if low[0].alias != high[0].alias else None


def read_term(expr: Expr) -> Term | None:
    """The column and the constant whose sum an expression is; None if it is no such sum."""
    if isinstance(expr, Column):
        return (expr, timedelta(0)) if expr.type == _TIMESTAMP else None
    inner, shift = _without_shift(expr)
    term = read_term(inner) if inner is not None else None
    return (term[0], term[1] + shift) if term else None


def _difference(expr: Expr) -> tuple[Term, Term] | None:
    """The terms whose difference an interval is; None if it is no such difference."""
    if not isinstance(expr, Call) or expr.type != _INTERVAL:
        return None
    inner, shift = _without_shift(expr)
    if inner is not None:
        found = _difference(inner)
        return ((found[0][0], found[0][1] + shift), found[1]) if found else None
    if expr.function != "-":
        return None
    left, right = map(read_term, expr.args)
    return (left, right) if left and right else None


def _without_shift(expr: Expr) -> tuple[Expr | None, timedelta]:
    """What a constant is added to or subtracted from, and the constant; None where there is no such thing."""
    if isinstance(expr, Call) and expr.function in ("+", "-"):
        operand, shift = expr.args
        if expr.function == "+" and _span(operand) is not None:
            operand, shift = shift, operand
        span = _span(shift)
        if span is not None:
            return operand, span if expr.function == "+" else -span
    return None, timedelta(0)


def _span(expr: Expr) -> timedelta | None:
    return expr.value if isinstance(expr, Literal) and isinstance(expr.value, timedelta) else None
