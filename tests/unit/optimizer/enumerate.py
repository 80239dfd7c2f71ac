"""Every partitioning scheme of a tree, and a tree settled without a bound: what searches are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import inf

from weft.optimizer.single.evaluate import Layouts, Shape, settle_below
from weft.optimizer.single.partitioning import stores
from weft.optimizer.space import Space, Tree
from weft.plan.schedule import Spread


def schemes(space: Space, tree: Tree) -> Iterator[dict[int, Spread]]:
    """Every partitioning scheme: each store with each of its candidate layouts (Figure 6.7)."""
    masks = stores(tree)
    for spreads in product(*(space.spreads(mask) for mask in masks)):
        yield dict(zip(masks, spreads, strict=True))


def settle(space: Space, tree: Tree, layouts: Layouts) -> Shape:
    """The tree with these layouts and good probe orders; they must be within the budget."""
    found = settle_below(space, tree, layouts, inf)
    assert found is not None
    return found
