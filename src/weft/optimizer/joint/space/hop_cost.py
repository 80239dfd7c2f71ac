"""The cost of a plan of many queries, given where its tuples are (design, D6).

Guarantees: the cost is that of `Workspace.cost_of`, except that a step that stays in its task ships nothing, and that
every hop is paid, once for all queries. Both are known from the graph that the plan lowers to. Joint optimisers do not
search by this cost, since it depends on whole walks; it decides whether a joint plan is better than planning every
query alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from weft.optimizer.cost import hop_cost, store_cost
from weft.optimizer.joint.space.workspace import Workspace
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.plan.physical.lower import lower_workload
from weft.plan.physical.rules import ProbeRule, StoreRule
from weft.plan.schedule import LOCAL
from weft.plan.workload import SharedStore, WorkloadPlan

__all__ = ["HopCost", "HopPricer"]


@dataclass(frozen=True, slots=True)
class HopCost:
    """The total cost of a plan, and its number of hops."""

    total: float
    hops: int


class HopPricer:
    """Computes the costs of plans of one workspace from the graphs they lower to."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def cost(self, plan: WorkloadPlan) -> HopCost | None:
        """The cost of a plan, hops included; None if it has a store that joint plans do not know."""
        graph = lower_workload(plan)
        try:
            work = math.fsum((*self._probing(graph), *self._storing(graph), *self._keeping(graph)))
        except KeyError:
            return None
        return HopCost(work + hop_cost(self.workspace.options.weights, graph.hops), graph.hops)

    def _probing(self, graph: PhysicalGraph) -> Iterator[float]:
        for rule in graph.rules:
            if isinstance(rule, ProbeRule):
                store, shipped = graph.store(rule.store), graph.edge(rule.edge).kind != LOCAL
                where = (rule.start, rule.known, store.aliases, store.layout)
                yield self.workspace.work(rule.users[0], *where, shipped)
                yield self.workspace.call_cost(rule.users[0], rule.start, rule.known, store.aliases)
                yield self.workspace.delay_cost(rule.start)

    def _storing(self, graph: PhysicalGraph) -> Iterator[float]:
        """The work of adding to intermediate results."""
        before = {name: rule for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
        for rule in graph.rules:
            if isinstance(rule, StoreRule) and rule.edge in before:
                store = graph.store(rule.store)
                join = self.workspace.find(store.users[0], store.aliases)
                tuples = self.workspace.tuples(before[rule.edge].start, join)
                shipped = graph.edge(rule.edge).kind != LOCAL
                yield store_cost(self.workspace.options.weights, tuples, 0.0, _copies(store), shipped)

    def _keeping(self, graph: PhysicalGraph) -> Iterator[float]:
        """The work of storing inputs, and of keeping all that is stored."""
        workspace = self.workspace
        for node in graph.stores:
            known = workspace.store_number(SharedStore(node.aliases, node.layout, node.on))
            join = workspace.join_of(known)
            rate = workspace.rate(join) if len(node.aliases) == 1 else 0.0
            yield store_cost(workspace.options.weights, rate, workspace.size(join), _copies(node), True)


def _copies(store: StoreNode) -> int:
    return store.layout.partitions if store.layout.kind == "replicated" else 1
