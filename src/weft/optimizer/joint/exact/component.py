"""The best plan of some queries that may share steps, as a solution of their integer program.

Guarantees: a search gives a plan that is no dearer than the one it began with, and a bound that no plan's cost is
below; if the time runs out, the plan is the best so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from weft.optimizer.joint.exact.program import EQUAL, FlowNode, SharingProgram, forced
from weft.optimizer.joint.space.single_query_plan import best_alone, best_ways, best_within
from weft.optimizer.joint.space.storage import is_within, thrifty_stores
from weft.optimizer.joint.space.workspace import WalkStep, Ways, Workspace
from weft.plan.workload import WorkloadPlan

__all__ = ["ComponentPlan", "Model"]

# With more variables than this, it pays to look first for a good plan among the steps that the relaxation takes.
LARGE = 500
# The seconds that the relaxation may always take, however little time is left: enough for all but large models.
LEAST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """The best plan found for some queries; ``bound`` counts the costs that the integer program has (see `forced`)."""

    plan: WorkloadPlan
    bound: float
    seconds: float
    variables: int

    def is_proven(self, workspace: Workspace, gap: float) -> bool:
        """Whether no plan can be cheaper by more than the gap."""
        names = [answer.name for answer in self.plan.answers]
        cost = workspace.cost_of(self.plan) - forced(workspace, names)
        return self.bound >= cost * (1 - max(gap, EQUAL))


class Model(SharingProgram):
    """The integer program of some queries, and plans as its solutions."""

    def begin(self, time_limit: float, gap: float, warm: WorkloadPlan | None) -> ComponentPlan:
        """A first plan, and the bound that the relaxation gives.

        With many variables, the plan is the best one among the steps that the relaxation takes at least in part. There
        is always one: it takes all these steps.
        """
        piece = ComponentPlan(self._fallback(warm), 0.0, 0.0, self.program.variables)
        relaxed = self.program.run(time_limit=max(time_limit, LEAST_SECONDS), relaxed=True)
        piece = replace(piece, bound=relaxed.bound, seconds=relaxed.seconds)
        if relaxed.values is None or self.program.variables <= LARGE or piece.is_proven(self.workspace, gap):
            return piece
        steps = [step for step in self.steps if relaxed.values[self.taken[step]] > EQUAL]
        fewer = Model(self.workspace, self.names, steps, budget=self.budget)
        if not fewer.answers <= fewer.into.keys():
            return piece
        found = fewer.improve(piece, max(0.0, time_limit - relaxed.seconds), gap / 2)
        return replace(found, bound=relaxed.bound)

    def improve(self, piece: ComponentPlan, time_limit: float, gap: float) -> ComponentPlan:
        """The best plan found, at least as good as the one given."""
        result = self.program.run(time_limit=time_limit, gap=gap, start=self._start(piece.plan))
        seconds, bound = piece.seconds + result.seconds, max(piece.bound, result.bound)
        known = replace(piece, bound=bound, seconds=seconds)
        if result.values is None:
            return known
        found = self._plan_of(result.values)
        if found is not None and not self._is_affordable(found):
            found = None
        constant = forced(self.workspace, self.names)
        least = result.cost * (1 + EQUAL)
        if not self.whole and (found is None or self.workspace.cost_of(found) - constant > least):
            whole = Model(self.workspace, self.names, self.steps, whole=True, budget=self.budget)
            return whole.improve(known, max(0.0, time_limit - result.seconds), gap)
        plans = [piece.plan] if found is None else [found, piece.plan]
        return replace(known, plan=min(plans, key=self.workspace.cost_of))

    def _fallback(self, warm: WorkloadPlan | None) -> WorkloadPlan:
        """The cheapest of the plan given, of the plans of the single queries together, and of the thriftiest plan."""
        plans = [self._together(best_alone(self.workspace, name) for name in self.names)]
        if self.budget < math.inf:
            thrifty = set(thrifty_stores(self.workspace).values())
            plans.append(self._together(best_within(self.workspace, name, thrifty) for name in self.names))
        if warm is not None and set(self.names) <= {answer.name for answer in warm.answers}:
            plans.insert(0, warm.without({answer.name for answer in warm.answers} - set(self.names)))
        return min(filter(self._is_affordable, plans), key=self.workspace.cost_of)

    def _together(self, plans: Iterable[WorkloadPlan]) -> WorkloadPlan:
        found = list(plans)
        return WorkloadPlan(()).with_answers(
            [answer for one in found for answer in one.answers], [up for one in found for up in one.upkeep]
        )

    def _is_affordable(self, plan: WorkloadPlan) -> bool:
        stores = map(self.workspace.store_number, plan.stores if self.budget < math.inf else ())
        return is_within(math.fsum(map(self.workspace.stored, stores)), self.budget)

    def _start(self, plan: WorkloadPlan) -> dict[int, float] | None:
        """The values of the variables for a plan, or for one as good; None if it takes steps that were left out."""
        walks = [(w, self.workspace.whole(answer.name)) for answer in plan.answers for w in answer.walks]
        for one in plan.upkeep:
            join = self.workspace.join_of(self.workspace.store_number(one.store))
            walks += [(walk, join) for walk in one.walks]
        last: dict[FlowNode, WalkStep] = {}
        for walk, join in walks:
            for step in self.workspace.steps_of(walk, join):
                steps = self.into.get(FlowNode(walk.start, step.target), ())
                alike = [s for s in steps if s.known == step.known and self._same_relation(s, step)]
                if not alike:
                    return None
                last.setdefault(FlowNode(walk.start, step.target), step if step in alike else alike[0])
        goals = dict.fromkeys(FlowNode(walk.start, join) for walk, join in walks if walk.visits)
        if len(self.names) > 1:
            self._prefer(last, goals)
        return self._values(last, goals)

    def _same_relation(self, one: WalkStep, other: WalkStep) -> bool:
        return self.workspace.join_of(one.store) == self.workspace.join_of(other.store)

    def _prefer(self, last: dict[FlowNode, WalkStep], goals: Iterable[FlowNode]) -> None:
        """Replace last steps by those that `_add_preferences` demands, none of which is dearer."""
        changed = True
        while changed:
            changed = False
            for goal in goals:
                join = self.workspace.join_of(last[goal].store)
                if join not in self.maintained or not self._is_input(last[goal].known):
                    continue
                for alias in self.workspace.joins[join].aliases:
                    node = FlowNode(alias, goal.join)
                    ranked = self._ranked(node)
                    better = self._through(join, ranked)
                    if better is not None and ranked.index(last[node]) > better:
                        last[node] = ranked[better]
                        changed = True

    def _values(
        self, last: Mapping[FlowNode, WalkStep], goals: Iterable[FlowNode]
    ) -> dict[int, float] | None:
        values: dict[int, float] = {}
        for goal in goals:
            if goal not in self.flows:
                return None
            if goal.join in self.maintained:
                values[self.maintained[goal.join]] = 1.0
            join = goal.join
            while not self._is_input(join):
                step = last[FlowNode(goal.start, join)]
                values[self.flows[goal][step]] = values[self.taken[step]] = 1.0
                if step.store in self.kept:
                    values[self.kept[step.store]] = 1.0
                join = step.known
        return values

    def _plan_of(self, values: tuple[float, ...]) -> WorkloadPlan | None:
        """The plan of a solution; None if, due to the solver's tolerance, no steps lead to some goal."""
        try:
            return self._plan(values)
        except KeyError:
            return None

    def _plan(self, values: tuple[float, ...]) -> WorkloadPlan:
        """The plan of a solution: a tree of steps per input."""
        ways = self._ways(values)
        answers = {
            name: {
                alias: ways[FlowNode(alias, self.workspace.whole(name))]
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
                found = {alias: ways[FlowNode(alias, join)] for alias in self.workspace.joins[join].aliases}
                upkeep[store] = found
                waiting += [visit for way in found.values() for visit in way]
        return self.workspace.plan(answers, upkeep)

    def _ways(self, values: tuple[float, ...]) -> dict[FlowNode, tuple[int, ...]]:
        """The ways to all nodes that the steps taken lead to."""
        by_start: dict[str, list[WalkStep]] = {}
        for step in sorted(self.steps, key=lambda step: len(self.workspace.joins[step.known].aliases)):
            needed = self.maintained.get(self.workspace.join_of(step.store)), self.kept.get(step.store)
            there = all(variable is None or values[variable] > 0.5 for variable in needed)
            if there and values[self.taken[step]] > EQUAL:
                by_start.setdefault(step.start, []).append(step)
        found = {}
        for start, steps in by_start.items():
            root = self.workspace.within(steps[0].known, (start,))
            reached = best_ways(steps, root)
            found.update({FlowNode(start, join): way for join, (_, way) in reached.items()})
        return found
