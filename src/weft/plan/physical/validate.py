"""Checks that a graph is consistent in itself.

Guarantees: a graph that passes loses no result and repeats none, of any of its queries. From every input's source
exactly one chain of probes leads to the result of each query that reads it, and one to every stored intermediate result
the input is part of. Each probe checks exactly the predicates that can be checked there and not before, and is shared
only by queries that join alike up to there. Every tuple takes the edge that `placing.py` says it must: to the
partitions its partners are in, in a hop in which the store is complete, and as one copy where one is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.errors import PlanError
from weft.logical.expr.expression import columns
from weft.logical.outer.outer import Closing
from weft.logical.query.canonical import joined_on
from weft.logical.query.query import Query
from weft.plan.homes import locate_rows
from weft.plan.join_plan import Names
from weft.plan.physical.derive import (
    columns_of,
    counts_unwanted,
    indexes_of,
    probe_conditions,
    widest_retention,
)
from weft.plan.physical.placing import (
    EdgeChoice,
    Home,
    TuplePlace,
    entry_edge,
    first_step,
    is_foreign,
    keeps_nulls,
    next_step,
    storing_edge,
)
from weft.plan.physical.rules import RESULT, Edge, ProbeRule, ResultRule, StoreRule, Users
from weft.plan.schedule import GROUP_BY, LOCAL

if TYPE_CHECKING:
    from weft.plan.physical.graph import PhysicalGraph, StoreNode

__all__ = ["validate"]


def validate(graph: PhysicalGraph) -> None:
    """Refuse a graph that would lose or repeat a result."""
    _check_names(graph)
    _check_users(graph)
    _check_members(graph)
    _check_sweeps(graph)
    _check_nodes(graph)
    replay = _Replay(graph)
    for rule in graph.rules:
        if isinstance(rule, StoreRule):
            replay.store(rule)
        elif isinstance(rule, ProbeRule):
            replay.probe(rule)
        else:
            replay.result(rule)
    replay.finish()


def _check_names(graph: PhysicalGraph) -> None:
    nodes = [*(source.name for source in graph.sources), *(store.name for store in graph.stores), RESULT]
    edges = [edge.name for edge in graph.edges]
    if len(set(nodes)) < len(nodes) or len(set(edges)) < len(edges):
        raise PlanError("two parts of the graph have one name")
    if sorted(rule.edge for rule in graph.rules) != sorted(edges):
        raise PlanError("not every edge has exactly one rule at its end")
    outputs = [name for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs]
    if len(set(outputs)) < len(outputs) or not set(outputs) <= set(edges):
        raise PlanError("a probe sends its matches over an edge that is not there, or not its own")


def _check_users(graph: PhysicalGraph) -> None:
    """Check that a probe is for exactly the queries that use what follows it, and that only stores keep NULL keys."""
    rules = {rule.edge: rule for rule in graph.rules}
    for edge in graph.edges:
        rule = rules[edge.name]
        if edge.nulls and not isinstance(rule, StoreRule):
            raise PlanError(f"edge {edge.name} keeps what cannot be looked up")
        if isinstance(rule, ProbeRule):
            behind = {name for output in rule.outputs for name in rules[output].users}
            if set(rule.users) != behind:
                raise PlanError(f"probe {rule.edge} is for queries that have no part in it")


def _check_members(graph: PhysicalGraph) -> None:
    names = [member.name for member in graph.members]
    slots = [member.slot for member in graph.members]
    if names != sorted(set(names)) or len(set(slots)) < len(slots) or min(slots, default=0) < 0:
        raise PlanError("the queries of a graph are not sorted, or two of them have one place")
    if not graph.tracked and len(names) != 1:
        raise PlanError("the tuples of many queries must carry query-sets")
    if not graph.tracked and counts_unwanted(graph.members[0].query):
        raise PlanError("tuples that count though their query does not want them must carry query-sets")
    read = sorted({alias for member in graph.members for alias in member.query.aliases})
    if [source.alias for source in graph.sources] != read:
        raise PlanError("not every input has exactly one source")


def _check_nodes(graph: PhysicalGraph) -> None:
    queries = [member.query for member in graph.members]
    others = [store.layout.by for store in graph.stores if store.layout.by is not None]
    others += [expr for member in graph.members if member.closing for expr in member.closing.conditions]
    for source in graph.sources:
        if source.columns != columns_of(queries, source.alias, others):
            raise PlanError(f"{source.name} does not pass on what the query asks for")
    for store in graph.stores:
        users = {name: graph.member(name).query for name in store.users}
        if not users or any(joined_on(query, store.aliases) != store.on for query in users.values()):
            raise PlanError(f"store {store.name} does not hold what its queries join")
        if store.indexes != indexes_of((*graph.rules, *graph.later), store.name):
            raise PlanError(f"store {store.name} is not indexed by what it is looked up by")
        if store.retention != widest_retention(users, _closed_from(graph, store.name), store.aliases):
            raise PlanError(f"store {store.name} does not keep its tuples for as long as they are of use")
        if not set(store.filling) <= set(store.users):
            raise PlanError(f"store {store.name} is filled for queries that will not use it")
        _check_counted(graph, store)


def _check_counted(graph: PhysicalGraph, store: StoreNode) -> None:
    """Check that tuples which are counted together are in one partition, by columns that they are counted per."""
    for alias in store.aliases:
        per = graph.input(alias).counted_per
        by, heavy = store.layout.by, store.layout.heavy
        keyed = by is not None and not heavy and set(columns(by)) <= set(per)
        together = store.layout.kind == "replicated" or keyed
        if per and not (together and len(store.aliases) == 1):
            raise PlanError(f"store {store.name} spreads tuples over partitions that {alias} counts together")


def _closed_from(graph: PhysicalGraph, store: str) -> dict[str, Closing]:
    """The queries that are closed from a store."""
    found = {sweep.query: graph.member(sweep.query).closing for sweep in graph.sweeps if store in sweep.homes}
    return {name: closing for name, closing in found.items() if closing}


def _check_sweeps(graph: PhysicalGraph) -> None:
    """Check that every query with outer joins is closed once, by partitions that have all they need for it."""
    if [sweep.query for sweep in graph.sweeps] != [m.name for m in graph.members if m.closing]:
        raise PlanError("not every query with outer joins is closed exactly once")
    for sweep in graph.sweeps:
        member = graph.member(sweep.query)
        stores = [graph.store(name) for name in sweep.homes]
        if [store.aliases for store in stores] != [(alias,) for alias in member.query.aliases]:
            raise PlanError(f"query {member.name} is not closed from one store of each of its inputs")
        if any(member.name not in store.users for store in stores):
            raise PlanError(f"query {member.name} is closed from a store that is not for it")
        layouts = {store.aliases[0]: store.layout for store in stores}
        if member.closing and locate_rows(member.closing.tree, layouts) is None:
            raise PlanError(f"no partition alone can close the rows of {member.name}")


@dataclass(frozen=True, slots=True)
class _Point:
    """What arrives over an edge, before its rule: the first input, the inputs joined, the place, and the queries.

    ``whole`` are the queries for which nothing is missing: no store on the way is still being filled for them.
    """

    start: str
    known: Names
    at: TuplePlace | None
    users: frozenset[str]
    node: str
    whole: frozenset[str]


class _Replay:
    """A pass over the graph's rules in their order that compares each with what it must be."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self.graph = graph
        self.edges = {edge.name: edge for edge in graph.edges}
        self.queries = {member.name: member.query for member in graph.members}
        self.points: dict[str, _Point] = {}  # by the names of the edges that leave them
        self.roots = {source.name: self._root(source.alias, source.name) for source in graph.sources}
        self.homes: dict[str, list[tuple[Home, frozenset[str]]]] = {}
        self.stored: dict[str, dict[str, int]] = {store.name: {} for store in graph.stores}
        self.probed: set[str] = set()
        self.results: dict[tuple[str, str], int] = {}

    def _root(self, alias: str, name: str) -> _Point:
        readers = frozenset(n for n, query in self.queries.items() if alias in query.aliases)
        return _Point(alias, (alias,), None, readers, name, readers)

    def store(self, rule: StoreRule) -> None:
        """Check an edge that stores a tuple from its source, or a match of all the store's inputs."""
        edge, store = self.edges[rule.edge], self.graph.store(rule.store)
        point = self._left(edge, rule.store)
        if point.known != store.aliases or point.start in self.stored[store.name]:
            raise PlanError(f"store {store.name} does not have exactly one producer per input")
        if store.name in self.probed:
            raise PlanError(f"store {store.name} is probed before {edge.name} adds to it")
        if rule.users != store.users or not frozenset(rule.users) <= point.users:
            raise PlanError(f"edge {edge.name} does not store for those who use {store.name}")
        if not set(store.users) - set(store.filling) <= point.whole:
            raise PlanError(f"store {store.name} is computed from stores that are still being filled")
        if point.at is None:
            way = entry_edge(store.layout)
            home = Home(edge.name, store.layout)
            self.homes.setdefault(point.start, []).append((home, frozenset(store.users)))
        else:
            way = storing_edge(self._query(rule.users), point.at, store.layout)
        self._must_be(edge, way)
        self._must_keep_nulls(edge, store)
        self.stored[store.name][point.start] = way.hop

    def _must_keep_nulls(self, edge: Edge, store: StoreNode) -> None:
        queries = [self.queries[name] for name in store.users]
        past = self.graph.tracked and len(store.aliases) == 1
        closed = bool(_closed_from(self.graph, store.name))
        wanted = keeps_nulls(queries, store.layout, past or closed)
        if edge.nulls != (wanted and edge.kind == GROUP_BY):
            raise PlanError(f"edge {edge.name} drops what some query looks for, or keeps what none does")

    def probe(self, rule: ProbeRule) -> None:
        """Check a probe: its store must be complete, and its predicates those that can be checked there."""
        edge, store = self.edges[rule.edge], self.graph.store(rule.store)
        point = self._left(edge, rule.store)
        users = frozenset(rule.users)
        if rule.start != point.start or rule.known != point.known:
            raise PlanError(f"the probes of {point.start} do not follow each other")
        if not users or not users <= point.users or not users <= set(store.users):
            raise PlanError(f"probe {rule.edge} is for queries that have no part in it")
        if set(rule.known) & set(store.aliases):
            raise PlanError(f"{point.start} joins {rule.store} twice")
        self._must_check(rule, store)
        self._must_be_complete(rule.store)
        way = self._way(point, rule, store)
        self._must_be(edge, way)
        self.probed.add(store.name)
        known = tuple(sorted((*rule.known, *store.aliases)))
        whole = (point.whole & users) - set(store.filling)
        after = _Point(point.start, known, way.at, users, store.name, whole)
        self.points |= dict.fromkeys(rule.outputs, after)

    def _must_check(self, rule: ProbeRule, store: StoreNode) -> None:
        known, inside = frozenset(rule.known), frozenset(store.aliases)
        for name in rule.users:
            query = self.queries[name]
            if not known | inside <= set(query.aliases):
                raise PlanError(f"probe {rule.edge} joins what {name} does not")
            lookups, checked = probe_conditions(query, known, inside)
            if rule.equalities != lookups or sorted(rule.predicates, key=str) != sorted(checked, key=str):
                raise PlanError(
                    f"probe {rule.edge} does not check just the predicates that can be checked there"
                )

    def _way(self, point: _Point, rule: ProbeRule, store: StoreNode) -> EdgeChoice:
        query = self._query(rule.users)
        if point.at is not None:
            return next_step(query, point.known, point.at, store.layout, store.complete)
        users = frozenset(rule.users)
        homes = [
            home
            for home, stored_for in self.homes.get(point.start, [])
            if users <= stored_for and not any(is_foreign(self.queries[n], home.layout) for n in users)
        ]
        alone = all(self.queries[name].driving == (point.start,) for name in users)
        if not self.homes.get(point.start) and not alone:
            raise PlanError(f"{point.start} probes before it is stored")
        return first_step(query, point.start, homes, store.layout, store.complete)

    def result(self, rule: ResultRule) -> None:
        """Check the end of an input's chain of probes."""
        edge = self.edges[rule.edge]
        point = self._left(edge, RESULT)
        complete = all(self.queries[name].aliases == point.known for name in rule.users)
        if rule.start != point.start or not complete or not frozenset(rule.users) <= point.users:
            raise PlanError(f"the last probe of {point.start} does not give the result")
        if not frozenset(rule.users) <= point.whole:
            raise PlanError(f"results of {point.start} are found in stores that are still being filled")
        at = point.at or TuplePlace(0, None)
        self._must_be(edge, EdgeChoice(LOCAL, at.hop, (None,), None, at))
        for name in rule.users:
            self.results[name, rule.start] = self.results.get((name, rule.start), 0) + 1

    def finish(self) -> None:
        """Check that every input reaches the result of every query once, and that every store has all its producers."""
        for member in self.graph.members:
            for alias in member.query.driving:
                if self.results.get((member.name, alias), 0) != int(member.walked):
                    raise PlanError(f"there is not exactly one way from {alias} to a result of {member.name}")
        for store in self.graph.stores:
            self._must_be_complete(store.name)

    def _query(self, users: Users) -> Query:
        return self.queries[users[0]]

    def _left(self, edge: Edge, target: str) -> _Point:
        """The point that an edge leaves; it must be at the node the edge names, and the edge lead to ``target``."""
        point = self.points.get(edge.name) or self.roots.get(edge.source)
        if point is None or point.node != edge.source or edge.target != target:
            raise PlanError(f"edge {edge.name} leads from or to the wrong place")
        return point

    def _must_be(self, edge: Edge, way: EdgeChoice) -> None:
        found = (edge.kind, edge.hop, edge.rides, edge.until, edge.heavy)
        is_same = found == (way.kind, way.hop, way.rides, way.until, way.heavy)
        if not is_same or edge.by not in way.by:
            raise PlanError(
                f"edge {edge.name} is {edge} in hop {edge.hop}; it must be {way.kind} in hop {way.hop}"
            )

    def _must_be_complete(self, name: str) -> None:
        store, hops = self.graph.store(name), self.stored[name]
        if sorted(hops) != list(store.aliases) or max(hops.values()) != store.complete:
            raise PlanError(
                f"store {name} does not have exactly one producer per input by hop {store.complete}"
            )
