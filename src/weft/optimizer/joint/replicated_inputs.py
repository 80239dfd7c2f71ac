"""A plan for many queries in which every input is replicated.

Guarantees: only inputs are stored, each once per task, so every probe stays where it is and a batch takes one hop
whatever the queries join on. With few tasks and many queries this is often cheapest: what would be a store for every
attribute that somebody joins on is one with an index for each.
"""

from __future__ import annotations

from weft.logical.expr import aliases
from weft.logical.query import Query
from weft.plan.join_plan import Layout
from weft.plan.workload import Answer, SharedStore, Walk, WorkloadPlan

__all__ = ["with_replicated_inputs"]


def with_replicated_inputs(plan: WorkloadPlan, partitions: int) -> WorkloadPlan:
    """A plan's probe orders over replicated inputs; where they visit an intermediate result, they visit its inputs."""
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
    """Whether something can be checked once an input meets those that are known."""
    if any(alias in key.aliases and known & set(key.aliases) for key in query.keys):
        return True
    edges = (aliases(expr) for expr in (*query.predicates, *query.residuals))
    return any(alias in edge and edge & known and edge <= known | {alias} for edge in edges)
