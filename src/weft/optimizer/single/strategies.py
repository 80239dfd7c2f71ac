"""The strategies, by name, that make the plan of one query.

Guarantees: a strategy is a function that returns a valid plan with its cost, or None if every plan it knows stores more
than the user allows. The plan of `auto` is never dearer than that of `flat` or `left_deep`, and `auto` considers the
trees of all other heuristics; if the deadline comes first, it gives the best plan so far. Without a deadline nothing
here depends on a clock.

The strategy `exhaustive` is what heuristics are measured against: over all trees, all layouts and all probe orders, no
plan is cheaper than the one found, except that plans which wait for a later hop than necessary are not considered. The
search is branch and bound: a set of layouts is skipped if its lower bound is no better than the best plan so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

from weft.errors import ConfigError, PlanError, WeftError, nearest
from weft.logical.arguments import checked
from weft.logical.outer.outer import core_and_closing
from weft.logical.query.query import Query
from weft.optimizer.closing_layouts import choose_homes
from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.single.dynamic import WIDE, best_tree
from weft.optimizer.single.evaluate import (
    Layouts,
    Shape,
    cheapest,
    keeping_cost,
    lower_bound,
    price,
    settle_exactly,
)
from weft.optimizer.single.partitioning import PartitioningRule, improve, rules, scheme, stores
from weft.optimizer.single.probe_order import Choices
from weft.optimizer.single.tree import (
    all_trees,
    chain,
    dissolve,
    flat,
    greedy_left_deep,
    left_deep,
    make_tree,
    materialise,
    merge,
)
from weft.optimizer.space import Options, Space, Tree, check_inputs
from weft.plan.join_plan import Cost, JoinPlan, Operator, ProbeOrder, Store
from weft.plan.schedule import Spread
from weft.stats.estimate import bits
from weft.stats.statistics import Statistics

__all__ = [
    "BUILT_IN",
    "EXHAUSTIVE_INPUTS",
    "STRATEGIES",
    "JoinProblem",
    "costs_of",
    "optimise",
    "register_strategy",
]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to search; less for queries of many inputs, which have more trees, rules and stores."""

    rules: int  # rules of partitioning tried on every tree
    best_trees: int  # rules for which the best tree is found
    rounds: int  # rounds of changing layouts, for every heuristic
    last_rounds: int  # rounds of changing layouts, for the best of them
    neighbours: bool  # whether to try one stored result more or less


# Join graphs with more connected sets per input than a chain of six has are dense: their best tree takes long to find.
DENSE = 3.5


def _effort(space: Space) -> Effort:
    if space.count > WIDE:
        return Effort(rules=1, best_trees=1, rounds=0, last_rounds=1, neighbours=False)
    sets = sum(space.connected(mask) for mask in range(1, space.full + 1))
    return Effort(
        rules=3, best_trees=2 if sets <= DENSE * space.count else 1, rounds=9, last_rounds=0, neighbours=True
    )


@lru_cache(maxsize=1)
def _rules(space: Space) -> list[PartitioningRule]:
    tree = next(
        flat(space) if space.count <= WIDE else left_deep(space)
    )  # an operator of many stores takes long
    return rules(space, tree, _effort(space).rules)


def _best(space: Space, trees: Iterable[Tree]) -> Shape | None:
    """The cheapest of some trees, each tried with the rules that suit the query best; its layouts are then improved."""
    effort = _effort(space)
    few = _rules(space)
    pairs = ((tree, scheme(space, tree, rule)) for tree in dict.fromkeys(trees) for rule in few)
    found = cheapest(space, pairs) or cheapest(space, ((tree, _thrifty(space, tree)) for tree in trees))
    return improve(space, found, effort.rounds) if found else None


def _thrifty(space: Space, tree: Tree) -> Layouts:
    """The layouts that store the fewest tuples, since nothing is replicated."""
    return {store: space.spreads(store)[0] for store in stores(tree)}


HEURISTICS = {
    "flat": flat,
    "left_deep": left_deep,
    "greedy_left_deep": greedy_left_deep,
    "chain": chain,
    "merge": merge,
}


def dynamic(space: Space) -> Iterator[Tree]:
    """The best tree for each of the rules that suit the query best."""
    for rule in _rules(space)[: _effort(space).best_trees]:
        tree = best_tree(space, rule)
        if tree is not None:
            yield tree


def auto(space: Space) -> Shape | None:
    """The best plan of all heuristics and of dynamic trees; with few inputs, one stored result more or less, too."""
    found: list[Shape] = []
    first = ((flat,), (left_deep,)) if space.count <= WIDE else ((left_deep,), (flat,))
    for heuristics in (*first, (greedy_left_deep, chain, merge, dynamic)):
        if found and space.deadline.over:
            break
        trees = [tree for heuristic in heuristics for tree in heuristic(space)]
        found += [shape for shape in (_best(space, trees),) if shape is not None]
    best = min(found, key=lambda shape: shape.total, default=None)
    best = improve(space, best, _effort(space).last_rounds) if best else None
    while best and _effort(space).neighbours and not space.deadline.over:
        moves = [pair for tree in _neighbours(space, best.tree) for pair in _adopted(space, best, tree)]
        moved = cheapest(space, moves)
        if moved is None or moved.total >= best.total:
            break
        best = improve(space, moved, _effort(space).rounds)
    return best


def _neighbours(space: Space, tree: Tree) -> Iterator[Tree]:
    for operator in tree[:-1]:
        yield dissolve(tree, operator)
    for operator in tree:
        for count in range(2, min(4, len(operator))):
            for some in combinations(operator, count):
                if space.storable(sum(some)):
                    yield materialise(tree, operator, some)


def _adopted(space: Space, shape: Shape, tree: Tree) -> Iterator[tuple[Tree, Layouts]]:
    """A neighbouring tree with the layouts of the shape, once for each layout of the store that is new in it."""
    known = {store: shape.layouts.get(store) for operator in tree for store in operator}
    new = [store for store, spread in known.items() if spread is None]
    base = {store: spread or space.spreads(store)[0] for store, spread in known.items()}
    yield tree, base
    for store in new:
        for spread in space.spreads(store)[1:]:
            yield tree, {**base, store: spread}


def _yardstick(space: Space) -> Shape | None:
    known = auto(space)
    return _exhaustive(space, known) if known else None


def _strategy(heuristic: Callable[[Space], Iterator[Tree]]) -> Callable[[Space], Shape | None]:
    return lambda space: _best(space, list(heuristic(space)))


STRATEGIES: dict[str, Callable[[Space], Shape | None]] = {
    "auto": auto,
    **{name: _strategy(heuristic) for name, heuristic in HEURISTICS.items()},
    "exhaustive": _yardstick,
}


# -- Strategies of users (CLASH 8.3) --------------------------------------------------------------------------------

BUILT_IN = tuple(STRATEGIES)

# A tree as users write it: the aliases of inputs, and in brackets those whose join is stored.
Nested: TypeAlias = "str | Sequence[Nested]"


class JoinProblem:
    """What a strategy of one's own is asked: a query, and what is expected of the joins of some of its inputs.

    ``query`` is the query in its normal form, with ``aliases`` for its inputs, and ``budget`` is how many tuples may be
    stored, by default twice as many as the inputs have.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.query, self.aliases, self.budget = space.query, space.query.aliases, space.budget

    def _mask(self, aliases: Iterable[str]) -> int:
        return self._space.estimator.mask(frozenset(aliases))

    def size(self, *aliases: str) -> float:
        """How many tuples the join of these inputs has within its windows."""
        return self._space.size(self._mask(aliases))

    def rate(self, *aliases: str) -> float:
        """How many tuples a second the join of these inputs gives."""
        return self._space.estimator.rate(self._mask(aliases))

    def can_store(self, *aliases: str) -> bool:
        """Whether the join of these inputs may be stored: it is no cross product, and has no table in it."""
        return self._space.storable(self._mask(aliases))


@checked(ConfigError, but=("strategy",))
def register_strategy(name: str, strategy: Callable[[JoinProblem], Iterable[Nested]]) -> None:
    """Let a function decide which intermediate results are stored, under a name that sessions and queries can ask for.

    - ``name``: as in ``session.query(…, strategy="mine")``; the strategies of Weft's own keep theirs.
    - ``strategy``: a function of a `JoinProblem` that gives trees, of which the cheapest is taken. A tree has all
      aliases: ``("a", "b", "c")`` stores the inputs only, ``(("a", "b"), "c")`` the join of a and b as well. Layouts
      and probe orders are chosen by cost, as for every other strategy.

    It is known in this process alone, so plans made by it stay as they are until queries come or go.
    """
    if name in BUILT_IN or not name.isidentifier():
        raise ConfigError(
            f"a strategy cannot be called {name!r}",
            hint="use letters, digits and underscores, and none of " + ", ".join(BUILT_IN),
        )
    if not callable(strategy):
        raise ConfigError(f"strategy {name} is {strategy!r}", hint="use a function of a weft.JoinProblem")
    STRATEGIES[name] = lambda space: _best(space, _own_trees(space, name, strategy))


def _own_trees(space: Space, name: str, strategy: Callable[[JoinProblem], Iterable[Nested]]) -> list[Tree]:
    """The trees that a user's strategy gives, each of which must be one."""
    try:
        trees = [_own_tree(space, name, nested) for nested in strategy(JoinProblem(space))]
    except WeftError:
        raise
    except Exception as error:
        raise PlanError(
            f"strategy {name} fails: {type(error).__name__}: {error}",
            hint=f"mend it, or plan by another one, as in strategy={BUILT_IN[0]!r}",
        ) from error
    if not trees:
        raise PlanError(f"strategy {name} gives no tree", hint=f"give one, as in {[space.query.aliases]}")
    return trees


def _own_tree(space: Space, name: str, nested: Nested) -> Tree:
    operators: list[tuple[int, ...]] = []

    def read(part: Nested) -> int:
        if isinstance(part, str):
            if part not in space.query.aliases:
                raise PlanError(
                    f"strategy {name} names {part!r}, which is no input",
                    hint=nearest(part, space.query.aliases),
                )
            return 1 << space.query.aliases.index(part)
        masks = tuple(map(read, part))
        operators.append(masks)
        return sum(masks)

    named = sorted(_leaves(nested))
    read(nested)
    if named != sorted(space.query.aliases):
        raise PlanError(
            f"strategy {name} gives the tree {nested!r}, in which not every input is once",
            hint=f"give trees of {', '.join(space.query.aliases)}",
        )
    for masks in operators:
        if len(masks) < 2 or not (sum(masks) == space.full or space.storable(sum(masks))):
            raise PlanError(
                f"strategy {name} stores {', '.join(space.names(sum(masks)))}, which cannot be stored",
                hint="ask JoinProblem.can_store first",
            )
    return make_tree(operators)


def _leaves(nested: Nested) -> list[str]:
    return [nested] if isinstance(nested, str) else [leaf for part in nested for leaf in _leaves(part)]


def optimise(
    query: Query, statistics: Statistics, options: Options | None = None, deadline: Deadline = NEVER
) -> JoinPlan:
    """The best plan of a query that the strategy named by the options knows, or has found by the deadline."""
    options = options or Options()
    check_inputs(query, options)
    strategy = STRATEGIES.get(options.strategy)
    if strategy is None:
        raise ConfigError(
            f"there is no strategy {options.strategy!r}", hint=nearest(options.strategy, STRATEGIES)
        )
    if query.outer is not None:
        return _closed(query, statistics, options, deadline)
    if len(query.inputs) == 1:
        return JoinPlan(query, (), options.strategy, _NOTHING)
    space = Space(query, statistics, options, deadline)
    shape = strategy(space)
    if shape is None and options.budget is None:
        raise PlanError(
            f"no plan of {space.count} inputs has a cost that is a number",
            hint="join fewer, or shorten their windows",
        )
    if shape is None:
        least = sum(space.size(1 << i) for i in range(space.count))
        raise PlanError(
            f"no plan by {options.strategy} stores at most {options.budget:.0f} tuples",
            hint=f"the inputs alone are about {least:.0f}; shorten their windows, or raise the budget",
        )
    return replace(_to_plan(space, shape), cost=price(space, shape))


_NOTHING = Cost(0.0, 0.0, 0.0, 0.0, 0.0, 0)


def _closed(query: Query, statistics: Statistics, options: Options, deadline: Deadline) -> JoinPlan:
    """The plan of a query with outer joins: that of its core, if probes find results, and stores to close it from."""
    core, closing = core_and_closing(query)
    if closing is None:
        raise PlanError("only a query with outer joins is closed")
    if not closing.walked:
        homes = choose_homes(core, closing, statistics, options.partitions)
        return JoinPlan(core, (), options.strategy, _NOTHING, closing, homes)
    found = optimise(core, statistics, options, deadline)
    homes = choose_homes(core, closing, statistics, options.partitions, found.stores)
    return replace(found, closing=closing, homes=homes)


def costs_of(
    query: Query,
    statistics: Statistics,
    options: Options,
    deadline_of: Callable[[Options], Deadline] = lambda _: NEVER,
) -> dict[str, Cost | WeftError]:
    """The cost of a query by every strategy, or the error why it has none; each strategy has a deadline of its own."""
    costs: dict[str, Cost | WeftError] = {}
    for strategy in STRATEGIES:
        chosen = replace(options, strategy=strategy)
        try:
            plan = optimise(query, statistics, chosen, deadline_of(chosen))
        except WeftError as error:
            costs[strategy] = error
        else:
            costs[strategy] = plan.cost or _NOTHING
    return costs


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


# Beyond this many inputs there are too many trees.
EXHAUSTIVE_INPUTS = 5


def _exhaustive(space: Space, known: Shape) -> Shape:
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
