"""The best plan of many queries together, by integer programming (CLASH 7.1).

Guarantees: if the search ends before the time limit, no plan in the `Workspace` is cheaper by more than the gap asked
for; otherwise `Solution.gap` says how much cheaper one could be at most.

CLASH has a variable per probe order and one per prefix of it. Here probe orders are not enumerated: since the cost of a
step depends on the set of relations known and not on their order, all walks of an input are paths through one lattice
of sub-joins, shared by all queries, and the steps taken form a tree in it (to reach a sub-join twice never pays). The
program has:

- a variable per step, which says whether any query takes it (CLASH's y); its cost is paid once;
- a variable per intermediate result, which says whether it is stored, and one per store that costs something to keep;
- for each input and sub-join to be reached, a flow of one unit from the input to it (CLASH's one probe order). A query
  must be reached from all its inputs, and an intermediate result by as much flow as it is stored (the sub-queries'
  orders). A flow uses no step more than the step is taken, and no store more than it is kept. Separate flows make the
  relaxation strong: with the mere rule "no step without one before it" the bound is a third lower.

It is fast for these reasons. Queries that cannot share anything that costs are solved separately. Among parallel steps
that differ in layout, those that never pay are left out, and so are intermediate results that cost more to keep than
they could save. Additional rows decide between equally good solutions (`Model._add_preferences`). Of single queries
that differ in names only, one is solved, and its plan, renamed, is that of the others: two queries have equal
`Likeness.key` only if renaming inputs and layouts turns all steps of one, with their costs, into those of the other.
(Where rates are equal, as they are assumed to be until they are measured, most queries of a workload are alike; these
are also the hardest to solve, because so many of their steps have equal costs.) None of this holds where a budget
limits what is stored: then all queries are one program, with all their steps, a variable for every store, and one row
more (CLASH 7.1 has no such row).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, permutations, product

from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.joint.exact.component import ComponentPlan, Model
from weft.optimizer.joint.exact.program import EQUAL, forced, is_choice
from weft.optimizer.joint.space.step_pruning import every_step, relevant_steps
from weft.optimizer.joint.space.storage import budget_error, is_within, thrifty_stores
from weft.optimizer.joint.space.workspace import WalkStep, Workspace
from weft.plan.workload import SharedStore, Walk, WorkloadPlan

__all__ = ["Solution", "components", "likeness", "relevant_steps", "solve"]


# How many rounds the models that are not proven yet get of the time that is left.
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan found, and a bound that no plan's cost is below; ``seconds`` is the time the solver took."""

    plan: WorkloadPlan
    cost: float
    bound: float
    seconds: float
    variables: int

    @property
    def gap(self) -> float:
        """How much cheaper a plan could be at most, as a part of the cost."""
        return max(0.0, 1 - self.bound / self.cost) if self.cost else 0.0


def solve(
    workspace: Workspace,
    *,
    time_limit: float = 60.0,
    gap: float = 0.0,
    warm: WorkloadPlan | None = None,
    deadline: Deadline = NEVER,
    budget: float = math.inf,
) -> Solution:
    """The best plan of all queries, whose stores together hold at most ``budget`` tuples.

    ``warm`` is a plan to begin with; a saving of less than the part ``gap`` of the cost is not searched for. The time
    limit counts the time of the solver alone, the deadline ends everything; either leaves the best plan found. First
    every component gets a plan and a bound. The time that is left goes to proving them the best, small ones first; each
    gets time in proportion to its size, and the others get what it does not use.
    """
    models = sorted(_models(workspace, budget), key=lambda model: len(model.steps))
    left, known, pieces = min(time_limit, deadline.left), _Known(workspace), list[ComponentPlan]()
    for i, model in enumerate(models):
        pieces.append(model.begin(left * _share(models[i:]), gap, warm))
        left = min(deadline.left, max(0.0, left - pieces[i].seconds))
    for _ in range(ROUNDS):
        waiting = [i for i, piece in enumerate(pieces) if not piece.is_proven(workspace, gap)]
        for count, i in enumerate(waiting):
            if deadline.over:
                break
            share = left * _share([models[k] for k in waiting[count:]])
            before, model = pieces[i], models[i]
            pieces[i] = known.piece(model, before) or model.improve(before, share, gap)
            left = min(deadline.left, max(0.0, left - (pieces[i].seconds - before.seconds)))
            if pieces[i].is_proven(workspace, gap):
                known.learn(model, pieces[i])
    return _together(workspace, pieces)


def _models(workspace: Workspace, budget: float) -> list[Model]:
    """The models to solve; with a budget there is one, since all queries compete for what may be stored."""
    if budget == math.inf:
        return [Model(workspace, names, relevant_steps(workspace, names)) for names in components(workspace)]
    least = math.fsum(map(workspace.stored, thrifty_stores(workspace).values()))
    if not is_within(least, budget):
        raise budget_error(budget, least, len(workspace.queries))
    names = tuple(workspace.queries)
    return [Model(workspace, names, every_step(workspace, names), budget=budget)]


def _share(models: list[Model]) -> float:
    """The part of the time that the first of some models should have."""
    return len(models[0].steps) / (sum(len(model.steps) for model in models) or 1)


def _together(workspace: Workspace, pieces: list[ComponentPlan]) -> Solution:
    answers = {answer.name: answer for piece in pieces for answer in piece.plan.answers}
    upkeep = [one for piece in pieces for one in piece.plan.upkeep]
    plan = workspace.priced(
        WorkloadPlan(()).with_answers((answers[name] for name in workspace.queries), upkeep)
    )
    cost = workspace.cost_of(plan)
    bound = math.fsum(piece.bound for piece in pieces) + forced(workspace, workspace.queries)
    return Solution(
        plan=plan,
        cost=cost,
        bound=cost if bound >= cost * (1 - EQUAL) else bound,
        seconds=math.fsum(piece.seconds for piece in pieces),
        variables=sum(piece.variables for piece in pieces),
    )


class _Known:
    """The solutions of single queries, to be reused for queries that differ in names only."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._pieces: dict[tuple[_Label, ...], tuple[_Likeness, ComponentPlan]] = {}

    def piece(self, model: Model, own: ComponentPlan) -> ComponentPlan | None:
        """The solution of a query, from that of one like it; None if none like it has been solved."""
        if len(model.names) > 1:
            return None
        like = likeness(self._workspace, model.steps)
        if like is None or like.key not in self._pieces:
            return None
        other, piece = self._pieces[like.key]
        plan = _rename_plan(self._workspace, piece.plan, other, model.names[0], like)
        return replace(own, plan=plan, bound=piece.bound) if plan else None

    def learn(self, model: Model, piece: ComponentPlan) -> None:
        """Remember a solution."""
        if len(model.names) == 1:
            like = likeness(self._workspace, model.steps)
            if like is not None:
                self._pieces.setdefault(like.key, (like, piece))


# -- What can be solved separately -------------------------------------------------------------------------------------


def components(workspace: Workspace) -> list[tuple[str, ...]]:
    """The queries in groups such that only queries of one group can share what costs anything."""
    leader = {name: name for name in workspace.queries}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for join, sub_join in enumerate(workspace.joins):
        if len(sub_join.aliases) > 1 or is_choice(workspace, join):
            first, *others = workspace.users(join)
            for other in others:
                leader[find(other)] = find(first)
    groups: dict[str, list[str]] = {}
    for name in workspace.queries:
        groups.setdefault(find(name), []).append(name)
    return [tuple(group) for group in groups.values()]


# How many orders of inputs are tried; with more, comparing two queries would take longer than solving both.
MOST_ORDERS = 720
# Costs that agree in so many digits count as equal.
DIGITS = 9
# A store, with inputs as numbers: its inputs, what it costs to keep, and its steps (start, known, cost).
_Label = tuple[int, float, tuple[tuple[int, int, float], ...]]


@dataclass(frozen=True, slots=True)
class _Likeness:
    """The steps of a query with its inputs numbered: the input of each number, and the label of each store."""

    order: tuple[str, ...]
    labels: Mapping[int, _Label]
    key: tuple[_Label, ...]


def likeness(workspace: Workspace, steps: Iterable[WalkStep]) -> _Likeness | None:
    """A query's steps with its inputs numbered in an order independent of names; None if that would take too long."""
    found = list(steps)
    groups = _groups(workspace, found)
    if math.prod(math.factorial(len(group)) for group in groups) > MOST_ORDERS:
        return None
    placed = (_placed(workspace, found, order) for order in _orders(groups))
    return min(placed, key=lambda one: one.key)


def _groups(workspace: Workspace, steps: list[WalkStep]) -> list[tuple[str, ...]]:
    """The inputs, sorted by the sizes and costs of their own steps; inputs that are equal in these form one group."""
    traits: dict[str, list[tuple[int, int, float]]] = {}
    for step in steps:
        known, target = (len(workspace.joins[join].aliases) for join in (step.known, step.target))
        traits.setdefault(step.start, []).append((known, target, _rounded(step.cost)))
    told = {alias: sorted(found) for alias, found in traits.items()}
    return [tuple(group) for _, group in groupby(sorted(told, key=told.__getitem__), told.__getitem__)]


def _orders(groups: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """All orders of inputs that keep the order of the groups."""
    for parts in product(*(permutations(group) for group in groups)):
        yield tuple(alias for part in parts for alias in part)


def _placed(workspace: Workspace, steps: list[WalkStep], order: tuple[str, ...]) -> _Likeness:
    places = {alias: 1 << i for i, alias in enumerate(order)}
    joins = dict.fromkeys(join for step in steps for join in (step.known, workspace.join_of(step.store)))
    masks = {join: sum(places[alias] for alias in workspace.joins[join].aliases) for join in joins}
    found: dict[int, list[tuple[int, int, float]]] = {}
    for step in steps:
        found.setdefault(step.store, []).append((places[step.start], masks[step.known], _rounded(step.cost)))
    labels = {
        store: (masks[workspace.join_of(store)], _rounded(workspace.keeping(store)), tuple(sorted(visits)))
        for store, visits in found.items()
    }
    return _Likeness(order, labels, tuple(sorted(labels.values())))


def _rounded(cost: float) -> float:
    return float(f"{cost:.{DIGITS}g}")


def _rename_plan(
    workspace: Workspace, plan: WorkloadPlan, one: _Likeness, name: str, other: _Likeness
) -> WorkloadPlan | None:
    """The plan of one query renamed to that of a query like it; None if it takes steps that the likeness lacks."""
    aliases = dict(zip(one.order, other.order, strict=True))
    stores = {label: store for store, label in other.labels.items()}
    if any(workspace.store_number(store) not in one.labels for store in plan.stores):
        return None

    def turned(store: SharedStore) -> int:
        return stores[one.labels[workspace.store_number(store)]]

    def ways(walks: tuple[Walk, ...]) -> dict[str, tuple[int, ...]]:
        return {aliases[walk.start]: tuple(map(turned, walk.visits)) for walk in walks}

    upkeep = {turned(kept.store): ways(kept.walks) for kept in plan.upkeep}
    return workspace.plan({name: ways(plan.answers[0].walks)}, upkeep)
