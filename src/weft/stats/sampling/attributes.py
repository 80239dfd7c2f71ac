"""The attributes of streams that queries join on, which read tasks sample.

Guarantees: a function of the queries alone, so tasks and driver agree on the names. An attribute is a value that every
tuple of a stream has: a column, or an expression over the columns of one stream. A cast of whole numbers to a wider
type counts as its column, since equal whole numbers have equal words whatever their width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from weft.logical.expr.bounds import Bound, ValueRange, bounds, ranges
from weft.logical.expr.expression import BOOLEAN, Call, Column, Expr, aliases, make_call, rename, to_sql
from weft.logical.expr.user_functions import has_user_call
from weft.logical.query.horizon import is_time_bound
from weft.logical.query.query import Query

__all__ = [
    "Attribute",
    "JoinAttribute",
    "attribute_of",
    "bands_of",
    "comparisons_of",
    "equalities_of",
    "join_attributes",
    "plain_column",
]

_WIDTHS = {"byte": 1, "short": 2, "int": 4, "long": 8}


@dataclass(frozen=True, slots=True, order=True)
class Attribute:
    """A column of a stream, by its name, or an expression over one stream, by its text."""

    stream: str
    name: str


@dataclass(frozen=True, slots=True)
class JoinAttribute:
    """An attribute as tasks compute it: ``expr`` is over the input ``alias``.

    Where a query joins on its being equal, it is ``equal``; where one compares it by order, it is ``ordered``.
    """

    alias: str
    attribute: Attribute
    expr: Expr
    equal: bool = False
    ordered: bool = False


def plain_column(expr: Expr) -> Column | None:
    """The column that an expression is, but for a cast of whole numbers to a wider type; None if it is none."""
    if isinstance(expr, Call) and expr.function == "cast":
        (inner,) = expr.args
        wider = _WIDTHS.get(inner.type.name, 9) <= _WIDTHS.get(expr.type.name, 0)
        return plain_column(inner) if wider else None
    return expr if isinstance(expr, Column) else None


def attribute_of(query: Query, expr: Expr) -> Attribute:
    """The attribute that an expression over one input of a query is."""
    (alias,) = aliases(expr)
    stream = query.input(alias).stream.name
    column = plain_column(expr)
    return Attribute(stream, to_sql(rename(expr, {alias: stream})) if column is None else column.name)


def join_attributes(queries: Iterable[Query]) -> tuple[JoinAttribute, ...]:
    """The attributes that queries join on, each once, as computed of the first input that has it."""
    found: dict[Attribute, JoinAttribute] = {}
    for query in queries:
        sides = [(member, True) for key in query.keys for member in key.members]
        sides += [(side, False) for bound in comparisons_of(query) for side in (bound.stored, bound.base)]
        for expr, equal in sides:
            name, (alias,) = attribute_of(query, expr), aliases(expr)
            old = found.get(name) or JoinAttribute(alias, name, plain_column(expr) or expr)
            found[name] = JoinAttribute(
                old.alias, name, old.expr, old.equal or equal, old.ordered or not equal
            )
    return tuple(found[name] for name in sorted(found))


def equalities_of(query: Query) -> Iterator[tuple[Expr, Expr, Expr]]:
    """The equalities between any two members of a query's keys, as predicates, with their two sides."""
    for key in query.keys:
        for left, right in combinations(key.members, 2):
            yield make_call("=", (left, right), BOOLEAN), left, right


def comparisons_of(query: Query) -> Iterator[Bound]:
    """The predicates that compare numbers or times of two inputs, each as a bound of the first input's value.

    Bounds on the distance of two event times count as part of the windows, and are not among them.
    """
    stated = [p for p in query.predicates if not is_time_bound(query, p)]
    for one, other in combinations(query.aliases, 2):
        for bound in bounds(stated, frozenset({other}), frozenset({one})):
            sides = (bound.stored, bound.base)
            if all(_is_measured(side) and not has_user_call(side) for side in sides) and aliases(bound.base):
                yield bound


def bands_of(query: Query) -> tuple[ValueRange, ...]:
    """The pairs of comparisons that bound a value from both sides; no comparison is in two of them."""
    found, taken = list[ValueRange](), set[Expr]()
    for band in ranges(list(comparisons_of(query))):
        ends = {band.low.predicate, band.high.predicate}
        if not ends & taken:
            taken |= ends
            found.append(band)
    return tuple(found)


def _is_measured(expr: Expr) -> bool:
    """Whether the values of an expression are numbers or times, which have distances."""
    return expr.type.is_numeric or expr.type.is_time
