"""Plans of many queries, fast, and changed little when a query comes or goes (AJoin, section 4).

Guarantees: `add` leaves the walks of all other queries and all upkeep as they are, and `remove` too. `plan_all` begins
with the order that iterative dynamic programming gives (Figure 7b) and improves it until no move helps; where queries
are few, it also begins with queries added one by one, smallest and largest first, and takes the best. Nothing here
depends on a clock, and ties go to what comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from weft.optimizer.moves import improve
from weft.optimizer.paid import Paid, Path
from weft.optimizer.workspace import Workspace
from weft.plan.workload import Walk, WorkloadPlan

__all__ = ["Choice", "add", "changed_too_much", "plan_all", "remove", "shared_order"]


# Of more different joins than this, only one beginning is improved: the others end in much the same place.
FEW = 30


class Choice(NamedTuple):
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


def shared_order(workspace: Workspace, groups: Iterable[tuple[str, ...]] | None = None) -> list[Choice]:
    """Figure 7b: in each iteration every query gets the sub-join that is cheapest for those that can share it.

    The shared cost of a sub-join is its cardinality by the number of queries, of one group, that can make it of what
    they have at this point. It is substituted in all of them, and they share no other in this iteration.
    """
    found: list[Choice] = []
    for group in groups if groups is not None else [tuple(workspace.queries)]:
        blocks = {name: {frozenset((a,)) for a in workspace.queries[name].aliases} for name in group}
        iteration = 1
        while chosen := list(_iteration(workspace, blocks, iteration)):
            found += chosen
            iteration += 1
    return sorted(found, key=lambda choice: choice.iteration)


_Blocks = dict[str, set[frozenset[str]]]
_Pair = frozenset[frozenset[str]]


def _iteration(workspace: Workspace, blocks: _Blocks, iteration: int) -> Iterator[Choice]:
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
        yield Choice(iteration, join, names, cost, workspace.rate(join))


def _pairs(workspace: Workspace, name: str, parts: Collection[frozenset[str]]) -> Iterator[tuple[_Pair, int]]:
    """The pairs of parts that a predicate joins, and what they make."""
    ordered = sorted(parts, key=sorted)
    storable = (workspace.whole(name), *workspace.sub_joins(name))
    numbers = {frozenset(workspace.joins[join].aliases): join for join in storable}
    for one, other in combinations(ordered, 2):
        if one | other in numbers:
            yield frozenset((one, other)), numbers[one | other]


# -- All queries at once ---------------------------------------------------------------------------------------------


def plan_all(workspace: Workspace, groups: Iterable[tuple[str, ...]] | None = None) -> WorkloadPlan:
    """A plan for all queries. Queries of different groups are planned as if they could share nothing."""
    if groups is not None:
        plan = WorkloadPlan(())
        for group in groups:
            part = plan_all(workspace.only(group))
            plan = plan.with_answers(part.answers, part.upkeep)
        return workspace.priced(plan)
    few = len(_owners(workspace)) <= FEW
    ways = (_by_shared_cost, _eager, _largest_first) if few else (_by_shared_cost,)
    beginnings = [begin(workspace) for begin in ways]
    for paid in beginnings:
        improve(paid)
    return _planned(workspace, min(beginnings, key=lambda paid: paid.total))


def _owners(workspace: Workspace) -> dict[int, str]:
    """One query for all that join the same; smaller ones first, so that larger ones find them running."""
    names = sorted(workspace.queries, key=lambda name: len(workspace.queries[name].aliases))
    found: dict[int, str] = {}
    for name in names:
        found.setdefault(workspace.whole(name), name)
    return found


def _eager(workspace: Workspace) -> Paid:
    paid = Paid(workspace)
    for name in _owners(workspace).values():
        paid.add_all(name)
    return paid


def _by_shared_cost(workspace: Workspace) -> Paid:
    """Every query may store the sub-joins that dynamic programming chose for it, where that looks cheaper."""
    chosen: dict[str, set[int]] = {name: set() for name in workspace.queries}
    for choice in shared_order(workspace):
        for name in choice.queries:
            chosen[name].add(choice.join)
    paid = Paid(workspace)
    for name in _owners(workspace).values():
        paid.limit(allowed=chosen[name])
        paid.add_all(name)
    paid.limit()
    return paid


def _largest_first(workspace: Workspace) -> Paid:
    """Every query may store whatever it likes; smaller ones then find it."""
    paid = Paid(workspace)
    for name in reversed(_owners(workspace).values()):
        paid.limit(allowed=paid.inner(name))
        paid.add_all(name)
    paid.limit()
    return paid


def _planned(workspace: Workspace, paid: Paid) -> WorkloadPlan:
    owners = _owners(workspace)
    answers = [paid.answer(name, owners[workspace.whole(name)]) for name in workspace.queries]
    return workspace.priced(WorkloadPlan(()).with_answers(answers, paid.upkeep()))


# -- Queries come and go ---------------------------------------------------------------------------------------------


def add(workspace: Workspace, plan: WorkloadPlan, name: str) -> WorkloadPlan:
    """Eager sharing: the new query's best walks given all that the running ones pay for; nobody else changes.

    The workspace has the new query already. The plan has no cost: what the others cost now need not be known.
    """
    paid = Paid(workspace, lender=name)
    for start, path in _beginnings(workspace, plan, name):
        paid.lend(start, path)
    paid.add_all(name)
    improve(paid)
    return plan.with_answers([paid.answer(name, name)], paid.upkeep())


def _beginnings(workspace: Workspace, plan: WorkloadPlan, name: str) -> Iterator[tuple[str, Path]]:
    """The beginnings of running walks that the query could take too."""
    starts = workspace.queries[name].aliases
    steps = {
        (start, step.known, workspace.stores[step.store]): step
        for start in starts
        for step in workspace.steps(name, start)
    }
    walks = [(walk, workspace.whole(answer.name)) for answer in plan.answers for walk in answer.walks]
    for one in plan.upkeep:
        whole = workspace.join_of(workspace.store_number(one.store))
        walks += [(walk, whole) for walk in one.walks]
    for walk, whole in walks:
        if walk.start in starts:
            path: Path = ()
            known = workspace.find(name, (walk.start,))
            for number, visit in enumerate(walk.visits, 1):
                step = steps.get((walk.start, known, visit))
                joined = Walk(walk.start, walk.visits[:number]).reached
                if step is None or workspace.within(whole, joined) != step.target:
                    break
                path, known = (*path, step), step.target
            if path:
                yield walk.start, path


def remove(plan: WorkloadPlan, names: Iterable[str]) -> WorkloadPlan:
    """The plan without some queries, and without what only they needed."""
    return plan.without(names)
