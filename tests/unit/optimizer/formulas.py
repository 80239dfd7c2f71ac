"""Definitions that the optimiser's short cuts are compared with: by formula, by trying all, or priced step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

from weft.optimizer.single.evaluate import Shape, price
from weft.optimizer.single.partitioning import stores
from weft.optimizer.space import Options, Space, Tree
from weft.plan.join_plan import Cost, JoinPlan
from weft.plan.schedule import Spread
from weft.stats.statistics import Statistics


def union_by_formula(sets: Sequence[str], common: Callable[[tuple[str, ...]], float]) -> float:
    """Crd by inclusion and exclusion (Equation 1): of n sets, 2ⁿ − 1 intersections.

    >>> union_by_formula("AB", {("A",): 5.0, ("B",): 4.0, ("A", "B"): 3.0}.__getitem__)
    6.0
    """
    found = 0.0
    for size in range(1, len(sets) + 1):
        sign = 1 if size % 2 else -1
        found += sign * sum(map(common, combinations(sets, size)))
    return found


def query_set(text: str) -> int:
    """A query-set as the paper prints it, the first query first.

    >>> bin(query_set("100100"))
    '0b1001'
    """
    return sum(1 << position for position, bit in enumerate(text) if bit == "1")


def schemes(space: Space, tree: Tree) -> Iterator[dict[int, Spread]]:
    """Every partitioning scheme: each store with each of its candidate layouts (Figure 6.7)."""
    masks = stores(tree)
    for spreads in product(*(space.spreads(mask) for mask in masks)):
        yield dict(zip(masks, spreads, strict=True))


def plan_cost(plan: JoinPlan, statistics: Statistics, options: Options | None = None) -> Cost:
    """What any plan costs, whoever made it."""
    space = Space(plan.query, statistics, options or Options())
    mask = space.estimator.mask
    tree = tuple(tuple(mask(store.aliases) for store in operator.stores) for operator in plan.operators)
    layouts = {mask(store.aliases): space.spread(store.layout) for store in plan.stores}
    orders = {
        (mask(operator.aliases), space.query.aliases.index(order.start)): tuple(map(mask, order.visits))
        for operator in plan.operators
        for order in operator.orders
    }
    return price(space, Shape(tree, layouts, orders, 0.0))
