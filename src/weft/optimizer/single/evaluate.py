"""The cheapest way to use a tree with given layouts, and what it costs.

Guarantees: `price` is the cost of a `Shape`, computed step by step by `plan/schedule.py`, so it is that of the lowered
graph. `settle_below` chooses good probe orders for a tree and layouts, `settle_exactly` the best, and `lower_bound` is
never more than the best that any choice among several layouts can reach.

`settle_exactly` is exact for this reason: once the hop in which each stored intermediate result is complete is fixed,
the inputs' routes no longer depend on each other, and each is a shortest path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from weft.optimizer.cost import hop_cost, latency, probe_cost, storage_cost, store_cost
from weft.optimizer.single.probe_order import (
    Choices,
    Frontier,
    Order,
    Route,
    greedy_route,
    named_route,
    routes,
    visit,
)
from weft.optimizer.space import Space, Tree
from weft.plan.join_plan import Cost, StepCost, StoreCost
from weft.plan.schedule import LOCAL, ProbePlace, Spread, start, store_edge
from weft.stats.estimate import bits

__all__ = [
    "Layouts",
    "Shape",
    "affordable",
    "cheapest",
    "climb",
    "fixed_cost",
    "keeping_cost",
    "lower_bound",
    "price",
    "settle_below",
    "settle_exactly",
    "storing_routes",
]

Layouts = Mapping[int, Spread]

# Operators with more stores than this get greedy probe orders, unless the options say otherwise.
EXHAUSTIVE_STORES = 6


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan in the optimiser's terms; probe orders are kept by operator (its mask) and first input."""

    tree: Tree
    layouts: Layouts
    orders: Mapping[tuple[int, int], Order]
    total: float


def cheapest(space: Space, candidates: Iterable[tuple[Tree, Layouts]]) -> Shape | None:
    """The cheapest of some trees with layouts; None if all of them store too much.

    A candidate is given up as soon as it cannot be the cheapest. Once the deadline is over, the best so far is
    returned.
    """
    best: Shape | None = None
    for tree, layouts in candidates:
        if best is not None and space.deadline.over:
            break
        best = settle_below(space, tree, layouts, best.total if best else inf) or best
    return best


def affordable(space: Space, layouts: Layouts) -> bool:
    """Whether the stored tuples, copies included, are within the budget, if the user set one."""
    budget = space.options.budget
    return budget is None or _storage(space, layouts) <= budget


def _storage(space: Space, layouts: Layouts) -> float:
    return storage_cost(space.size(mask) * _stored_copies(space, spread) for mask, spread in layouts.items())


def settle_below(space: Space, tree: Tree, layouts: Layouts, bound: float) -> Shape | None:
    """The tree with these layouts and good probe orders; an inner operator takes the orders that are best up to there.

    The result is None if the cost reaches the bound, or if more is stored than the budget allows.
    """
    if not affordable(space, layouts):
        return None
    question = (tree, tuple(layouts[store] for operator in tree for store in operator))
    known: Shape | None = space.settled.get(question)
    if known is None:
        known = _settle(space, tree, layouts, bound)
        if known is not None:
            space.settled[question] = known
    return known if known is not None and known.total < bound else None


def _settle(space: Space, tree: Tree, layouts: Layouts, bound: float) -> Shape | None:
    choices = _decided(layouts)
    complete = {1 << i: 1 for i in range(space.count)}
    frontiers = [_entry(i, choices) for i in range(space.count)]
    spent = fixed_cost(space, layouts)
    for operator in tree:
        mask = sum(operator)
        hops = []
        for i in bits(mask):
            before = frontiers[i][0].cost
            frontiers[i] = climb(space, i, frontiers[i], operator, choices, complete)
            if mask != space.full:
                pairs = storing_routes(space, i, mask, frontiers[i], layouts[mask])
                best, hop = min(pairs, key=lambda pair: pair[0].cost + hop_cost(space.weights, pair[1]))
                frontiers[i] = [best]
                hops.append(hop)
            spent += min(route.cost for route in frontiers[i]) - before
            if spent + hop_cost(space.weights, max(complete.values())) >= bound:
                return None
        if hops:
            complete[mask] = max(hops)
    return _assemble(space, tree, layouts, frontiers, max(complete.values()))


def settle_exactly(space: Space, tree: Tree, layouts: Layouts, bound: float) -> Shape | None:
    """The tree with these layouts and the best probe orders there are; None if they cost ``bound`` or more."""
    best: Shape | None = None
    if not affordable(space, layouts):
        return None
    base = fixed_cost(space, layouts)
    for complete in _deadlines(tree):
        if base + hop_cost(space.weights, max(complete.values(), default=1)) < bound:
            shape = _in_time(space, tree, layouts, complete)
            if shape and shape.total < bound:
                # Results may be complete earlier than assumed, while a route was priced as waiting for them.
                shape = replace(shape, total=price(space, shape).total)
                if shape.total < bound:
                    best, bound = shape, shape.total
    return best


def lower_bound(space: Space, tree: Tree, choices: Choices) -> float:
    """A cost that no scheme of these choices is below: every route takes the layouts that suit it best."""
    frontiers = [_relaxed(space, i, tuple(_above(tree, i)), choices) for i in range(space.count)]
    least = sum(min(keeping_cost(space, mask, spread) for spread in choices[mask]) for mask in choices)
    return least + _best_last_hop(space, frontiers, 1)[0] + _latency_cost(space, tree)


def _relaxed(space: Space, i: int, above: tuple[tuple[int, ...], ...], choices: Choices) -> Frontier:
    """The routes of input i if it could choose all layouts, and if every store were complete at once."""
    seen = tuple(choices[store] for operator in above for store in operator)
    question = (i, above, seen, tuple(choices[sum(operator)] for operator in above[:-1]))
    known: Frontier | None = space.relaxed.get(question)
    if known is not None:
        return known
    complete, frontier = dict.fromkeys(choices, 1), _entry(i, choices)
    for operator in above:
        frontier = climb(space, i, frontier, operator, choices, complete, exhaustive=True)
        mask = sum(operator)
        if mask != space.full:
            ends = [route for s in choices[mask] for route, _ in storing_routes(space, i, mask, frontier, s)]
            frontier = list({route.place: route for route in sorted(ends, reverse=True)}.values())
    space.relaxed[question] = frontier
    return frontier


def _decided(layouts: Layouts) -> Choices:
    return {mask: (spread,) for mask, spread in layouts.items()}


def _deadlines(tree: Tree) -> Iterator[dict[int, int]]:
    """Every choice of hops for intermediate results to be complete in; none comes before those it is computed from."""
    inner = [sum(operator) for operator in tree[:-1]]
    latest = [1 + sum(len(o) for o in tree if not sum(o) & ~mask) for mask in inner]
    nested = [(a, b) for a in inner for b in inner if a != b and not a & ~b]
    for hops in product(*(range(1, last + 1) for last in latest)):
        complete = dict(zip(inner, hops, strict=True))
        if all(complete[a] <= complete[b] for a, b in nested):
            yield complete


def fixed_cost(space: Space, layouts: Layouts) -> float:
    """The cost that does not depend on probe orders: storing the inputs, and keeping all that is stored."""
    return sum(keeping_cost(space, mask, spread) for mask, spread in layouts.items())


def keeping_cost(space: Space, mask: int, spread: Spread) -> float:
    """The work of storing an input and of keeping any store."""
    rate = space.rates[mask.bit_length() - 1] if mask & (mask - 1) == 0 else 0.0
    return store_cost(space.weights, rate, space.size(mask), _stored_copies(space, spread), True)


def _stored_copies(space: Space, spread: Spread) -> int:
    return space.partitions if spread.kind == "replicated" else 1


def storing_routes(
    space: Space, i: int, mask: int, frontier: Frontier, spread: Spread
) -> Iterator[tuple[Route, int]]:
    """The routes, with the work of storing their matches added, and the hop in which the matches are stored."""
    count, tuples = _stored_copies(space, spread), space.tuples(i, mask)
    for route in frontier:
        edge, hop = store_edge(route.place, spread)
        work = store_cost(space.weights, tuples, 0.0, count, edge is not LOCAL)
        yield Route(route.cost + work, route.place, route.orders), hop


def climb(
    space: Space,
    i: int,
    frontier: Frontier,
    operator: tuple[int, ...],
    layouts: Choices,
    complete: Mapping[int, int],
    *,
    exhaustive: bool = False,
) -> Frontier:
    """The routes of input i continued through the other stores of an operator."""
    home = next(store for store in operator if store >> i & 1)
    others = [store for store in operator if store != home]
    mode = space.options.probe_orders
    if not space.options.reorder and all(len(layouts[store]) == 1 for store in others):
        return [named_route(space, i, home, route, others, layouts, complete) for route in frontier]
    if not exhaustive and (mode == "greedy" or (mode == "auto" and len(operator) > EXHAUSTIVE_STORES)):
        return [greedy_route(space, i, home, route, others, layouts, complete) for route in frontier]
    return routes(space, i, home, frontier, others, layouts, complete)


def _entry(i: int, choices: Choices) -> Frontier:
    return [Route(0.0, place, ()) for place in dict.fromkeys(start(spread) for spread in choices[1 << i])]


def _in_time(space: Space, tree: Tree, layouts: Layouts, complete: dict[int, int]) -> Shape | None:
    """The best shape in which every intermediate result is complete by the given hop; None if there is none."""
    choices = _decided(layouts)
    ready = {1 << i: 1 for i in range(space.count)} | complete
    frontiers = []
    for i in range(space.count):
        frontier = _entry(i, choices)
        for operator in _above(tree, i):
            frontier = climb(space, i, frontier, operator, choices, ready, exhaustive=True)
            mask = sum(operator)
            if mask != space.full:
                pairs = storing_routes(space, i, mask, frontier, layouts[mask])
                frontier = [route for route, hop in pairs if hop <= complete[mask]]
        if not frontier:
            return None
        frontiers.append(frontier)
    return _assemble(space, tree, layouts, frontiers, max(ready.values()))


def _assemble(
    space: Space, tree: Tree, layouts: Layouts, frontiers: list[Frontier], least_hops: int
) -> Shape:
    """The routes of all inputs that are cheapest together; as hops are shared, these may not be the cheapest alone."""
    total, chosen = _best_last_hop(space, frontiers, least_hops)
    orders = {
        (sum(operator), i): order
        for i, route in enumerate(chosen)
        for operator, order in zip(_above(tree, i), route.orders, strict=True)
    }
    return Shape(tree, layouts, orders, total + fixed_cost(space, layouts) + _latency_cost(space, tree))


def _best_last_hop(space: Space, frontiers: list[Frontier], least: int) -> tuple[float, list[Route]]:
    best: tuple[float, list[Route]] = (inf, [])
    for last in sorted({max(least, route.place.hop) for frontier in frontiers for route in frontier}):
        chosen = [min((r for r in f if r.place.hop <= last), default=None) for f in frontiers]
        found = [route for route in chosen if route is not None]
        if len(found) == len(frontiers):
            total = sum(route.cost for route in found) + hop_cost(space.weights, last)
            best = min(best, (total, found), key=lambda candidate: candidate[0])
    return best


def _above(tree: Tree, i: int) -> list[tuple[int, ...]]:
    return [operator for operator in tree if sum(operator) >> i & 1]


def _latency(space: Space, tree: Tree) -> float:
    """ELat averaged over the inputs, by their rates."""
    steps = [latency(len(operator) for operator in _above(tree, i)) for i in range(space.count)]
    return sum(r * s for r, s in zip(space.rates, steps, strict=True)) / (sum(space.rates) or 1.0)


def _latency_cost(space: Space, tree: Tree) -> float:
    return space.weights.latency * _latency(space, tree) if space.weights.latency else 0.0


def price(space: Space, shape: Shape) -> Cost:
    """The cost of a shape in full, with every step."""
    steps: list[StepCost] = []
    complete = {1 << i: 1 for i in range(space.count)}
    places = [start(shape.layouts[1 << i]) for i in range(space.count)]
    storing = 0.0
    for operator in shape.tree:
        mask = sum(operator)
        for i in bits(mask):
            found, places[i] = _steps(space, shape, operator, i, places[i], complete)
            steps += found
        if mask != space.full:
            entries = [(i, [Route(0.0, places[i], ())]) for i in bits(mask)]
            arrivals = [
                next(storing_routes(space, i, mask, entry, shape.layouts[mask])) for i, entry in entries
            ]
            storing += sum(route.cost for route, _ in arrivals)
            complete[mask] = max(hop for _, hop in arrivals)
    hops = max(*complete.values(), *(place.hop for place in places))
    work = sum(step.cost for step in steps) + storing + fixed_cost(space, shape.layouts)
    return Cost(
        total=work + hop_cost(space.weights, hops) + _latency_cost(space, shape.tree),
        storage=_storage(space, shape.layouts),
        probes=probe_cost((step.incoming, step.copies) for step in steps),
        shipped=probe_cost((step.incoming, step.copies) for step in steps if step.shipped),
        latency=_latency(space, shape.tree),
        hops=hops,
        steps=tuple(steps),
        stores=tuple(
            StoreCost(space.names(mask), space.size(mask), space.estimator.rate(mask))
            for mask in shape.layouts
        ),
    )


def _steps(
    space: Space,
    shape: Shape,
    operator: tuple[int, ...],
    i: int,
    place: ProbePlace,
    complete: Mapping[int, int],
) -> tuple[list[StepCost], ProbePlace]:
    known = next(store for store in operator if store >> i & 1)
    found = []
    for store in shape.orders[sum(operator), i]:
        cost, place, edge, count = visit(space, i, known, store, place, shape.layouts[store], complete[store])
        incoming, outgoing = space.tuples(i, known), space.tuples(i, known | store)
        name, names = space.query.aliases[i], space.names(store)
        found.append(StepCost(name, names, place.hop, incoming, count, edge is not LOCAL, outgoing, cost))
        known |= store
    return found, place
