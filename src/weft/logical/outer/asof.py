"""Joins with the latest version: `ASOF JOIN`, and `FOR SYSTEM_TIME AS OF`.

Guarantees: the right side of such a join is one input with event time, the *versions*; ON bounds its event time by that
of an input which no row of the left side misses. Of the versions that fulfil ON and are inside the windows, a left row
is joined with the one of the largest event time. Of several of the same time it is the one with the largest values in
the columns that the query reads, in the order of their names, NULL before all others: so the answer depends neither on
arrival nor on batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft.logical.expr.expression import Call, Column, Expr, aliases
from weft.logical.outer.outer import always, joins, visible
from weft.logical.outer.tables import Misplaced
from weft.logical.query.horizon import distances, is_time_bound
from weft.logical.query.join_tree import ASOF, Join
from weft.logical.query.query import Query

__all__ = ["AsOf", "asof_joins", "misplaced_versions"]

_HINT = "write a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts, with the event times of both"


class AsOf(NamedTuple):
    """A join with the latest version: the input of the versions, and the input whose time decides.

    ``keys`` are the values of the versions that ON compares for equality with the left side. With ``superseded``, a
    version of use is the latest of its keys, since ON asks for nothing else.
    """

    versions: str
    asking: str
    keys: tuple[Expr, ...]
    superseded: bool


def asof_joins(query: Query, tree: Join) -> Iterator[AsOf]:
    """The joins with the latest version in a tree."""
    for _, join in joins(tree):
        if join.kind in ASOF and isinstance(join.right, str):
            asking = _asking(query, join)
            if asking is not None:
                keys = tuple(sorted(_keys(join), key=str))
                plain = [term for term in join.on if not _is_plain(query, join, term)]
                yield AsOf(join.right, asking, keys, not plain and _columns_alone(keys))


def _columns_alone(keys: tuple[Expr, ...]) -> bool:
    return all(isinstance(key, Column) for key in keys)


def _asking(query: Query, join: Join) -> str | None:
    """The input of the left side whose event time is not before that of the version; None if there is none."""
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
    stream = query.input(right).stream
    if stream.table:
        return Misplaced(right, f"{right} is a table, which has no versions by time", "use JOIN")
    if stream.event_time is None:
        return Misplaced(
            right, f"{right} has no event time to tell its versions by", "register it with event_time"
        )
    if _asking(query, join) is None:
        return Misplaced(
            right,
            f"ASOF JOIN needs a condition that compares the event time of {right} with that of a stream to its left",
            _HINT,
        )
    return None
