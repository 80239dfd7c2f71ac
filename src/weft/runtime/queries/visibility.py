"""Which stored tuples a query sees that begins while others run.

Guarantees: pure. A query that runs already goes on seeing what it saw. A new one sees, of every input, the stored
tuples that it would have been given if it had run when they came, as far as another query kept them (`Visibility`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from weft.logical.expr.conditions import is_implied
from weft.logical.outer.asof import asof_joins
from weft.logical.outer.outer import Closing
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import PRESENT, Query
from weft.logical.query.window import Rows, Window
from weft.plan.physical.derive import closed_retention, columns_of, filters_of
from weft.plan.physical.graph import Member, Visibility
from weft.plan.physical.placing import is_foreign
from weft.plan.workload import WorkloadPlan
from weft.runtime.log.values import Manifest
from weft.runtime.model.columns import FOREVER, full_name, micros, seq_name
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan, lifetime

__all__ = ["COPIES", "FOUND", "NULLS", "StateFacts", "members_of_plan", "stores_of"]

# Besides columns, `StateFacts.kept` has these entries for a store. NULLS is the batch since which it keeps tuples whose
# partitioning key is NULL.
NULLS = "$nulls"

# If the store was filled from others, FOUND is the batch since which these kept such tuples: earlier ones are lost.
FOUND = "$found"

# COPIES, followed by the name of a query, is the batch before which the tuples that the store has for it are copies, or
# are not all there because the store was not filled for it yet.
COPIES = "$copies "


@dataclass(frozen=True, slots=True)
class StateFacts:
    """What is known of the state before the batch ``number``.

    By the identity of a store, ``kept`` says since which batch it keeps each column, and ``evicted`` below which clock
    it may have forgotten rows. By stream, ``marks`` are the watermarks, ``newest`` and ``oldest`` the last and the
    first time ever seen, and ``arrived`` says how many tuples have come.
    """

    number: int = 0
    kept: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    evicted: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def after(cls, manifest: Manifest) -> StateFacts:
        """What a manifest says of the state before the batch that follows it."""
        of_streams = (manifest.marks, manifest.newest, manifest.oldest, manifest.arrived)
        return cls(manifest.number + 1, manifest.kept, manifest.evicted, *of_streams)


def members_of_plan(
    old: ExecutableGraph | None,
    plan: WorkloadPlan,
    facts: StateFacts,
    backfill: Collection[str] = (),
    orders: Mapping[str, Ordering] | None = None,
) -> tuple[Member, ...]:
    """All queries of a plan as members of a graph, sorted by name.

    Members of the old graph stay as they are. A new query gets a free slot, and its visibilities are worked out, which
    say what it sees of the stored past. ``backfill`` are the queries that ask for results in the past, and ``orders``
    the orders in which results leave, by query.
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
            began = sum(
                facts.arrived.get(i.stream.name, 0) for i in queries[name].inputs if not i.stream.table
            )
            members[name] = Member(name, queries[name], free.pop(0), *past, orders.get(name), began)
    return tuple(members[name] for name in sorted(members))


def _free_slots(taken: set[int], count: int) -> list[int]:
    return [slot for slot in range(count + len(taken)) if slot not in taken]


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """A new query, whether it asks for results that lie in the past, how its rows are closed, and its order."""

    query: Query
    backfill: bool
    closing: Closing | None = None
    ordering: Ordering | None = None

    @property
    def needs_numbers(self) -> bool:
        """Whether it can use stored tuples only if they have numbers, which say in which order they came."""
        return self.ordering is not None and self.ordering.is_inner

    @property
    def needs_nulls(self) -> bool:
        """Whether stored tuples whose key is NULL can be part of its rows.

        They can if rows of the past are asked for, or if they may be joined by another key.
        """
        return self.closing is not None and (self.backfill or len(self.query.aliases) > 2)


def _visibilities(
    old: ExecutableGraph | None, plan: WorkloadPlan, name: str, newcomer: _Newcomer, facts: StateFacts
) -> tuple[Visibility, ...]:
    found = []
    for alias in newcomer.query.aliases:
        if newcomer.query.input(alias).stream.table:  # it is read again for the newcomer, as a whole
            found.append(Visibility(alias))
            continue
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
    """What a query sees of an input if it uses several stores of it: what it sees in all of them."""
    since = [visibility.since for visibility in visibilities if visibility.since is not None]
    complete = [visibility.complete for visibility in visibilities if visibility.complete is not None]
    batch = max(visibility.batch for visibility in visibilities)
    seen = (visibilities[0].alias, batch, max(since, default=None), max(complete, default=None))
    return Visibility(*seen, visibilities[0].store)


def _blind(query: Query, alias: str, facts: StateFacts) -> Visibility:
    """The visibility of a query that sees nothing of the past.

    Its results are complete if all of their tuples are newer than every tuple that came before the query.
    """
    newest = facts.newest.get(query.input(alias).stream.name)
    return Visibility(alias, facts.number, None, None if newest is None else newest + 1)


def stores_of(program: ExecutableGraph | None, alias: str) -> list[StorePlan]:
    """The stores of an input; replicated ones, which hold each tuple several times, come last."""
    stores = [] if program is None else [s for s in program.stores.values() if s.node.aliases == (alias,)]
    return sorted(stores, key=lambda store: (store.node.layout.kind == "replicated", store.identity))


def _visibility(
    old: ExecutableGraph | None, store: StorePlan, newcomer: _Newcomer, alias: str, facts: StateFacts
) -> Visibility:
    """What a new query sees in a store.

    It sees what one of the store's users sees whose filters and window let through all that the new query wants; of
    several such users, the one through which it sees most.
    """
    blind = _blind(newcomer.query, alias, facts)
    users = [] if old is None else [old.members[name] for name in store.node.users]
    filters = filters_of(newcomer.query, alias)
    window = newcomer.query.input(alias).window
    covering = [
        m
        for m in users
        if is_implied(filters_of(m.query, alias), filters)
        and _sees_as_far(m.query.input(alias).window, window)
    ]
    visibilities = [_through(member, store, newcomer, alias, facts) for member in covering]
    return min(
        (visibility for visibility in visibilities if visibility.batch < facts.number),
        key=_breadth,
        default=blind,
    )


def _sees_as_far(theirs: Window, mine: Window) -> bool:
    """Whether a store kept for the window of another query has all that the window of a new one holds.

    Only where tuples are counted per key can it lack some. In other cases `StateFacts.evicted` says what is forgotten.
    """
    if not isinstance(theirs, Rows) or not isinstance(mine, Rows) or not mine.per:
        return True
    return theirs.count >= mine.count


def _through(
    member: Member, store: StorePlan, newcomer: _Newcomer, alias: str, facts: StateFacts
) -> Visibility:
    """What a new query sees in a store of the tuples that are there for another query, ``member``."""
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
    gone = None if _asks_alike(member, newcomer, alias) else _gone(store, newcomer, alias, facts)
    if gone is None:
        return Visibility(alias, batch, base.since, complete, store.identity)
    since_when = gone if base.since is None else max(gone, base.since)
    sure = _blind(query, alias, facts).complete if store.counted else gone  # the clock is then no time
    times = [time for time in (complete, sure) if time is not None]
    return Visibility(alias, batch, since_when, max(times, default=None), store.identity)


def _asks_alike(member: Member, newcomer: _Newcomer, alias: str) -> bool:
    """Whether two queries look for the same latest versions, so that what one needs is all that the other does."""
    if member.closing is None or newcomer.closing is None:
        return False
    theirs = [use for use in asof_joins(member.query, member.closing.tree) if use.versions == alias]
    mine = [use for use in asof_joins(newcomer.query, newcomer.closing.tree) if use.versions == alias]
    alike = [(use.keys, use.superseded) for use in theirs] == [(use.keys, use.superseded) for use in mine]
    same = set(filters_of(member.query, alias)) == set(filters_of(newcomer.query, alias))
    return bool(mine) and alike and same and mine[0].superseded


def _gone(store: StorePlan, newcomer: _Newcomer, alias: str, facts: StateFacts) -> int | None:
    """The clock below which tuples that a query needs may have been forgotten; None if none has been.

    For later results, a query does not need tuples that can no longer be part of any; for results in the past, it does.
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
    """How many microseconds a query needs a tuple of an input beyond its time, and the streams that measure it.

    It is needed until the watermarks of these streams are so far past its time; for ever if the first is None.
    """
    life = lifetime(newcomer.query, (alias,))
    if newcomer.closing is None:
        return life.span, life.streams
    (span,) = closed_retention(newcomer.query, newcomer.closing, (alias,))
    spans = [None if span is None else micros(span), *((life.span,) if newcomer.closing.walked else ())]
    longest = None if None in spans else max(one for one in spans if one is not None)
    return longest, {input_.stream.name for input_ in newcomer.query.inputs if not input_.stream.table}
