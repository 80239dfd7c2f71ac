"""Columns replaced by what they stand for.

Guarantees: an expression keeps its type; a column that nothing is given for stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from weft.logical.expr.expression import Column, Expr, Literal, columns, transform
from weft.logical.query.limits import count_terms

__all__ = ["Replaced", "grown_terms", "substituted"]

# By alias and name of a column: the expression that it stands for.
Replaced = Mapping[str, Mapping[str, Expr]]


def substituted(expr: Expr, given: Replaced) -> Expr:
    """The expression with columns replaced."""

    def leaf(node: Column | Literal) -> Expr:
        if isinstance(node, Column):
            return given.get(node.alias, {}).get(node.name, node)
        return node

    return transform(expr, leaf)


def grown_terms(exprs: Iterable[Expr], given: Replaced) -> int:
    """By how many terms expressions would grow if their columns were replaced, beyond each replacement's own once."""
    sizes = {
        (alias, name): count_terms([one]) for alias, known in given.items() for name, one in known.items()
    }
    found = [(column.alias, column.name) for expr in exprs for column in columns(expr)]
    return sum((sizes[name] - 1) * (uses - 1) for name, uses in Counter(found).items() if name in sizes)
