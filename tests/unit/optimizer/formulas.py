"""What any plan costs, priced step by step, to compare the optimiser's short cuts with."""

from __future__ import annotations

from weft.optimizer.single.evaluate import Shape, price
from weft.optimizer.space import Options, Space
from weft.plan.join_plan import Cost, JoinPlan
from weft.stats.statistics import Statistics


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
