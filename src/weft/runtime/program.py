"""A physical graph prepared for execution: everything about it that no batch changes.

Guarantees: a function of the graph alone, so every task of a cluster makes the same of the same JSON. A batch on an
edge carries the columns that something behind the edge reads, and no others; a store of an intermediate result keeps
the columns that something behind its probes reads. A store of an input keeps all that any query reads, filters
included, and, where tuples carry query-sets, the batch in which each came: so that a query that comes later can tell
which of them are for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from weft.bucket.index import Order, by_hash
from weft.kernels.predicate_index import PredicateIndex
from weft.kernels.query_set import set_names, words_for
from weft.logical.expr import Column, Expr, columns
from weft.logical.query import Query
from weft.plan.derive import filters_of, retention_of
from weft.plan.graph import Member, PhysicalGraph, Source, StoreNode
from weft.plan.join_plan import Names
from weft.plan.rules import Edge, ProbeRule, ResultRule, Rule, StoreRule, Users
from weft.runtime.access import Access, choose
from weft.runtime.batch import (
    BATCH,
    MAX,
    UNTIL,
    View,
    full_name,
    has_range,
    key_name,
    longest,
    micros,
    seq_name,
)
from weft.runtime.refine import Limits, limits_of

__all__ = ["Lifetime", "Program", "Step", "StorePlan", "lifetime", "program_of"]

Item = tuple[str, str]  # (input, name of a column in a batch)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long some query needs what is stored: so many microseconds beyond where these streams are; None: for ever."""

    span: int | None
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StorePlan:
    """A store as it is kept: its columns, those computed for it, its orders and the columns that tell its time.

    ``time`` holds the (largest) time of a row; ``clock``, which buckets are told is the event time, is the same or,
    for an input with a `ROWS` window, the number of the tuple, since that is what decides how long it lives. ``sets``
    are the columns with query-sets, none if there is but one query.
    """

    node: StoreNode
    columns: tuple[str, ...]
    computed: tuple[Expr, ...]
    orders: tuple[Order, ...]
    time: str
    clock: str
    sets: tuple[str, ...]
    view: View
    lifetimes: tuple[Lifetime, ...]

    @property
    def name(self) -> str:
        """The store's name."""
        return self.node.name

    @property
    def identity(self) -> str:
        """What its runs are filed under."""
        return self.node.identity

    @property
    def counted(self) -> bool:
        """Whether the clock counts tuples."""
        return self.clock != self.time


@dataclass(frozen=True, slots=True)
class Step:
    """A probe as it is executed; ``from_probe`` and ``from_store`` are the columns its matches keep.

    ``view`` is what its queries see, ``slots`` their places in query-sets, ``sets`` the columns with these.
    """

    rule: ProbeRule
    store: StorePlan
    access: Access
    joined: Names
    from_probe: tuple[str, ...]
    from_store: tuple[str, ...]
    hidden: tuple[str, ...]
    view: View
    slots: tuple[int, ...]
    sets: tuple[str, ...]


class Program:
    """A graph with what follows from it."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self.graph = graph
        self.members: Mapping[str, Member] = {member.name: member for member in graph.members}
        self.words = words_for(1 + max(m.slot for m in graph.members)) if graph.tracked else 0
        self.sets = set_names(self.words)
        self.edges: Mapping[str, Edge] = {edge.name: edge for edge in graph.edges}
        self.order: tuple[Rule, ...] = graph.rules
        self.rules: Mapping[str, Rule] = {rule.edge: rule for rule in self.order}
        self._nodes = {store.name: store for store in graph.stores}
        self._probing = _by_store(self.order)
        self._views: dict[Users, View] = {}
        self._needs: dict[str, frozenset[Item]] = {}
        self._access: dict[str, Access] = {}
        self._ends: dict[str, bool] = {}
        self.view = self.view_of(tuple(self.members))
        self.starts = self._starts()
        self.limits = {r.edge: self._limits(r) for r in self.order if isinstance(r, ResultRule)}
        self.stores = {store.name: self._store_plan(store) for store in graph.stores}
        self.steps = {rule.edge: self._step(rule) for rule in self.order if isinstance(rule, ProbeRule)}
        self.riders = self._riders()
        self.carried = {edge.name: self._carried(edge.name) for edge in graph.edges}

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return program_of, (self.graph.to_json(),)

    @cached_property
    def hops(self) -> tuple[tuple[Rule, ...], ...]:
        """The rules of every hop, in the order in which they run."""
        found: list[list[Rule]] = [[] for _ in range(1 + self.graph.hops)]
        for rule in self.order:
            found[self.edges[rule.edge].hop].append(rule)
        return tuple(map(tuple, found))

    @cached_property
    def last_hops(self) -> Mapping[str, int]:
        """The last hop in which each store is added to or probed."""
        found: dict[str, int] = {}
        for rule in self.order:
            if isinstance(rule, StoreRule | ProbeRule):
                found[rule.store] = max(self.edges[rule.edge].hop, found.get(rule.store, 0))
        return found

    def view_of(self, users: Users) -> View:
        """What some queries see together."""
        if users not in self._views:
            self._views[users] = View.of([self.members[name].query for name in users])
        return self._views[users]

    def slots(self, users: Users) -> tuple[int, ...]:
        """The places of queries in query-sets."""
        return tuple(self.members[name].slot for name in users)

    def read_by(self, name: str) -> tuple[str, ...]:
        """The columns that a query's results are made of; the time of a match, if of none, so that it counts."""
        items = _items(output.expr for output in self.members[name].query.projection)
        return tuple(sorted(column for _, column in items)) or self.sets[:1]

    @cached_property
    def _sources(self) -> Mapping[str, Source]:
        return {source.alias: source for source in self.graph.sources}

    def source(self, alias: str) -> Source:
        """Where tuples of an input enter."""
        return self._sources[alias]

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """The inputs whose tuples are counted."""
        return tuple(alias for alias in self.graph.aliases if longest(self.view, alias) is not None)

    @cached_property
    def filters(self) -> Mapping[str, PredicateIndex]:
        """The filters of all queries, by input."""
        return {alias: self._index(alias) for alias in self.graph.aliases}

    def _index(self, alias: str) -> PredicateIndex:
        readers = [member for member in self.graph.members if alias in member.query.aliases]
        found = {member.slot: filters_of(member.query, alias) for member in readers}
        return PredicateIndex.of(found, max(1, self.words))

    def leaving(self, alias: str) -> tuple[Edge, ...]:
        """The edges out of an input's source."""
        return self._leaving[self.source(alias).name]

    @cached_property
    def _leaving(self) -> Mapping[str, tuple[Edge, ...]]:
        found: dict[str, list[Edge]] = {source.name: [] for source in self.graph.sources}
        for edge in self.graph.edges:
            if edge.source in found and edge.name not in self._outputs:
                found[edge.source].append(edge)
        return {name: tuple(edges) for name, edges in found.items()}

    @cached_property
    def _outputs(self) -> Mapping[str, ProbeRule]:
        """The probe whose matches an edge carries."""
        probes = (rule for rule in self.order if isinstance(rule, ProbeRule))
        return {name: rule for rule in probes for name in rule.outputs}

    def keeps_nulls(self, store: StorePlan) -> bool:
        """Whether an input's store has the tuples that have no value for its key."""
        edges = (self.edges[r.edge] for r in self.order if isinstance(r, StoreRule) and r.store == store.name)
        return all(edge.nulls or edge.by is None for edge in edges)

    def _riders(self) -> dict[str, tuple[str, ...]]:
        """The local edges whose tuples come along with those that an edge brings to their store."""
        found: dict[str, tuple[str, ...]] = {edge.name: () for edge in self.graph.edges}
        for edge in self.graph.edges:
            if edge.rides is not None:
                found[edge.rides] += (edge.name,)
        return found

    def _carried(self, edge: str) -> tuple[str, ...]:
        """The columns that a batch on an edge has, hidden ones included."""
        names = {name for _, name in _about(self._need(edge), self._known(edge))}
        for rider in self.riders[edge]:
            names.update(name for _, name in self._need(rider))
        return tuple(sorted(names | set(self._hidden(edge))))

    def _known(self, edge: str) -> Names:
        rule = self.rules[edge]
        if isinstance(rule, ProbeRule):
            return rule.known
        if isinstance(rule, StoreRule):
            return self._nodes[rule.store].aliases
        return self.members[rule.users[0]].query.aliases

    def _hidden(self, edge: str) -> tuple[str, ...]:
        """The columns that tell the time of a match and whom it is for; a result needs its time only to be checked."""
        known, rule = self._known(edge), self.rules[edge]
        if len(known) == 1:
            return (self.view.times[known[0]], *self.sets)
        if isinstance(rule, ResultRule):
            needed = self.limits[edge].ranges or not self._need(edge)
            return (*((MAX,) if needed else ()), *self.sets)
        return (MAX, *((UNTIL,) if self._has_end(self._outputs[edge]) else ()), *self.sets)

    def _has_end(self, rule: ProbeRule) -> bool:
        """Whether the matches of a probe are bounded by a `RANGE` window."""
        if rule.edge not in self._ends:
            view, inside = self.view_of(rule.users), self._nodes[rule.store].aliases
            self._ends[rule.edge] = (
                has_range(view, rule.known)
                if len(rule.known) == 1
                else self._has_end(self._outputs[rule.edge])
            ) or (has_range(view, inside) if len(inside) == 1 else self._kept_until(rule.store))
        return self._ends[rule.edge]

    def _kept_until(self, store: str) -> bool:
        """Whether an intermediate result is stored with the time until which it is inside its windows."""
        stores = (r.edge for r in self.order if isinstance(r, StoreRule) and r.store == store)
        return all(self._has_end(self._outputs[edge]) for edge in stores)

    def _starts(self) -> dict[str, str]:
        sources = {source.name: source.alias for source in self.graph.sources}
        found = {}
        for rule in self.order:
            before = self._outputs.get(rule.edge)
            found[rule.edge] = before.start if before else sources[self.edges[rule.edge].source]
        return found

    def _limits(self, rule: ResultRule) -> Limits:
        """What the windows of a rule's queries ask beyond what probing for all queries together makes sure of."""
        stored = any(
            len(node.aliases) > 1 and set(rule.users) & set(node.users) for node in self.graph.stores
        )
        users = [self.members[name] for name in rule.users]
        return limits_of(users, self.graph.members, self.words, stored)

    def _need(self, edge: str) -> frozenset[Item]:
        """The columns that are read at the end of an edge or later."""
        if edge not in self._needs:
            self._needs[edge] = frozenset(self._needed(self.rules[edge]))
        return self._needs[edge]

    def _needed(self, rule: Rule) -> Iterable[Item]:
        if isinstance(rule, ResultRule):
            outputs = [output.expr for name in rule.users for output in self.members[name].query.projection]
            return _items(outputs) | self._checked(rule)
        if isinstance(rule, StoreRule):
            store = self._nodes[rule.store]
            return self._content(store) | _items(key for a in self._accesses(store) for key in a.stored)
        own = _items((*(equality.probe for equality in rule.equalities), *rule.predicates))
        return _about(own | self._behind(rule), rule.known)

    def _checked(self, rule: ResultRule) -> frozenset[Item]:
        """The times and numbers that say which queries' windows a result is inside."""
        limits = self.limits[rule.edge]
        times = {(alias, self.view.times[alias]) for alias in limits.ranges}
        return frozenset(times | {(alias, seq_name(alias)) for alias in limits.rows})

    def _behind(self, rule: ProbeRule) -> frozenset[Item]:
        """What is read of the matches of a probe, to send them on included."""
        found: set[Item] = set()
        for output in rule.outputs:
            by = self.edges[output].by
            found |= self._need(output) | _items(() if by is None else (by,))
        return frozenset(found)

    def _content(self, store: StoreNode) -> frozenset[Item]:
        """The columns that a store keeps of those that arrive."""
        names, found = store.aliases, set[Item]()
        if len(names) == 1:
            found.add((names[0], self.view.times[names[0]]))
            found |= _items(self.source(names[0]).columns)
        found |= {(alias, seq_name(alias)) for alias in names if longest(self.view, alias) is not None}
        for rule in self._probing.get(store.name, ()):
            access = self._accessed(rule)
            plain = (key for key in access.stored if isinstance(key, Column))
            rest = () if access.rest is None else (access.rest,)
            found |= _items((*plain, *rest)) | self._behind(rule)
        return _about(found, names)

    def _accesses(self, store: StoreNode) -> list[Access]:
        return [self._accessed(rule) for rule in self._probing.get(store.name, ())]

    def _accessed(self, rule: ProbeRule) -> Access:
        if rule.edge not in self._access:
            store = self._nodes[rule.store]
            inside = frozenset(store.aliases)
            time, clock = self._clock(store)
            bounds = self.graph.input(store.aliases[0]).event_time if len(inside) == 1 else None
            windowed = has_range(self.view_of(rule.users), inside) or clock != time
            usable = bounds if clock == time else None
            self._access[rule.edge] = choose(rule, inside, clock, usable, windowed)
        return self._access[rule.edge]

    def clock(self, alias: str) -> tuple[str, str]:
        """The columns of an input's tuples that tell their time, and how long they live."""
        time = self.view.times[alias]
        return time, time if longest(self.view, alias) is None else seq_name(alias)

    def _clock(self, store: StoreNode) -> tuple[str, str]:
        return self.clock(store.aliases[0]) if len(store.aliases) == 1 else (MAX, MAX)

    def _store_plan(self, store: StoreNode) -> StorePlan:
        stored = dict.fromkeys(key for access in self._accesses(store) for key in access.stored)
        computed = tuple(key for key in stored if not isinstance(key, Column))
        return StorePlan(
            store,
            self._kept_columns(store),
            computed,
            self._orders(store),
            *self._clock(store),
            self.sets,
            self.view_of(store.users),
            self._lifetimes(store),
        )

    def _kept_columns(self, store: StoreNode) -> tuple[str, ...]:
        names = {name for _, name in self._content(store)} | set(self.sets)
        if len(store.aliases) == 1:
            names |= {self.view.times[store.aliases[0]], *((BATCH,) if self.graph.tracked else ())}
        else:
            names |= {MAX, *((UNTIL,) if self._kept_until(store.name) else ())}
        return tuple(sorted(names))

    def _orders(self, store: StoreNode) -> tuple[Order, ...]:
        """Those it is looked up by; rows are laid out in the first: its key's, if many share it, else the commonest."""
        orders = [access.order for access in self._accesses(store) if access.order is not None]
        by = store.layout.by
        own = by_hash(key_name(by)) if by is not None and self.graph.tracked else None
        return tuple(sorted(dict.fromkeys(orders), key=lambda order: (order != own, -orders.count(order))))

    def _lifetimes(self, store: StoreNode) -> tuple[Lifetime, ...]:
        return tuple(dict.fromkeys(lifetime(self.members[name].query, store.aliases) for name in store.users))

    def _step(self, rule: ProbeRule) -> Step:
        store = self.stores[rule.store]
        joined = tuple(sorted((*rule.known, *store.node.aliases)))
        mine, theirs = (
            tuple(sorted(name for _, name in _about(self._behind(rule), names)))
            for names in (rule.known, store.node.aliases)
        )
        hidden = dict.fromkeys(name for output in rule.outputs for name in self._hidden(output))
        access, view, slots = self._accessed(rule), self.view_of(rule.users), self.slots(rule.users)
        return Step(rule, store, access, joined, mine, theirs, tuple(hidden), view, slots, self.sets)


def lifetime(query: Query, names: Names) -> Lifetime:
    """How long a query needs what is stored of some of its inputs."""
    spans = [micros(span) for span in retention_of(query, names) if span is not None]
    others = {query.input(alias).stream.name for alias in query.aliases if alias not in names}
    return Lifetime(min(spans, default=None), tuple(sorted(others)))


def _by_store(rules: Iterable[Rule]) -> dict[str, list[ProbeRule]]:
    found: dict[str, list[ProbeRule]] = {}
    for rule in rules:
        if isinstance(rule, ProbeRule):
            found.setdefault(rule.store, []).append(rule)
    return found


def _items(exprs: Iterable[Expr]) -> frozenset[Item]:
    return frozenset((item.alias, full_name(item)) for expr in exprs for item in columns(expr))


def _about(items: Iterable[Item], names: Iterable[str]) -> frozenset[Item]:
    kept = frozenset(names)
    return frozenset(item for item in items if item[0] in kept)


@lru_cache(maxsize=64)
def program_of(graph: str) -> Program:
    """The program of a graph given as JSON; a worker makes it once."""
    return Program(PhysicalGraph.from_json(graph))
