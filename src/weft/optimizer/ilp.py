"""The best plan of many queries together, by integer programming (CLASH 7.1).

Guarantees: when it ends before the time limit, no plan in the `Workspace` is cheaper, but for the gap asked for; else
`Solution.gap` says how much cheaper one could be at most.

CLASH has a variable per probe order and one per prefix of it. Here probe orders are not enumerated: since the cost of a
step depends on the set of relations known and not on their order, all walks of an input are paths through one lattice
of sub-joins, shared by all queries, and the steps taken form a tree in it (to reach a sub-join twice never pays).

- A variable per step: whether it is taken, by whichever query (CLASH's y). Its cost is paid once.
- A variable per intermediate result: whether it is stored; and one per store that costs something to keep.
- Per input and sub-join to be reached, a flow of one unit from the input to it (CLASH's one probe order). A query must
  be reached from all its inputs; an intermediate result, by as much flow as it is stored (the sub-queries' orders). A
  flow uses no step more than the step is taken, and no store more than it is kept. A flow of its own for each is what
  makes the relaxation strong: with a mere "no step without one before it" the bound is a third lower.

What makes it fast: queries that cannot share anything that costs are solved apart; of parallel steps that differ in
layout, those are left out that never pay; so are intermediate results dearer to keep than all they could save; and of
single queries that differ in names only, one is solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.optimizer.alike import Label, Likeness, likeness, renamed
from weft.optimizer.alone import best_alone, best_ways
from weft.optimizer.solver import Program
from weft.optimizer.workspace import Step, Ways, Workspace
from weft.plan.workload import Walk, WorkloadPlan

__all__ = ["Model", "Solution", "components", "relevant_steps", "solve"]

# Costs that differ by less, relatively, are equal.
EQUAL = 1e-7


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan found, and what no plan is cheaper than; ``seconds`` are those of the solver."""

    plan: WorkloadPlan
    cost: float
    bound: float
    seconds: float
    variables: int

    @property
    def gap(self) -> float:
        """How much cheaper a plan could be, as a part of the cost."""
        return max(0.0, 1 - self.bound / self.cost) if self.cost else 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """The best plan found of some queries; the bound counts what the program does."""

    plan: WorkloadPlan
    bound: float
    seconds: float
    variables: int


class Node(NamedTuple):
    """Tuples of an input that know a sub-join."""

    start: str
    join: int


def solve(
    workspace: Workspace,
    *,
    time_limit: float = 60.0,
    gap: float = 0.0,
    warm: WorkloadPlan | None = None,
) -> Solution:
    """The best plan of all queries; ``warm`` is a plan to begin with, ``gap`` a part of the cost not worth more time.

    The time limit is of the solver: each component gets of what is left as its size demands.
    """
    parts = [(names, relevant_steps(workspace, names)) for names in components(workspace)]
    left, size, known = time_limit, sum(len(steps) for _, steps in parts), _Known(workspace)
    found = []
    for names, steps in sorted(parts, key=lambda part: len(part[1])):
        share = left * len(steps) / size if size else left
        piece = known.piece(names, steps) or Model(workspace, names, steps).solve(share, gap, warm)
        known.learn(steps, piece)
        found.append(piece)
        left, size = max(0.0, left - piece.seconds), size - len(steps)
    return _together(workspace, found)


def _together(workspace: Workspace, pieces: list[Piece]) -> Solution:
    answers = {answer.name: answer for piece in pieces for answer in piece.plan.answers}
    upkeep = [one for piece in pieces for one in piece.plan.upkeep]
    plan = workspace.priced(
        WorkloadPlan(()).with_answers((answers[name] for name in workspace.queries), upkeep)
    )
    cost = workspace.cost_of(plan)
    bound = math.fsum(piece.bound for piece in pieces) + _forced(workspace, workspace.queries)
    return Solution(
        plan=plan,
        cost=cost,
        bound=cost if bound >= cost * (1 - EQUAL) else bound,
        seconds=math.fsum(piece.seconds for piece in pieces),
        variables=sum(piece.variables for piece in pieces),
    )


class _Known:
    """What single queries were solved to, for those that are like them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._pieces: dict[tuple[Label, ...], tuple[Likeness, Piece]] = {}

    def piece(self, names: tuple[str, ...], steps: list[Step]) -> Piece | None:
        """The solution of a query that is like one solved."""
        if len(names) > 1 or not steps:
            return None
        own = likeness(self._workspace, steps)
        if own.key not in self._pieces:
            return None
        other, piece = self._pieces[own.key]
        plan = renamed(self._workspace, piece.plan, other, names[0], own)
        return replace(piece, plan=plan, seconds=0.0) if plan else None

    def learn(self, steps: list[Step], piece: Piece) -> None:
        """Remember a solution."""
        if len(piece.plan.answers) == 1 and steps:
            own = likeness(self._workspace, steps)
            self._pieces.setdefault(own.key, (own, piece))


# -- What can be solved apart ------------------------------------------------------------------------------------------


def components(workspace: Workspace) -> list[tuple[str, ...]]:
    """The queries in groups such that only queries of one group can share what costs anything."""
    leader = {name: name for name in workspace.queries}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for join, sub_join in enumerate(workspace.joins):
        if len(sub_join.aliases) > 1 or _is_choice(workspace, join):
            first, *others = workspace.users(join)
            for other in others:
                leader[find(other)] = find(first)
    groups: dict[str, list[str]] = {}
    for name in workspace.queries:
        groups.setdefault(find(name), []).append(name)
    return [tuple(group) for group in groups.values()]


def _is_choice(workspace: Workspace, join: int) -> bool:
    """Whether it costs something how a sub-join is laid out."""
    stores = workspace.layouts(join)
    return len(stores) > 1 and any(workspace.keeping(store) > 0 for store in stores)


def _forced(workspace: Workspace, names: Iterable[str]) -> float:
    """The cost of keeping inputs that can be laid out in one way only: some walk visits each of them."""
    inputs = {
        workspace.find(name, (alias,))
        for name in names
        if len(workspace.queries[name].inputs) > 1
        for alias in workspace.queries[name].aliases
    }
    apart = (workspace.layouts(join) for join in inputs if not _is_choice(workspace, join))
    return math.fsum(workspace.keeping(store) for stores in apart for store in stores[:1])


def relevant_steps(workspace: Workspace, names: Iterable[str]) -> list[Step]:
    """The steps of some queries that a best plan may need."""
    worthless = _worthless(workspace, names)
    steps = _undominated(workspace, _distinct(workspace, names))
    return [step for step in steps if workspace.join_of(step.store) not in worthless]


def _distinct(workspace: Workspace, names: Iterable[str]) -> list[Step]:
    """The steps of some queries, each once."""
    every = (
        step
        for name in names
        for alias in workspace.queries[name].aliases
        for step in workspace.steps(name, alias)
    )
    return list(dict.fromkeys(every))


def _undominated(workspace: Workspace, steps: list[Step]) -> list[Step]:
    """The steps but those for which another layout is cheaper, or as cheap, even if kept for this step alone."""
    parallel: dict[tuple[str, int, int, int], list[Step]] = {}
    for step in steps:
        place = step.start, step.known, step.target, workspace.join_of(step.store)
        parallel.setdefault(place, []).append(step)
    found = []
    for group in parallel.values():
        best = min(group, key=lambda step: step.cost + workspace.keeping(step.store))
        most = best.cost + workspace.keeping(best.store)
        found += [step for step in group if step is best or step.cost < most]
    return found


def _worthless(workspace: Workspace, names: Iterable[str]) -> set[int]:
    """The intermediate results that cost more to keep than all walks together could save by them.

    What a step to one can save is at most what the cheapest way around costs more, through stores of inputs, each in
    the layout that is cheapest to keep.
    """
    saved: dict[int, dict[tuple[str, int, int], float]] = {}
    for name in names:
        if len(workspace.queries[name].inputs) == 1:
            continue  # it visits no store, and if nobody else does, its input has none
        inputs = [workspace.find(name, (alias,)) for alias in workspace.queries[name].aliases]
        plain = {min(workspace.layouts(join), key=workspace.keeping): join for join in inputs}
        for alias in workspace.queries[name].aliases:
            _add_savings(workspace, workspace.steps(name, alias), plain, saved)
    return {
        join
        for join, ways in saved.items()
        if (least := min(map(workspace.keeping, workspace.layouts(join)))) > 0
        and least >= math.fsum(ways.values()) + _inputs_kept(workspace, join)
    }


def _add_savings(
    workspace: Workspace,
    steps: list[Step],
    plain: Mapping[int, int],
    saved: dict[int, dict[tuple[str, int, int], float]],
) -> None:
    around = [step for step in steps if step.store in plain]
    reached = {known: best_ways(around, known) for known in dict.fromkeys(step.known for step in steps)}
    for step in steps:
        join = workspace.join_of(step.store)
        if len(workspace.joins[join].aliases) > 1:
            way = reached[step.known].get(step.target)
            saving = max(0.0, way[0] - step.cost) if way else math.inf
            place = step.start, step.known, step.target
            ways = saved.setdefault(join, {})
            ways[place] = max(saving, ways.get(place, 0.0))


def _inputs_kept(workspace: Workspace, join: int) -> float:
    """The least it costs to keep the inputs of a sub-join."""
    inputs = [workspace.within(join, (alias,)) for alias in workspace.joins[join].aliases]
    return math.fsum(min(map(workspace.keeping, workspace.layouts(one))) for one in inputs)


# -- The program -------------------------------------------------------------------------------------------------------


class Model:
    """The integer program of some queries that may share steps."""

    def __init__(
        self, workspace: Workspace, names: Iterable[str], steps: list[Step], *, whole: bool = False
    ) -> None:
        """``whole``: ask for whole steps even of a single query, for which storing decides nearly always."""
        self.workspace = workspace
        self.names = tuple(names)
        self.steps = steps
        self.program = Program()
        self.whole = whole or len(self.names) > 1
        self.into: dict[Node, list[Step]] = {}
        for step in self.steps:
            self.into.setdefault(Node(step.start, step.target), []).append(step)
        self.stored = dict.fromkeys(
            join for step in self.steps if not self._is_input(join := workspace.join_of(step.store))
        )
        # Variables: of steps, of intermediate results stored, of stores kept, and of flows by the node reached.
        self.taken = {step: self.program.variable(step.cost, whole=self.whole) for step in self.steps}
        self.maintained = {join: self.program.variable(whole=True) for join in self.stored}
        self.kept = self._kept()
        self.answers = {
            Node(alias, workspace.whole(name))
            for name in self.names
            for alias in workspace.queries[name].aliases
        }
        self.flows: dict[Node, dict[Step, int]] = {}
        for node in self._goals():
            self._add_flow(node)
        self._add_stores()

    def _is_input(self, join: int) -> bool:
        return len(self.workspace.joins[join].aliases) == 1

    def _kept(self) -> dict[int, int]:
        stores = dict.fromkeys(step.store for step in self.steps)
        costs = {store: self.workspace.keeping(store) for store in stores}
        return {
            store: self.program.variable(cost, whole=True)
            for store, cost in costs.items()
            if cost > 0
            and (
                not self._is_input(join := self.workspace.join_of(store)) or _is_choice(self.workspace, join)
            )
        }

    def _goals(self) -> list[Node]:
        """What flows lead to: whole queries, and what may be stored."""
        inner = (Node(alias, join) for join in self.stored for alias in self.workspace.joins[join].aliases)
        return list(dict.fromkeys((*sorted(self.answers), *inner)))

    def _add_flow(self, goal: Node) -> None:
        """From the input to the goal: as much as leads into a node leads out of it."""
        program = self.program
        flow = self.flows[goal] = {step: program.variable() for step in self._below(goal)}
        entering: dict[int, list[int]] = {}
        leaving: dict[int, list[int]] = {}
        for step, amount in flow.items():
            entering.setdefault(step.target, []).append(amount)
            leaving.setdefault(step.known, []).append(amount)
            program.row([amount], [self.taken[step]], most=0)
        for join, amounts in entering.items():
            if join != goal.join:
                program.row(amounts, leaving[join], least=0, most=0)
            elif goal in self.answers:
                program.row(amounts, least=1, most=1)
            else:
                program.row(amounts, [self.maintained[join]], least=0, most=0)
        self._add_uses(flow)

    def _add_uses(self, flow: Mapping[Step, int]) -> None:
        """A flow visits a store no more than it is kept, and an intermediate result no more than it is computed."""
        by_store: dict[int, list[int]] = {}
        by_join: dict[int, list[int]] = {}
        for step, amount in flow.items():
            if step.store in self.kept:
                by_store.setdefault(step.store, []).append(amount)
            join = self.workspace.join_of(step.store)
            if join in self.maintained:
                by_join.setdefault(join, []).append(amount)
        for store, amounts in by_store.items():
            self.program.row(amounts, [self.kept[store]], most=0)
        for join, amounts in by_join.items():
            self.program.row(amounts, [self.maintained[join]], most=0)

    def _below(self, goal: Node) -> list[Step]:
        """The steps on the ways to a node."""
        waiting, seen, found = [goal.join], {goal.join}, []
        for join in waiting:
            for step in self.into.get(Node(goal.start, join), ()):
                found.append(step)
                if step.known not in seen:
                    seen.add(step.known)
                    waiting.append(step.known)
        return found

    def _add_stores(self) -> None:
        """Only what is computed is kept; an input is kept in one layout at least, since some walk begins with it."""
        inputs: dict[int, list[int]] = {}
        for store, kept in self.kept.items():
            join = self.workspace.join_of(store)
            if join in self.maintained:
                self.program.row([kept], [self.maintained[join]], most=0)
            else:
                inputs.setdefault(join, []).append(kept)
        for layouts in inputs.values():
            self.program.row(layouts, least=1)

    # -- Solving -------------------------------------------------------------------------------------------------------

    def solve(self, time_limit: float, gap: float, warm: WorkloadPlan | None) -> Piece:
        """The best plan found of these queries."""
        fallback = self._fallback(warm)
        result = self.program.run(time_limit=time_limit, gap=gap, start=self._start(fallback))
        piece = Piece(fallback, result.bound, result.seconds, self.program.variables)
        if result.values is None:
            return piece
        found = self._plan(result.values)
        forced = _forced(self.workspace, self.names)
        if not self.whole and self.workspace.cost_of(found) - forced > result.cost * (1 + EQUAL):
            whole = Model(self.workspace, self.names, self.steps, whole=True)
            return whole.solve(time_limit, gap, warm)
        return replace(piece, plan=min(found, fallback, key=self.workspace.cost_of))

    def _fallback(self, warm: WorkloadPlan | None) -> WorkloadPlan:
        """The better of the plan given and of each query's by itself."""
        alone = [best_alone(self.workspace, name) for name in self.names]
        plan = WorkloadPlan(()).with_answers(
            [answer for one in alone for answer in one.answers], [up for one in alone for up in one.upkeep]
        )
        if warm is None or not set(self.names) <= {answer.name for answer in warm.answers}:
            return plan
        known = warm.without({answer.name for answer in warm.answers} - set(self.names))
        return min(known, plan, key=self.workspace.cost_of)

    def _start(self, plan: WorkloadPlan) -> dict[int, float] | None:
        """The values of a plan; None if it takes steps that were left out."""
        walks = [(w, self.workspace.whole(answer.name)) for answer in plan.answers for w in answer.walks]
        for one in plan.upkeep:
            join = self.workspace.join_of(self.workspace.store_number(one.store))
            walks += [(walk, join) for walk in one.walks]
        values: dict[int, float] = {}
        for walk, join in walks:
            if not self._fill(values, walk, join):
                return None
        for layouts in self._inputs_kept():
            if not any(kept in values for kept in layouts):
                values[layouts[0]] = 1.0
        return values

    def _inputs_kept(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for store, kept in self.kept.items():
            if (join := self.workspace.join_of(store)) not in self.maintained:
                found.setdefault(join, []).append(kept)
        return list(found.values())

    def _fill(self, values: dict[int, float], walk: Walk, join: int) -> bool:
        flow = self.flows.get(Node(walk.start, join), {})
        if join in self.maintained:
            values[self.maintained[join]] = 1.0
        if any(flow[step] in values for step in flow):
            return True  # by another walk already
        for step in self.workspace.taken(walk, join):
            parallel = [s for s in flow if s.known == step.known and s.target == step.target]
            if not parallel:
                return False
            best = step if step in flow else min(parallel, key=lambda s: s.cost)
            values[flow[best]] = values[self.taken[best]] = 1.0
            if best.store in self.kept:
                values[self.kept[best.store]] = 1.0
        return True

    def _plan(self, values: tuple[float, ...]) -> WorkloadPlan:
        """The plan of a solution: a tree of steps per input."""
        ways = self._ways(values)
        answers = {
            name: {
                alias: ways[Node(alias, self.workspace.whole(name))]
                for alias in self.workspace.queries[name].aliases
            }
            for name in self.names
        }
        upkeep: dict[int, Ways] = {}
        waiting = [store for found in answers.values() for way in found.values() for store in way]
        while waiting:
            store = waiting.pop()
            join = self.workspace.join_of(store)
            if join in self.maintained and store not in upkeep:
                found = {alias: ways[Node(alias, join)] for alias in self.workspace.joins[join].aliases}
                upkeep[store] = found
                waiting += [visit for way in found.values() for visit in way]
        return self.workspace.plan(answers, upkeep)

    def _ways(self, values: tuple[float, ...]) -> dict[Node, tuple[int, ...]]:
        """The ways to all nodes that the steps taken lead to."""
        by_start: dict[str, list[Step]] = {}
        for step in sorted(self.steps, key=lambda step: len(self.workspace.joins[step.known].aliases)):
            stored = self.maintained.get(self.workspace.join_of(step.store))
            if values[self.taken[step]] > EQUAL and (stored is None or values[stored] > 0.5):
                by_start.setdefault(step.start, []).append(step)
        found = {}
        for start, steps in by_start.items():
            root = self.workspace.within(steps[0].known, (start,))
            reached = best_ways(steps, root)
            found.update({Node(start, join): way for join, (_, way) in reached.items()})
        return found
