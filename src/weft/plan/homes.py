"""Where the rows of a tree of joins are, given how its inputs are stored.

Guarantees: if `located` says so, then every row of the tree, and all that decides whether it is one, is in the
partition where it says; a row that misses an input, too. So a tree can be evaluated by every partition for itself.

A row has a place if one of its inputs is not replicated. What such rows are *by* are expressions whose value, where it
is not NULL, decides the partition: equal values are in one partition, so rows that an ON makes equal in them meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.logical.expr import Call, Expr
from weft.logical.join import Join
from weft.plan.join_plan import Layout

__all__ = ["Place", "located"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows are: in every partition alike, or each in one, told by the values of ``by``."""

    everywhere: bool
    by: frozenset[Expr] = frozenset()


def located(side: Join | str, layouts: Mapping[str, Layout]) -> Place | None:
    """Where the rows of a tree are; None if some of what decides on them is elsewhere."""
    if isinstance(side, str):
        layout = layouts[side]
        if layout.heavy:  # partners of a heavy value may be elsewhere
            return None
        by = frozenset() if layout.by is None else frozenset({layout.by})
        return Place(layout.kind == "replicated", by)
    left, right = located(side.left, layouts), located(side.right, layouts)
    if left is None or right is None:
        return None
    if left.everywhere and right.everywhere:
        return left
    if left.everywhere:  # whether its rows have a partner, no partition can tell
        return right if side.kind == "inner" else None
    if right.everywhere:
        return left if side.kind != "full" else None
    if not any(_meet(term, left.by, right.by) for term in side.on):
        return None
    return Place(False, left.by if side.kind in ("semi", "anti") else left.by | right.by)


def _meet(term: Expr, left: frozenset[Expr], right: frozenset[Expr]) -> bool:
    """Whether a condition makes values equal by which rows of both sides are placed."""
    if not isinstance(term, Call) or term.function != "=":
        return False
    one, other = term.args
    return (_tells(one, left) and _tells(other, right)) or (_tells(one, right) and _tells(other, left))


def _tells(expr: Expr, by: frozenset[Expr]) -> bool:
    """Whether a value, where it is not NULL, tells the place: it, or the first one there is of several that do."""
    if expr in by:
        return True
    is_first = isinstance(expr, Call) and expr.function == "coalesce"
    return is_first and isinstance(expr, Call) and all(_tells(arg, by) for arg in expr.args)
