"""Where a table may stand among the joins of a query, and that there is a stream beside it.

Guarantees: in a query that passes, every row of every join that keeps rows without a partner has a tuple of a stream,
and whether a row of streams has a partner among streams does not depend on a table. A row that waits for a partner
would otherwise be told by one version of the table that it has one, and by the next that it has none.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.errors import QueryError
from weft.logical.outer.outer import Side, visible
from weft.logical.query.join_tree import LACKS_LEFT, Join
from weft.logical.query.query import Query

__all__ = ["Misplaced", "check_driven", "misplaced_table"]


class Misplaced(NamedTuple):
    """A table that stands where it cannot: its alias, what is wrong, and what to write instead."""

    alias: str
    message: str
    hint: str


def check_driven(query: Query) -> None:
    """Refuse a query that would never give a result, since it reads tables alone; a sub-select may."""
    if not query.driving:
        raise QueryError(
            f"{', '.join(query.aliases)}: a query needs a stream, since rows of tables never start a result",
            hint="join a stream with it, or read it with Spark",
        )


def misplaced_table(query: Query) -> Misplaced | None:
    """The first table among the joins of a query that cannot stand where it does; None if all can."""
    tables = frozenset(query.tables)
    return _in_side(query.outer, tables) if query.outer is not None and tables else None


def _in_side(side: Side, tables: frozenset[str]) -> Misplaced | None:
    if isinstance(side, str):
        return None
    return _at(side, tables) or _in_side(side.left, tables) or _in_side(side.right, tables)


def _at(join: Join, tables: frozenset[str]) -> Misplaced | None:
    if join.kind == "inner":
        return None
    for side in (join.left, join.right) if join.kind in LACKS_LEFT else (join.left,):
        if not _has_stream(side, tables):
            (first, *_) = visible(side)
            return Misplaced(
                first,
                f"{first} is a table: its rows start no result, so those without a partner are never given",
                "name the stream first, as in stream LEFT JOIN table",
            )
    away = [_names(join.left), _names(join.right)] if join.kind in LACKS_LEFT else [_names(join.right)]
    for names in away:
        inside = [name for name in names if name in tables]
        if inside and (len(inside) < len(names) or join.kind in LACKS_LEFT):
            return Misplaced(
                inside[0],
                f"table {inside[0]} cannot decide here whether tuples of streams are partners: another version of it "
                "could take back what was given",
                "join the streams first, and the table with what they give",
            )
    return None


def _has_stream(side: Side, tables: frozenset[str]) -> bool:
    """Whether every row of a side has a tuple of a stream."""
    if isinstance(side, str):
        return side not in tables
    left = _has_stream(side.left, tables)
    if side.kind == "inner":
        return left or _has_stream(side.right, tables)
    return left and (side.kind not in LACKS_LEFT or _has_stream(side.right, tables))


def _names(side: Side) -> tuple[str, ...]:
    return (side,) if isinstance(side, str) else side.aliases
