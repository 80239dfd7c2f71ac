"""The methods, by name, that make one plan of many queries.

Guarantees: every query is answered. `separate` plans each query alone and shares what happens to be equal; `exact`
gives the best plan, or says how far its plan may be from the best (`gap`); `incremental` is AJoin's method and comes
near the best; `auto` is exact where that takes little time. Given a running plan, only queries that came or went are
planned, until more than half have: then all are planned afresh. A query that shares no input with others, or whose
strategy, probe orders or own budget the user has set, is planned by the optimiser of single queries; the others are
planned around it. The same holds for a *wide* query, which has too many sub-joins to look at
(`optimizer/joint/space/query_lattice.py`). The only clocks are the solver's and that of a deadline: once it is over,
every method takes the best plan it has.

A budget (`Options.budget`) binds what the stores of all queries hold together. A plan that is within it without being
told so is taken as it is; otherwise all is planned again within the budget. New queries for which there is no room are
refused by an error that says the least that would do. Queries that run are never refused: if they hold more than the
budget by today's statistics, they keep their plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from weft.errors import ConfigError, PlanError, nearest
from weft.logical.query.query import Query
from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.joint.incremental import changed_too_much
from weft.optimizer.joint.planning_task import Candidate, PlanningTask
from weft.optimizer.joint.space.hop_cost import HopCost, HopPricer
from weft.optimizer.joint.space.shared_cost import NoWayError
from weft.optimizer.joint.space.storage import budget_error, is_within, least_storage, storage_by_store
from weft.optimizer.joint.space.workspace import Workspace
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.workload import WorkloadPlan, share
from weft.stats.statistics import Statistics

__all__ = ["METHODS", "JointResult", "optimise_all", "optimise_alone", "options_of_group"]

METHODS = ("auto", "exact", "incremental", "separate")

# Under a budget, a plan is first looked for as if there were none, for this part of the time: it is the cheapest there
# is, and often stores little enough. Only if it does not, the rest of the time goes into plans within the budget.
TIME_WITHOUT_BUDGET = 0.5


@dataclass(frozen=True)
class JointResult:
    """A plan, the method that found it, and its cost, which is computed when asked for.

    ``bound`` is a proven bound that no plan's cost is below, if there is one. ``changes`` counts the queries that came
    or went since all were planned afresh. ``workspace`` can be handed to the next planning, which saves time.
    """

    plan: WorkloadPlan
    method: str
    workspace: Workspace = field(repr=False, compare=False)
    bound: float | None = None
    changes: int = 0

    @cached_property
    def cost(self) -> float | None:
        """The cost of the plan without hops; None if it has a store that joint plans do not know."""
        try:
            return self.workspace.cost_of(self.plan)
        except KeyError:
            return None

    @cached_property
    def cost_with_hops(self) -> HopCost | None:
        """The cost of the plan, hops included."""
        return HopPricer(self.workspace).cost(self.plan)

    @cached_property
    def stored(self) -> float:
        """How many tuples the stores of the plan hold, copies counted."""
        return math.fsum(storage_by_store(self.workspace, self.plan).values())

    @property
    def gap(self) -> float | None:
        """How much cheaper a plan could be, as a part of the cost; None if nothing is proven."""
        if self.bound is None or not self.cost:
            return None
        return max(0.0, 1 - self.bound / self.cost)


def optimise_all(
    queries: Mapping[str, Query],
    statistics: Statistics,
    options: Options | None = None,
    *,
    method: str = "auto",
    own: Mapping[str, Options] | None = None,
    running: WorkloadPlan | None = None,
    changes: int = 0,
    known: Workspace | None = None,
    deadline: Deadline = NEVER,
    quick: bool = False,
) -> JointResult:
    """A plan for all queries, which are canonical.

    ``own`` has the options of queries whose options differ from ``options``. ``running`` is the plan so far;
    ``changes`` and ``known`` are `JointResult.changes` and `workspace` of it. When the deadline is over, no better plan
    is looked for. With ``quick``, only queries that came are planned, however many have changed.
    """
    if method not in METHODS:
        raise ConfigError(f"there is no method {method!r}", hint=nearest(method, METHODS))
    options = options or Options()
    change = _Change.between(running, queries, changes, quick) if running is not None else None
    if options.budget is None:
        task = PlanningTask(queries, statistics, options, own or {}, known, deadline)
        return _result(task, *_planned(task, method, change))
    if change is None or change.came:
        _check_room(options.budget, queries, statistics)
    task = PlanningTask(queries, statistics, options, own or {}, known, deadline.part(TIME_WITHOUT_BUDGET))
    candidate, count = _planned(task, method, change)
    if not is_within(task.stored(candidate.plan), options.budget):
        task.limit(options.budget, deadline)
        candidate, count = _planned_within(task, method, change)
    return _result(task, candidate, count)


def options_of_group(
    options: Options,
    planned: Mapping[str, JointResult],
    waiting: Iterable[Mapping[str, Query]],
    statistics: Statistics,
) -> Options:
    """The options for one of several groups of queries that share nothing but the budget.

    The group may store what is left beside the groups that are ``planned`` already, if each of the ``waiting`` ones
    stores its inputs and nothing else.
    """
    if options.budget is None:
        return options
    stored = math.fsum(result.stored for result in planned.values())
    least = math.fsum(least_storage(queries, statistics) for queries in waiting)
    return replace(options, budget=max(0.0, options.budget - stored - least))


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of a running plan: its part that stays, the new queries, and the changes since all were planned."""

    kept: WorkloadPlan
    came: tuple[str, ...]
    count: int
    quick: bool

    @classmethod
    def between(
        cls, running: WorkloadPlan, queries: Mapping[str, Query], changes: int, quick: bool
    ) -> _Change:
        """The change from a running plan to some queries; another query of the same name is a new one."""
        gone = [answer.name for answer in running.answers if queries.get(answer.name) != answer.query]
        kept = running.without(gone)
        known = {answer.name for answer in kept.answers}
        came = tuple(name for name in queries if name not in known)
        return cls(kept, came, changes + len(came) + len(gone), quick)

    def is_small(self, method: str, total: int) -> bool:
        """Whether the plan is changed only where queries came or went."""
        if self.quick:
            return method != "separate" and bool(self.kept.answers)
        return method in ("auto", "incremental") and not changed_too_much(self.count, total)


def _planned(task: PlanningTask, method: str, change: _Change | None) -> tuple[Candidate, int]:
    """A plan, and the changes since all queries were planned afresh."""
    if change is not None and change.is_small(method, len(task.queries)):
        return Candidate("incremental", task.grown(change.kept, change.came)), change.count
    return (task.best() if method == "auto" else task.fresh(method)), 0


def _planned_within(task: PlanningTask, method: str, change: _Change | None) -> tuple[Candidate, int]:
    """As `_planned`, within the budget: if new queries do not fit beside the plan that runs, all are planned afresh."""
    if change is not None and change.is_small(method, len(task.queries)):
        if not change.came:
            return Candidate("incremental", change.kept), change.count
        try:
            grown = Candidate("incremental", task.grown(change.kept, change.came))
        except NoWayError:
            pass
        else:
            if is_within(task.stored(grown.plan), task.budget):
                return grown, change.count
    try:
        fresh = task.best() if method == "auto" else task.fresh(method)
        _check_stored(task.budget, task.stored(fresh.plan))
    except PlanError:
        if change is None or change.came:
            raise
        return Candidate("incremental", change.kept), change.count
    return fresh, 0


def _check_room(budget: float, queries: Mapping[str, Query], statistics: Statistics) -> None:
    """Refuse queries whose inputs alone are more than may be stored."""
    least = least_storage(queries, statistics)
    if not is_within(least, budget):
        raise budget_error(budget, least, len(queries))


def _check_stored(budget: float, stored: float) -> None:
    """Refuse a plan that stores too much though the inputs alone would not."""
    if not is_within(stored, budget):
        raise PlanError(
            f"the plan found stores about {stored:.0f} tuples, more than the budget of {budget:.0f}",
            hint="raise the budget, or leave method, strategies and probe orders to the optimiser",
        )


def _result(task: PlanningTask, candidate: Candidate, changes: int) -> JointResult:
    """The result, with the plan in the order of the queries."""
    answers = {answer.name: answer for answer in candidate.plan.answers}
    plan = WorkloadPlan(tuple(answers[name] for name in task.queries), candidate.plan.upkeep)
    return JointResult(plan, candidate.method, task.workspace, candidate.bound, changes)


def optimise_alone(
    queries: Mapping[str, Query],
    statistics: Statistics,
    options: Options,
    *,
    own: Mapping[str, Options],
    running: WorkloadPlan | None = None,
    changes: int = 0,
    deadline: Deadline = NEVER,
) -> JointResult:
    """A plan in which running queries go on as they are and new ones are planned alone, if there is no joint plan.

    It needs no workspace, so it does not fail for the reasons for which `optimise_all` may. A budget is kept as by
    `optimise_all`, but no better plans are looked for if those of the single queries together store too much.
    """
    plan = running or WorkloadPlan(())
    gone = [answer.name for answer in plan.answers if queries.get(answer.name) != answer.query]
    plan = plan.without(gone)
    known = {answer.name for answer in plan.answers}
    came = [name for name in queries if name not in known]
    if options.budget is not None and came:
        _check_room(options.budget, queries, statistics)
    for count, name in enumerate(came):
        until = deadline.part(1 / (len(came) - count))
        part = share({name: optimise(queries[name], statistics, own.get(name, options), until)})
        plan = plan.with_answers(part.answers, part.upkeep)
    answers = {answer.name: answer for answer in plan.answers}
    ordered = WorkloadPlan(tuple(answers[name] for name in queries), plan.upkeep)
    total = changes + len(came) + len(gone) if running else 0
    result = JointResult(ordered, "separate", Workspace({}, statistics, options), changes=total)
    if options.budget is not None and came:
        _check_stored(options.budget, result.stored)
    return result
