"""The best plan there is, against which heuristics are measured.

Guarantees: over all trees, all layouts and all probe orders, no plan is cheaper than the one found, except that plans
which wait for a later hop than necessary are not considered. The search is branch and bound: a set of layouts is
skipped if its lower bound is no better than the best plan known. If the deadline comes first, the best plan found until
then is returned.
"""

from __future__ import annotations

from weft.errors import PlanError
from weft.optimizer.single.evaluate import Shape, keeping_cost, lower_bound, settle_exactly
from weft.optimizer.single.partitioning import stores
from weft.optimizer.single.probe_order import Choices
from weft.optimizer.single.tree import all_trees
from weft.optimizer.space import Space, Tree
from weft.plan.schedule import Spread

__all__ = ["EXHAUSTIVE_INPUTS", "exhaustive"]

# Beyond this many inputs there are too many trees.
EXHAUSTIVE_INPUTS = 5


def exhaustive(space: Space, known: Shape) -> Shape:
    """The best of all plans; a good one that is ``known`` already makes the search shorter."""
    if space.count > EXHAUSTIVE_INPUTS:
        raise PlanError(
            f"the strategy exhaustive takes up to {EXHAUSTIVE_INPUTS} inputs, not {space.count}",
            hint="use auto",
        )
    best = known
    if space.deadline.over:
        return best
    every = [(tree, {store: space.spreads(store) for store in stores(tree)}) for tree in all_trees(space)]
    for tree, choices in sorted(every, key=lambda pair: lower_bound(space, *pair)):
        best = _search_layouts(space, tree, choices, best)
    return best


def _search_layouts(space: Space, tree: Tree, choices: Choices, best: Shape) -> Shape:
    """The better of ``best`` and all schemes for a tree."""
    if space.deadline.over:
        return best
    least = lower_bound(space, tree, choices)
    if least >= best.total:
        return best
    narrowed = {store: _affordable(space, store, choices, best.total - least) for store in choices}
    undecided = [store for store, spreads in narrowed.items() if len(spreads) > 1]
    if not undecided:
        layouts = {store: spreads[0] for store, spreads in narrowed.items()}
        return settle_exactly(space, tree, layouts, best.total) or best
    branch = min(undecided, key=lambda store: (len(narrowed[store]), -space.estimator.rate(store), store))
    for spread in narrowed[branch]:
        best = _search_layouts(space, tree, {**narrowed, branch: (spread,)}, best)
    return best


def _affordable(space: Space, store: int, choices: Choices, slack: float) -> tuple[Spread, ...]:
    """The layouts of a store that do not cost, by themselves, more than the best plan leaves to gain."""
    costs = {spread: keeping_cost(space, store, spread) for spread in choices[store]}
    cheapest = min(costs.values())
    return tuple(spread for spread, cost in costs.items() if cost - cheapest < slack)
