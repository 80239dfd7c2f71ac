"""From many queries and statistics to one plan: the methods by name.

Guarantees: every query is answered. `separate` plans each query alone and shares what happens to be equal; `exact` is
the best there is, or says how far it may be from it (`gap`); `incremental` is AJoin's, and near it; `auto` is exact
where that takes little time. With a plan that runs, only what changed is planned, until more than half of the queries
have: then all are planned afresh. A query that shares no input with others, or whose strategy, probe orders or budget
the user has set, is planned by the optimiser of single queries; the others are planned around it.

Joint optimisers do not know hops, the optimiser of single queries does (`optimizer/realised.py`). So `auto` also plans
the queries separately and with all inputs replicated, and takes what costs least, hops included; or some queries from
one plan and some from another. The only clock is the solver's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

from weft.errors import ConfigError, nearest
from weft.logical.query import Query
from weft.optimizer.everywhere import everywhere
from weft.optimizer.ilp import Solution, relevant_steps, solve
from weft.optimizer.incremental import add, changed_too_much, plan_all, remove
from weft.optimizer.optimizer import optimise
from weft.optimizer.realised import Realised, Realiser
from weft.optimizer.space import Options
from weft.optimizer.workspace import Workspace
from weft.plan.workload import WorkloadPlan, share
from weft.stats.statistics import Statistics

__all__ = ["METHODS", "JointResult", "optimise_all"]

METHODS = ("auto", "exact", "incremental", "separate")

# Workloads with more steps than this are not planned exactly, unless asked.
MOST_STEPS = 20_000

# Seconds that the solver may take, if it is not the user who asks for the best plan.
PATIENCE = 5.0


# Of more queries than this, none is taken from the other plan by itself.
FEW = 30


@dataclass(frozen=True)
class JointResult:
    """A plan, how it was found, and what is known of its cost, which is computed when asked for.

    ``bound`` is what no plan's cost is below, if that was proven. ``changes`` counts the queries that came or went
    since all were planned afresh. ``workspace`` saves time when the next change comes.
    """

    plan: WorkloadPlan
    method: str
    workspace: Workspace = field(repr=False, compare=False)
    bound: float | None = None
    changes: int = 0

    @cached_property
    def cost(self) -> float | None:
        """What the plan costs if hops do not count; None if it has a store that joint plans do not know."""
        try:
            return self.workspace.cost_of(self.plan)
        except KeyError:
            return None

    @cached_property
    def realised(self) -> Realised | None:
        """What the plan costs, hops included."""
        return Realiser(self.workspace).cost(self.plan)

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
    time_limit: float | None = None,
) -> JointResult:
    """A plan for all queries, which are canonical.

    ``own`` has the options of queries that differ from the others'; ``running`` is the plan so far, ``changes`` and
    ``known`` what was said of it.
    """
    if method not in METHODS:
        raise ConfigError(f"there is no method {method!r}", hint=nearest(method, METHODS))
    task = _Task(queries, statistics, options or Options(), own or {}, known)
    if running is not None and method in ("auto", "incremental"):
        gone = [a.name for a in running.answers if queries.get(a.name) != a.query]
        kept = remove(running, gone)
        came = [name for name in queries if name not in {answer.name for answer in kept.answers}]
        total = changes + len(came) + len(gone)
        if not changed_too_much(total, len(queries)):
            return task.result(_Found("incremental", task.grown(kept, came)), changes=total)
    if method == "auto":
        return task.result(task.best(time_limit))
    return task.result(task.fresh(method, time_limit))


class _Found(NamedTuple):
    """A plan, the method that found it, and what no plan is cheaper than."""

    method: str
    plan: WorkloadPlan
    bound: float | None = None


class _Task:
    """What is asked, and the workspace in which it is answered."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        statistics: Statistics,
        options: Options,
        own: Mapping[str, Options],
        known: Workspace | None,
    ) -> None:
        self.queries, self.statistics = queries, statistics
        self.options = {name: own.get(name, options) for name in queries}
        fits = known is not None and known.statistics == statistics and known.options == options
        self.workspace = Workspace(queries, statistics, options, known=known if fits else None)
        self._realiser = Realiser(self.workspace)

    def best(self, time_limit: float | None) -> _Found:
        """What costs least, hops included, of a joint plan, of separate ones, and of a mixture."""
        joint = self.fresh("auto", time_limit)
        if joint.method == "separate":
            return joint
        apart = _Found("separate", self._alone(self.queries), joint.bound)
        one, other = (apart, joint) if self._total(apart.plan) < self._total(joint.plan) else (joint, apart)
        copied = _Found("everywhere", everywhere(joint.plan, self.workspace.options.partitions), joint.bound)
        if self._free and self._total(copied.plan) < self._total(one.plan):
            return copied
        mixed = self._mixed(one.plan, other.plan) if len(self.queries) <= FEW else one.plan
        return one if mixed is one.plan else _Found("mixed", mixed, joint.bound)

    @property
    def _free(self) -> bool:
        """Whether the user has left all of the queries to the optimiser."""
        return not any(map(self._decided, self.queries))

    def _total(self, plan: WorkloadPlan) -> float:
        found = self._realiser.cost(plan)
        return found.total if found else inf

    def _mixed(self, plan: WorkloadPlan, other: WorkloadPlan) -> WorkloadPlan:
        """The plan with the queries from the other plan that make it cheaper."""
        best = self._total(plan)
        for name in self.queries:
            changed = plan.without([name]).with_answers([other.answer(name)], other.upkeep)
            cost = self._total(changed)
            if cost < best:
                plan, best = changed, cost
        return plan

    def fresh(self, method: str, time_limit: float | None) -> _Found:
        """All queries planned anew."""
        alone = [name for group in self._components() if len(group) == 1 for name in group]
        alone += [n for n, query in self.queries.items() if len(query.inputs) == 1 and n not in alone]
        settled = [name for name in self.queries if name in alone or self._decided(name)]
        if method == "separate" or len(settled) == len(self.queries):
            return _Found("separate", self._alone(self.queries))
        fixed = self._alone(settled)
        if len(settled) == len(alone):
            free = [name for name in self.queries if name not in alone]
            solution = self._solved(free, method, time_limit)
            if solution is not None:
                plan = fixed.with_answers(solution.plan.answers, solution.plan.upkeep)
                return _Found("exact", plan, solution.bound if not alone else None)
        return _Found("incremental", plan_all(self.workspace, around=fixed))

    def _solved(self, names: list[str], method: str, time_limit: float | None) -> Solution | None:
        """The best plan of some queries, if it is asked for or found soon."""
        workspace = self.workspace.only(names)
        if method == "exact":
            return solve(workspace, time_limit=60.0 if time_limit is None else time_limit)
        if method == "incremental" or len(relevant_steps(workspace, names)) > MOST_STEPS:
            return None
        return solve(workspace, time_limit=PATIENCE if time_limit is None else time_limit)

    def grown(self, plan: WorkloadPlan, names: Iterable[str]) -> WorkloadPlan:
        """A running plan with more queries."""
        for name in names:
            if self._decided(name) or len(self.queries[name].inputs) == 1:
                part = self._alone([name])
                plan = plan.with_answers(part.answers, part.upkeep)
            else:
                plan = add(self.workspace, plan, name)
        return plan

    def _decided(self, name: str) -> bool:
        """Whether the user's options leave a query to the optimiser of single queries."""
        options = self.options[name]
        return options.strategy != "auto" or options.probe_orders != "auto" or options.budget is not None

    def _alone(self, names: Iterable[str]) -> WorkloadPlan:
        return share(
            {name: optimise(self.queries[name], self.statistics, self.options[name]) for name in names}
        )

    def _components(self) -> list[set[str]]:
        """The queries by the inputs they share."""
        found: list[tuple[set[str], set[str]]] = []
        for name, query in self.queries.items():
            names, inputs = {name}, set(query.aliases)
            for other in [pair for pair in found if pair[1] & inputs]:
                found.remove(other)
                names, inputs = names | other[0], inputs | other[1]
            found.append((names, inputs))
        return [names for names, _ in found]

    def result(self, found: _Found, changes: int = 0) -> JointResult:
        """The plan in the order of the queries."""
        answers = {answer.name: answer for answer in found.plan.answers}
        plan = WorkloadPlan(tuple(answers[name] for name in self.queries), found.plan.upkeep)
        return JointResult(plan, found.method, self.workspace, found.bound, changes)
