"""How a plan of many queries is improved: moves, each kept only if the cost of all falls.

Guarantees: `improve` never makes the walks dearer, and ends. A move takes some walks away and routes them anew, one
after the other, each given all that is paid then: the walks of a query or of an intermediate result, those that visit
a store, which may then be closed to them, and those that a store opened for them may suit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from weft.optimizer.paid import NoWayError, Owner, Paid
from weft.optimizer.workspace import Step

__all__ = ["improve"]

# A move must save more than this part of the cost, or sums of floats in another order would pass for one.
LEAST_GAIN = 1e-9

# How often all moves are tried.
ROUNDS = 8

_Walks = list[tuple[Owner, str]]


def improve(paid: Paid, rounds: int = ROUNDS) -> None:
    """Try all moves until none helps."""
    for _ in range(rounds):
        before = paid.total
        for owner in tuple(paid.walks):
            if owner in paid.walks:
                _best_response(paid, owner)
        for store in _candidates(paid):
            _change(paid, store)
        for step in _steps(paid):
            _avoid(paid, step)
        for step in _first_steps(paid):
            _attempt(paid, partial(_with_paid, paid, step))
        if before - paid.total <= LEAST_GAIN * before:
            break


def _best_response(paid: Paid, owner: Owner) -> None:
    """The walks of an owner given all others; it may open whatever it could visit."""
    walks = [(owner, start) for start in paid.walks[owner]]
    _attempt(paid, partial(_again, paid, walks, (), paid.inner(owner)))


def _candidates(paid: Paid) -> list[int]:
    """All stores that a walk might visit, smaller ones first."""
    workspace = paid.workspace
    found = {store for owner in tuple(paid.walks) for store in paid.reachable(owner)}
    return sorted(found, key=lambda store: (len(workspace.stores[store].aliases), store))


def _change(paid: Paid, store: int) -> None:
    if not paid.users.get(store):
        _attempt(paid, partial(_with_open, paid, store, _suited(paid, store)))
        return
    visitors = paid.visitors(store)
    allowed = frozenset(join for owner, _ in visitors for join in paid.inner(owner))
    if _attempt(paid, partial(_again, paid, visitors, (store,), allowed)):
        return
    for other in paid.workspace.layouts(paid.workspace.join_of(store)):
        if other != store and _attempt(paid, partial(_with_open, paid, other, visitors, (store,))):
            return


def _steps(paid: Paid) -> list[Step]:
    """All steps taken, those first that cost most."""
    every = {step for paths in paid.walks.values() for path in paths.values() for step in path}
    return sorted(every, key=lambda step: (-step.cost, step))


def _first_steps(paid: Paid) -> list[Step]:
    """The steps to stores there are, or to inputs, that walks might begin with."""
    every = {step for owner in paid.walks for step in paid.first_steps(owner)}
    there = [step for step in every if paid.users.get(step.store) or paid.is_input(step.store)]
    return sorted(there)


def _with_paid(paid: Paid, step: Step) -> None:
    """Route all walks of an input anew, one at a time, while a first step of it costs nothing."""
    paid.lend(step.start, (step,))
    try:
        for owner in tuple(paid.walks):
            if step.start in paid.walks.get(owner, ()):
                _again(paid, [(owner, step.start)])
    finally:
        paid.call_in(step.start, (step,))
    if not paid.users[step.store] and step.store in paid.walks:
        paid.remove_all(step.store)


def _avoid(paid: Paid, step: Step) -> None:
    takers = paid.takers(step)
    if takers:
        allowed = frozenset(join for owner, _ in takers for join in paid.inner(owner))
        _attempt(paid, partial(_again, paid, takers, (), allowed, step))


def _attempt(paid: Paid, move: Callable[[], None]) -> bool:
    """Whether a move helped; if not, it is undone."""
    mark, before = paid.mark(), paid.total
    try:
        move()
    except NoWayError:
        paid.undo(mark)
        paid.limit()
    if paid.total < before * (1 - LEAST_GAIN):
        return True
    paid.undo(mark)
    paid.total = before
    return False


def _again(
    paid: Paid,
    walks: _Walks,
    banned: Collection[int] = (),
    allowed: Collection[int] | None = None,
    avoided: Step | None = None,
) -> None:
    """Take walks away, and route them anew; what they visited may be opened again, if it is not banned."""
    paid.limit(_visited(paid, walks) if allowed is None else allowed, banned, avoided)
    for owner, start in walks:
        if start in paid.walks.get(owner, ()):
            paid.remove(owner, start)
    for owner, start in sorted(walks, key=lambda walk: len(paid.starts(walk[0]))):
        needed = isinstance(owner, str) or paid.users.get(owner)
        if needed and start not in paid.walks.get(owner, ()):
            paid.add_routed(owner, start)
    paid.limit()


def _visited(paid: Paid, walks: Iterable[tuple[Owner, str]]) -> set[int]:
    stores = {step.store for owner, start in walks for step in paid.walks[owner][start]}
    return {paid.workspace.join_of(store) for store in stores if not paid.is_input(store)}


def _suited(paid: Paid, store: int) -> _Walks:
    """The walks that might visit a store, or begin as those that compute it."""
    return [
        (owner, start)
        for owner in tuple(paid.walks)
        if store in paid.reachable(owner)
        for start in tuple(paid.walks[owner])
    ]


def _with_open(paid: Paid, store: int, walks: _Walks, banned: Collection[int] = ()) -> None:
    """Route walks anew, one at a time or, where something is banned, all at once, while a store costs nothing."""
    new = not paid.users.get(store)
    paid.hold(store)
    try:
        if new and not paid.is_input(store):
            paid.limit(paid.inner(store), banned)
            paid.add_all(store)
            paid.limit()
        if banned:
            _again(paid, walks, banned)
        else:
            for walk in walks:
                if walk[1] in paid.walks.get(walk[0], ()):
                    _again(paid, [walk])
    finally:
        paid.release(store)
    if not paid.users[store] and store in paid.walks:
        paid.remove_all(store)
