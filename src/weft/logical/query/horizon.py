"""How far apart in time the tuples of one result can be, and so how long each must be kept.

Guarantees: the bounds are the tightest that the windows and the event-time predicates imply together.
`RANGE W` on b says τ(a) − τ(b) ≤ W for every a; `a.ts <= b.ts + 5 s` says τ(a) − τ(b) ≤ 5 s; all of them are
closed under addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import combinations, product

from weft.errors import QueryError
from weft.logical.expr.bands import read_band, read_term
from weft.logical.expr.expression import Call, Column, Expr
from weft.logical.query.query import Query
from weft.logical.query.window import Range
from weft.logical.times import format_duration

__all__ = ["TimeBounds", "check_times", "distances", "is_time_bound", "retention", "time_bounds"]

# (a, b) ↦ the most by which τ(a) can exceed τ(b) in a result; absent: without limit.
TimeBounds = dict[tuple[str, str], timedelta]

# No bound falls below minus this much; contradictory ones would fall without end.
_FAR = timedelta(days=100_000_000)


def time_bounds(query: Query) -> TimeBounds:
    """The closed bounds between all pairs of inputs."""
    bounds: TimeBounds = {}
    for pair, bound in _stated(query):
        bounds[pair] = min(bound, bounds.get(pair, bound))
    for via, a, b in product(query.aliases, repeat=3):
        if (a, via) in bounds and (via, b) in bounds and a != b:
            through = max(bounds[a, via] + bounds[via, b], -_FAR)
            bounds[a, b] = min(through, bounds.get((a, b), through))
    return bounds


def check_times(query: Query) -> None:
    """Refuse time bounds that no tuples can fulfil: a cycle of them adds up to less than zero."""
    if query.outer is not None:
        return  # a tuple without a partner is a result, too
    bounds = time_bounds(query)
    for a, b in combinations(query.aliases, 2):
        most, least = bounds.get((a, b)), bounds.get((b, a))
        if most is not None and least is not None and most + least < timedelta(0):
            raise QueryError(
                f"no tuples can satisfy the windows and the conditions on the event times of {a} and {b}",
                hint=f"they say that {a} is {_described(most)} {b}, and that {b} is {_described(least)} {a}",
            )


def _described(bound: timedelta) -> str:
    if bound < timedelta(0):
        return f"at least {format_duration(-bound)} before"
    return f"at most {format_duration(bound)} after" if bound else "not after"


def retention(
    query: Query, alias: str, bounds: TimeBounds | None = None, others: frozenset[str] | None = None
) -> timedelta | None:
    """How much later than a tuple of this input its partners, or those among ``others``, can be; None: no limit."""
    known = time_bounds(query) if bounds is None else bounds
    longest = timedelta(0)
    if alias in query.tables:
        return None
    for other in sorted(others if others is not None else set(query.aliases) - {alias}):
        if other in query.tables:
            continue  # its rows are no partners that come
        bound = known.get((other, alias))
        if bound is None:
            return None
        longest = max(longest, bound)
    return longest


def is_time_bound(query: Query, predicate: Expr) -> bool:
    """Whether a predicate only bounds the distance of two event times, which `time_bounds` accounts for."""
    return any(True for _ in _from_predicate(query, predicate))


def distances(query: Query, predicate: Expr) -> Iterator[tuple[tuple[str, str], timedelta]]:
    """What a predicate, an equality included, says of event times: by how much one can exceed another."""
    yield from _from_predicate(query, predicate)
    if isinstance(predicate, Call) and predicate.function == "=":
        yield from _from_equals(query, predicate.args)


def _stated(query: Query) -> Iterator[tuple[tuple[str, str], timedelta]]:
    for input_ in query.inputs:
        if isinstance(input_.window, Range):
            for other in query.driving:
                if other != input_.alias:
                    yield (other, input_.alias), input_.window.duration
    for predicate in query.predicates:
        yield from _from_predicate(query, predicate)
    for key in query.keys:
        yield from _from_equals(query, key.members)


def _from_equals(query: Query, members: Iterable[Expr]) -> Iterator[tuple[tuple[str, str], timedelta]]:
    terms = [term for member in members if (term := _event_term(query, member))]
    for (a, shift_a), (b, shift_b) in combinations(terms, 2):
        yield (a, b), shift_b - shift_a
        yield (b, a), shift_a - shift_b


def _from_predicate(query: Query, predicate: Expr) -> Iterator[tuple[tuple[str, str], timedelta]]:
    if isinstance(predicate, Call) and predicate.function in ("<", "<="):
        found = read_band(*predicate.args)
        if found and _is_event_time(query, found[0]) and _is_event_time(query, found[1]):
            yield (found[0].alias, found[1].alias), found[2]


def _is_event_time(query: Query, column: Column) -> bool:
    return column == query.input(column.alias).event_time


def _event_term(query: Query, expr: Expr) -> tuple[str, timedelta] | None:
    """(a, d) if the expression is the event time of a plus d."""
    term = read_term(expr)
    return (term[0].alias, term[1]) if term and _is_event_time(query, term[0]) else None
