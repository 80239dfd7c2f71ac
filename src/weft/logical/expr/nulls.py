"""What an expression can be where columns are NULL, and comparisons in which NULL is a value.

Guarantees: `rejects_null` says yes only where the expression cannot be true if some inputs have no tuple, whatever the
other columns are; where it does not know, it says no. `is_same` and `compared_rows` are TRUE or FALSE, never NULL;
where their sides are of two inputs, one of their terms is an equality of values, so that they join by a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from itertools import product

from weft.errors import QueryError
from weft.logical.expr.conversion import NULL, coerce, common_type, literal
from weft.logical.expr.expression import BOOLEAN, Call, Column, Expr, Literal
from weft.logical.expr.functions import FUNCTIONS, call

__all__ = ["compared_rows", "is_null_without", "is_same", "rejects_null"]

# What an expression can be: true, false or NULL if it is a condition, else NULL or a value, which stands for the rest.
Outcomes = frozenset[str]
_TRUE, _FALSE, _NULL, _VALUE = (frozenset({name}) for name in ("true", "false", "null", "value"))
_CONDITION = _TRUE | _FALSE | _NULL
_ANYTHING = _VALUE | _NULL


def rejects_null(expr: Expr, missing: frozenset[str]) -> bool:
    """Whether a condition cannot be true where these inputs have no tuple."""
    return "true" not in _outcomes(expr, missing)


def is_null_without(expr: Expr, missing: frozenset[str]) -> bool:
    """Whether an expression is NULL for sure where these inputs have no tuple."""
    return _outcomes(expr, missing) == _NULL


def _outcomes(expr: Expr, missing: frozenset[str]) -> Outcomes:
    if isinstance(expr, Column):
        return _NULL if expr.alias in missing else _any(expr)
    if isinstance(expr, Literal):
        return _constant(expr)
    args = [_outcomes(arg, missing) for arg in expr.args]
    match expr.function:
        case "and" | "or":
            return _connective(expr.function, args)
        case "not":
            return _negated(args[0])
        case "is null":
            return (_TRUE if "null" in args[0] else frozenset()) | (
                _FALSE if args[0] - _NULL else frozenset()
            )
        case "case":
            return _case(args)
        case "coalesce" | "greatest" | "least":
            return _first(expr, args)
        case "in" | "nullif":
            return _NULL if args[0] == _NULL else _any(expr)
    return _NULL if _is_strict(expr.function) and _NULL in args else _any(expr)


def _is_strict(function: str) -> bool:
    """Whether a function is NULL if an argument is; it may be NULL otherwise, too."""
    known = FUNCTIONS.get(function)
    return function == "cast" or (known is not None and known.strict)


def _any(expr: Expr) -> Outcomes:
    return _CONDITION if expr.type == BOOLEAN else _ANYTHING


def _constant(literal: Literal) -> Outcomes:
    if literal.value is None:
        return _NULL
    if isinstance(literal.value, bool):
        return _TRUE if literal.value else _FALSE
    return _VALUE


def _connective(function: str, args: Sequence[Outcomes]) -> Outcomes:
    """AND and OR over all combinations of what their operands can be, two by two."""
    absorbing, neutral = ("false", "true") if function == "and" else ("true", "false")
    found, *rest = args
    for other in rest:
        pairs = product(found, other)
        found = frozenset(
            absorbing if absorbing in pair else "null" if "null" in pair else neutral for pair in pairs
        )
    return found


def _negated(operand: Outcomes) -> Outcomes:
    return frozenset({"true": "false", "false": "true"}.get(outcome, outcome) for outcome in operand)


def _case(args: Sequence[Outcomes]) -> Outcomes:
    """The results of all branches that can be taken."""
    found: Outcomes = frozenset()
    for when, then in zip(args[:-1:2], args[1::2], strict=True):
        if "true" in when:
            found |= then
        if when == _TRUE:
            return found
    return found | args[-1]


def _first(expr: Call, args: Sequence[Outcomes]) -> Outcomes:
    """COALESCE and what skips NULLs as it does: NULL only if all arguments are."""
    if all(arg == _NULL for arg in args):
        return _NULL
    return _any(expr) if all("null" in arg for arg in args) else _any(expr) - _NULL


# By type: a value that stands for NULL in the key of a comparison. Where it occurs itself, more pairs are compared.
_STAND_INS: dict[str, Literal] = {
    **dict.fromkeys(("byte", "short", "int", "long", "float", "double", "decimal"), literal(-1)),
    "string": literal("\N{SYMBOL FOR NULL}"),
    "date": literal(date(1, 1, 1)),
    "timestamp": literal(datetime(1, 1, 1)),  # noqa: DTZ001: constants are in UTC
}


def is_same(left: Expr, right: Expr) -> Expr:
    """`left IS NOT DISTINCT FROM right`: whether both are equal, or both NULL."""
    if NULL in (left.type, right.type):
        return call("and", *(call("is null", side) for side in (left, right) if side.type != NULL))
    equal = call("=", left, right)
    missing = call("and", call("is null", left), call("is null", right))
    same = call("coalesce", equal, missing)
    type_ = common_type(left, right)
    if type_ is None or type_.name not in _STAND_INS:
        return same
    stand_in = _STAND_INS[type_.name]
    return call(
        "and", call("=", *(call("coalesce", coerce(s, type_), stand_in) for s in (left, right))), same
    )


def compared_rows(operator: str, left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
    """A comparison of two rows, written as lists in parentheses: as in Spark, NULL is equal to NULL inside of them."""
    if len(left) != len(right):
        raise QueryError(
            f"a row of {len(left)} values is compared with one of {len(right)}",
            hint="list as many values on both sides",
        )
    if operator not in ("=", "<>"):
        raise QueryError(
            f"rows cannot be compared with {operator}",
            hint="compare the values one by one, as in a.x < b.x OR a.x = b.x AND a.y < b.y",
        )
    same = call("and", *(is_same(one, other) for one, other in zip(left, right, strict=True)))
    return same if operator == "=" else call("not", same)
