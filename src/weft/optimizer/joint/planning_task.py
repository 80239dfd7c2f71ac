"""One planning of many queries: plans that share, plans of single queries, and the best of these.

Guarantees: what the user has decided about a query is kept. Joint optimisers do not count hops, but the optimiser of
single queries does (`optimizer/joint/space/hop_cost.py`); so `best` takes, of a joint plan, of separate plans, of
replicated inputs and of mixtures, the one that costs least with hops. After `limit`, all plans that are looked for
store at most so many tuples together, and a plan that stores more is never taken for the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from weft.logical.expr.expression import aliases
from weft.logical.query.query import Query
from weft.optimizer.deadline import Deadline
from weft.optimizer.joint.exact.solve import Solution, relevant_steps, solve
from weft.optimizer.joint.incremental import add_query, plan_all
from weft.optimizer.joint.space.hop_cost import HopPricer
from weft.optimizer.joint.space.query_lattice import is_wide
from weft.optimizer.joint.space.step_pruning import every_step
from weft.optimizer.joint.space.storage import SLACK, is_within, least_by_input, storage_by_store
from weft.optimizer.joint.space.workspace import Workspace
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options, Space, check_inputs
from weft.plan.join_plan import JoinPlan, Layout
from weft.plan.workload import Answer, SharedStore, Walk, WorkloadPlan, share
from weft.stats.statistics import Statistics

__all__ = ["Candidate", "PlanningTask"]


# Workloads with more steps than this are planned exactly only if the user asks for it.
MOST_STEPS = 20_000

# The seconds that the solver may take if the user does not ask for the best plan, and if the user does.
PATIENCE = 5.0
THOROUGH = 60.0

# The part of the time that `auto` gives to plans of single queries, and the part of the rest for the joint plan.
SEPARATE, JOINT = 0.4, 0.8

# With more queries than this, no mixture of two plans is tried.
FEW = 30


class Candidate(NamedTuple):
    """A plan, the method that found it, and a bound that no plan's cost is below."""

    method: str
    plan: WorkloadPlan
    bound: float | None = None


class PlanningTask:
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
        """Prepare the planning; the budget of ``options`` does not count before `limit` is called."""
        self.queries, self.statistics, self.deadline = queries, statistics, deadline
        self.budget = inf
        free = replace(options, budget=None)
        self._decided = {
            name: mine
            for name in queries
            for mine in (own.get(name, options),)
            if _is_decided(mine) or mine.budget != options.budget
        }
        self.options = {name: self._decided.get(name, free) for name in queries}
        for name, query in queries.items():
            check_inputs(query, own.get(name, options))
        fits = known is not None and known.statistics == statistics and known.options == free
        self._wide = {name for name, query in queries.items() if is_wide(Space(query, statistics, free))}
        narrow = {name: query for name, query in queries.items() if name not in self._wide}
        self.workspace = Workspace(narrow, statistics, free, known=known if fits else None)
        self._hop_pricer = HopPricer(self.workspace)
        self._plans: dict[str, JoinPlan] = {}
        self._unlimited: Solution | None = None

    def limit(self, budget: float, deadline: Deadline) -> None:
        """From now on look for plans that store at most so many tuples, until a new deadline."""
        self.budget, self.deadline = budget, deadline
        self._plans.clear()

    def stored(self, plan: WorkloadPlan) -> float:
        """How many tuples the stores of a plan hold, copies counted."""
        return math.fsum(storage_by_store(self.workspace, plan).values())

    def best(self) -> Candidate:
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
        separate = Candidate("separate", self._alone(self.queries), joint.bound)
        best, other = sorted((joint, separate), key=lambda found: self._total(found.plan))
        copies = _with_replicated_inputs(joint.plan, self.workspace.options.partitions)
        if self._free and self._total(copies) < self._total(best.plan):
            return Candidate("replicated", copies, joint.bound)
        mixed = self._mixed(best.plan, other.plan) if len(self.queries) <= FEW else best.plan
        return best if mixed is best.plan else Candidate("mixed", mixed, joint.bound)

    @property
    def _free(self) -> bool:
        """Whether the user has left all of the queries to the optimiser."""
        return not self._decided

    def _total(self, plan: WorkloadPlan) -> float:
        """The cost of a plan with hops; infinite if it stores more than it may."""
        if self.budget < inf and not is_within(self.stored(plan), self.budget):
            return inf
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

    def fresh(self, method: str) -> Candidate:
        """A plan of all queries that takes nothing from a running plan."""
        alone = self._unrelated()
        settled = [name for name in self.queries if name in alone or name in self._decided]
        if method == "separate" or len(settled) == len(self.queries):
            return Candidate("separate", self._alone(self.queries))
        fixed = self._alone(settled)
        if len(settled) == len(alone):
            free = [name for name in self.queries if name not in alone]
            solution = self._solved(free, method, self._left_beside_wide(fixed))
            if solution is not None:
                plan = fixed.with_answers(solution.plan.answers, solution.plan.upkeep)
                return Candidate("exact", plan, solution.bound if not alone else None)
        shared = plan_all(
            self.workspace,
            around=fixed.without(self._wide),
            deadline=self.deadline,
            budget=self._left_beside_wide(fixed),
        )
        return Candidate("incremental", self._with_wide(shared, fixed))

    def _left_beside_wide(self, plan: WorkloadPlan) -> float:
        """What may be stored beside the stores of wide queries, which joint optimisers do not know."""
        others = {answer.name for answer in plan.answers} - self._wide
        return self.budget - self.stored(plan.without(others)) if self.budget < inf else inf

    def _unrelated(self) -> list[str]:
        """The queries for which no joint plan is sought: they share no input, have only one, or are wide.

        Under a budget, queries that share no input compete for what may be stored, so several are planned together.
        """
        single = [] if self.budget < inf and len(self.queries) > 1 else self._components()
        alone = [name for group in single if len(group) == 1 for name in group]
        alone += [n for n, query in self.queries.items() if len(query.inputs) == 1 and n not in alone]
        return alone + [name for name in self.queries if name in self._wide and name not in alone]

    def _shared(self) -> list[str]:
        """The queries for which a joint plan is sought."""
        alone = self._unrelated()
        return [name for name in self.queries if name not in alone and name not in self._decided]

    def _with_wide(self, plan: WorkloadPlan, other: WorkloadPlan) -> WorkloadPlan:
        """A plan together with the wide queries of another."""
        wide = [answer for answer in other.answers if answer.name in self._wide]
        return plan.with_answers(wide, other.upkeep) if wide else plan

    def _solved(self, names: list[str], method: str, budget: float) -> Solution | None:
        """The best plan of some queries, if the user asks for it or the workload is small; otherwise None."""
        if method == "incremental":
            return None
        workspace, seconds = self.workspace.only(names), THOROUGH if method == "exact" else PATIENCE
        steps = relevant_steps if budget == inf else every_step
        if method == "auto" and len(steps(workspace, names)) > MOST_STEPS:
            return None
        if budget == inf:
            self._unlimited = solve(workspace, time_limit=seconds, deadline=self.deadline)
            return self._unlimited
        known = self._unlimited
        if (
            known is not None
            and [a.name for a in known.plan.answers] == names
            and is_within(self.stored(known.plan), budget)
        ):
            return known
        warm = plan_all(workspace, deadline=self.deadline.part(JOINT), budget=budget)
        return solve(workspace, time_limit=seconds, deadline=self.deadline, warm=warm, budget=budget)

    def grown(self, plan: WorkloadPlan, names: Iterable[str]) -> WorkloadPlan:
        """A running plan with more queries."""
        new = list(names)
        for count, name in enumerate(new):
            if name in self._decided or len(self.queries[name].inputs) == 1 or name in self._wide:
                part = self._alone([name])
                plan = plan.with_answers(part.answers, part.upkeep)
            else:
                until = self.deadline.part(1 / (len(new) - count))
                left = self._left_beside_wide(plan)
                narrow = add_query(self.workspace, plan.without(self._wide), name, until, left)
                plan = self._with_wide(narrow, plan)
        return plan

    def _alone(self, names: Iterable[str]) -> WorkloadPlan:
        """The plans of single queries together; each may take an equal part of the time."""
        wanted = list(names)
        for count, name in enumerate(wanted):
            if name not in self._plans:
                until = self.deadline.part(1 / (len(wanted) - count))
                query, options = self.queries[name], self._options_within(name)
                self._plans[name] = optimise(query, self.statistics, options, until)
        return share({name: self._plans[name] for name in wanted})

    def _options_within(self, name: str) -> Options:
        """The options to plan a query alone by; it may store what the others leave, who need their inputs at least."""
        options = self.options[name]
        if self.budget == inf:
            return options
        least, aliases = least_by_input(self.queries, self.statistics), set(self.queries[name].aliases)
        taken = [
            plan.cost.storage - math.fsum(least.get(alias, 0.0) for alias in plan.query.aliases)
            for plan in self._plans.values()
            if plan.cost is not None
        ]
        needed = math.fsum(size for alias, size in least.items() if alias in aliases)
        left = self.budget - (math.fsum(least.values()) - needed) - math.fsum(max(0.0, one) for one in taken)
        most = max(left, needed) * (1 + SLACK)
        return replace(options, budget=most if options.budget is None else min(most, options.budget))

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


def _with_replicated_inputs(plan: WorkloadPlan, partitions: int) -> WorkloadPlan:
    """The plan with its probe orders over replicated inputs; they visit inputs in place of intermediate results."""
    layout = Layout("replicated", partitions)
    answers = []
    for answer in plan.answers:
        walks = (_over_inputs(answer.query, walk, layout) for walk in answer.walks)
        answers.append(Answer(answer.name, answer.query, tuple(walks)))
    return WorkloadPlan(tuple(answers))


def _over_inputs(query: Query, walk: Walk, layout: Layout) -> Walk:
    known, order = {walk.start}, []
    for store in walk.visits:
        left = list(store.aliases)
        while left:
            alias = next((one for one in left if _is_linked(query, known, one)), left[0])
            left.remove(alias)
            known.add(alias)
            order.append(SharedStore((alias,), layout))
    return Walk(walk.start, tuple(order))


def _is_linked(query: Query, known: set[str], alias: str) -> bool:
    """Whether a predicate can be checked once an input is joined with those that are known."""
    if any(alias in key.aliases and known & set(key.aliases) for key in query.keys):
        return True
    edges = (aliases(expr) for expr in (*query.predicates, *query.residuals))
    return any(alias in edge and edge & known and edge <= known | {alias} for edge in edges)


def _is_decided(options: Options) -> bool:
    """Whether the user says how the plan of a query is found, which joint plans then leave as it is."""
    free = options.strategy == options.probe_orders == "auto" and options.reorder and options.replicate
    return not free
