"""How far apart in time the tuples of one result can be, and so how long each must be kept.

Guarantees: the bounds are the tightest that the windows and the event-time predicates imply together.
`RANGE W` on b says τ(a) − τ(b) ≤ W for every a; `a.ts <= b.ts + 5 s` says τ(a) − τ(b) ≤ 5 s; all of them are
closed under addition.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations, product

from weft.logical.expr import Call, Column, Expr, Literal
from weft.logical.query import Query
from weft.logical.window import Range

__all__ = ["Bounds", "is_time_bound", "retention", "time_bounds"]

# (a, b) ↦ the most by which τ(a) can exceed τ(b) in a result; absent: without limit.
Bounds = dict[tuple[str, str], timedelta]


def time_bounds(query: Query) -> Bounds:
    """The closed bounds between all pairs of inputs."""
    bounds: Bounds = {}
    for pair, bound in _stated(query):
        bounds[pair] = min(bound, bounds.get(pair, bound))
    for via, a, b in product(query.aliases, repeat=3):
        if (a, via) in bounds and (via, b) in bounds and a != b:
            through = bounds[a, via] + bounds[via, b]
            bounds[a, b] = min(through, bounds.get((a, b), through))
    return bounds


def retention(
    query: Query, alias: str, bounds: Bounds | None = None, others: frozenset[str] | None = None
) -> timedelta | None:
    """How much later than a tuple of this input its partners, or those among ``others``, can be; None: no limit."""
    known = time_bounds(query) if bounds is None else bounds
    longest = timedelta(0)
    for other in sorted(others if others is not None else set(query.aliases) - {alias}):
        bound = known.get((other, alias))
        if bound is None:
            return None
        longest = max(longest, bound)
    return longest


def is_time_bound(query: Query, predicate: Expr) -> bool:
    """Whether a predicate only bounds the distance of two event times, which `time_bounds` accounts for."""
    return any(True for _ in _from_predicate(query, predicate))


def _stated(query: Query) -> Iterator[tuple[tuple[str, str], timedelta]]:
    for input_ in query.inputs:
        if isinstance(input_.window, Range):
            for other in query.aliases:
                if other != input_.alias:
                    yield (other, input_.alias), input_.window.duration
    for predicate in query.predicates:
        yield from _from_predicate(query, predicate)
    for key in query.keys:
        terms = [term for member in key.members if (term := _term(query, member))]
        for (a, shift_a), (b, shift_b) in combinations(terms, 2):
            yield (a, b), shift_b - shift_a
            yield (b, a), shift_a - shift_b


def _from_predicate(query: Query, predicate: Expr) -> Iterator[tuple[tuple[str, str], timedelta]]:
    if not isinstance(predicate, Call) or predicate.function not in ("<", "<="):
        return
    left, right = predicate.args
    low, high = _term(query, left), _term(query, right)
    if low and high and low[0] != high[0]:
        yield (low[0], high[0]), high[1] - low[1]
        return
    for difference, limit, upper in ((left, right, True), (right, left, False)):
        pair = _difference(query, difference)
        if pair and isinstance(limit, Literal) and isinstance(limit.value, timedelta):
            (a, shift_a), (b, shift_b) = pair if upper else pair[::-1]
            yield (a, b), (limit.value if upper else -limit.value) + shift_b - shift_a
            return


Term = tuple[str, timedelta]


def _term(query: Query, expr: Expr) -> Term | None:
    """(a, d) if the expression is the event time of a plus d."""
    if isinstance(expr, Column):
        is_time = expr == query.input(expr.alias).event_time
        return (expr.alias, timedelta(0)) if is_time else None
    if not isinstance(expr, Call) or expr.function not in ("+", "-"):
        return None
    sign = 1 if expr.function == "+" else -1
    for operand, shift in (expr.args, expr.args[::-1]):
        if isinstance(shift, Literal) and isinstance(shift.value, timedelta):
            inner = _term(query, operand)
            return (inner[0], inner[1] + sign * shift.value) if inner else None
    return None


def _difference(query: Query, expr: Expr) -> tuple[Term, Term] | None:
    if isinstance(expr, Call) and expr.function == "-":
        left, right = (_term(query, arg) for arg in expr.args)
        if left and right and left[0] != right[0]:
            return left, right
    return None
