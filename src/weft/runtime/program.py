"""A physical graph prepared for execution: everything about it that no batch changes.

Guarantees: a function of the graph alone, so every task of a cluster makes the same of the same JSON. A batch on an
edge carries the columns that something behind the edge reads, and no others; a store keeps the columns that something
behind its probes reads, and the values it is looked up by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from weft.bucket.index import Order
from weft.logical.expr import Column, Expr, columns
from weft.logical.query import Query
from weft.plan.graph import PhysicalGraph, Source, StoreNode
from weft.plan.join_plan import Names
from weft.plan.rules import Edge, ProbeRule, ResultRule, Rule, StoreRule
from weft.plan.schedule import LOCAL
from weft.runtime.access import Access, choose
from weft.runtime.batch import MAX, UNTIL, full_name, has_range, longest, seq_name, time_name

__all__ = ["Program", "Step", "StorePlan", "program_of"]

Item = tuple[str, str]  # (input, name of a column in a batch)


@dataclass(frozen=True, slots=True)
class StorePlan:
    """A store as it is kept: its columns, those computed for it, its orders and the columns that tell its time.

    ``time`` holds the (largest) time of a row; ``clock``, which buckets are told is the event time, is the same or,
    for an input with a `ROWS` window, the number of the tuple, since that is what decides how long it lives.
    """

    node: StoreNode
    columns: tuple[str, ...]
    computed: tuple[Expr, ...]
    orders: tuple[Order, ...]
    time: str
    clock: str

    @property
    def name(self) -> str:
        """The store's name."""
        return self.node.name

    @property
    def counted(self) -> bool:
        """Whether the clock counts tuples."""
        return self.clock != self.time


@dataclass(frozen=True, slots=True)
class Step:
    """A probe as it is executed; ``from_probe`` and ``from_store`` are the columns its matches keep."""

    rule: ProbeRule
    store: StorePlan
    access: Access
    joined: Names
    from_probe: tuple[str, ...]
    from_store: tuple[str, ...]
    hidden: tuple[str, ...]


class Program:
    """A graph with what follows from it."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self.graph = graph
        self.query: Query = graph.query
        self.edges: Mapping[str, Edge] = {edge.name: edge for edge in graph.edges}
        self.order: tuple[Rule, ...] = graph.rules
        self.rules: Mapping[str, Rule] = {rule.edge: rule for rule in self.order}
        self._needs: dict[str, frozenset[Item]] = {}
        self._access: dict[str, Access] = {}
        self.starts = {rule.edge: self._start(rule.edge) for rule in self.order}
        self.stores = {store.name: self._store_plan(store) for store in graph.stores}
        self.steps = {rule.edge: self._step(rule) for rule in self.order if isinstance(rule, ProbeRule)}
        self.riders = {edge.name: self._riders(edge) for edge in graph.edges}
        self.carried = {edge.name: self._carried(edge.name) for edge in graph.edges}

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return program_of, (self.graph.to_json(),)

    @cached_property
    def hops(self) -> tuple[tuple[Rule, ...], ...]:
        """The rules of every hop, in the order in which they run."""
        last = max((edge.hop for edge in self.graph.edges), default=0)
        return tuple(
            tuple(rule for rule in self.order if self.edges[rule.edge].hop == hop) for hop in range(last + 1)
        )

    def source(self, alias: str) -> Source:
        """Where tuples of an input enter."""
        return next(source for source in self.graph.sources if source.alias == alias)

    def leaving(self, alias: str) -> tuple[Edge, ...]:
        """The edges out of an input's source; the first stores its tuples, if any does."""
        name = self.source(alias).name
        return tuple(edge for edge in self.graph.edges if edge.source == name)

    def _riders(self, edge: Edge) -> tuple[str, ...]:
        """The local edges whose tuples come along with those that an edge brings to their store."""
        for source in self.graph.sources:
            out = self.leaving(source.alias)
            if out and out[0] == edge and edge.kind != LOCAL:
                return tuple(other.name for other in out if other.kind == LOCAL)
        return ()

    def _carried(self, edge: str) -> tuple[str, ...]:
        """The columns that a batch on an edge has, hidden ones included."""
        known = self._known(edge)
        names = {name for _, name in _about(self._need(edge), known)}
        for rider in self.riders[edge]:
            names.update(name for _, name in self._need(rider))
        return tuple(sorted(names | set(self._hidden(known))))

    def _known(self, edge: str) -> Names:
        rule = self.rules[edge]
        if isinstance(rule, ProbeRule):
            return rule.known
        if isinstance(rule, StoreRule):
            return self.graph.store(rule.store).aliases
        return self.query.aliases

    def _hidden(self, known: Names) -> tuple[str, ...]:
        """The columns that tell the time of a match; a result needs none."""
        if len(known) == 1:
            return (time_name(self.query, known[0]),)
        if known == self.query.aliases:
            return () if _items(output.expr for output in self.query.projection) else (MAX,)
        return (MAX, UNTIL) if has_range(self.query, known) else (MAX,)

    def _start(self, edge: str) -> str:
        rule = self.rules[edge]
        if isinstance(rule, ProbeRule | ResultRule):
            return rule.start
        return next(
            (r.start for r in self.order if isinstance(r, ProbeRule) and edge in r.outputs),
            next((s.alias for s in self.graph.sources if s.name == self.edges[edge].source), ""),
        )

    def _need(self, edge: str) -> frozenset[Item]:
        """The columns that are read at the end of an edge or later."""
        if edge not in self._needs:
            self._needs[edge] = frozenset(self._needed(self.rules[edge]))
        return self._needs[edge]

    def _needed(self, rule: Rule) -> Iterable[Item]:
        if isinstance(rule, ResultRule):
            return _items(output.expr for output in self.query.projection)
        if isinstance(rule, StoreRule):
            store = self.graph.store(rule.store)
            return self._content(store) | _items(key for a in self._accesses(store) for key in a.stored)
        own = _items((*(equality.probe for equality in rule.equalities), *rule.predicates))
        return _about(own | self._behind(rule), rule.known)

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
            found.add((names[0], time_name(self.query, names[0])))
        found |= {(alias, seq_name(alias)) for alias in names if longest(self.query, alias) is not None}
        for rule in self._probes(store):
            access = self._accessed(rule)
            plain = (key for key in access.stored if isinstance(key, Column))
            rest = () if access.rest is None else (access.rest,)
            found |= _items((*plain, *rest)) | self._behind(rule)
        return _about(found, names)

    def _probes(self, store: StoreNode) -> list[ProbeRule]:
        rules = (rule for rule in self.order if isinstance(rule, ProbeRule))
        return [rule for rule in rules if rule.store == store.name]

    def _accesses(self, store: StoreNode) -> list[Access]:
        return [self._accessed(rule) for rule in self._probes(store)]

    def _accessed(self, rule: ProbeRule) -> Access:
        if rule.edge not in self._access:
            store = self.graph.store(rule.store)
            inside = frozenset(store.aliases)
            time, clock = self._clock(store)
            bounds = self.query.input(store.aliases[0]).event_time if len(inside) == 1 else None
            windowed = has_range(self.query, inside) or clock != time
            usable = bounds if clock == time else None
            self._access[rule.edge] = choose(rule, inside, clock, usable, windowed)
        return self._access[rule.edge]

    def _clock(self, store: StoreNode) -> tuple[str, str]:
        if len(store.aliases) > 1:
            return MAX, MAX
        (alias,) = store.aliases
        time = time_name(self.query, alias)
        return time, time if longest(self.query, alias) is None else seq_name(alias)

    def _store_plan(self, store: StoreNode) -> StorePlan:
        accesses = self._accesses(store)
        stored = dict.fromkeys(key for access in accesses for key in access.stored)
        computed = tuple(key for key in stored if not isinstance(key, Column))
        names = {name for _, name in self._content(store)} | set(self._hidden(store.aliases))
        orders = [access.order for access in accesses if access.order is not None]
        often = sorted(dict.fromkeys(orders), key=lambda order: -orders.count(order))
        return StorePlan(store, tuple(sorted(names)), computed, tuple(often), *self._clock(store))

    def _step(self, rule: ProbeRule) -> Step:
        store = self.stores[rule.store]
        joined = tuple(sorted((*rule.known, *store.node.aliases)))
        mine, theirs = (
            tuple(sorted(name for _, name in _about(self._behind(rule), names)))
            for names in (rule.known, store.node.aliases)
        )
        return Step(rule, store, self._accessed(rule), joined, mine, theirs, self._hidden(joined))


def _items(exprs: Iterable[Expr]) -> frozenset[Item]:
    return frozenset((item.alias, full_name(item)) for expr in exprs for item in columns(expr))


def _about(items: Iterable[Item], names: Iterable[str]) -> frozenset[Item]:
    kept = frozenset(names)
    return frozenset(item for item in items if item[0] in kept)


@lru_cache(maxsize=64)
def program_of(graph: str) -> Program:
    """The program of a graph given as JSON; a worker makes it once."""
    return Program(PhysicalGraph.from_json(graph))
