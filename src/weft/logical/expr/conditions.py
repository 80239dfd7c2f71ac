"""Conditions taken apart, checked, put in order, and compared with each other.

Guarantees: every condition that `terms_of` gives mentions a stream; one that mentions none, and so is always or never
true, is refused. What `is_implied` says follows does follow; it recognises equal conditions and bounds by constants,
and may say no where other conditions follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.errors import QueryError
from weft.logical.expr.expression import Call, Expr, Literal, aliases, conjuncts, to_sql

__all__ = [
    "check_condition",
    "is_implied",
    "sort_predicates",
    "terms_of",
]


def sort_predicates(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    """The predicates sorted by their text, each of them once."""
    return tuple(sorted(set(exprs), key=to_sql))


def terms_of(predicates: Iterable[Expr], outcome: str = "the query gives no results") -> list[Expr]:
    """The conditions of which the predicates are conjunctions; each must mention an input."""
    terms = [term for expr in predicates for term in conjuncts(expr)]
    for term in terms:
        check_condition(term, outcome)
    return terms


def check_condition(term: Expr, outcome: str = "the query gives no results") -> None:
    """Refuse a condition that mentions no stream; ``outcome`` is what follows if it is never true."""
    if aliases(term):
        return
    operands = term.args if isinstance(term, Call) and term.function in ("=", "<>", "<", "<=") else ()
    unknown = any(isinstance(operand, Literal) and operand.value is None for operand in operands)
    if unknown or (isinstance(term, Literal) and not term.value):
        raise QueryError(f"the condition is never true, so {outcome}")
    raise QueryError(f"the condition {term} mentions no stream", hint="if it is true, leave it out")


class _Bound(NamedTuple):
    expr: Expr
    upper: bool
    value: Any
    open: bool


def is_implied(wanted: Iterable[Expr], known: Iterable[Expr]) -> bool:
    """Whether every wanted condition follows from the known ones.

    A tuple with x < 3 has x < 5, so a store of all tuples with x < 5 holds all those with x < 3.
    """
    facts = tuple(known)
    return all(condition in facts or any(_follows(condition, fact) for fact in facts) for condition in wanted)


def _follows(condition: Expr, fact: Expr) -> bool:
    wanted, bound = _bound(condition), _bound(fact)
    if wanted is None:
        return False
    if bound is None:
        return _fixed(fact, wanted)
    if (wanted.expr, wanted.upper) != (bound.expr, bound.upper):
        return False
    if bound.value == wanted.value:
        return wanted.open <= bound.open
    return bool(bound.value < wanted.value) == wanted.upper


def _fixed(fact: Expr, wanted: _Bound) -> bool:
    """Whether a condition fixes an expression to a constant that is within a bound."""
    if not (isinstance(fact, Call) and fact.function == "=" and len(fact.args) == 2):
        return False
    for expr, constant in (fact.args, fact.args[::-1]):
        if expr == wanted.expr and isinstance(constant, Literal) and _comparable(constant.value):
            inside = constant.value < wanted.value if wanted.upper else constant.value > wanted.value
            return bool(inside) or (constant.value == wanted.value and not wanted.open)
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
