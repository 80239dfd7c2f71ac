"""Sub-selects at the leaves of a tree of outer, semi and anti joins.

Guarantees: a condition of a sub-select is put where it decides the same rows as it did below: at the join that brings
the sub-select in, if this drops what has no partner or pads nothing of it; above the joins that keep the rows of the
sub-select, each once. Where there is no such place, `why_not_in_tree` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.logical.expr.expression import Expr, aliases, columns
from weft.logical.expr.nulls import is_null_without
from weft.logical.expr.substitute import Replaced, substituted
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Query

__all__ = ["Leaves", "joined_leaf", "rebuild_tree", "why_not_in_tree"]

Side = Join | str
# By alias of a sub-select: what stands in the tree in its place, and the conditions of it that need a place.
Leaves = Mapping[str, tuple[Side, tuple[Expr, ...]]]


def why_not_in_tree(query: Query, alias: str, inner: Query, given: Mapping[str, Expr]) -> str:
    """Why a sub-select without outer joins cannot become a part of a query's tree; empty if it can."""
    if query.outer is None:
        return ""
    if len(inner.inputs) == 1 and inner.filters and _has_place(query.outer, alias) is None:
        return "it has a condition, and is below a full outer join"
    used = {c.name for expr in query.expressions() for c in columns(expr) if c.alias == alias}
    missing = frozenset(inner.aliases)
    if _is_padded(query.outer, alias) and not all(is_null_without(given[name], missing) for name in used):
        return (
            "it is below an outer join, and selects an expression that need not be NULL without its streams"
        )
    return ""


def joined_leaf(names: Sequence[str], conditions: Sequence[Expr]) -> tuple[Side, tuple[Expr, ...]]:
    """The inputs of a sub-select as a leaf of a tree, and the conditions that need a place above it."""
    if len(names) == 1:
        return names[0], tuple(conditions)
    side: Side = names[0]
    seen, terms = {names[0]}, list(conditions)
    for name in names[1:]:
        seen.add(name)
        on = tuple(term for term in terms if aliases(term) <= seen)
        terms = [term for term in terms if term not in on]
        side = Join("inner", side, name, on)
    return side, ()


def rebuild_tree(tree: Join, leaves: Leaves, given: Replaced) -> tuple[Join, tuple[Expr, ...]]:
    """The tree with the inputs of sub-selects in place of these, and the conditions that go into WHERE."""
    sides: list[Side] = []
    rising: list[tuple[Expr, ...]] = []
    for side in (tree.left, tree.right):
        found = rebuild_tree(side, leaves, given) if isinstance(side, Join) else leaves.get(side, (side, ()))
        sides.append(found[0])
        rising.append(found[1])
    on = tuple(substituted(term, given) for term in tree.on)
    here, above = ((*rising[0], *rising[1]), ()) if tree.kind == "inner" else (rising[1], rising[0])
    return Join(tree.kind, sides[0], sides[1], (*on, *here)), above


def _has_place(tree: Join, alias: str) -> bool | None:
    """Whether a condition on a leaf finds a place in the tree; False: only above it; None: nowhere."""
    on_left = alias == tree.left or (isinstance(tree.left, Join) and alias in tree.left.aliases)
    side = tree.left if on_left else tree.right
    below = _has_place(side, alias) if isinstance(side, Join) else False
    if below is not False:
        return below
    if tree.kind == "full":
        return None
    return tree.kind == "inner" or not on_left  # rows that fail it have no partner; else the join keeps them


def _is_padded(tree: Join, alias: str) -> bool:
    """Whether rows of the tree can lack a tuple of an input."""
    left = tree.left if isinstance(tree.left, Join) else None
    right = tree.right if isinstance(tree.right, Join) else None
    if alias == tree.left or (left and alias in left.aliases):
        return tree.kind == "full" or (left is not None and _is_padded(left, alias))
    return tree.kind in ("full", "left") or (right is not None and _is_padded(right, alias))
