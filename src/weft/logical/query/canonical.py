"""Queries under common names, so that what they share is equal.

Guarantees: in a canonical query an input is called after its stream, so a column of a stream is the same expression in
every query that reads it. The second and third time a query reads a stream, in the order of its signature, have a
number; inputs with a `ROWS` window have names of their own, since their tuples are counted and others' are not, and so
have those whose tuples are counted per some columns.
`joined_on` gives the conditions between some inputs: queries in which these are equal join the inputs in the same way,
apart from filters and windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from weft.logical.expr.expression import Expr, aliases, to_sql
from weft.logical.names import identifier
from weft.logical.query.query import Query
from weft.logical.query.signature import signature
from weft.logical.query.window import Rows, Window

__all__ = ["Canonical", "canonical", "joined_on", "readable"]


@dataclass(frozen=True, slots=True)
class Canonical:
    """A query under common names, and the names its author gave: (common, author's)."""

    query: Query
    names: tuple[tuple[str, str], ...]


def canonical(query: Query) -> Canonical:
    """A query under common names."""
    taken: dict[str, int] = {}
    names: dict[str, str] = {}
    for alias in signature(query).aliases:
        input_ = query.input(alias)
        base = f"{input_.stream.name}{_counted(input_.window)}"
        taken[base] = taken.get(base, 0) + 1
        names[alias] = base if taken[base] == 1 else f"{base}${taken[base]}"
    return Canonical(query.renamed(names), tuple(sorted((new, old) for old, new in names.items())))


def _counted(window: Window) -> str:
    if not isinstance(window, Rows):
        return ""
    return f"$rows per {', '.join(map(identifier, window.per))}" if window.per else "$rows"


def readable(text: str) -> str:
    """A text with common names as users may read them; names of streams and columns have no $ in them.

    >>> readable("`a$rows`.k = `b$2`.k"), readable("a$rows per k, j$3: replicated")
    ('a [ROWS].k = b (2).k', 'a [ROWS PER k, j] (3): replicated')
    """
    return _COMMON.sub(_spelled, text)


_COMMON = re.compile(r"(`?)(\w+)(\$rows(?: per (\w+(?:, \w+(?!\w|\$rows))*))?)?(?:\$(\d+))?\1")


def _spelled(found: re.Match[str]) -> str:
    _, name, rows, per, number = found.groups()
    if not rows and not number:
        return found.group()
    counted = f" [ROWS PER {per}]" if per else " [ROWS]" if rows else ""
    return f"{name}{counted}{f' ({number})' if number else ''}"


def joined_on(query: Query, names: Iterable[str]) -> tuple[Expr, ...]:
    """The equalities and predicates between some inputs, in normal form."""
    return _joined_on(query, frozenset(names))


@lru_cache(maxsize=4096)
def _joined_on(query: Query, names: frozenset[str]) -> tuple[Expr, ...]:
    keys = [inside for key in query.keys if (inside := key.restrict(names))]
    found = {equality for key in keys for equality in key.equalities()}
    found |= {expr for expr in (*query.predicates, *query.residuals) if aliases(expr) <= names}
    return tuple(sorted(found, key=to_sql))
