"""A mixed integer program and its solution, by HiGHS.

Guarantees: no other module uses the solver. A `MilpModel` is built row by row; `run` gives the best values found, a
bound that no solution is below, and the seconds it took. It ends when the values are proven to be the best, within the
gap asked for, or at the time limit, whichever comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import highspy

__all__ = ["MilpModel", "Result"]

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


class MilpModel:
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
