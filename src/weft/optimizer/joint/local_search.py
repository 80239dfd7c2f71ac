"""Improving a plan of many queries by moves, each of which is kept only if the total cost falls.

Guarantees: `improve` never makes the walks dearer, nor lets them store more than the budget allows. It ends when no
move helps, or when the deadline of the walks is over; a move that is then under way is undone. A move takes some walks
away and routes them anew, one after the other, each given all that is paid for by then. The walks of a move are those
of a query or of an intermediate result; those that visit a store, which is then closed to them; those that take a step,
which they then avoid; or those that might visit a store, or begin with a step, that is made free for the move. The last
two kinds let queries change together: as long as others pay for the steps it takes, no query would leave them by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from math import inf

from weft.optimizer.joint.space.shared_cost import NoWayError, Owner, PaidWalks
from weft.optimizer.joint.space.workspace import WalkStep

__all__ = ["close_until_within", "improve"]

# A move must save more than this part of the cost; a smaller saving may be an error of rounding.
LEAST_GAIN = 1e-9

# How often all moves are tried at most.
ROUNDS = 8

_Walks = list[tuple[Owner, str]]
_Move = Callable[[], None]


def improve(paid: PaidWalks, rounds: int = ROUNDS, *, opening: bool = True, exchange: bool = False) -> None:
    """Try all moves until none helps, at most ``rounds`` times.

    The moves that take longest are tried only if asked for: with ``opening``, those that make a store or a first step
    free; with ``exchange``, those that replace one stored result by another.
    """
    search = _Search(paid, opening, exchange)
    for _ in range(rounds):
        before = paid.total
        search.round()
        if before - paid.total <= LEAST_GAIN * before:
            break


def close_until_within(paid: PaidWalks) -> None:
    """Close stores until what is stored is within the budget, each time the one that costs least per tuple it frees."""
    while paid.pool.excess > 0:
        trials = {store: _price_of_closing(paid, store) for store in _open_stores(paid)}
        cheapest = min(trials, key=lambda store: trials[store], default=None)
        if cheapest is None or trials[cheapest] == inf:
            raise NoWayError("no store can be closed")
        _reroute(paid, paid.visitors(cheapest), (cheapest,), ())


def _open_stores(paid: PaidWalks) -> list[int]:
    return sorted({step.store for paths in paid.walks.values() for path in paths.values() for step in path})


def _price_of_closing(paid: PaidWalks, store: int) -> float:
    """What closing a store adds to the cost for every tuple that it frees; infinite if it cannot be closed."""
    mark, before, used = paid.mark(), paid.total, paid.pool.used
    try:
        _reroute(paid, paid.visitors(store), (store,), ())
        freed = used - paid.pool.used
        price = (paid.total - before) / freed if freed > 0 else inf
    except NoWayError:
        paid.limit()
        price = inf
    paid.undo(mark)
    paid.total = before
    return price


class _Search:
    """Tries moves; a move that failed is tried again only after a walk from one of its inputs has changed."""

    def __init__(self, paid: PaidWalks, opening: bool, exchange: bool) -> None:
        self.paid = paid
        self._opening, self._exchange = opening, exchange
        self._clock = 0
        self._changed: dict[str, int] = {}
        self._tried: dict[object, int] = {}

    def round(self) -> None:
        """Try all moves once, until there is no time left."""
        for move in self._moves():
            if self.paid.deadline.over:
                break
            move()

    def _moves(self) -> Iterator[_Move]:
        """All moves, one after the other; later ones depend on what the earlier ones have changed."""
        for owner in tuple(self.paid.walks):
            if owner in self.paid.walks:
                yield partial(self._best_response, owner)
        for store in self._candidates():
            if self.paid.users.get(store):
                yield partial(self._close, store)
            elif self._opening:
                yield partial(self._open, store)
        for step in self._steps():
            yield partial(self._avoid, step)
        for step in self._first_steps() if self._opening else ():
            yield partial(self._begin_with, step)

    def _try(self, key: object, walks: _Walks, move: _Move) -> bool:
        self._clock += 1
        latest = max((self._changed.get(start, 0) for _, start in walks), default=-1)
        if latest < self._tried.get(key, 0):
            return False
        mark = self.paid.mark()
        self._tried[key] = self._clock
        if not _attempt(self.paid, move):
            return False
        for start in self.paid.touched(mark):
            self._changed[start] = self._clock
        return True

    def _begin_with(self, step: WalkStep) -> None:
        walks = [(owner, step.start) for owner in self.paid.walks if step.start in self.paid.walks[owner]]
        self._try(step[:-1], walks, partial(_reroute_with_step_paid, self.paid, step, walks))

    def _best_response(self, owner: Owner) -> None:
        """Route all walks of an owner anew, given all others; they may open any store they could visit."""
        walks = [(owner, start) for start in self.paid.walks[owner]]
        self._try(owner, walks, partial(_reroute, self.paid, walks, (), self.paid.inner(owner)))

    def _candidates(self) -> list[int]:
        """All stores that a walk might visit, smaller ones first."""
        stores = self.paid.workspace.stores
        found = {store for owner in self.paid.walks for store in self.paid.reachable(owner)}
        return sorted(found, key=lambda store: (len(stores[store].aliases), store))

    def _open(self, store: int) -> None:
        paid = self.paid
        owners = [owner for owner in paid.walks if store in paid.reachable(owner)]
        walks = [(owner, start) for owner in owners for start in paid.walks[owner]]
        rivals = _rivals(paid, store) if self._exchange else []
        self._try(("open", store), walks, partial(_reroute_with_store_open, paid, store, walks, (), rivals))

    def _close(self, store: int) -> None:
        paid = self.paid
        visitors = paid.visitors(store)
        allowed = _inner(paid, visitors)
        if self._try(("close", store), visitors, partial(_reroute, paid, visitors, (store,), allowed)):
            return
        for other in paid.workspace.layouts(paid.workspace.join_of(store)):
            move = partial(_reroute_with_store_open, paid, other, visitors, (store,))
            if other != store and self._try(("swap", store, other), visitors, move):
                return

    def _steps(self) -> list[WalkStep]:
        """All steps taken, those first that cost most."""
        every = {step for paths in self.paid.walks.values() for path in paths.values() for step in path}
        return sorted(every, key=lambda step: (-step.cost, step))

    def _avoid(self, step: WalkStep) -> None:
        takers = self.paid.takers(step)
        move = partial(_reroute, self.paid, takers, (), _inner(self.paid, takers), step)
        self._try(("avoid", step), takers, move)

    def _first_steps(self) -> list[WalkStep]:
        """The steps to open stores, or to inputs, that walks might begin with."""
        every = {step for owner in self.paid.walks for step in self.paid.first_steps(owner)}
        return sorted(s for s in every if self.paid.users.get(s.store) or self.paid.is_input(s.store))


def _attempt(paid: PaidWalks, move: _Move) -> bool:
    """Make a move, and undo it unless it helps; return whether it did."""
    mark, before, excess = paid.mark(), paid.total, paid.pool.excess
    try:
        move()
    except NoWayError:
        paid.limit()
    else:
        if paid.total < before * (1 - LEAST_GAIN) and paid.pool.excess <= excess:
            return True
    paid.undo(mark)
    paid.total = before
    return False


def _reroute(
    paid: PaidWalks,
    walks: _Walks,
    banned: Collection[int] = (),
    allowed: Collection[int] | None = None,
    avoided: WalkStep | None = None,
) -> None:
    """Take walks away and route them anew; stores that they visited may be opened again unless they are banned."""
    if paid.deadline.over:
        raise NoWayError("there is no time left")
    walks = [walk for walk in walks if walk[1] in paid.walks.get(walk[0], ())]
    paid.limit(_visited(paid, walks) if allowed is None else allowed, banned, avoided)
    for owner, start in walks:
        if start in paid.walks.get(owner, ()):
            paid.remove(owner, start)
    for owner, start in sorted(walks, key=lambda walk: len(paid.starts(walk[0]))):
        needed = isinstance(owner, str) or paid.users.get(owner)
        if needed and start not in paid.walks.get(owner, ()):
            paid.add_routed(owner, start)
    paid.limit()


def _visited(paid: PaidWalks, walks: Iterable[tuple[Owner, str]]) -> set[int]:
    stores = {step.store for owner, start in walks for step in paid.walks[owner][start]}
    return {paid.workspace.join_of(store) for store in stores if not paid.is_input(store)}


def _inner(paid: PaidWalks, walks: _Walks) -> frozenset[int]:
    return frozenset(join for owner, _ in walks for join in paid.inner(owner))


def _rivals(paid: PaidWalks, store: int) -> list[int]:
    """The open intermediate results that have an input in common with a store."""
    stores = paid.workspace.stores
    inputs = set() if paid.is_input(store) else set(stores[store].aliases)
    return [other for other in sorted(_open_results(paid)) if inputs & set(stores[other].aliases)]


def _open_results(paid: PaidWalks) -> set[int]:
    return {owner for owner in paid.walks if isinstance(owner, int)}


def _reroute_with_store_open(
    paid: PaidWalks,
    store: int,
    walks: _Walks,
    banned: Collection[int] = (),
    rivals: Collection[int] = (),
) -> None:
    """Route walks anew while a store costs nothing, so that several may begin to visit it at once.

    If other stores are banned, all walks are routed together. Afterwards the search tries to close each of the rivals.
    """
    new = not paid.users.get(store)
    paid.hold(store)
    try:
        if new and not paid.is_input(store):
            paid.limit(paid.inner(store), banned)
            paid.add_all(store)
            paid.limit()
        if banned:
            _reroute(paid, walks, banned)
        else:
            _reroute_by_input(paid, walks)
        for rival in rivals:
            visitors = paid.visitors(rival)
            if visitors:
                _attempt(paid, partial(_reroute, paid, visitors, (rival,), _inner(paid, visitors)))
    finally:
        paid.release(store)
    _close_unused(paid, store)


def _reroute_with_step_paid(paid: PaidWalks, step: WalkStep, walks: _Walks) -> None:
    """Route walks of one input anew while a first step of theirs costs nothing."""
    paid.pay_for(step.start, (step,))
    try:
        _reroute_by_input(paid, walks)
    finally:
        paid.stop_paying_for(step.start, (step,))
    _close_unused(paid, step.store)


def _close_unused(paid: PaidWalks, store: int) -> None:
    if not paid.users[store] and store in paid.walks:
        paid.remove_all(store)


def _reroute_by_input(paid: PaidWalks, walks: _Walks) -> None:
    """Route walks anew: those of one input, which may share steps, together, or else one at a time."""
    for start in dict.fromkeys(start for _, start in walks):
        mine = [walk for walk in walks if walk[1] == start]
        if not _attempt(paid, partial(_reroute, paid, mine)):
            for walk in mine:
                _attempt(paid, partial(_reroute, paid, [walk]))
