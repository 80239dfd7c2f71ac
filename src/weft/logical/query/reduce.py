"""The normal form of a tree of joins.

Guarantees: the tree gives the same rows as the one written, WHERE applied. There are no right joins; and no outer join
pads rows that a condition above it rejects. Such a condition is a term of WHERE, of ON of an inner or semi join above,
or of ON of a left, semi or anti join on the right of which the padded rows are: a row that it rejects finds no partner
and is lost. Windows change nothing: whether two rows match does not depend on what else there is, and a padded row that
is never made is one that would have been dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.logical.expr.expression import Expr
from weft.logical.expr.nulls import rejects_null
from weft.logical.query.join_tree import Join

__all__ = ["only_inner", "simplify_joins"]


def simplify_joins(node: Join, where: Sequence[Expr]) -> Join:
    """The join, reduced by conditions that all its rows must fulfil."""
    node = _reduced(_turned(node), where)
    own = (*where, *node.on)
    above: dict[str, tuple[Sequence[Expr], Sequence[Expr]]] = {
        "inner": (own, own),
        "left": (where, node.on),
        "semi": (own, node.on),
        "anti": (where, node.on),
    }
    left, right = above.get(node.kind, ((), ()))
    return Join(node.kind, _side(node.left, left), _side(node.right, right), node.on)


def only_inner(node: Join) -> bool:
    """Whether a join and all below it are inner joins, so that their order does not matter."""
    below = [side for side in (node.left, node.right) if isinstance(side, Join)]
    return node.kind == "inner" and all(map(only_inner, below))


def _side(side: Join | str, where: Sequence[Expr]) -> Join | str:
    return simplify_joins(side, where) if isinstance(side, Join) else side


def _turned(node: Join) -> Join:
    return Join("left", node.right, node.left, node.on) if node.kind == "right" else node


def _reduced(node: Join, where: Sequence[Expr]) -> Join:
    """An outer join without the padded rows that cannot fulfil the conditions."""
    if node.kind not in ("left", "full"):
        return node
    lonely_right = node.kind == "full" and not _rejected(node.left, where)
    lonely_left = not _rejected(node.right, where)
    kind = {(True, True): "full", (True, False): "left", (False, True): "right", (False, False): "inner"}
    return _turned(Join(kind[lonely_left, lonely_right], node.left, node.right, node.on))


def _rejected(side: Join | str, where: Sequence[Expr]) -> bool:
    """Whether a row without this side fails one of the conditions."""
    missing = frozenset(side.visible if isinstance(side, Join) else (side,))
    return any(rejects_null(term, missing) for term in where)
