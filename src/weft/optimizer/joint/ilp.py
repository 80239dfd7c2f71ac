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
that differ in names only, one is solved. None of this holds where a budget limits what is stored: then all queries
are one program, with all their steps, a variable for every store, and one row more (CLASH 7.1 has no such row).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.joint.ilp_model import Model, Piece
from weft.optimizer.joint.ilp_program import EQUAL, forced, is_choice
from weft.optimizer.joint.isomorphism import Label, Likeness, likeness, rename_plan
from weft.optimizer.joint.step_pruning import every_step, relevant_steps
from weft.optimizer.joint.storage import budget_error, is_within, thrifty_stores
from weft.optimizer.joint.workspace import Workspace
from weft.plan.workload import WorkloadPlan

__all__ = ["Solution", "components", "relevant_steps", "solve"]

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
    left, known, pieces = min(time_limit, deadline.left), _Known(workspace), list[Piece]()
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


def _together(workspace: Workspace, pieces: list[Piece]) -> Solution:
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
        self._pieces: dict[tuple[Label, ...], tuple[Likeness, Piece]] = {}

    def piece(self, model: Model, own: Piece) -> Piece | None:
        """The solution of a query, from that of one like it; None if none like it has been solved."""
        if len(model.names) > 1:
            return None
        like = likeness(self._workspace, model.steps)
        if like is None or like.key not in self._pieces:
            return None
        other, piece = self._pieces[like.key]
        plan = rename_plan(self._workspace, piece.plan, other, model.names[0], like)
        return replace(own, plan=plan, bound=piece.bound) if plan else None

    def learn(self, model: Model, piece: Piece) -> None:
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
