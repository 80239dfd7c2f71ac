"""From a query and statistics to a plan: the strategies by name.

Guarantees: a strategy is a function; what it returns is a valid plan with its cost. `auto` tries what the others find
and improves on the best, so it is never dearer than any of them but `exhaustive`. Nothing here depends on a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from weft.errors import ConfigError, nearest
from weft.logical.query import Query
from weft.optimizer.dynamic import WIDE, best_tree
from weft.optimizer.evaluate import Shape, price, settle
from weft.optimizer.exhaustive import exhaustive
from weft.optimizer.partitioning import Rule, improve, rules, seed
from weft.optimizer.space import Options, Space, Tree
from weft.optimizer.tree import (
    chain,
    dissolve,
    flat,
    greedy_left_deep,
    left_deep,
    materialise,
    merge,
)
from weft.plan.join_plan import Cost, JoinPlan, Operator, ProbeOrder, Store
from weft.stats.estimate import bits
from weft.stats.statistics import Statistics

__all__ = ["STRATEGIES", "optimise", "plan_cost"]

# So many rules of partitioning, of all there are, are tried on every tree.
RULES = 3
# The best tree costs much more to find, so it is found for fewer.
DYNAMIC_RULES = 2


def _rules(space: Space) -> list[Rule]:
    return rules(space, next(flat(space)))


def _best(space: Space, trees: Iterator[Tree]) -> Shape:
    """The cheapest of some trees, each with the rules that suit the query best, its layouts then improved."""
    distinct, few = dict.fromkeys(trees), _rules(space)[:RULES]
    return improve(space, min((seed(space, tree, few) for tree in distinct), key=_total))


def _total(shape: Shape) -> float:
    return shape.total


HEURISTICS = {
    "flat": flat,
    "left_deep": left_deep,
    "greedy_left_deep": greedy_left_deep,
    "chain": chain,
    "merge": merge,
}


def dynamic(space: Space) -> Iterator[Tree]:
    """The best tree for each of the rules that suit the query best."""
    for rule in _rules(space)[: DYNAMIC_RULES if space.count <= WIDE else 1]:
        yield best_tree(space, rule)


def auto(space: Space) -> Shape:
    """The best of flat, left-deep and dynamic trees; then, if inputs are few, one stored result more or less."""
    best = min((_best(space, trees(space)) for trees in (flat, left_deep, dynamic)), key=_total)
    while space.count <= WIDE:
        moves = [_adopt(space, best, tree) for tree in _neighbours(space, best.tree)]
        found = min(moves, key=_total, default=best)
        if found.total >= best.total:
            break
        best = improve(space, found)
    return best


def _neighbours(space: Space, tree: Tree) -> Iterator[Tree]:
    for operator in tree[:-1]:
        yield dissolve(tree, operator)
    for operator in tree:
        for count in range(2, min(4, len(operator))):
            for some in combinations(operator, count):
                if space.connected(sum(some)):
                    yield materialise(tree, operator, some)


def _adopt(space: Space, shape: Shape, tree: Tree) -> Shape:
    """A neighbouring tree with the layouts of the shape; what is new in it is laid out as is best."""
    known = {store: shape.layouts.get(store) for operator in tree for store in operator}
    new = [store for store, spread in known.items() if spread is None]
    base = {store: spread or space.spreads(store)[0] for store, spread in known.items()}
    options = [{**base, store: spread} for store in new for spread in space.spreads(store)] or [base]
    return min((settle(space, tree, layouts) for layouts in options), key=_total)


def _yardstick(space: Space) -> Shape:
    return exhaustive(space, auto(space))


def _strategy(heuristic: Callable[[Space], Iterator[Tree]]) -> Callable[[Space], Shape]:
    return lambda space: _best(space, heuristic(space))


STRATEGIES: dict[str, Callable[[Space], Shape]] = {
    "auto": auto,
    **{name: _strategy(heuristic) for name, heuristic in HEURISTICS.items()},
    "exhaustive": _yardstick,
}


def optimise(query: Query, statistics: Statistics, options: Options | None = None) -> JoinPlan:
    """The plan of a query, by the strategy that the options name."""
    options = options or Options()
    strategy = STRATEGIES.get(options.strategy)
    if strategy is None:
        raise ConfigError(
            f"there is no strategy {options.strategy!r}", hint=nearest(options.strategy, STRATEGIES)
        )
    if query.outer is not None or len(query.inputs) == 1:
        return JoinPlan(query, (), options.strategy, Cost(0.0, 0.0, 0.0, 0.0, 0.0, 0))
    space = Space(query, statistics, options)
    shape = strategy(space)
    return replace(_to_plan(space, shape), cost=price(space, shape))


def _to_plan(space: Space, shape: Shape) -> JoinPlan:
    operators = []
    for operator in shape.tree:
        stores = [Store(space.names(mask), space.layout(mask, shape.layouts[mask])) for mask in operator]
        mask = sum(operator)
        orders = [
            ProbeOrder(space.query.aliases[i], tuple(space.names(store) for store in shape.orders[mask, i]))
            for i in bits(mask)
        ]
        operators.append(Operator(tuple(stores), tuple(orders)))
    return JoinPlan(space.query, tuple(operators), space.options.strategy)


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
