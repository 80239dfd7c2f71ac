"""What a change of plan comes to: the graph to run by, the migration of state, and what changes in words.

Guarantees: pure. The queries stay as they are, with what they see of the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from weft.logical.expr.expression import Expr
from weft.plan.join_plan import Layout, Names
from weft.plan.physical.graph import Member
from weft.plan.physical.lower import lower_workload
from weft.plan.physical.rules import ProbeRule
from weft.plan.workload import WorkloadPlan
from weft.runtime.loop.adapter import Adopted, Situation
from weft.runtime.observe.plan_changes import PlanChange
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import lifetime
from weft.runtime.queries.active import Decision
from weft.runtime.queries.migration import migration_between
from weft.runtime.queries.transition import Transition, is_filled

__all__ = [
    "adopted",
    "end_transition",
    "filled",
    "going_on",
    "horizon_of",
    "scattered_values",
    "side_by_side",
    "what_changes",
]


def adopted(situation: Situation, plan: WorkloadPlan, ranks: tuple[Expr, ...]) -> Decision:
    """The graph of a new plan for the queries that run, and the migration to it at one boundary.

    A query that has always been alone goes on without query-sets.
    """
    before = situation.active_queries.program
    members = _members(situation)
    tracked = before is None or before.graph.tracked
    graph = lower_workload(plan, members, tracked=tracked, ranked=ranks)
    return Decision(plan, graph, migration_between(before, ExecutableGraph(graph)), 0)


def side_by_side(situation: Situation, decision: Decision, meanwhile: WorkloadPlan | None = None) -> Decision:
    """The graph by which queries go on while the stores of a new plan are filled.

    ``meanwhile`` is the plan by which they are answered until then, one over the same stores; None: the running one.
    """
    before, meanwhile = situation.active_queries.program, meanwhile or situation.active_queries.plan
    if before is None or meanwhile is None:
        return decision
    probes = [rule for rule in before.graph.rules if isinstance(rule, ProbeRule)]
    ranks = tuple(dict.fromkeys(predicate for rule in probes for predicate in rule.predicates))
    plan, tracked = meanwhile.without_filling().towards(decision.plan), before.graph.tracked
    graph = lower_workload(plan, _members(situation), tracked=tracked, ranked=ranks, target=decision.graph)
    migration = migration_between(before, ExecutableGraph(graph))
    return Decision(plan, graph, migration, situation.active_queries.fresh)


def filled(situation: Situation, transition: Transition) -> Decision:
    """The graph of the plan whose stores have been filled; nothing has to be migrated."""
    before = situation.active_queries.program
    tracked = before is None or before.graph.tracked
    later = before.graph.later if before is not None else ()
    ranks = tuple(dict.fromkeys(predicate for rule in later for predicate in rule.predicates))
    graph = lower_workload(transition.target, _members(situation), tracked=tracked, ranked=ranks)
    migration = migration_between(before, ExecutableGraph(graph), filled=True)
    return Decision(transition.target, graph, migration, 0)


def going_on(situation: Situation, decision: Decision, reason: str, transition: Transition | None) -> Adopted:
    """The queries that run, by another plan; ``transition`` is what begins or goes on with it."""
    active = replace(
        situation.active_queries,
        plan=decision.plan,
        program=ExecutableGraph(decision.graph),
        fresh=decision.fresh,
        transition=transition,
    )
    return Adopted(active, decision.migration, reason)


def end_transition(situation: Situation, transition: Transition) -> tuple[Adopted, PlanChange] | None:
    """Go over to the plan whose stores were being filled; None if they still lack something that is of use."""
    program = situation.active_queries.program
    if program is None or not is_filled(transition, program.graph, situation.facts):
        return None
    reason = f"what was stored before batch {transition.number} is of no use any more"
    change = PlanChange(situation.facts.number, "filled", "the new stores have all they need", reason)
    return going_on(situation, filled(situation, transition), str(change), None), change


def _members(situation: Situation) -> tuple[Member, ...]:
    program = situation.active_queries.program
    return () if program is None else program.graph.members


def scattered_values(plan: WorkloadPlan) -> set[tuple[Names, Layout]]:
    """The stores that scatter heavy values, with their layouts."""
    return {(store.aliases, store.layout) for store in plan.stores if store.layout.heavy}


def horizon_of(plan: WorkloadPlan, otherwise: timedelta) -> float:
    """The seconds of stream until all windows have passed; ``otherwise``, if some are unbounded."""
    spans = [
        lifetime(answer.query, (alias,)).span
        for answer in plan.answers
        for alias in answer.query.aliases
        if len(answer.query.aliases) > 1
    ]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or not known:
        return otherwise.total_seconds()
    return max(known) / 1e6


def what_changes(before: WorkloadPlan, after: WorkloadPlan) -> str:
    """In words: the stores that come and go, and the probe orders that become others."""
    return "; ".join(_differences(before, after))


SHOWN = 4  # as many parts are named; if there are more, their number is said


def _differences(before: WorkloadPlan, after: WorkloadPlan) -> Iterator[str]:
    old, new = set(before.stores), set(after.stores)
    for label, stores in (("new stores", new - old), ("without", old - new)):
        if stores:
            yield f"{label} {_some(sorted(store.identity for store in stores))}"
    walks = {(a.name, w.start): w for a in before.answers for w in a.walks}
    orders = sorted(
        {
            f"{walk.start} → {' → '.join(store.name for store in walk.visits)}"
            for answer in after.answers
            for walk in answer.walks
            if walks.get((answer.name, walk.start)) != walk
        }
    )
    if orders:
        yield f"probe orders {_some(orders)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
