"""What a new plan makes of the state there is.

Guarantees: pure. A query that stays sees what it saw; one that comes sees, of every input, the stored tuples that it
would have been given had it been there when they came, as far as somebody who was there kept them (`Sight`). A store
keeps its runs if all that use it used it before, or are new and can tell their tuples in it; any other store is filled
from those the queries had: the boundary's job reads them (`Read`), each query's tuples from one store, and runs them
through the new graph as one batch that finds nothing stored. So a store may hold a tuple more than once, each time for
other queries; who comes later sees the first of them only. What no query uses is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.logical.implies import implied
from weft.logical.ordering import Ordering
from weft.logical.outer import Closing
from weft.logical.query import PRESENT, Query
from weft.logical.window import Rows, Window
from weft.plan.derive import closed_retention, columns_of, filters_of
from weft.plan.graph import Member, PhysicalGraph, Sight
from weft.plan.placing import is_foreign
from weft.plan.rules import ProbeRule, ResultRule, StoreRule, Users
from weft.plan.workload import WorkloadPlan
from weft.runtime.batch import FOREVER, full_name, micros, seq_name
from weft.runtime.prepared import StorePlan, lifetime
from weft.runtime.program import Program

__all__ = [
    "Facts",
    "Read",
    "Relay",
    "edges_for",
    "evicted_after",
    "kept_after",
    "newcomers",
    "relay_of",
]


# Tuples without a value for what their store is partitioned by, as if they were a column of it.
NULLS = "$nulls"

# The same of the stores that a store was filled from: what they did not keep, it has not, whatever its own layout.
FOUND = "$found"

# With a query's name, the batch before which tuples of this query are copies, as if that were a column of the store.
COPIES = "$copies "


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the state of a graph before a batch.

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


@dataclass(frozen=True, slots=True)
class Read:
    """Tuples of an input to be read from a store, for some queries.

    Those of ``copies`` are read from another store too, for other queries: who comes later must not see them twice. A
    ``replicated`` store holds every tuple in every partition.
    """

    alias: str
    store: str
    users: Users
    copies: bool = False
    replicated: bool = False

    def is_read_in(self, partition: int) -> bool:
        """Whether a partition's part is read; of a replicated store one is enough."""
        return partition == 0 or not self.replicated


@dataclass(frozen=True, slots=True)
class Relay:
    """The job at a boundary: what it reads, the stores it fills, the queries whose stored past it answers."""

    reads: tuple[Read, ...] = ()
    fills: tuple[str, ...] = ()
    backfill: Users = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Relay:
        """What `dataclasses.asdict` made, also after a way through JSON."""
        reads = tuple(Read(**(read | {"users": tuple(read["users"])})) for read in data["reads"])
        return cls(reads, tuple(data["fills"]), tuple(data["backfill"]))

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.reads)


def newcomers(
    old: Program | None,
    plan: WorkloadPlan,
    facts: Facts,
    backfill: Collection[str] = (),
    orders: Mapping[str, Ordering] | None = None,
) -> tuple[Member, ...]:
    """All queries of a plan as members: those of the old graph as they are, new ones with a place and their sights."""
    orders = orders or {}
    queries = {answer.name: answer.query for answer in plan.answers}
    known = {} if old is None else {m.name: m for m in old.graph.members if m.name in queries}
    members = dict(known)
    free = _free_slots({member.slot for member in known.values()}, len(queries))
    for name in sorted(queries):
        if name not in members:
            closing = plan.answer(name).closing
            asks = _Asks(queries[name], name in backfill, closing, orders.get(name))
            sights = _sights(old, plan, name, asks, facts) if facts.number else ()
            past = (facts.number, sights, closing, name in backfill)
            began = sum(facts.arrived.get(i.stream.name, 0) for i in queries[name].inputs)
            members[name] = Member(name, queries[name], free.pop(0), *past, orders.get(name), began)
    return tuple(members[name] for name in sorted(members))


def _free_slots(taken: set[int], count: int) -> list[int]:
    return [slot for slot in range(count + len(taken)) if slot not in taken]


@dataclass(frozen=True, slots=True)
class _Asks:
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


def _sights(
    old: Program | None, plan: WorkloadPlan, name: str, asks: _Asks, facts: Facts
) -> tuple[Sight, ...]:
    found = []
    for alias in asks.query.aliases:
        wanted = {store.identity for store in plan.stores_of(name) if store.aliases == (alias,)}
        stores = _stores_of(old, alias)
        mine = [store for store in stores if store.identity in wanted]
        best = [_sight(old, store, asks, alias, facts) for store in mine or stores] if old else []
        if not best:
            found.append(_blind(asks.query, alias, facts))
        else:
            found.append(_narrowest(best) if mine else min(best, key=_breadth))
    return tuple(found)


def _breadth(sight: Sight) -> tuple[int, int]:
    return sight.batch, sight.since if sight.since is not None else -FOREVER


def _narrowest(sights: Sequence[Sight]) -> Sight:
    """What is seen in all of some stores."""
    since = [sight.since for sight in sights if sight.since is not None]
    complete = [sight.complete for sight in sights if sight.complete is not None]
    batch = max(sight.batch for sight in sights)
    seen = (sights[0].alias, batch, max(since, default=None), max(complete, default=None))
    return Sight(*seen, sights[0].store)


def _blind(query: Query, alias: str, facts: Facts) -> Sight:
    """Nothing of the past: results are complete once all of their tuples are newer than what was seen before."""
    newest = facts.newest.get(query.input(alias).stream.name)
    return Sight(alias, facts.number, None, None if newest is None else newest + 1)


def _stores_of(program: Program | None, alias: str) -> list[StorePlan]:
    """The stores of an input; those that hold each tuple once come first."""
    stores = [] if program is None else [s for s in program.stores.values() if s.node.aliases == (alias,)]
    return sorted(stores, key=lambda store: (store.node.layout.kind == "replicated", store.identity))


def _sight(old: Program | None, store: StorePlan, asks: _Asks, alias: str, facts: Facts) -> Sight:
    """What a new query sees in a store: the best that one of its users, whose tuples include all of it, sees."""
    blind = _blind(asks.query, alias, facts)
    users = [] if old is None else [old.members[name] for name in store.node.users]
    filters = filters_of(asks.query, alias)
    window = asks.query.input(alias).window
    covering = [
        m
        for m in users
        if implied(filters_of(m.query, alias), filters) and _sees_as_far(m.query.input(alias).window, window)
    ]
    sights = [_through(member, store, asks, alias, facts) for member in covering]
    return min((sight for sight in sights if sight.batch < facts.number), key=_breadth, default=blind)


def _sees_as_far(theirs: Window, mine: Window) -> bool:
    """Whether what is kept per key for another is enough; of anything else it is known what was forgotten."""
    if not isinstance(theirs, Rows) or not isinstance(mine, Rows) or not mine.per:
        return True
    return theirs.count >= mine.count


def _through(member: Member, store: StorePlan, asks: _Asks, alias: str, facts: Facts) -> Sight:
    """What a query sees of the tuples that another one has been given."""
    base, query = member.sight(alias), asks.query
    since = facts.kept.get(store.identity, {})
    closing = asks.closing.conditions if asks.closing else ()
    read = [column for column in columns_of([query], alias, closing) if column.name != PRESENT]
    known = [since.get(full_name(column), facts.number) for column in read]
    known.append(since.get(FOUND, 0))
    if asks.needs_numbers:
        known.append(since.get(seq_name(alias), facts.number))
    if asks.needs_nulls or is_foreign(query, store.node.layout):
        known.append(since.get(NULLS, facts.number))
    batch = max([base.batch, since.get(COPIES + member.name, 0), *known])
    complete = base.complete if batch == base.batch else _blind(query, alias, facts).complete
    gone = _gone(store, asks, alias, facts)
    if gone is None:
        return Sight(alias, batch, base.since, complete, store.identity)
    since_when = gone if base.since is None else max(gone, base.since)
    sure = _blind(query, alias, facts).complete if store.counted else gone  # a number says nothing of times
    times = [time for time in (complete, sure) if time is not None]
    return Sight(alias, batch, since_when, max(times, default=None), store.identity)


def _gone(store: StorePlan, asks: _Asks, alias: str, facts: Facts) -> int | None:
    """The clock below which a query would see tuples that may be gone; None: there were none, or it would not.

    What no result to come can have, one that lies in the past can.
    """
    evicted = facts.evicted.get(store.identity)
    first = 0 if store.counted else facts.oldest.get(asks.query.input(alias).stream.name)
    if evicted is not None and first is not None and evicted <= first:
        return None
    if evicted is None or store.counted or asks.backfill:
        return evicted
    span, streams = _needed(asks, alias)
    marks = [facts.marks.get(name) for name in streams]
    known = [mark for mark in marks if mark is not None]
    if span is None or not known or len(known) < len(marks):
        return evicted
    return None if min(known) - span >= evicted else evicted


def _needed(asks: _Asks, alias: str) -> tuple[int | None, Collection[str]]:
    """How long a query needs tuples of an input, beyond where these streams are."""
    life = lifetime(asks.query, (alias,))
    if asks.closing is None:
        return life.span, life.streams
    (span,) = closed_retention(asks.query, asks.closing, (alias,))
    spans = [None if span is None else micros(span), *((life.span,) if asks.closing.walked else ())]
    longest = None if None in spans else max(one for one in spans if one is not None)
    return longest, {input_.stream.name for input_ in asks.query.inputs}


def relay_of(old: Program | None, new: Program, backfill: Iterable[str] = ()) -> Relay:
    """What has to be read, and filled, for a new graph."""
    if old is None:
        return Relay()
    had = {store.identity: store for store in old.stores.values()}
    fills = [store for store in new.stores.values() if not _stays(old, store, had)]
    wanted = _wanted(new, fills, tuple(backfill))
    reads: dict[tuple[str, str], list[str]] = {}
    for alias, users in sorted(wanted.items()):
        for name in sorted(users):
            store = _kept_for(old, new, alias, name)
            if store is not None:
                reads.setdefault((alias, store), []).append(name)
    found = [
        Read(alias, store, tuple(names), replicated=had[store].node.layout.kind == "replicated")
        for (alias, store), names in sorted(reads.items())
    ]
    first = {read.alias: read for read in sorted(found, key=lambda read: len(read.users))}
    marked = tuple(replace(read, copies=read is not first[read.alias]) for read in found)
    return Relay(marked, tuple(sorted(store.identity for store in fills)), tuple(sorted(backfill)))


def _stays(old: Program, store: StorePlan, had: Mapping[str, StorePlan]) -> bool:
    """Whether a store has what all of its users need; new ones can tell which tuples of an input are theirs."""
    before = had.get(store.identity)
    if before is None:
        return False
    strangers = set(store.node.users) - set(before.node.users)
    if len(store.node.aliases) == 1:
        return not strangers & set(old.members)
    return not strangers and set(store.columns) - set(store.sets) <= set(before.columns)


def _wanted(new: Program, fills: Sequence[StorePlan], backfill: Users) -> dict[str, set[str]]:
    """The queries whose tuples are needed, by input."""
    found: dict[str, set[str]] = {}
    for store in fills:
        for alias in store.node.aliases:
            found.setdefault(alias, set()).update(store.node.users)
    for name in backfill:
        for alias in new.members[name].query.aliases:
            found.setdefault(alias, set()).add(name)
    return found


def _kept_for(old: Program, new: Program, alias: str, name: str) -> str | None:
    """The old store that holds a query's tuples of an input; None: there is none."""
    stores = _stores_of(old, alias)
    if name in old.members:
        homes = {home for sweep in old.graph.sweeps if sweep.query == name for home in sweep.homes}
        mine = [store for store in stores if name in store.node.users]
        mine.sort(key=lambda store: store.name not in homes)  # what rows are closed from is kept longer
        return mine[0].identity if mine else None
    return new.members[name].sight(alias).store


def edges_for(graph: PhysicalGraph, relay: Relay) -> frozenset[str]:
    """The edges that the job at a boundary uses: those that lead to what it fills, and to results it gives."""
    filled = {store.name for store in graph.stores if store.identity in relay.fills}
    inputs = {store.name for store in graph.stores if len(store.aliases) == 1}
    before = {name: rule for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
    wanted = set()
    for rule in graph.rules:
        stores = isinstance(rule, StoreRule) and rule.store in filled | inputs
        answers = isinstance(rule, ResultRule) and bool(set(rule.users) & set(relay.backfill))
        if stores or answers:
            wanted.add(rule.edge)
    probed = _sources_of(graph, wanted, before)
    while len(probed) > len(wanted):
        wanted, probed = probed, _sources_of(graph, probed, before)
    return frozenset(wanted)


def _sources_of(graph: PhysicalGraph, wanted: set[str], before: Mapping[str, ProbeRule]) -> set[str]:
    """Edges with those before them, and those that add to the stores these probe."""
    found = wanted | {before[edge].edge for edge in wanted if edge in before}
    probed = {rule.store for rule in graph.rules if isinstance(rule, ProbeRule) and rule.edge in found}
    return found | {rule.edge for rule in graph.rules if isinstance(rule, StoreRule) and rule.store in probed}


def kept_after(old: Program | None, new: Program, relay: Relay, facts: Facts) -> dict[str, dict[str, int]]:
    """Since which batch every store of a new graph keeps its columns."""
    filled = set(relay.fills)
    found: dict[str, dict[str, int]] = {}
    for store in new.stores.values():
        if len(store.node.aliases) > 1:
            continue
        sources = [r.store for r in relay.reads if r.alias == store.node.aliases[0]]
        known = [facts.kept.get(s, {}) for s in (sources if store.identity in filled else [store.identity])]
        first = 0 if old is None else facts.number
        names = [*store.columns, *((NULLS,) if new.keeps_nulls(store) else ())]
        found[store.identity] = {
            name: max((one.get(name, first) for one in known), default=first) for name in names
        } | _copied(store, relay, facts)
        nulls = max((one.get(NULLS, first) for one in known), default=0) if store.identity in filled else 0
        found[store.identity][FOUND] = max([nulls, *(one.get(FOUND, 0) for one in known)])
    return found


def _copied(store: StorePlan, relay: Relay, facts: Facts) -> dict[str, int]:
    """The users of an input's store whose tuples were copies, and until which batch."""
    found: dict[str, int] = {}
    reads = {name: r for r in relay.reads if r.alias == store.node.aliases[0] for name in r.users}
    for name in store.node.users:
        source, until = store.identity, 0
        if store.identity in relay.fills and name in reads:
            source, until = reads[name].store, facts.number if reads[name].copies else 0
        until = max(until, facts.kept.get(source, {}).get(COPIES + name, 0))
        if until:
            found[COPIES + name] = until
    return found


def evicted_after(new: Program, relay: Relay, facts: Facts) -> dict[str, int]:
    """Below which clock every store of a new graph may have forgotten rows."""
    found: dict[str, int] = {}
    for store in new.stores.values():
        reads = [r.store for r in relay.reads if r.alias in store.node.aliases]
        sources = reads if store.identity in relay.fills else [store.identity]
        known = [facts.evicted[name] for name in sources if name in facts.evicted]
        if known and len(store.node.aliases) == 1:
            found[store.identity] = max(known)
    return found
