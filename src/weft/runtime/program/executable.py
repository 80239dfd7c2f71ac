"""A physical graph prepared for execution: everything about it that no batch changes.

Guarantees: a function of the graph alone, so every task of a cluster makes the same of the same JSON. A batch on an
edge carries the columns that are read at the end of the edge or later, and no others; a store of an intermediate result
keeps the columns that are read by its probes or after them. A store of an input keeps all columns that any query reads,
in its filters too, and, where tuples carry query-sets, the batch in which each came: so a query that comes later can
tell which of the stored tuples are for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from weft.bucket.compiled import Longs
from weft.bucket.index import Order, by_hash
from weft.kernels.query_sets.predicate_index import PredicateIndex
from weft.kernels.route.heavy import heavy_words
from weft.logical.expr.expression import Column, Expr, columns
from weft.plan.physical.derive import filters_of
from weft.plan.physical.graph import Member, PhysicalGraph, StoreNode
from weft.plan.physical.rules import ProbeRule, ResultRule, Rule, StoreRule, Sweep
from weft.plan.schedule import LOCAL
from weft.runtime.model.columns import (
    BATCH,
    MAX,
    UNTIL,
    counts,
    full_name,
    has_range,
    key_name,
    per_key,
    seq_name,
)
from weft.runtime.program.access_paths import Access, choose_access
from weft.runtime.program.graph_index import GraphIndex
from weft.runtime.program.store_plans import (
    Lifetime,
    Step,
    StorePlan,
    SweepPlan,
    closed_lifetime,
    independent_steps,
    lifetime,
    sweep_plan,
    version_uses,
)

__all__ = ["ExecutableGraph", "program_of"]

Item = tuple[str, str]  # (input, name of a column in a batch)


class HeavyWords(NamedTuple):
    """Heavy values of an edge as column words, which `weft.kernels.route.heavy` compares.

    ``words`` are those of the edge itself. ``rides`` are these and those of the edge it rides on: tuples with such a
    value are not piggybacked, but sent by the source.
    """

    words: Longs
    rides: Longs


class ExecutableGraph(GraphIndex):
    """A graph with all that execution needs and no batch changes.

    ``stores`` are the plans of its stores by name, ``steps`` its probes by edge, ``carried`` the columns of a batch on
    each edge, and ``sweeps`` say how the rows of queries with outer joins are closed. ``chains`` has, by edge, the
    probes that can all be done with the tuples that arrive there, one after the other up to the results, because none
    of them reads what another one finds (`weft.runtime.program.store_plans`); only where there are several.
    """

    def __init__(self, graph: PhysicalGraph) -> None:
        super().__init__(graph)
        self._needs: dict[str, frozenset[Item]] = {}
        self._access: dict[str, Access] = {}
        self._ends: dict[str, bool] = {}
        self._heavy_words: dict[str, HeavyWords] = {}
        self.stores = {store.name: self._store_plan(store) for store in graph.stores}
        self.steps = {rule.edge: self._step(rule) for rule in self.order if isinstance(rule, ProbeRule)}
        self.chains = {edge: chain for edge in self.steps if (chain := self._chain(edge))}
        self.carried = {edge.name: self._carried(edge.name) for edge in graph.edges}
        self.sweeps = tuple(self._sweep(sweep) for sweep in graph.sweeps)

    def _chain(self, edge: str) -> tuple[Step, ...]:
        """The probes from an edge up to results, if what arrives there is all that they read; else none."""
        steps, first = [self.steps[edge]], self.steps[edge]
        while len(onward := steps[-1].rule.outputs) == 1 and isinstance(self.rules[onward[0]], ProbeRule):
            if self.edges[onward[0]].kind != LOCAL:
                return ()
            steps.append(self.steps[onward[0]])
        if self.sets or len(steps) == 1 or any(not isinstance(self.rules[e], ResultRule) for e in onward):
            return ()
        return independent_steps(first.rule.known, steps)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return program_of, (self.graph.to_json(),)

    @cached_property
    def identities(self) -> tuple[str, ...]:
        """The names under which manifests have the runs of all stores, those of groups among them."""
        groups = (plan.identity for plan in self.groups.values())
        return (*(plan.identity for plan in self.stores.values()), *groups)

    @cached_property
    def filters(self) -> Mapping[str, PredicateIndex]:
        """An index over the filters of all queries, for each input."""
        return {alias: self._index(alias) for alias in self.graph.aliases}

    def _index(self, alias: str) -> PredicateIndex:
        readers = [member for member in self.graph.members if alias in member.query.aliases]
        found = {member.slot: filters_of(member.query, alias) for member in readers}
        return PredicateIndex.from_filters(found, max(1, self.words))

    def heavy(self, edge: str) -> HeavyWords:
        """The heavy values of an edge, and those of the edge that it rides on."""
        if edge not in self._heavy_words:
            own, rides = self.edges[edge].heavy, self.edges[edge].rides
            other = self.edges[rides].heavy if rides is not None else ()
            words = heavy_words(own)
            self._heavy_words[edge] = HeavyWords(words, np.union1d(words, heavy_words(other)))
        return self._heavy_words[edge]

    def keeps_nulls(self, store: StorePlan) -> bool:
        """Whether an input's store keeps tuples whose partitioning key is NULL."""
        edges = (self.edges[r.edge] for r in self.order if isinstance(r, StoreRule) and r.store == store.name)
        return all(edge.nulls or edge.by is None for edge in edges)

    def _carried(self, edge: str) -> tuple[str, ...]:
        """The columns that a batch on an edge has, hidden ones included."""
        names = {name for _, name in _about(self._need(edge), self._known(edge))}
        for rider in self.piggybacked[edge]:
            names.update(name for _, name in self._need(rider))
        return tuple(sorted(names | set(self._hidden(edge))))

    def _hidden(self, edge: str) -> tuple[str, ...]:
        """The columns with the time of a match and its query-set.

        On the way to a result, the time is needed only if windows are still to be checked, or if there is no other
        column that says how many rows there are.
        """
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

    def _need(self, edge: str) -> frozenset[Item]:
        """The columns that are read at the end of an edge or later."""
        if edge not in self._needs:
            self._needs[edge] = frozenset(self._needed(self.rules[edge]))
        return self._needs[edge]

    def _needed(self, rule: Rule) -> Iterable[Item]:
        if isinstance(rule, ResultRule):
            outputs = [output.expr for name in rule.users for output in self.members[name].query.projection]
            return _items(outputs) | self._checked(rule) | self._numbers(rule)
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

    def _numbers(self, rule: ResultRule) -> frozenset[Item]:
        """The numbers of tuples that say in which order results leave."""
        orders = [m.ordering for name in rule.users if (m := self.members[name]).ordering is not None]
        by_arrival = [ordering for ordering in orders if ordering is not None and ordering.by_arrival]
        names = {alias for ordering in by_arrival if ordering.is_inner for alias in ordering.inputs}
        names |= {rule.start} if by_arrival else set()
        return frozenset((alias, seq_name(alias)) for alias in names)

    def _behind(self, rule: ProbeRule) -> frozenset[Item]:
        """The columns that are read of a probe's matches, also those that decide where the matches are sent."""
        return self._read_behind(rule.outputs)

    def _read_behind(self, outputs: Iterable[str]) -> frozenset[Item]:
        found: set[Item] = set()
        for output in outputs:
            found |= self._need(output) | _items(self.edges[output].values)
        return frozenset(found)

    def _content(self, store: StoreNode) -> frozenset[Item]:
        """The columns that a store keeps of those that arrive."""
        names, found = store.aliases, set[Item]()
        if len(names) == 1:
            found.add((names[0], self.view.times[names[0]]))
        if len(names) == 1 or store.filling:
            found |= {item for alias in names for item in _items(self.source(alias).columns)}
        if len(names) > 1 and store.filling:  # what a graph to come will read of it is not known here
            found |= {(alias, self.view.times[alias]) for alias in names}
            found |= {(alias, seq_name(alias)) for alias in names if self._is_numbered(store, alias)}
        found |= {(alias, seq_name(alias)) for alias in names if counts(self.view, alias) is not None}
        for rule in self._probing.get(store.name, ()):
            access = self._accessed(rule)
            plain = (key for key in access.stored if isinstance(key, Column))
            rest = () if access.rest is None else (access.rest,)
            found |= _items((*plain, *rest)) | self._behind(rule)
        return _about(found, names)

    def _is_numbered(self, store: StoreNode, alias: str) -> bool:
        """Whether results of a query that a store is for leave in an order that an input's numbers say."""
        orders = (self.members[name].ordering for name in store.users)
        return any(one is not None and one.is_inner and alias in one.inputs for one in orders)

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
            self._access[rule.edge] = choose_access(rule, inside, clock, usable, windowed)
        return self._access[rule.edge]

    def _clock(self, store: StoreNode) -> tuple[str, str]:
        return self.clock(store.aliases[0]) if len(store.aliases) == 1 else (MAX, MAX)

    def _store_plan(self, store: StoreNode) -> StorePlan:
        stored = dict.fromkeys(key for access in self._accesses(store) for key in access.stored)
        if self._closed_from(store) and store.layout.by is not None:
            stored[store.layout.by] = None
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
            self.graph.input(store.aliases[0]).stream.table,
            version_uses(self._closed_from(store), store.aliases[0]),
        )

    def _kept_columns(self, store: StoreNode) -> tuple[str, ...]:
        names = {name for _, name in self._content(store)} | set(self.sets)
        if len(store.aliases) == 1:
            dated = self.graph.tracked or any(not m.walked for m in self._closed_from(store))
            names |= {self.view.times[store.aliases[0]], *((BATCH,) if dated else ())}
        else:
            names |= {MAX, *((UNTIL,) if self._kept_until(store.name) else ())}
        return tuple(sorted(names))

    def _orders(self, store: StoreNode) -> tuple[Order, ...]:
        """The orders that a store is looked up by; its rows are laid out in the first.

        That is the order of the partitioning key, if tuples carry query-sets; else the one that most probes use.
        """
        orders = [access.order for access in self._accesses(store) if access.order is not None]
        by = store.layout.by
        if by is not None and self._closed_from(store):
            orders.append(by_hash(key_name(by)))
        orders += self._counting(store)
        own = by_hash(key_name(by)) if by is not None and self.graph.tracked else None
        return tuple(sorted(dict.fromkeys(orders), key=lambda order: (order != own, -orders.count(order))))

    def _counting(self, store: StoreNode) -> list[Order]:
        """The indexes by which the tuples of a key are found, for windows that count per key."""
        found = [per_key(self.view, alias) for alias in store.aliases]
        return [by_hash(*window[1]) for window in found if window is not None]

    def _lifetimes(self, store: StoreNode) -> tuple[Lifetime, ...]:
        walked = [m for name in store.users if (m := self.members[name]).walked and _is_probed(m, store)]
        found = [lifetime(member.query, store.aliases) for member in walked]
        closed = [closed_lifetime(member, store.aliases) for member in self._closed_from(store)]
        return tuple(dict.fromkeys([*found, *(life for life in closed if life is not None)]))

    def _closed_from(self, store: StoreNode) -> list[Member]:
        """The queries whose rows are closed from a store."""
        return [self.members[sweep.query] for sweep in self.graph.sweeps if store.name in sweep.homes]

    def _sweep(self, sweep: Sweep) -> SweepPlan:
        member = self.members[sweep.query]
        homes = {self._nodes[name].aliases[0]: self.stores[name] for name in sweep.homes}
        rules = [rule for rule in self.order if isinstance(rule, StoreRule) and rule.store in sweep.homes]
        return sweep_plan(member, homes, {self._nodes[r.store].aliases[0]: r.edge for r in rules})

    def _step(self, rule: ProbeRule) -> Step:
        store = self.stores[rule.store]
        joined = tuple(sorted((*rule.known, *store.node.aliases)))
        onward = [name for name in rule.outputs if not isinstance(self.rules[name], ResultRule)]
        read = self._read_behind(onward)
        mine, theirs = (
            tuple(sorted(name for _, name in _about(read, names)))
            for names in (rule.known, store.node.aliases)
        )
        hidden = tuple(dict.fromkeys(name for output in onward for name in self._hidden(output)))
        access, view, slots = self._accessed(rule), self.view_of(rule.users), self.slots(rule.users)
        searched = self._searched(rule, access)
        return Step(rule, store, access, joined, mine, theirs, hidden, view, slots, self.sets, searched)

    def _searched(self, rule: ProbeRule, access: Access) -> tuple[str, ...]:
        limits = [limit.value for limit in (*access.limits, *access.times)]
        exprs = [*access.keys, *limits, *(() if access.rest is None else (access.rest,))]
        names = {name for _, name in _about(_items(exprs), rule.known)}
        times = (self.view.times[rule.known[0]],) if len(rule.known) == 1 else (MAX, UNTIL)
        return tuple(sorted(names | set(times)))


def _is_probed(member: Member, store: StoreNode) -> bool:
    """Whether tuples of another input look a store up for a query; those of tables look up nothing."""
    return bool(set(member.query.driving) - set(store.aliases))


def _items(exprs: Iterable[Expr]) -> frozenset[Item]:
    return frozenset((item.alias, full_name(item)) for expr in exprs for item in columns(expr))


def _about(items: Iterable[Item], names: Iterable[str]) -> frozenset[Item]:
    kept = frozenset(names)
    return frozenset(item for item in items if item[0] in kept)


@lru_cache(maxsize=64)
def program_of(graph: str) -> ExecutableGraph:
    """The executable graph of a graph that is given as JSON; a process makes it once."""
    return ExecutableGraph(PhysicalGraph.from_json(graph))
