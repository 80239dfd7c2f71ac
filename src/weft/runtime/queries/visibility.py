"""What a query that begins while others run sees of the tuples that came before it.

Guarantees: pure. A query that stays sees what it saw; one that comes sees, of every input, the stored tuples that it
would have been given had it been there when they came, as far as a query that was there kept them (`Visibility`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from weft.logical.implies import implied
from weft.logical.ordering import Ordering
from weft.logical.outer import Closing
from weft.logical.query import PRESENT, Query
from weft.logical.window import Rows, Window
from weft.plan.derive import closed_retention, columns_of, filters_of
from weft.plan.graph import Member, Visibility
from weft.plan.placing import is_foreign
from weft.plan.workload import WorkloadPlan
from weft.runtime.model.columns import FOREVER, full_name, micros, seq_name
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan, lifetime

__all__ = ["COPIES", "FOUND", "NULLS", "StateFacts", "members_of_plan", "stores_of"]

# `StateFacts.kept` has some entries of a store that are no columns of it:
# the batch since which it keeps tuples whose partitioning key is NULL;
NULLS = "$nulls"

# of a store that was filled from others, the batch since which those kept such tuples: the earlier ones are in none;
FOUND = "$found"

# and, followed by the name of a query, the batch before which the tuples that the store has for it are copies.
COPIES = "$copies "


@dataclass(frozen=True, slots=True)
class StateFacts:
    """What is known of the state before a batch.

    ``kept`` says since which batch a store keeps a column, ``evicted`` below which clock it may have forgotten rows;
    of each stream, ``marks`` are the watermarks, ``newest`` and ``oldest`` the last and the first time ever seen, and
    ``arrived`` says how many tuples have come.
    """

    number: int = 0
    kept: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    evicted: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)


def members_of_plan(
    old: ExecutableGraph | None,
    plan: WorkloadPlan,
    facts: StateFacts,
    backfill: Collection[str] = (),
    orders: Mapping[str, Ordering] | None = None,
) -> tuple[Member, ...]:
    """All queries of a plan as members of a graph.

    Those of the old graph stay as they are; a new one gets a free slot, and what it sees of the past is worked out.
    """
    orders = orders or {}
    queries = {answer.name: answer.query for answer in plan.answers}
    known = {} if old is None else {m.name: m for m in old.graph.members if m.name in queries}
    members = dict(known)
    free = _free_slots({member.slot for member in known.values()}, len(queries))
    for name in sorted(queries):
        if name not in members:
            closing = plan.answer(name).closing
            newcomer = _Newcomer(queries[name], name in backfill, closing, orders.get(name))
            visibilities = _visibilities(old, plan, name, newcomer, facts) if facts.number else ()
            past = (facts.number, visibilities, closing, name in backfill)
            began = sum(facts.arrived.get(i.stream.name, 0) for i in queries[name].inputs)
            members[name] = Member(name, queries[name], free.pop(0), *past, orders.get(name), began)
    return tuple(members[name] for name in sorted(members))


def _free_slots(taken: set[int], count: int) -> list[int]:
    return [slot for slot in range(count + len(taken)) if slot not in taken]


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """A new query, and whether it asks for results that lie in the past."""

    query: Query
    backfill: bool
    closing: Closing | None = None
    ordering: Ordering | None = None

    @property
    def needs_numbers(self) -> bool:
        """Whether stored tuples are of use only if it is known in which order they came."""
        return self.ordering is not None and self.ordering.is_inner

    @property
    def needs_nulls(self) -> bool:
        """Whether stored tuples without a key can be part of its rows: alone, in the past, or joined by another key."""
        return self.closing is not None and (self.backfill or len(self.query.aliases) > 2)


def _visibilities(
    old: ExecutableGraph | None, plan: WorkloadPlan, name: str, newcomer: _Newcomer, facts: StateFacts
) -> tuple[Visibility, ...]:
    found = []
    for alias in newcomer.query.aliases:
        wanted = {store.identity for store in plan.stores_of(name) if store.aliases == (alias,)}
        stores = stores_of(old, alias)
        mine = [store for store in stores if store.identity in wanted]
        best = [_visibility(old, store, newcomer, alias, facts) for store in mine or stores] if old else []
        if not best:
            found.append(_blind(newcomer.query, alias, facts))
        else:
            found.append(_narrowest(best) if mine else min(best, key=_breadth))
    return tuple(found)


def _breadth(visibility: Visibility) -> tuple[int, int]:
    return visibility.batch, visibility.since if visibility.since is not None else -FOREVER


def _narrowest(visibilities: Sequence[Visibility]) -> Visibility:
    """What is seen in all of some stores."""
    since = [visibility.since for visibility in visibilities if visibility.since is not None]
    complete = [visibility.complete for visibility in visibilities if visibility.complete is not None]
    batch = max(visibility.batch for visibility in visibilities)
    seen = (visibilities[0].alias, batch, max(since, default=None), max(complete, default=None))
    return Visibility(*seen, visibilities[0].store)


def _blind(query: Query, alias: str, facts: StateFacts) -> Visibility:
    """Nothing of the past: results are complete once all of their tuples are newer than what was seen before."""
    newest = facts.newest.get(query.input(alias).stream.name)
    return Visibility(alias, facts.number, None, None if newest is None else newest + 1)


def stores_of(program: ExecutableGraph | None, alias: str) -> list[StorePlan]:
    """The stores of an input; those that hold each tuple once come first."""
    stores = [] if program is None else [s for s in program.stores.values() if s.node.aliases == (alias,)]
    return sorted(stores, key=lambda store: (store.node.layout.kind == "replicated", store.identity))


def _visibility(
    old: ExecutableGraph | None, store: StorePlan, newcomer: _Newcomer, alias: str, facts: StateFacts
) -> Visibility:
    """What a new query sees in a store: the best that one of its users, whose tuples include all of it, sees."""
    blind = _blind(newcomer.query, alias, facts)
    users = [] if old is None else [old.members[name] for name in store.node.users]
    filters = filters_of(newcomer.query, alias)
    window = newcomer.query.input(alias).window
    covering = [
        m
        for m in users
        if implied(filters_of(m.query, alias), filters) and _sees_as_far(m.query.input(alias).window, window)
    ]
    visibilities = [_through(member, store, newcomer, alias, facts) for member in covering]
    return min(
        (visibility for visibility in visibilities if visibility.batch < facts.number),
        key=_breadth,
        default=blind,
    )


def _sees_as_far(theirs: Window, mine: Window) -> bool:
    """Whether what is kept per key for another is enough; of anything else it is known what was forgotten."""
    if not isinstance(theirs, Rows) or not isinstance(mine, Rows) or not mine.per:
        return True
    return theirs.count >= mine.count


def _through(
    member: Member, store: StorePlan, newcomer: _Newcomer, alias: str, facts: StateFacts
) -> Visibility:
    """What a query sees of the tuples that another one has been given."""
    base, query = member.visibility(alias), newcomer.query
    since = facts.kept.get(store.identity, {})
    closing = newcomer.closing.conditions if newcomer.closing else ()
    read = [column for column in columns_of([query], alias, closing) if column.name != PRESENT]
    known = [since.get(full_name(column), facts.number) for column in read]
    known.append(since.get(FOUND, 0))
    if newcomer.needs_numbers:
        known.append(since.get(seq_name(alias), facts.number))
    if newcomer.needs_nulls or is_foreign(query, store.node.layout):
        known.append(since.get(NULLS, facts.number))
    batch = max([base.batch, since.get(COPIES + member.name, 0), *known])
    complete = base.complete if batch == base.batch else _blind(query, alias, facts).complete
    gone = _gone(store, newcomer, alias, facts)
    if gone is None:
        return Visibility(alias, batch, base.since, complete, store.identity)
    since_when = gone if base.since is None else max(gone, base.since)
    sure = _blind(query, alias, facts).complete if store.counted else gone  # a number says nothing of times
    times = [time for time in (complete, sure) if time is not None]
    return Visibility(alias, batch, since_when, max(times, default=None), store.identity)


def _gone(store: StorePlan, newcomer: _Newcomer, alias: str, facts: StateFacts) -> int | None:
    """The clock below which a query would see tuples that may be gone; None: there were none, or it would not.

    What no result to come can have, one that lies in the past can.
    """
    evicted = facts.evicted.get(store.identity)
    first = 0 if store.counted else facts.oldest.get(newcomer.query.input(alias).stream.name)
    if evicted is not None and first is not None and evicted <= first:
        return None
    if evicted is None or store.counted or newcomer.backfill:
        return evicted
    span, streams = _needed(newcomer, alias)
    marks = [facts.marks.get(name) for name in streams]
    known = [mark for mark in marks if mark is not None]
    if span is None or not known or len(known) < len(marks):
        return evicted
    return None if min(known) - span >= evicted else evicted


def _needed(newcomer: _Newcomer, alias: str) -> tuple[int | None, Collection[str]]:
    """How long a query needs tuples of an input, beyond where these streams are."""
    life = lifetime(newcomer.query, (alias,))
    if newcomer.closing is None:
        return life.span, life.streams
    (span,) = closed_retention(newcomer.query, newcomer.closing, (alias,))
    spans = [None if span is None else micros(span), *((life.span,) if newcomer.closing.walked else ())]
    longest = None if None in spans else max(one for one in spans if one is not None)
    return longest, {input_.stream.name for input_ in newcomer.query.inputs}
