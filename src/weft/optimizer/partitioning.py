"""How the stores of a tree are spread (CLASH 6.4.3).

Guarantees: `schemes` is Figure 6.7, every assignment of candidate layouts to stores. They are many, so the heuristics
begin with a scheme that keeps as much as possible in the tasks of one key (a `Rule`), which makes few hops, and
`improve` it: one store at a time until no change helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from weft.optimizer.cost import hop_cost
from weft.optimizer.evaluate import Shape, fixed_cost, settle
from weft.optimizer.space import Space, Tree
from weft.plan.schedule import Spread

__all__ = ["Rule", "improve", "rules", "scheme", "schemes", "seed", "spread_by", "stores"]


class Rule(NamedTuple):
    """Partition all stores that have a key by it; the others in their own way (0) or replicated (-1)."""

    key: int
    others: int


def stores(tree: Tree) -> list[int]:
    """The stores of a tree: all that some operator probes."""
    return sorted(store for operator in tree for store in operator)


def schemes(space: Space, tree: Tree) -> Iterator[dict[int, Spread]]:
    """Every partitioning scheme: each store with each of its candidate layouts (Figure 6.7)."""
    masks = stores(tree)
    for spreads in product(*(space.spreads(mask) for mask in masks)):
        yield dict(zip(masks, spreads, strict=True))


def seed(space: Space, tree: Tree, rules: Iterable[Rule]) -> Shape:
    """The tree with the best of the schemes that some rules give."""
    shapes = (settle(space, tree, scheme(space, tree, rule)) for rule in rules)
    return min(shapes, key=lambda shape: shape.total)


def rules(space: Space, tree: Tree) -> list[Rule]:
    """All rules, those that suit a tree best first."""
    keys = dict.fromkeys(spread.key for mask in stores(tree) for spread in space.spreads(mask))
    every = [Rule(key, others) for key in keys for others in (0, -1)]
    return sorted(every, key=lambda rule: settle(space, tree, scheme(space, tree, rule)).total)


def scheme(space: Space, tree: Tree, rule: Rule) -> dict[int, Spread]:
    """The scheme a rule gives for a tree."""
    return {mask: spread_by(space, mask, rule) for mask in stores(tree)}


def spread_by(space: Space, mask: int, rule: Rule) -> Spread:
    """The layout a rule gives to a store."""
    by_key, found = Spread("partitioned", rule.key), space.spreads(mask)
    return by_key if by_key in found else found[rule.others]


def improve(space: Space, shape: Shape) -> Shape:
    """The shape after changing one layout at a time until no change helps."""
    improved = True
    while improved:
        improved = False
        for mask in stores(shape.tree):
            for spread in space.spreads(mask):
                if spread != shape.layouts[mask]:
                    layouts = {**shape.layouts, mask: spread}
                    # Whatever it saves, a plan costs its stores and one hop.
                    if fixed_cost(space, layouts) + hop_cost(space.weights, 1) < shape.total:
                        other = settle(space, shape.tree, layouts)
                        if other.total < shape.total:
                            shape, improved = other, True
    return shape
