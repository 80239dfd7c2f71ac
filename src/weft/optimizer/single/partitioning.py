"""How the stores of a tree are spread (CLASH 6.4.3).

Guarantees: a scheme assigns one of its candidate layouts to every store (Figure 6.7). There are too many schemes to try
all, so the heuristics begin with one that partitions as many stores as possible by one key (a `PartitioningRule`),
which makes few hops, and `improve` it, one store at a time, until no change helps.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from weft.optimizer.single.evaluate import Shape, settle_below
from weft.optimizer.space import Space, Tree
from weft.plan.schedule import Spread

__all__ = ["PartitioningRule", "improve", "rules", "scheme", "spread_by", "stores"]


class PartitioningRule(NamedTuple):
    """A rule that partitions every store by ``key`` if it has that key.

    ``others`` is which of their candidate layouts the other stores get: the first (0), or the last, which is replicated
    (-1). With ``heavy``, heavy values are scattered in all stores at once, since `improve`, which changes one store at
    a time, may have to pay for a hop before scattering saves anything.
    """

    key: int
    others: int
    heavy: bool = False


def stores(tree: Tree) -> list[int]:
    """The stores of a tree, which are all that some operator probes."""
    return sorted(store for operator in tree for store in operator)


def rules(space: Space, tree: Tree, count: int) -> list[PartitioningRule]:
    """At most ``count`` rules, those that suit a tree best first."""
    ranked: list[tuple[float, PartitioningRule]] = []
    keys = _busiest_keys(space, tree)[: 2 * count + 1]
    ways = (False, True) if space.skew.is_known else (False,)
    for rule in (
        PartitioningRule(key, others, heavy) for key in keys for others in (0, -1) for heavy in ways
    ):
        if ranked and space.deadline.over:
            break
        bound = ranked[count - 1][0] if len(ranked) >= count else inf
        shape = settle_below(space, tree, scheme(space, tree, rule), bound)
        if shape:
            ranked = sorted([*ranked, (shape.total, rule)])[:count]
    return [rule for _, rule in ranked]


def _busiest_keys(space: Space, tree: Tree) -> list[int]:
    """The keys, sorted by how many tuples can be placed by them, most first."""
    traffic: dict[int, float] = {}
    for mask in stores(tree):
        for spread in (spread for spread in space.spreads(mask) if not spread.heavy):
            traffic[spread.key] = traffic.get(spread.key, 0.0) + space.estimator.rate(mask)
    return sorted(traffic, key=lambda key: (-traffic[key], key))


def scheme(space: Space, tree: Tree, rule: PartitioningRule) -> dict[int, Spread]:
    """The scheme a rule gives for a tree."""
    return {mask: spread_by(space, mask, rule) for mask in stores(tree)}


def spread_by(space: Space, mask: int, rule: PartitioningRule) -> Spread:
    """The layout a rule gives to a store."""
    found = space.spreads(mask)
    by_key = [spread for spread in found if spread[:2] == ("partitioned", rule.key)]
    return by_key[min(int(rule.heavy), len(by_key) - 1)] if by_key else found[rule.others]


def improve(space: Space, shape: Shape, rounds: int) -> Shape:
    """The shape after changing one layout at a time, until no change helps or the rounds or the time are over."""
    for _ in range(rounds):
        before = shape
        for mask in stores(shape.tree):
            if space.deadline.over:
                return shape
            for spread in space.spreads(mask):
                if spread != shape.layouts[mask]:
                    changed = {**shape.layouts, mask: spread}
                    shape = settle_below(space, shape.tree, changed, shape.total) or shape
        if shape is before:
            break
    return shape
