"""A better plan for queries that run, proposed from a snapshot of them (CLASH 7.2.2).

Guarantees: a function of the snapshot, but for the time it may take; it can run in another process. The running plan
and the new one are priced by the same statistics and, if other queries would share stores than today, both also by what
was measured of what their filters have in common. The plan proposed costs no more than the one that runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from weft.adapting.planner import Planner
from weft.logical.expr.expression import Expr
from weft.optimizer.adaptation import is_alike
from weft.optimizer.expected_cost import shared_cost
from weft.optimizer.groups.overlap import Estimated, Measured
from weft.optimizer.reordering import reordered
from weft.optimizer.space import Options
from weft.plan.physical.graph import PhysicalGraph
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
    same_stores: tuple[WorkloadPlan, float] | None = None

    @property
    def gain(self) -> float:
        """The part of the work that the plan saves."""
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
    return replace(proposal, plan=plan, cost_then=cost, beside=None, same_stores=None)


def propose(snapshot: Snapshot) -> Proposal:
    """The best plan that is found for running queries, or the one they have."""
    began = time.monotonic()
    running = snapshot.running.without_filling()
    planner = Planner(snapshot.options, snapshot.method)
    plan, ranks = planner.plan_again(running, snapshot.requests, snapshot.statistics, snapshot.samples)
    regrouped = _groups_of(plan) != _groups_of(running)
    price = _price_of(snapshot, regrouped)
    now, then = price(lower_workload(running)), price(lower_workload(plan))
    if regrouped and then > now:  # other groups do not pay: plan within those there are
        plan, ranks = planner.plan_again(running, snapshot.requests, snapshot.statistics)
        price = _price_of(snapshot, regrouped=False)
        now, then = price(lower_workload(running)), price(lower_workload(plan))
    same_stores = _over_same_stores(snapshot, running, price, now)
    if same_stores is not None and same_stores[1] <= then:
        (plan, then), same_stores = same_stores, None
    elif then > now:
        plan, then = running, now
    beside = None
    if can_be_filled(running, plan):
        beside = price(lower_workload(running.towards(plan), target=lower_workload(plan)))
    taken = time.monotonic() - began
    return Proposal(running, plan, ranks, now, then, beside, taken, snapshot.cause, same_stores)


def _price_of(snapshot: Snapshot, regrouped: bool) -> Callable[[PhysicalGraph], float]:
    """What graphs cost; where queries are ``regrouped``, also by what their filters have in common."""
    samples, part = snapshot.samples, None
    if regrouped and samples is not None:
        queries = {answer.name: answer.query for answer in snapshot.running.answers}
        part = Measured(samples.names, samples.sets, Estimated(queries, snapshot.statistics)).part
    return lambda graph: shared_cost(graph, snapshot.statistics, snapshot.options, part)


def _groups_of(plan: WorkloadPlan) -> dict[str, str]:
    return {answer.name: plan.group_of(answer.name) for answer in plan.answers}


def _over_same_stores(
    snapshot: Snapshot, running: WorkloadPlan, price: Callable[[PhysicalGraph], float], now: float
) -> tuple[WorkloadPlan, float] | None:
    """The best plan over the stores there are, and its cost; None if that is the running plan or costs no less."""
    options = snapshot.options
    chosen = any(request.strategy for request in snapshot.requests.values())
    if chosen or options.strategy != "auto" or not options.reorder:
        return None  # users have chosen the probe orders
    plan = reordered(running, snapshot.statistics, options)
    if is_alike(plan, running):
        return None
    cost = price(lower_workload(plan))
    return (plan, cost) if cost < now else None
