"""Queries under common names, so that what they share is equal, and signatures that tell whether two join the same.

Guarantees: in a canonical query an input is called after its stream, so a column of a stream is the same expression in
every query that reads it. The second and third time a query reads a stream, in the order of its signature, have a
number; inputs with a `ROWS` window have names of their own, since their tuples are counted and others' are not, and so
have those whose tuples are counted per some columns.
`joined_on` gives the conditions between some inputs: queries in which these are equal join the inputs in the same way,
apart from filters and windows.

Two queries have equal signatures iff a renaming of aliases maps the inputs (with their windows), filters and predicates
of one onto those of the other. The projection does not count: it decides which columns of the join are shown, not which
tuples are joined. The aliases are put into a canonical order by colour refinement; ties are broken by trying each
candidate and keeping the smallest text. Candidates that can be swapped without changing the query are tried once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from weft.logical.expr.expression import Expr, aliases, rename, to_sql
from weft.logical.names import identifier
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Query
from weft.logical.query.window import Rows, Window

__all__ = [
    "Canonical",
    "Signature",
    "canonical",
    "joined_on",
    "readable",
    "signature",
]


Colours = dict[str, int]


@dataclass(frozen=True, slots=True)
class Signature:
    """``text`` is equal for equal joins; ``aliases`` lists this query's aliases in the order of the text's."""

    text: str
    aliases: tuple[str, ...]


def signature(query: Query) -> Signature:
    """The canonical form of a join."""
    return _search(query, _refine(query, dict.fromkeys(query.aliases, 0)))


def _search(query: Query, colours: Colours) -> Signature:
    tie = _smallest_tie(colours)
    if not tie:
        order = sorted(colours, key=lambda alias: colours[alias])
        return Signature(_text(query, {alias: f"r{i}" for i, alias in enumerate(order)}), tuple(order))
    found = []
    for alias in _one_per_twins(query, tie):
        split = {name: 2 * colour + 1 for name, colour in colours.items()}
        split[alias] -= 1
        found.append(_search(query, _refine(query, split)))
    return min(found, key=lambda candidate: candidate.text)


def _refine(query: Query, colours: Colours) -> Colours:
    """Split colours by what the predicates say until that splits no more."""
    while True:
        marks = {alias: (colours[alias], _seen_from(query, alias, colours)) for alias in colours}
        ranks = {mark: rank for rank, mark in enumerate(sorted(set(marks.values())))}
        refined = {alias: ranks[marks[alias]] for alias in colours}
        if len(ranks) == len(set(colours.values())):
            return refined
        colours = refined


def _seen_from(query: Query, alias: str, colours: Colours) -> str:
    names = {other: f"c{colour}" for other, colour in colours.items()} | {alias: "self"}
    input_ = query.input(alias)
    parts = [text for text in _predicate_texts(query, names) if "self." in text]
    return f"{input_.stream.name} {input_.window} {parts} {_tree_text(query, names)}"


def _predicate_texts(query: Query, names: Mapping[str, str]) -> list[str]:
    texts = [to_sql(rename(expr, names)) for expr in query.conditions]
    texts += [" = ".join(sorted(to_sql(rename(m, names)) for m in key.members)) for key in query.keys]
    return sorted(texts)


def _text(query: Query, names: Mapping[str, str]) -> str:
    inputs = sorted(f"{names[i.alias]}: {i.stream.name} [{i.window}]" for i in query.inputs)
    return "; ".join([*inputs, *_predicate_texts(query, names), *_tree_text(query, names)])


def _tree_text(query: Query, names: Mapping[str, str]) -> list[str]:
    """The outer joins; their place matters, so they are part of what is joined."""

    def text(node: Join | str) -> str:
        if isinstance(node, str):
            return node
        on = " AND ".join(sorted(map(to_sql, node.on)))
        return f"({text(node.left)} {node.kind.upper()} JOIN {text(node.right)} ON {on})"

    return [text(query.outer.renamed(names))] if query.outer is not None else []


def _smallest_tie(colours: Colours) -> list[str]:
    groups: dict[int, list[str]] = {}
    for alias in sorted(colours):
        groups.setdefault(colours[alias], []).append(alias)
    ties = [group for _, group in sorted(groups.items()) if len(group) > 1]
    return min(ties, key=len, default=[])


def _one_per_twins(query: Query, tie: list[str]) -> list[str]:
    """One alias of each set of interchangeable ones."""
    kept: list[str] = []
    identity = _text(query, {alias: alias for alias in query.aliases})
    for alias in tie:
        swaps = ({a: a for a in query.aliases} | {alias: other, other: alias} for other in kept)
        if not any(_text(query, swap) == identity for swap in swaps):
            kept.append(alias)
    return kept


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
