"""Joins with one of several versions: `ASOF JOIN`, and `FOR SYSTEM_TIME AS OF`.

Guarantees: the right side of such a join is one input, the *versions*. If ON bounds its event time by that of an input
which no row of the left side misses, the version of the largest event time is chosen, of those that fulfil ON and are
inside the windows. Else ON has one comparison by order between a value of the version and one of the left side: the
version of the largest value is chosen if it must not be above the left one, and that of the smallest if it must not be
below (`VersionChoice`). Of several such versions it is the one with the largest values in the columns that the query
reads, in the order of their names, NULL before all others: so the answer depends neither on arrival nor on batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft.logical.expr.expression import Call, Column, Expr, aliases
from weft.logical.outer.outer import always, joins, visible
from weft.logical.outer.tables import Misplaced
from weft.logical.query.horizon import distances, is_time_bound
from weft.logical.query.join_tree import ASOF, LACKS_LEFT, Join
from weft.logical.query.query import Query

__all__ = ["AsOf", "VersionChoice", "asof_joins", "choice_of", "choices", "misplaced_versions"]

_HINT = "write a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts, with one comparison by order, and others in WHERE"


class AsOf(NamedTuple):
    """A join with the latest version: the input of the versions, and the input whose time decides.

    ``keys`` are the values of the versions that ON compares for equality with the left side. With ``superseded``, a
    version of use is the latest of its keys, since ON asks for nothing else.
    """

    versions: str
    asking: str
    keys: tuple[Expr, ...]
    superseded: bool


class VersionChoice(NamedTuple):
    """By which value of the versions that a row matches one is chosen: the ``latest`` is the one with the largest."""

    value: Expr
    latest: bool


def choices(query: Query, tree: Join) -> dict[int, VersionChoice]:
    """By the number of an ASOF join: by which value it chooses a version; none for those that choose by event time."""
    found = ((number, choice_of(query, join)) for number, join in joins(tree) if join.kind in ASOF)
    return {number: choice for number, choice in found if choice is not None}


def choice_of(query: Query, join: Join) -> VersionChoice | None:
    """By which value an ASOF join chooses a version; None if by event time, or if no one comparison says it."""
    if _asking(query, join) is not None:
        return None
    compared = list(_compared(join))
    return compared[0] if len(compared) == 1 else None


def _compared(join: Join) -> Iterator[VersionChoice]:
    """The values of versions that ON compares by order with values of the left side."""
    left = set(visible(join.left))
    for term in join.on:
        if isinstance(term, Call) and term.function in ("<", "<="):
            low, high = term.args
            for value, other, latest in ((low, high, True), (high, low, False)):
                if aliases(value) == {join.right} and aliases(other) and aliases(other) <= left:
                    yield VersionChoice(value, latest)


def asof_joins(query: Query, tree: Join) -> Iterator[AsOf]:
    """The joins of a tree with the latest version by event time, of which only rows of the left side are given."""
    for _, join in joins(tree):
        if join.kind in ASOF and join.kind not in LACKS_LEFT and isinstance(join.right, str):
            asking = _asking(query, join)
            if asking is not None:
                keys = tuple(sorted(_keys(join), key=str))
                plain = [term for term in join.on if not _is_plain(query, join, term)]
                yield AsOf(join.right, asking, keys, not plain and _columns_alone(keys))


def _columns_alone(keys: tuple[Expr, ...]) -> bool:
    return all(isinstance(key, Column) for key in keys)


def _asking(query: Query, join: Join) -> str | None:
    """The input of the left side whose event time is not before that of the version; None if there is none."""
    if not isinstance(join.right, str) or query.input(join.right).event_time is None:
        return None
    for term in join.on:
        if is_time_bound(query, term):
            for (later, earlier), bound in distances(query, term):
                if later == join.right and earlier in always(join.left) and not bound:
                    return earlier
    return None


def _keys(join: Join) -> Iterator[Expr]:
    for term in join.on:
        if isinstance(term, Call) and term.function == "=":
            yield from (side for side in term.args if aliases(side) == {join.right})


def _is_plain(query: Query, join: Join, term: Expr) -> bool:
    """Whether a term of ON is an equality of a value of the version with one of the left side, or the bound."""
    if isinstance(term, Call) and term.function == "=":
        sides = [aliases(side) for side in term.args]
        return {join.right} in sides and any(side and join.right not in side for side in sides)
    found = list(distances(query, term)) if is_time_bound(query, term) else []
    return any(pair[0] == join.right and pair[1] in visible(join.left) and not bound for pair, bound in found)


def misplaced_versions(query: Query) -> Misplaced | None:
    """What is wrong with the first join with the latest version that cannot be; None if all can."""
    for _, join in joins(query.outer) if query.outer is not None else ():
        if join.kind in ASOF:
            found = _wrong(query, join)
            if found is not None:
                return found
    return None


def _wrong(query: Query, join: Join) -> Misplaced | None:
    right = join.right
    if not isinstance(right, str):
        hint = f"{_HINT}; of a sub-select of several streams, d._time is the event time"
        return Misplaced(visible(right)[0], "the right side of an ASOF JOIN is one stream of versions", hint)
    if _asking(query, join) is not None or choice_of(query, join) is not None:
        return None
    several = len(list(_compared(join))) > 1
    many = "several comparisons by order, and so several" if several else "no comparison by order, and so no"
    return Misplaced(right, f"ON of this ASOF JOIN has {many} ways to choose a version of {right}", _HINT)
