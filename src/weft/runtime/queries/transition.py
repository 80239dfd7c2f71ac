"""A change of plan for which new stores are filled side by side with those that answer queries (CLASH 7.2.3).

Guarantees: pure. While a transition lasts, every query is answered by the walks it had, from stores that have all it
needs; new tuples are added to the stores of the plan to come as well. These lack what came before the transition began,
and what was computed from it. Once no tuple from before can be part of a result any more, they lack nothing that is of
use, and the new plan takes over: no stored tuple is ever laid out anew, and no batch waits for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from weft.logical.query.query import Query
from weft.logical.query.window import Rows
from weft.plan.physical.graph import CODEC, Member, PhysicalGraph
from weft.plan.workload import WorkloadPlan
from weft.runtime.program.store_plans import lifetime
from weft.runtime.queries.visibility import StateFacts

__all__ = ["Transition", "can_be_filled", "is_filled"]


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of plan under way: the plan to come, and what was known before batch ``number``, its first one.

    By stream, ``newest`` is the last time seen by then, and ``arrived`` says how many tuples had come.
    """

    target: Annotated[WorkloadPlan, CODEC.text]
    number: int
    newest: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def beginning(cls, target: WorkloadPlan, facts: StateFacts) -> Transition:
        """A transition that begins with the next batch."""
        return cls(target, facts.number, dict(facts.newest), dict(facts.arrived))


def can_be_filled(running: WorkloadPlan, target: WorkloadPlan) -> bool:
    """Whether the stores of another plan will have all they need some day, if new tuples alone are added to them.

    They will if windows or bounds of time end the use of every tuple. Where a window counts tuples per key, nobody
    knows when; and rows of outer joins are closed from stores that must have been there from the beginning.
    """
    if any(running.answer(answer.name).homes != answer.homes for answer in target.answers):
        return False
    queries = [target.answer(name).query for name in _waiting_for(running.towards(target))]
    return all(_ends(query, alias) for query in queries for alias in query.aliases)


def _waiting_for(plan: WorkloadPlan) -> set[str]:
    """The queries that wait: those that stores are filled for, and all that use intermediate results.

    Intermediate results get more columns while others are computed from them, which what was stored before lacks.
    """
    found = {name for one in plan.filling for name in one.users}
    kept = {name for store, users in plan.users.items() if not store.is_input for name in users}
    return found | kept if found else found


def _ends(query: Query, alias: str) -> bool:
    """Whether a tuple of an input ceases to be of use for later results."""
    window = query.input(alias).window
    if query.input(alias).stream.table:  # its stores are filled as a whole when the transition begins
        return True
    if isinstance(window, Rows):
        return not window.per
    return lifetime(query, (alias,)).span is not None


def is_filled(transition: Transition, graph: PhysicalGraph, facts: StateFacts) -> bool:
    """Whether no tuple from before a transition is of use any more to the queries that wait for its stores."""
    waiting = {name for store in graph.stores for name in store.filling}
    if waiting:
        waiting |= {name for store in graph.stores if len(store.aliases) > 1 for name in store.users}
    return all(
        _is_past(transition, member, alias, facts)
        for member in graph.members
        if member.name in waiting
        for alias in member.query.aliases
    )


def _is_past(transition: Transition, member: Member, alias: str, facts: StateFacts) -> bool:
    """Whether no tuple of an input from before a transition can be part of a later result of a query."""
    is_table = member.query.input(alias).stream.table
    return is_table or any(_ended(transition, member.query, alias, facts))


def _ended(transition: Transition, query: Query, alias: str, facts: StateFacts) -> Iterator[bool]:
    stream, window = query.input(alias).stream.name, query.input(alias).window
    newest = transition.newest.get(stream)
    yield newest is None and not transition.arrived.get(stream)
    if isinstance(window, Rows) and not window.per:
        since = facts.arrived.get(stream, 0) - transition.arrived.get(stream, 0)
        yield since >= window.count
    life = lifetime(query, (alias,))
    marks = [facts.marks.get(name) for name in life.streams]
    known = [mark for mark in marks if mark is not None]
    if life.span is not None and newest is not None and known and len(known) == len(marks):
        yield newest < min(known) - life.span
