"""A plan for many queries in which every input is replicated.

Guarantees: only inputs are stored, each once per task, so every probe stays in its task and a batch takes one hop
whatever the queries join on. With few tasks and many queries this is often cheapest: instead of a store for every
attribute that a query joins on, there is one store with an index for each attribute.
"""

from __future__ import annotations

from weft.logical.expr.expression import aliases
from weft.logical.query.query import Query
from weft.plan.join_plan import Layout
from weft.plan.workload import Answer, SharedStore, Walk, WorkloadPlan

__all__ = ["with_replicated_inputs"]


def with_replicated_inputs(plan: WorkloadPlan, partitions: int) -> WorkloadPlan:
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
