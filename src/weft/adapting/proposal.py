"""A better plan for queries that run, proposed from a snapshot of them (CLASH 7.2.2).

Guarantees: a function of the snapshot, but for the time it may take; it can run in another process. The running plan
and the new one are priced by the same statistics. The plan proposed costs no more than the one that runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from weft.logical.expr import Expr
from weft.optimizer.expected_cost import shared_cost
from weft.optimizer.space import Options
from weft.plan.lower import lower_workload
from weft.plan.workload import WorkloadPlan
from weft.planning import Planner
from weft.runtime.queries.active import Samples
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.transition import can_be_filled
from weft.stats.statistics import Statistics

__all__ = ["Proposal", "Snapshot", "propose"]


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


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan, and what it and the running one cost, in seconds of work per second of stream.

    ``beside`` is the cost of the running plan while the stores of the new one are filled; None if they would never have
    all they need. ``ranks`` is the ranking of predicates. It took ``seconds`` to find the plan.
    """

    running: WorkloadPlan
    plan: WorkloadPlan
    ranks: tuple[Expr, ...]
    cost_now: float
    cost_then: float
    beside: float | None
    seconds: float
    cause: str = ""

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


def propose(snapshot: Snapshot) -> Proposal:
    """The best plan that is found for running queries, or the one they have."""
    began = time.monotonic()
    statistics, options = snapshot.statistics, snapshot.options
    running = snapshot.running.without_filling()
    planner = Planner(lambda: statistics, options, snapshot.method)
    plan, ranks = planner.plan_again(running, snapshot.requests, snapshot.samples)
    now = shared_cost(lower_workload(running), statistics, options)
    graph = lower_workload(plan)
    then = shared_cost(graph, statistics, options)
    beside = None
    if can_be_filled(running, plan):
        both = lower_workload(running.towards(plan), target=graph)
        beside = shared_cost(both, statistics, options)
    return Proposal(running, plan, ranks, now, then, beside, time.monotonic() - began, snapshot.cause)
