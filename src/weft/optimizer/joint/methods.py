"""The methods, by name, that make one plan of many queries.

Guarantees: every query is answered. `separate` plans each query alone and shares what happens to be equal; `exact`
gives the best plan, or says how far its plan may be from the best (`gap`); `incremental` is AJoin's method and comes
near the best; `auto` is exact where that takes little time. Given a running plan, only queries that came or went are
planned, until more than half have: then all are planned afresh. A query that shares no input with others, or whose
strategy, probe orders or budget the user has set, is planned by the optimiser of single queries; the others are planned
around it. The same holds for a *wide* query, which has too many sub-joins to look at
(`optimizer/joint/query_lattice.py`).

Joint optimisers do not count hops, but the optimiser of single queries does (`optimizer/joint/hop_cost.py`). So `auto`
also plans the queries separately, and with all inputs replicated, and takes the plan that costs least with hops, or a
mixture with some queries from one plan and some from another. The only clocks are the solver's and that of a deadline:
once it is over, every method takes the best plan it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

from weft.errors import ConfigError, nearest
from weft.logical.query import Query
from weft.optimizer.deadline import NEVER, Deadline
from weft.optimizer.joint.hop_cost import HopCost, HopPricer
from weft.optimizer.joint.ilp import Solution, relevant_steps, solve
from weft.optimizer.joint.incremental import add_query, changed_too_much, plan_all
from weft.optimizer.joint.query_lattice import is_wide
from weft.optimizer.joint.replicated_inputs import with_replicated_inputs
from weft.optimizer.joint.workspace import Workspace
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options, Space, check_inputs
from weft.plan.join_plan import JoinPlan
from weft.plan.workload import WorkloadPlan, share
from weft.stats.statistics import Statistics

__all__ = ["METHODS", "JointResult", "optimise_all", "optimise_alone"]

METHODS = ("auto", "exact", "incremental", "separate")

# Workloads with more steps than this are planned exactly only if the user asks for it.
MOST_STEPS = 20_000

# The seconds that the solver may take if the user does not ask for the best plan, and if the user does.
PATIENCE = 5.0
THOROUGH = 60.0

# The part of the time that `auto` gives to plans of single queries, and the part of the rest for the joint plan.
SEPARATE, JOINT = 0.4, 0.8


# With more queries than this, no mixture of two plans is tried.
FEW = 30


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
) -> JointResult:
    """A plan for all queries, which are canonical.

    ``own`` has the options of queries whose options differ from ``options``. ``running`` is the plan so far;
    ``changes`` and ``known`` are `JointResult.changes` and `workspace` of it. When the deadline is over, no better plan
    is looked for.
    """
    if method not in METHODS:
        raise ConfigError(f"there is no method {method!r}", hint=nearest(method, METHODS))
    task = _Task(queries, statistics, options or Options(), own or {}, known, deadline)
    if running is not None and method in ("auto", "incremental"):
        gone = [a.name for a in running.answers if queries.get(a.name) != a.query]
        kept = running.without(gone)
        came = [name for name in queries if name not in {answer.name for answer in kept.answers}]
        total = changes + len(came) + len(gone)
        if not changed_too_much(total, len(queries)):
            return task.result(_Found("incremental", task.grown(kept, came)), changes=total)
    return task.result(task.best() if method == "auto" else task.fresh(method))


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

    It needs no workspace, so it does not fail for the reasons for which `optimise_all` may.
    """
    plan = running or WorkloadPlan(())
    gone = [answer.name for answer in plan.answers if queries.get(answer.name) != answer.query]
    plan = plan.without(gone)
    known = {answer.name for answer in plan.answers}
    came = [name for name in queries if name not in known]
    for count, name in enumerate(came):
        until = deadline.part(1 / (len(came) - count))
        part = share({name: optimise(queries[name], statistics, own.get(name, options), until)})
        plan = plan.with_answers(part.answers, part.upkeep)
    answers = {answer.name: answer for answer in plan.answers}
    ordered = WorkloadPlan(tuple(answers[name] for name in queries), plan.upkeep)
    total = changes + len(came) + len(gone) if running else 0
    return JointResult(ordered, "separate", Workspace({}, statistics, options), changes=total)


class _Found(NamedTuple):
    """A plan, the method that found it, and a bound that no plan's cost is below."""

    method: str
    plan: WorkloadPlan
    bound: float | None = None


class _Task:
    """One planning of many queries: the queries, their options, and the workspace."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        statistics: Statistics,
        options: Options,
        own: Mapping[str, Options],
        known: Workspace | None,
        deadline: Deadline,
    ) -> None:
        self.queries, self.statistics, self.deadline = queries, statistics, deadline
        self.options = {name: own.get(name, options) for name in queries}
        for name, query in queries.items():
            check_inputs(query, self.options[name])
        fits = known is not None and known.statistics == statistics and known.options == options
        self._wide = {name for name, query in queries.items() if is_wide(Space(query, statistics, options))}
        narrow = {name: query for name, query in queries.items() if name not in self._wide}
        self.workspace = Workspace(narrow, statistics, options, known=known if fits else None)
        self._hop_pricer = HopPricer(self.workspace)
        self._plans: dict[str, JoinPlan] = {}

    def best(self) -> _Found:
        """The cheapest, hops included, of a joint plan, of separate plans, and of mixtures of these."""
        if not self._shared():
            return self.fresh("auto")  # which may take all the time there is
        whole = self.deadline
        self.deadline = whole.part(SEPARATE)
        self._alone(self.queries)
        self.deadline = whole.part(JOINT)
        joint = self.fresh("auto")
        self.deadline = whole
        if joint.method == "separate":
            return joint
        separate = _Found("separate", self._alone(self.queries), joint.bound)
        best, other = sorted((joint, separate), key=lambda found: self._total(found.plan))
        copies = with_replicated_inputs(joint.plan, self.workspace.options.partitions)
        if self._free and self._total(copies) < self._total(best.plan):
            return _Found("replicated", copies, joint.bound)
        mixed = self._mixed(best.plan, other.plan) if len(self.queries) <= FEW else best.plan
        return best if mixed is best.plan else _Found("mixed", mixed, joint.bound)

    @property
    def _free(self) -> bool:
        """Whether the user has left all of the queries to the optimiser."""
        return not any(map(self._decided, self.queries))

    def _total(self, plan: WorkloadPlan) -> float:
        found = self._hop_pricer.cost(plan.without(self._wide) if self._wide else plan)
        return found.total if found else inf

    def _mixed(self, plan: WorkloadPlan, other: WorkloadPlan) -> WorkloadPlan:
        """The plan with the queries from the other plan that make it cheaper."""
        best = self._total(plan)
        for name in self.queries:
            if self.deadline.over:
                break
            changed = plan.without([name]).with_answers([other.answer(name)], other.upkeep)
            cost = self._total(changed)
            if cost < best:
                plan, best = changed, cost
        return plan

    def fresh(self, method: str) -> _Found:
        """A plan of all queries that takes nothing from a running plan."""
        alone = self._unrelated()
        settled = [name for name in self.queries if name in alone or self._decided(name)]
        if method == "separate" or len(settled) == len(self.queries):
            return _Found("separate", self._alone(self.queries))
        fixed = self._alone(settled)
        if len(settled) == len(alone):
            free = [name for name in self.queries if name not in alone]
            solution = self._solved(free, method)
            if solution is not None:
                plan = fixed.with_answers(solution.plan.answers, solution.plan.upkeep)
                return _Found("exact", plan, solution.bound if not alone else None)
        shared = plan_all(self.workspace, around=fixed.without(self._wide), deadline=self.deadline)
        return _Found("incremental", self._with_wide(shared, fixed))

    def _unrelated(self) -> list[str]:
        """The queries for which no joint plan is sought: they share no input, have only one, or are wide."""
        alone = [name for group in self._components() if len(group) == 1 for name in group]
        alone += [n for n, query in self.queries.items() if len(query.inputs) == 1 and n not in alone]
        return alone + [name for name in self.queries if name in self._wide and name not in alone]

    def _shared(self) -> list[str]:
        """The queries for which a joint plan is sought."""
        alone = self._unrelated()
        return [name for name in self.queries if name not in alone and not self._decided(name)]

    def _with_wide(self, plan: WorkloadPlan, other: WorkloadPlan) -> WorkloadPlan:
        """A plan together with the wide queries of another."""
        wide = [answer for answer in other.answers if answer.name in self._wide]
        return plan.with_answers(wide, other.upkeep) if wide else plan

    def _solved(self, names: list[str], method: str) -> Solution | None:
        """The best plan of some queries, if the user asks for it or the workload is small; otherwise None."""
        workspace = self.workspace.only(names)
        if method == "exact":
            return solve(workspace, time_limit=THOROUGH, deadline=self.deadline)
        if method == "incremental" or len(relevant_steps(workspace, names)) > MOST_STEPS:
            return None
        return solve(workspace, time_limit=PATIENCE, deadline=self.deadline)

    def grown(self, plan: WorkloadPlan, names: Iterable[str]) -> WorkloadPlan:
        """A running plan with more queries."""
        new = list(names)
        for count, name in enumerate(new):
            if self._decided(name) or len(self.queries[name].inputs) == 1 or name in self._wide:
                part = self._alone([name])
                plan = plan.with_answers(part.answers, part.upkeep)
            else:
                until = self.deadline.part(1 / (len(new) - count))
                plan = self._with_wide(add_query(self.workspace, plan.without(self._wide), name, until), plan)
        return plan

    def _decided(self, name: str) -> bool:
        """Whether the user has set an option of a query that only the optimiser of single queries follows."""
        options = self.options[name]
        return options.strategy != "auto" or options.probe_orders != "auto" or options.budget is not None

    def _alone(self, names: Iterable[str]) -> WorkloadPlan:
        """The plans of single queries together; each may take an equal part of the time."""
        wanted = list(names)
        for count, name in enumerate(wanted):
            if name not in self._plans:
                until = self.deadline.part(1 / (len(wanted) - count))
                query, options = self.queries[name], self.options[name]
                self._plans[name] = optimise(query, self.statistics, options, until)
        return share({name: self._plans[name] for name in wanted})

    def _components(self) -> list[set[str]]:
        """The queries in sets, such that queries of different sets have no input in common."""
        found: list[tuple[set[str], set[str]]] = []
        for name, query in self.queries.items():
            names, inputs = {name}, set(query.aliases)
            for other in [pair for pair in found if pair[1] & inputs]:
                found.remove(other)
                names, inputs = names | other[0], inputs | other[1]
            found.append((names, inputs))
        return [names for names, _ in found]

    def result(self, found: _Found, changes: int = 0) -> JointResult:
        """The result, with the plan in the order of the queries."""
        answers = {answer.name: answer for answer in found.plan.answers}
        plan = WorkloadPlan(tuple(answers[name] for name in self.queries), found.plan.upkeep)
        return JointResult(plan, found.method, self.workspace, found.bound, changes)
