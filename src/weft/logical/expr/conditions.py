"""Conditions taken apart, checked and put in order.

Guarantees: every condition that comes out mentions a stream; one that mentions none, and so is always or never true, is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import QueryError
from weft.logical.expr.expression import Call, Expr, Literal, aliases, conjuncts, to_sql

__all__ = ["check_condition", "sort_predicates", "terms_of"]


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
