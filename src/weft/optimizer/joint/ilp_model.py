"""The integer program of some queries that may share steps, and plans as its solutions.

Guarantees: every plan of the queries, if it takes only the steps given, is a solution of the program, and costs what
the program says plus what `forced` says; every solution is a plan. `optimizer/joint/ilp.py` says what the variables
mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.optimizer.joint.alone import best_alone, best_ways
from weft.optimizer.joint.relevant import usable_steps
from weft.optimizer.joint.solver import MilpModel
from weft.optimizer.joint.workspace import Step, Ways, Workspace
from weft.plan.workload import WorkloadPlan

__all__ = ["EQUAL", "Model", "Node", "Piece", "forced", "is_choice"]

# Costs that differ by less, relatively, are equal.
EQUAL = 1e-7
# Of so few queries what is stored decides the rest nearly always, so only that is asked to be whole.
FEW = 3
# With more variables, it pays to find a good plan among the steps that the relaxation takes before the best of all.
LARGE = 500
# What the relaxation may take, however little time there is: enough for all but large models.
LEAST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Piece:
    """The best plan found of some queries; the bound counts what the program does."""

    plan: WorkloadPlan
    bound: float
    seconds: float
    variables: int

    def is_proven(self, workspace: Workspace, gap: float) -> bool:
        """Whether no plan can be cheaper, but for the gap."""
        names = [answer.name for answer in self.plan.answers]
        cost = workspace.cost_of(self.plan) - forced(workspace, names)
        return self.bound >= cost * (1 - max(gap, EQUAL))


class Node(NamedTuple):
    """Tuples of an input that know a sub-join."""

    start: str
    join: int


def is_choice(workspace: Workspace, join: int) -> bool:
    """Whether it costs something how a sub-join is laid out."""
    stores = workspace.layouts(join)
    return len(stores) > 1 and any(workspace.keeping(store) > 0 for store in stores)


def forced(workspace: Workspace, names: Iterable[str]) -> float:
    """The cost of keeping inputs that can be laid out in one way only: some walk visits each of them."""
    inputs = {
        workspace.find(name, (alias,))
        for name in names
        if len(workspace.queries[name].inputs) > 1
        for alias in workspace.queries[name].aliases
    }
    apart = (workspace.layouts(join) for join in inputs if not is_choice(workspace, join))
    return math.fsum(workspace.keeping(store) for stores in apart for store in stores[:1])


class Model:
    """The integer program of some queries that may share steps."""

    def __init__(
        self, workspace: Workspace, names: Iterable[str], steps: list[Step], *, whole: bool = False
    ) -> None:
        """``whole``: ask for whole steps even of few queries."""
        self.workspace = workspace
        self.names = tuple(names)
        self.steps = usable_steps(workspace, steps)
        self.program = MilpModel()
        self.whole = whole or len(self.names) > FEW
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
        if len(self.names) > 1:
            for node in self.flows:
                self._add_preferences(node)

    def _is_input(self, join: int) -> bool:
        return len(self.workspace.joins[join].aliases) == 1

    def _kept(self) -> dict[int, int]:
        stores = dict.fromkeys(step.store for step in self.steps)
        costs = {store: self.workspace.keeping(store) for store in stores}
        return {
            store: self.program.variable(cost, whole=True)
            for store, cost in costs.items()
            if cost > 0
            and (not self._is_input(join := self.workspace.join_of(store)) or is_choice(self.workspace, join))
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

    def _add_preferences(self, goal: Node) -> None:
        """Of the last steps to what is reached, take the best there is; it would follow, but the relaxation forgets it.

        Where T reaches T ⋈ M in one step, M is stored, so each input of M reaches M and can reach T ⋈ M from there. It
        has no reason for a last step that is dearer, or as dear and later in the list; so the part of it that takes
        such a step, and the part of T that visits M, are together no more than there is of T ⋈ M.
        """
        whole = [] if goal in self.answers else [self.maintained[goal.join]]
        visiting: dict[int, list[int]] = {}
        for step in self.into.get(goal, ()):  # there is none to a query of one input
            join = self.workspace.join_of(step.store)
            if join in self.maintained and self._is_input(step.known):
                visiting.setdefault(join, []).append(self.flows[goal][step])
        for join, visits in visiting.items():
            for alias in self.workspace.joins[join].aliases:
                worse = self._worse_than_through(join, Node(alias, goal.join))
                if worse:
                    self.program.row((*worse, *visits), whole, most=0 if whole else 1)

    def _worse_than_through(self, join: int, goal: Node) -> list[int]:
        """The flow by last steps to a goal that are worse than the one from a sub-join, if that is free to take."""
        ranked = self._ranked(goal)
        best = self._through(join, ranked)
        return [] if best is None else [self.flows[goal][step] for step in ranked[best + 1 :]]

    def _ranked(self, goal: Node) -> list[Step]:
        """The last steps to a goal, best first."""
        return sorted(self.into[goal], key=lambda step: step.cost)

    def _through(self, join: int, ranked: list[Step]) -> int | None:
        """The place of the first step from a sub-join to a store that costs nothing to keep."""
        places = (i for i, step in enumerate(ranked) if step.known == join and self._is_free(step))
        return next(places, None)

    def _is_free(self, step: Step) -> bool:
        return step.store not in self.kept and self.workspace.join_of(step.store) not in self.maintained

    # -- Solving -------------------------------------------------------------------------------------------------------

    def begin(self, time_limit: float, gap: float, warm: WorkloadPlan | None) -> Piece:
        """A plan and a bound: the relaxation's, and of many variables the best plan of the steps it takes in part.

        There is one: all that it takes in part, taken whole.
        """
        piece = Piece(self._fallback(warm), 0.0, 0.0, self.program.variables)
        relaxed = self.program.run(time_limit=max(time_limit, LEAST_SECONDS), relaxed=True)
        piece = replace(piece, bound=relaxed.bound, seconds=relaxed.seconds)
        if relaxed.values is None or self.program.variables <= LARGE or piece.is_proven(self.workspace, gap):
            return piece
        steps = [step for step in self.steps if relaxed.values[self.taken[step]] > EQUAL]
        fewer = Model(self.workspace, self.names, steps)
        if not fewer.answers <= fewer.into.keys():
            return piece
        found = fewer.improve(piece, max(0.0, time_limit - relaxed.seconds), gap / 2)
        return replace(found, bound=relaxed.bound)

    def improve(self, piece: Piece, time_limit: float, gap: float) -> Piece:
        """The best plan found, at least as good as the one given."""
        result = self.program.run(time_limit=time_limit, gap=gap, start=self._start(piece.plan))
        seconds, bound = piece.seconds + result.seconds, max(piece.bound, result.bound)
        known = replace(piece, bound=bound, seconds=seconds)
        if result.values is None:
            return known
        found = self._plan_of(result.values)
        constant = forced(self.workspace, self.names)
        least = result.cost * (1 + EQUAL)
        if not self.whole and (found is None or self.workspace.cost_of(found) - constant > least):
            whole = Model(self.workspace, self.names, self.steps, whole=True)
            return whole.improve(known, max(0.0, time_limit - result.seconds), gap)
        plans = [piece.plan] if found is None else [found, piece.plan]
        return replace(known, plan=min(plans, key=self.workspace.cost_of))

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
        """The values of a plan, or of one as good; None if it takes steps that were left out."""
        walks = [(w, self.workspace.whole(answer.name)) for answer in plan.answers for w in answer.walks]
        for one in plan.upkeep:
            join = self.workspace.join_of(self.workspace.store_number(one.store))
            walks += [(walk, join) for walk in one.walks]
        last: dict[Node, Step] = {}
        for walk, join in walks:
            for step in self.workspace.taken(walk, join):
                steps = self.into.get(Node(walk.start, step.target), ())
                alike = [s for s in steps if s.known == step.known and self._same_relation(s, step)]
                if not alike:
                    return None
                last.setdefault(Node(walk.start, step.target), step if step in alike else alike[0])
        goals = dict.fromkeys(Node(walk.start, join) for walk, join in walks if walk.visits)
        if len(self.names) > 1:
            self._prefer(last, goals)
        return self._values(last, goals)

    def _same_relation(self, one: Step, other: Step) -> bool:
        return self.workspace.join_of(one.store) == self.workspace.join_of(other.store)

    def _prefer(self, last: dict[Node, Step], goals: Iterable[Node]) -> None:
        """Take the last steps that `_add_preferences` asks for; none of them is dearer."""
        changed = True
        while changed:
            changed = False
            for goal in goals:
                join = self.workspace.join_of(last[goal].store)
                if join not in self.maintained or not self._is_input(last[goal].known):
                    continue
                for alias in self.workspace.joins[join].aliases:
                    node = Node(alias, goal.join)
                    ranked = self._ranked(node)
                    better = self._through(join, ranked)
                    if better is not None and ranked.index(last[node]) > better:
                        last[node] = ranked[better]
                        changed = True

    def _values(self, last: Mapping[Node, Step], goals: Iterable[Node]) -> dict[int, float] | None:
        values: dict[int, float] = {}
        for goal in goals:
            if goal not in self.flows:
                return None
            if goal.join in self.maintained:
                values[self.maintained[goal.join]] = 1.0
            join = goal.join
            while not self._is_input(join):
                step = last[Node(goal.start, join)]
                values[self.flows[goal][step]] = values[self.taken[step]] = 1.0
                if step.store in self.kept:
                    values[self.kept[step.store]] = 1.0
                join = step.known
        return values

    def _plan_of(self, values: tuple[float, ...]) -> WorkloadPlan | None:
        """The plan of a solution; None if, within the solver's tolerance, nothing leads to some goal."""
        try:
            return self._plan(values)
        except KeyError:
            return None

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
