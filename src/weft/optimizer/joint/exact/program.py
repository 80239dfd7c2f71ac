"""The integer program of some queries that may share steps: its variables and its rows.

Guarantees: every plan of the queries that takes only the steps given is a solution of the program, and its cost is that
of the program plus `forced`; every solution is a plan. `optimizer/joint/exact/solve.py` says what the variables mean,
and `optimizer/joint/exact/component.py` solves the program. No other module uses the solver, HiGHS: a `_MilpModel` is
built row by row, and `run` gives the best values found, a bound that no solution is below, and the seconds it took. It
ends when the values are proven to be the best, within the gap asked for, or at the time limit, whichever comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.optimizer.joint.space.step_pruning import usable_steps
from weft.optimizer.joint.space.workspace import WalkStep, Workspace

if TYPE_CHECKING:
    import highspy

__all__ = ["EQUAL", "FlowNode", "Result", "SharingProgram", "forced", "is_choice"]


# Relative to the largest cost: HiGHS takes differences below 1e-6 for nothing.
LARGEST_COST = 1e3
# By how much a row may be violated.
CLOSE = 1e-6


@dataclass(frozen=True, slots=True)
class Result:
    """The best values found, if any were found, their cost, and a bound that no solution's cost is below."""

    values: tuple[float, ...] | None
    cost: float
    bound: float
    seconds: float


class _MilpModel:
    """A program to minimise: variables between 0 and 1 with their costs, and rows that bound sums of them."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._whole: list[bool] = []
        self._begins: list[int] = [0]
        self._places: list[int] = []
        self._factors: list[float] = []
        self._least: list[float] = []
        self._most: list[float] = []

    @property
    def variables(self) -> int:
        """How many variables there are."""
        return len(self._costs)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._least)

    def variable(self, cost: float = 0.0, *, whole: bool = False) -> int:
        """Add a variable and return its number; a whole one is 0 or 1."""
        self._costs.append(cost)
        self._whole.append(whole)
        return len(self._costs) - 1

    def row(
        self,
        plus: Iterable[int],
        minus: Iterable[int] = (),
        *,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> None:
        """Add a row: the sum of some variables less that of others must be between two numbers."""
        begin = len(self._places)
        self._places += plus
        self._factors += [1.0] * (len(self._places) - begin)
        begin = len(self._places)
        self._places += minus
        self._factors += [-1.0] * (len(self._places) - begin)
        self._end_row(least, most)

    def weighted_row(self, weights: Mapping[int, float], *, most: float) -> None:
        """Add a row: the sum of some variables, each times its weight, must be at most a number."""
        self._places += weights
        self._factors += weights.values()
        self._end_row(-math.inf, most)

    def _end_row(self, least: float, most: float) -> None:
        self._begins.append(len(self._places))
        self._least.append(least)
        self._most.append(most)

    def holds(self, values: Mapping[int, float]) -> bool:
        """Whether values satisfy all rows; variables that are not given are 0."""
        for row, (least, most) in enumerate(zip(self._least, self._most, strict=True)):
            places = range(self._begins[row], self._begins[row + 1])
            total = sum(self._factors[i] * values.get(self._places[i], 0.0) for i in places)
            if not least - CLOSE <= total <= most + CLOSE:
                return False
        return True

    def run(
        self,
        *,
        time_limit: float,
        gap: float = 0.0,
        start: Mapping[int, float] | None = None,
        relaxed: bool = False,
    ) -> Result:
        """Solve the program. ``start`` is a known solution, without zeros; ``relaxed`` lets variables be fractions."""
        scale = LARGEST_COST / (max(self._costs, default=0.0) or 1.0)
        import highspy  # takes as long to load as all of the planner

        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("time_limit", time_limit),
            ("mip_rel_gap", gap),
        ):
            highs.setOptionValue(option, value)
        highs.passModel(self._model(scale, relaxed))
        if start is not None:
            known = highspy.HighsSolution()
            values = np.zeros(self.variables)
            values[list(start)] = list(start.values())
            known.col_value = list(values)
            highs.setSolution(known)
        highs.run()
        info = highs.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        cost = info.objective_function_value / scale if found else math.inf
        linear = relaxed or not any(self._whole)
        proven = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        bound = (cost if proven else 0.0) if linear else info.mip_dual_bound / scale
        return Result(
            values=tuple(highs.getSolution().col_value) if found else None,
            cost=cost,
            bound=max(0.0, bound) if math.isfinite(bound) else 0.0,
            seconds=highs.getRunTime(),
        )

    def _model(self, scale: float, relaxed: bool) -> highspy.HighsLp:
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.variables, self.rows
        lp.col_cost_ = np.array(self._costs) * scale
        lp.col_lower_, lp.col_upper_ = np.zeros(self.variables), np.ones(self.variables)
        lp.row_lower_, lp.row_upper_ = np.array(self._least), np.array(self._most)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self._begins, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(self._places, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(self._factors)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        if not relaxed:
            lp.integrality_ = [kinds[whole] for whole in self._whole]
        return lp


# Costs that differ by a smaller part than this count as equal.
EQUAL = 1e-7
# For up to so many queries, what is stored nearly always decides the rest, so only its variables must be whole.
FEW = 3


class FlowNode(NamedTuple):
    """Tuples of an input that know a sub-join."""

    start: str
    join: int


def is_choice(workspace: Workspace, join: int) -> bool:
    """Whether a sub-join has several layouts, at least one of which costs something to keep."""
    stores = workspace.layouts(join)
    return len(stores) > 1 and any(workspace.keeping(store) > 0 for store in stores)


def forced(workspace: Workspace, names: Iterable[str]) -> float:
    """The cost of keeping the inputs that have one layout only; every plan pays it, so the program leaves it out."""
    inputs = {
        workspace.find(name, (alias,))
        for name in names
        if len(workspace.queries[name].inputs) > 1
        for alias in workspace.queries[name].aliases
    }
    settled = (workspace.layouts(join) for join in inputs if not is_choice(workspace, join))
    return math.fsum(workspace.keeping(store) for stores in settled for store in stores[:1])


class SharingProgram:
    """The integer program of some queries that may share steps."""

    def __init__(
        self,
        workspace: Workspace,
        names: Iterable[str],
        steps: list[WalkStep],
        *,
        whole: bool = False,
        budget: float = math.inf,
    ) -> None:
        """Make the program; with ``whole``, the variables of steps must be whole even for few queries.

        With a ``budget``, all stores together hold at most so many tuples.
        """
        self.workspace = workspace
        self.budget = budget
        self.names = tuple(names)
        self.steps = usable_steps(workspace, steps)
        self.program = _MilpModel()
        self.whole = whole or len(self.names) > FEW
        self.into: dict[FlowNode, list[WalkStep]] = {}
        for step in self.steps:
            self.into.setdefault(FlowNode(step.start, step.target), []).append(step)
        self.stored = dict.fromkeys(
            join for step in self.steps if not self._is_input(join := workspace.join_of(step.store))
        )
        # The variables of steps, of stored intermediate results, of stores, and of flows by the node they reach.
        self.taken = {step: self.program.variable(step.cost, whole=self.whole) for step in self.steps}
        self.maintained = {join: self.program.variable(whole=True) for join in self.stored}
        self.kept = self._kept()
        self.answers = {
            FlowNode(alias, workspace.whole(name))
            for name in self.names
            for alias in workspace.queries[name].aliases
        }
        self.flows: dict[FlowNode, dict[WalkStep, int]] = {}
        for node in self._goals():
            self._add_flow(node)
        self._add_stores()
        self._add_budget()
        if len(self.names) > 1:
            for node in self.flows:
                self._add_preferences(node)

    def _is_input(self, join: int) -> bool:
        return len(self.workspace.joins[join].aliases) == 1

    def _kept(self) -> dict[int, int]:
        """The variables of stores: of those whose cost depends on the plan and, with a budget, of all."""
        found = {}
        for store in dict.fromkeys(step.store for step in self.steps):
            join, cost = self.workspace.join_of(store), self.workspace.keeping(store)
            if self._is_input(join) and not is_choice(self.workspace, join):
                cost = 0.0  # see `forced`
            if cost > 0 or self.budget < math.inf:
                found[store] = self.program.variable(cost, whole=True)
        return found

    def _goals(self) -> list[FlowNode]:
        """The nodes that flows lead to: whole queries, and sub-joins that may be stored."""
        inner = (
            FlowNode(alias, join) for join in self.stored for alias in self.workspace.joins[join].aliases
        )
        return list(dict.fromkeys((*sorted(self.answers), *inner)))

    def _add_flow(self, goal: FlowNode) -> None:
        """Add the rows of a flow from an input to a goal: as much as leads into a node leads out of it."""
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

    def _add_uses(self, flow: Mapping[WalkStep, int]) -> None:
        """Add rows by which a flow visits a store only as far as it is kept, and a result as far as it is computed."""
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

    def _below(self, goal: FlowNode) -> list[WalkStep]:
        """The steps on the ways to a node."""
        waiting, seen, found = [goal.join], {goal.join}, []
        for join in waiting:
            for step in self.into.get(FlowNode(goal.start, join), ()):
                found.append(step)
                if step.known not in seen:
                    seen.add(step.known)
                    waiting.append(step.known)
        return found

    def _add_stores(self) -> None:
        """Add rows by which only computed results are kept, and every input in some layout, since a walk visits it."""
        inputs: dict[int, list[int]] = {}
        for store, kept in self.kept.items():
            join = self.workspace.join_of(store)
            if join in self.maintained:
                self.program.row([kept], [self.maintained[join]], most=0)
            else:
                inputs.setdefault(join, []).append(kept)
        for layouts in inputs.values():
            self.program.row(layouts, least=1)

    def _add_budget(self) -> None:
        """Add the row by which what is stored, copies counted, is within the budget, as parts of the budget."""
        if self.budget < math.inf:
            unit = self.budget or 1.0
            parts = {kept: self.workspace.stored(store) / unit for store, kept in self.kept.items()}
            self.program.weighted_row(parts, most=self.budget / unit)

    def _add_preferences(self, goal: FlowNode) -> None:
        """Add rows that make a flow take the best last step to its goal.

        Every whole solution does so anyhow, since another would cost more; the relaxation would not without these rows.

        Where T reaches T ⋈ M in one step, M is stored, so each input of M reaches M and can reach T ⋈ M from there. It
        has no reason for a last step that is dearer, or as dear and later in the list; so the part of it that takes
        such a step, and the part of T that visits M, are together no more than there is of T ⋈ M.
        """
        whole = [] if goal in self.answers else [self.maintained[goal.join]]
        visiting: dict[int, list[int]] = {}
        for step in self.into.get(goal, ()):  # a query of one input has no last step
            join = self.workspace.join_of(step.store)
            if join in self.maintained and self._is_input(step.known):
                visiting.setdefault(join, []).append(self.flows[goal][step])
        for join, visits in visiting.items():
            for alias in self.workspace.joins[join].aliases:
                worse = self._worse_than_through(join, FlowNode(alias, goal.join))
                if worse:
                    self.program.row((*worse, *visits), whole, most=0 if whole else 1)

    def _worse_than_through(self, join: int, goal: FlowNode) -> list[int]:
        """The flows over the last steps to a goal that cost more than a step which needs no store of its own.

        Such a step leads from the sub-join, whose matches are made anyway, to a store that costs nothing to keep. A
        plan that computes the sub-join never does better by the steps given here, so a row may forbid them.
        """
        ranked = self._ranked(goal)
        best = self._through(join, ranked)
        return [] if best is None else [self.flows[goal][step] for step in ranked[best + 1 :]]

    def _ranked(self, goal: FlowNode) -> list[WalkStep]:
        """The last steps to a goal, best first."""
        return sorted(self.into[goal], key=lambda step: step.cost)

    def _through(self, join: int, ranked: list[WalkStep]) -> int | None:
        """The place of the first step from a sub-join to a store that costs nothing to keep."""
        places = (i for i, step in enumerate(ranked) if step.known == join and self._is_free(step))
        return next(places, None)

    def _is_free(self, step: WalkStep) -> bool:
        return step.store not in self.kept and self.workspace.join_of(step.store) not in self.maintained
