"""A better plan for queries that run, proposed from a snapshot of them (CLASH 7.2.2).

Guarantees: a function of the snapshot, but for the time it may take; it can run in another process. The running plan
and the new one are priced by the same statistics. The plan proposed costs no more than the one that runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.adapting.planner import Planner
from weft.logical.expr.expression import Expr
from weft.optimizer.adaptation import is_alike
from weft.optimizer.expected_cost import shared_cost
from weft.optimizer.groups.assignment import grouping_gain
from weft.optimizer.groups.overlap import Estimated, Measured
from weft.optimizer.reordering import reordered
from weft.optimizer.space import Options
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import WorkloadPlan
from weft.runtime.queries.active import Samples
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.transition import can_be_filled
from weft.stats.statistics import Statistics

__all__ = ["Proposal", "Snapshot", "over_same_stores", "propose"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Queries that run, their plan, and what is known of the data; ``method`` is that of the joint optimiser.

    ``samples`` are of query-sets, None if there are none. ``cause`` says why a plan is asked for.
    """

    running: WorkloadPlan
    requests: Mapping[str, QueryRequest]
    statistics: Statistics
    options: Options
    method: str
    samples: Samples | None = None
    cause: str = ""

    def answer(self) -> Proposal:
        """The proposal for it."""
        return propose(self)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan, and what it and the running one cost, in seconds of work per second of stream.

    Where other queries share stores than before, ``regrouped`` is the part of the work that this saves by Equation 2 of
    AJoin, which the cost of plans does not know; else it is None.
    ``beside`` is the cost of the running plan while the stores of the new one are filled; None if they would never have
    all they need. ``same_stores`` is the best plan over the stores there are, with its cost, if that is another one and
    costs less. ``ranks`` is the ranking of predicates. It took ``seconds`` to find the plan.
    """

    running: WorkloadPlan
    plan: WorkloadPlan
    ranks: tuple[Expr, ...]
    cost_now: float
    cost_then: float
    beside: float | None
    seconds: float
    cause: str = ""
    regrouped: float | None = None
    same_stores: tuple[WorkloadPlan, float] | None = None

    @property
    def gain(self) -> float:
        """The part of the work that the plan saves."""
        if self.regrouped is not None:
            return self.regrouped
        return 1 - self.cost_then / self.cost_now if self.cost_now > 0 else 0.0

    @property
    def extra(self) -> float | None:
        """How much work filling side by side adds, as a part of that which there is now; None if it cannot be done."""
        if self.beside is None:
            return None
        return self.beside / self.cost_now - 1 if self.cost_now > 0 else 0.0


def over_same_stores(proposal: Proposal) -> Proposal:
    """The proposal of the best plan over the stores there are, instead of a better one that needs others."""
    if proposal.same_stores is None:
        return proposal
    plan, cost = proposal.same_stores
    return replace(proposal, plan=plan, cost_then=cost, beside=None, regrouped=None, same_stores=None)


def propose(snapshot: Snapshot) -> Proposal:
    """The best plan that is found for running queries, or the one they have."""
    began = time.monotonic()
    statistics, options = snapshot.statistics, snapshot.options
    running = snapshot.running.without_filling()
    planner = Planner(options, snapshot.method)
    plan, ranks = planner.plan_again(running, snapshot.requests, statistics, snapshot.samples)
    now = shared_cost(lower_workload(running), statistics, options)
    graph = lower_workload(plan)
    then = shared_cost(graph, statistics, options)
    regrouped = _regrouped(snapshot, plan)
    same_stores = _over_same_stores(snapshot, running, now)
    if regrouped is None and same_stores is not None and same_stores[1] <= then:
        (plan, then), same_stores = same_stores, None
        graph = lower_workload(plan)
    elif regrouped is None and then > now:
        plan, graph, then = running, lower_workload(running), now
    beside = None
    if can_be_filled(running, plan):
        both = lower_workload(running.towards(plan), target=graph)
        beside = shared_cost(both, statistics, options)
    taken = time.monotonic() - began
    given = (running, plan, ranks, now, then, beside, taken, snapshot.cause, regrouped, same_stores)
    return Proposal(*given)


def _over_same_stores(
    snapshot: Snapshot, running: WorkloadPlan, now: float
) -> tuple[WorkloadPlan, float] | None:
    """The best plan over the stores there are, and its cost; None if that is the running plan or costs no less."""
    statistics, options = snapshot.statistics, snapshot.options
    if any(request.strategy for request in snapshot.requests.values()) or options.strategy != "auto":
        return None  # users have chosen the probe orders
    plan = reordered(running, statistics, options)
    if is_alike(plan, running):
        return None
    cost = shared_cost(lower_workload(plan), statistics, options)
    return (plan, cost) if cost < now else None


def _regrouped(snapshot: Snapshot, plan: WorkloadPlan) -> float | None:
    """What other groups of queries save by what their filters have in common; None if the groups are the same."""
    samples, running = snapshot.samples, snapshot.running
    before, after = ({a.name: one.group_of(a.name) for a in one.answers} for one in (running, plan))
    if samples is None or before == after:
        return None
    queries = {answer.name: answer.query for answer in plan.answers}
    overlap = Measured(samples.names, samples.sets, Estimated(queries, snapshot.statistics))
    return grouping_gain(queries, before, after, overlap, snapshot.statistics)
