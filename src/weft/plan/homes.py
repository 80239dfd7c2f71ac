"""Where the rows of a tree of joins are, given how its inputs are stored.

Guarantees: if `locate_rows` gives a place, then every row of the tree is in that partition, together with all tuples
that decide whether it is a row; this includes rows that miss an input. So every partition can evaluate the tree by
itself.

A row has one place if one of its inputs is not replicated. `RowPlace.by` are expressions whose value, where it is not
NULL, decides the partition of a row. Rows with equal values are in one partition, so rows that an ON makes equal in
such values meet there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.logical.expr.expression import Call, Expr
from weft.logical.query.join_tree import LACKS_LEFT, TESTS, Join
from weft.plan.join_plan import Layout

__all__ = ["RowPlace", "locate_rows"]


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where rows are: all of them in every partition, or each in one, which the values of ``by`` decide."""

    everywhere: bool
    by: frozenset[Expr] = frozenset()


def locate_rows(side: Join | str, layouts: Mapping[str, Layout]) -> RowPlace | None:
    """Where the rows of a tree are; None if tuples that decide about them may be in another partition."""
    if isinstance(side, str):
        layout = layouts[side]
        if layout.heavy:  # partners with a heavy value may be in any partition
            return None
        by = frozenset() if layout.by is None else frozenset({layout.by})
        return RowPlace(layout.kind == "replicated", by)
    left, right = locate_rows(side.left, layouts), locate_rows(side.right, layouts)
    if left is None or right is None:
        return None
    if left.everywhere and right.everywhere:
        return left
    if left.everywhere:  # no single partition can tell that a left row has no partner
        return right if side.kind == "inner" else None
    if right.everywhere:
        return left if side.kind not in LACKS_LEFT else None
    if not any(_meet(term, left.by, right.by) for term in side.on):
        return None
    return RowPlace(False, left.by if side.kind in TESTS else left.by | right.by)


def _meet(term: Expr, left: frozenset[Expr], right: frozenset[Expr]) -> bool:
    """Whether a condition is an equality of two values, each of which decides the partition of one side's rows."""
    if not isinstance(term, Call) or term.function != "=":
        return False
    one, other = term.args
    return (_tells(one, left) and _tells(other, right)) or (_tells(one, right) and _tells(other, left))


def _tells(expr: Expr, by: frozenset[Expr]) -> bool:
    """Whether a value that is not NULL decides the partition: it is one of ``by``, or a COALESCE of such values."""
    if expr in by:
        return True
    is_first = isinstance(expr, Call) and expr.function == "coalesce"
    return is_first and isinstance(expr, Call) and all(_tells(arg, by) for arg in expr.args)
