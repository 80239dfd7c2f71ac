"""Plans of many queries that are found fast, and change little when a query comes or goes (AJoin, section 4).

Guarantees: `add_query` leaves the walks of all other queries and all upkeep as they are. `plan_all` begins with the
order that iterative dynamic programming gives (Figure 7b) and improves it until no move helps; where queries are few,
it also begins with queries added one by one, and takes the better plan. Without a deadline nothing here depends on a
clock, and the first of equally good choices is taken. The plans carry no cost; `Workspace.priced` adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from itertools import combinations
from math import inf
from typing import NamedTuple

from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.joint.local_search import close_until_within, improve
from weft.optimizer.joint.space.shared_cost import NoWayError, PaidWalks, Path
from weft.optimizer.joint.space.storage import storage_by_store
from weft.optimizer.joint.space.workspace import WalkStep, Workspace
from weft.plan.workload import SharedStore, Walk, WorkloadPlan

__all__ = ["ChosenSubJoin", "add_query", "changed_too_much", "plan_all", "shared_order"]


# With more different queries than this, only one first plan is improved, and stored results are not exchanged.
FEW = 15

# With more sub-joins than this, or if an added query has more stores, the search does not try stores by opening them.
MOST_JOINS = 300
MOST_STORES = 40


class ChosenSubJoin(NamedTuple):
    """A sub-join that dynamic programming chose for some queries, in which iteration, and its two costs."""

    iteration: int
    join: int
    queries: tuple[str, ...]
    max_shared: float
    min_shared: float


def changed_too_much(since_fresh: int, total: int) -> bool:
    """Whether more than half of the queries came or went since the plan was made, so that a fresh one is due.

    >>> changed_too_much(50, 100), changed_too_much(51, 100)
    (False, True)
    """
    return 2 * since_fresh > total


# -- Iterative dynamic programming with shared cost ------------------------------------------------------------------


def shared_order(
    workspace: Workspace, groups: Iterable[tuple[str, ...]] | None = None
) -> list[ChosenSubJoin]:
    """The order of Figure 7b: in each iteration every query gets the cheapest sub-join of those it can share.

    The shared cost of a sub-join is its cardinality divided by the number of queries of one group that can make it from
    the parts they have at this point. The sub-join replaces its parts in all these queries, and they share no other
    sub-join in this iteration.
    """
    found: list[ChosenSubJoin] = []
    for group in groups if groups is not None else [tuple(workspace.queries)]:
        blocks = {name: {frozenset((a,)) for a in workspace.queries[name].aliases} for name in group}
        iteration = 1
        while chosen := list(_iteration(workspace, blocks, iteration)):
            found += chosen
            iteration += 1
    return sorted(found, key=lambda choice: choice.iteration)


_Blocks = dict[str, set[frozenset[str]]]
_Pair = frozenset[frozenset[str]]


def _iteration(workspace: Workspace, blocks: _Blocks, iteration: int) -> Iterator[ChosenSubJoin]:
    candidates: dict[tuple[int, _Pair], list[str]] = {}
    for name, parts in blocks.items():
        for pair, join in _pairs(workspace, name, parts):
            candidates.setdefault((join, pair), []).append(name)
    waiting = {name for names in candidates.values() for name in names}
    while waiting:
        shared = {key: tuple(n for n in names if n in waiting) for key, names in candidates.items()}
        costs = [
            (workspace.rate(key[0]) / len(names), workspace.joins[key[0]].aliases, key)
            for key, names in shared.items()
            if names
        ]
        cost, _, (join, pair) = min(costs, key=lambda item: item[:2])
        names = shared[join, pair]
        for name in names:
            blocks[name] = (blocks[name] - pair) | {frozenset[str]().union(*pair)}
        waiting -= set(names)
        yield ChosenSubJoin(iteration, join, names, cost, workspace.rate(join))


def _pairs(workspace: Workspace, name: str, parts: Collection[frozenset[str]]) -> Iterator[tuple[_Pair, int]]:
    """The pairs of parts that a predicate joins, each with the sub-join they make."""
    ordered = sorted(parts, key=sorted)
    storable = (workspace.whole(name), *workspace.sub_joins(name))
    numbers = {frozenset(workspace.joins[join].aliases): join for join in storable}
    for one, other in combinations(ordered, 2):
        if one | other in numbers:
            yield frozenset((one, other)), numbers[one | other]


# -- All queries at once ---------------------------------------------------------------------------------------------


_Begin = Callable[[PaidWalks, Mapping[int, str]], PaidWalks]


def plan_all(
    workspace: Workspace,
    around: WorkloadPlan | None = None,
    deadline: Deadline = NEVER,
    budget: float = inf,
) -> WorkloadPlan:
    """A plan for all queries.

    The queries that ``around`` has keep their walks; the others are planned to share with them. When the deadline is
    over, the best plan so far is returned. All stores together hold at most ``budget`` tuples, those of a plan
    ``around`` included; `NoWayError` is raised if these leave no room for the inputs of the others.
    """
    fixed = around or WorkloadPlan(())
    workspace = workspace.only(workspace.queries)  # numbered as if it were new
    owners = _owners(workspace, _names(fixed))
    ways: tuple[_Begin, ...] = (_by_shared_cost, _eager) if len(owners) <= FEW else (_by_shared_cost,)
    if budget < inf and len(owners) <= FEW:
        ways = (*ways, partial(_trimmed, deadline=deadline.part(1 / 3)))
    beginnings: list[PaidWalks] = []
    for begin in ways:
        if not beginnings or not deadline.over:
            with suppress(NoWayError) if beginnings else nullcontext():
                beginnings.append(begin(_paid_by(workspace, fixed, budget), owners))
    for count, paid in enumerate(beginnings):
        paid.deadline = deadline.part(1 / (len(beginnings) - count))
        improve(paid, opening=len(workspace.joins) <= MOST_JOINS, exchange=len(owners) <= FEW)
    best = min(beginnings, key=lambda paid: paid.total)
    _check_room(best)
    new = [name for name in workspace.queries if name not in _names(fixed)]
    answers = [best.answer(name, owners[workspace.whole(name)]) for name in new]
    return fixed.with_answers(answers, best.upkeep())


def _check_room(paid: PaidWalks) -> None:
    """Refuse walks beside others that store too much already."""
    if paid.pool.excess > 0:
        raise NoWayError(f"{paid.pool.excess:.0f} tuples too many are stored")


def _names(plan: WorkloadPlan) -> set[str]:
    return {answer.name for answer in plan.answers}


def _owners(workspace: Workspace, others: Collection[str]) -> dict[int, str]:
    """One query for each set of queries that join the same; smaller ones first, so that larger ones can share them."""
    names = [name for name in workspace.queries if name not in others]
    found: dict[int, str] = {}
    for name in sorted(names, key=lambda name: len(workspace.queries[name].aliases)):
        found.setdefault(workspace.whole(name), name)
    return found


def _paid_by(workspace: Workspace, fixed: WorkloadPlan, budget: float = inf) -> PaidWalks:
    """Walks for which all steps of a plan count as paid, as far as the workspace knows the plan's stores."""
    paid = PaidWalks(workspace, budget=budget)
    for walk, whole in _walks(workspace, fixed):
        paid.pay_for(walk.start, _known_part(workspace, walk, whole))
    tuples = storage_by_store(workspace, fixed) if paid.pool.is_limited else {}
    for store in fixed.stores:
        try:
            paid.hold(workspace.store_number(store))
        except KeyError:
            paid.pool.take(tuples.get(store, 0.0))
    return paid


def _walks(workspace: Workspace, plan: WorkloadPlan) -> Iterator[tuple[Walk, int]]:
    """All walks of a plan, and the sub-joins they compute."""
    users: dict[SharedStore, str] = {}
    for answer in plan.answers:
        yield from ((walk, workspace.whole(answer.name)) for walk in answer.walks)
        users.update(dict.fromkeys(answer.visited, answer.name))
    for one in reversed(plan.upkeep):  # larger stores first, since only they may visit a smaller one
        whole = workspace.find(users[one.store], one.store.aliases)
        for walk in one.walks:
            yield walk, whole
            for visit in walk.visits:
                users.setdefault(visit, users[one.store])


def _known_part(workspace: Workspace, walk: Walk, whole: int) -> Path:
    """The steps of a walk up to the first store that the workspace does not know."""
    for count in range(len(walk.visits), 0, -1):
        with suppress(KeyError):
            return tuple(workspace.steps_of(Walk(walk.start, walk.visits[:count]), whole))
    return ()


def _eager(paid: PaidWalks, owners: Mapping[int, str]) -> PaidWalks:
    for name in owners.values():
        paid.add_all(name)
    return paid


def _trimmed(paid: PaidWalks, owners: Mapping[int, str], deadline: Deadline) -> PaidWalks:
    """Walks that are good without a budget, from which stores are then taken away until the rest is within it."""
    paid.pool.suspended, paid.deadline = True, deadline
    improve(_by_shared_cost(paid, owners), opening=len(paid.workspace.joins) <= MOST_JOINS)
    paid.pool.suspended = False
    close_until_within(paid)
    return paid


def _by_shared_cost(paid: PaidWalks, owners: Mapping[int, str]) -> PaidWalks:
    """Walks by which queries store the sub-joins that dynamic programming chose for them, where that looks cheaper."""
    chosen: dict[str, set[int]] = {name: set() for name in paid.workspace.queries}
    for choice in shared_order(paid.workspace):
        for name in choice.queries:
            chosen[name].add(choice.join)
    for name in owners.values():
        paid.limit(allowed=chosen[name])
        paid.add_all(name)
    paid.limit()
    return paid


# -- Queries come and go ---------------------------------------------------------------------------------------------


def add_query(
    workspace: Workspace, plan: WorkloadPlan, name: str, deadline: Deadline = NEVER, budget: float = inf
) -> WorkloadPlan:
    """A running plan with one query more, which takes the cheapest walks given all that the others pay for already.

    The others' walks stay as they are (AJoin's eager sharing). The workspace must have the new query already. When the
    deadline is over, the query takes the best walks found so far. All stores together hold at most ``budget`` tuples;
    `NoWayError` is raised if those of the others leave no room for the query's inputs.
    """
    paid = PaidWalks(workspace, query=name, deadline=deadline, budget=budget)
    steps = {
        (step.start, step.known, workspace.stores[step.store]): step
        for start in workspace.queries[name].aliases
        for step in workspace.steps(name, start)
    }
    visited = {workspace.stores[step.store]: step.store for step in steps.values()}
    for walk, whole in _walks(workspace, plan):
        if walk.start in workspace.queries[name].aliases:
            paid.pay_for(walk.start, _common(workspace, walk, whole, steps, name))
        for store in {visited[visit] for visit in walk.visits if visit in visited}:
            paid.hold(store)
    for other, tuples in storage_by_store(workspace, plan).items() if paid.pool.is_limited else ():
        if other not in visited:
            paid.pool.occupy(other, tuples)
    paid.limit(allowed=paid.inner(name))
    paid.add_all(name)
    paid.limit()
    improve(paid, opening=len(paid.reachable(name)) <= MOST_STORES)
    _check_room(paid)
    return plan.with_answers([paid.answer(name, name)], paid.upkeep())


_Steps = Mapping[tuple[str, int, SharedStore], WalkStep]


def _common(workspace: Workspace, walk: Walk, whole: int, steps: _Steps, name: str) -> Path:
    """The beginning of a running walk that a query could take too."""
    path: Path = ()
    known = workspace.find(name, (walk.start,))
    for number, visit in enumerate(walk.visits, 1):
        step = steps.get((walk.start, known, visit))
        joined = Walk(walk.start, walk.visits[:number]).reached
        if step is None or workspace.within(whole, joined) != step.target:
            break
        path, known = (*path, step), step.target
    return path
