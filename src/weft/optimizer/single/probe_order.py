"""The order in which the stores of one operator are probed.

Guarantees: an order visits every store once, and makes a cross product only where no predicate leads to a store. Ties
go to the store of the lower mask, so orders are the same in every run.

`greedy_order` is Algorithm 1. `routes` is exhaustive: it keeps, for every set of stores visited, the cheapest way to
each place (hop and key), because where a tuple is decides whether its next step is local. A store may be given several
layouts; then every route takes the one that suits it best, which gives a lower bound for any choice that all share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from weft.optimizer.space import Space
from weft.plan.schedule import LOCAL, ProbePlace, Spread, step

__all__ = [
    "Choices",
    "Frontier",
    "Order",
    "Route",
    "greedy_order",
    "greedy_route",
    "named_route",
    "routes",
    "visit",
]

Order = tuple[int, ...]

# The layouts that each store may have; only one where it is decided.
Choices = Mapping[int, Sequence[Spread]]


class Route(NamedTuple):
    """A way through stores: its cost, where it ends, and the probe orders within the operators on the way."""

    cost: float
    place: ProbePlace
    orders: tuple[Order, ...]


# The routes that no other beats, at most one per place.
Frontier = list[Route]


def greedy_order(
    start: int,
    others: Iterable[int],
    tuples: Callable[[int], float],
    sent: Callable[[int, int], float],
    candidates: Callable[[int, tuple[int, ...]], Sequence[int]],
) -> Order:
    """The order of Algorithm 1: the next store is the one that, with the best after it, receives the fewest copies.

    ``tuples(known)`` is the size of what is joined so far, ``sent(known, store)`` the copies per tuple to a store.
    """
    order: Order = ()
    known, remaining = start, tuple(sorted(others))

    def lookahead(first: int) -> tuple[float, int]:
        joined = known | first
        rest = tuple(store for store in remaining if store != first)
        follow_up = min((sent(joined, store) for store in candidates(joined, rest)), default=0.0)
        return tuples(known) * sent(known, first) + tuples(joined) * follow_up, first

    while remaining:
        best = min(candidates(known, remaining), key=lookahead)
        remaining = tuple(store for store in remaining if store != best)
        order, known = (*order, best), known | best
    return order


def visit(
    space: Space, start: int, known: int, store: int, place: ProbePlace, spread: Spread, complete: int
) -> tuple[float, ProbePlace, str, float]:
    """The work of one step, where the matches are then, the kind of edge taken, and the copies sent."""
    routable = space.routable(spread.key, known)
    edge, there = step(place, spread, complete, routable)
    work = space.work(start, known, store, spread, place, space.tuples(start, known), edge is not LOCAL)
    return work + space.call_cost(start, known, store), there, edge, space.copies(spread, known)


def greedy_route(
    space: Space,
    start: int,
    home: int,
    entry: Route,
    others: Sequence[int],
    layouts: Choices,
    complete: Mapping[int, int],
) -> Route:
    """The route of Algorithm 1 through the other stores of an operator."""

    def sent(known: int, store: int) -> float:
        spread = layouts[store][0]
        return space.copies(spread, known) * space.load(spread)

    order = greedy_order(home, others, lambda known: space.tuples(start, known), sent, space.next_steps)
    return _along(space, start, home, entry, order, layouts, complete)


def named_route(
    space: Space,
    start: int,
    home: int,
    entry: Route,
    others: Sequence[int],
    layouts: Choices,
    complete: Mapping[int, int],
) -> Route:
    """The route through the other stores of an operator by their names, to those first that a condition leads to.

    It is what a join does that chooses no order (`Options.reorder`).
    """
    order: Order = ()
    known, remaining = home, tuple(sorted(others, key=space.names))
    while remaining:
        following = space.next_steps(known, remaining)[0]
        remaining = tuple(store for store in remaining if store != following)
        order, known = (*order, following), known | following
    return _along(space, start, home, entry, order, layouts, complete)


def _along(
    space: Space,
    start: int,
    home: int,
    entry: Route,
    order: Order,
    layouts: Choices,
    complete: Mapping[int, int],
) -> Route:
    """The route that visits the stores of an operator in an order, each in the first of its layouts."""
    known, cost, place = home, entry.cost, entry.place
    for store in order:
        work, place, _, _ = visit(space, start, known, store, place, layouts[store][0], complete[store])
        known, cost = known | store, cost + work
    return Route(cost, place, (*entry.orders, order))


# For each place, the cost to be there, the order within this operator, and the route before it.
_Arrivals = dict[ProbePlace, tuple[float, Order, Route]]


def routes(
    space: Space,
    start: int,
    home: int,
    entry: Frontier,
    others: Sequence[int],
    layouts: Choices,
    complete: Mapping[int, int],
) -> Frontier:
    """All routes through the other stores of an operator that no other route beats in cost and hop."""
    if len(others) == 1 and len(entry) == 1 and len(layouts[others[0]]) == 1:
        return [_only(space, start, home, entry[0], others[0], layouts, complete)]
    level: dict[int, _Arrivals] = {home: {route.place: (route.cost, (), route) for route in entry}}
    for _ in others:
        following: dict[int, _Arrivals] = {}
        for known, places in level.items():
            for store in space.next_steps(known, tuple(store for store in others if not store & known)):
                arrivals = following.setdefault(known | store, {})
                for spread in layouts[store]:
                    _arrive(space, start, known, places, store, spread, complete[store], arrivals)
        level = {known: _undominated(places) for known, places in following.items()}
    (places,) = level.values()
    return [Route(c, place, (*origin.orders, order)) for place, (c, order, origin) in places.items()]


def _only(
    space: Space,
    start: int,
    home: int,
    entry: Route,
    store: int,
    layouts: Choices,
    complete: Mapping[int, int],
) -> Route:
    """The only route of a binary operator; most operators of a deep tree are binary."""
    work, place, _, _ = visit(space, start, home, store, entry.place, layouts[store][0], complete[store])
    return Route(entry.cost + work, place, (*entry.orders, (store,)))


def _arrive(
    space: Space,
    start: int,
    known: int,
    places: _Arrivals,
    store: int,
    spread: Spread,
    complete: int,
    arrivals: _Arrivals,
) -> None:
    """Add the arrivals at a store from every place; figures that do not depend on the place are computed once."""
    routable = space.routable(spread.key, known)
    tuples = space.tuples(start, known)
    calls = space.call_cost(start, known, store)
    here, sent = (space.even_work(known, spread, tuples, shipped) + calls for shipped in (False, True))
    for place, (cost, order, origin) in places.items():
        edge, there = step(place, spread, complete, routable)
        total = cost + (here if edge is LOCAL else sent)
        if space.skew.is_known and (routable or spread.kind == "replicated"):
            total += space.skew.extra(start, known, store, spread, place, tuples, edge is not LOCAL)
        known_there = arrivals.get(there)
        if known_there is None or total < known_there[0]:
            arrivals[there] = (total, (*order, store), origin)


def _undominated(places: _Arrivals) -> _Arrivals:
    """The places without those that are neither earlier nor cheaper than another of the same key."""
    if len(places) == 1:
        return places
    cheapest: dict[tuple[int, tuple[str, ...]], float] = {}
    kept: _Arrivals = {}
    for place in sorted(places):  # by hop first, which says how late a place is
        cost = places[place][0]
        where = (place.key, place.heavy)
        if cost < cheapest.get(where, inf):
            cheapest[where] = cost
            kept[place] = places[place]
    return kept
