"""Lowering: making the graph that executes a plan (CLASH 7.1.2, 8.3.2).

Guarantees: walks that begin alike share their steps until they differ (a probe tree, Figure 7.2), and every store is in
the graph once. There are as few hops as the layouts allow: a step whose key is the one that a tuple is placed by stays
in its task (design, D6). `placing.py` alone decides where a step goes; this file makes the names, edges and rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from weft.logical.expr.expression import Expr
from weft.logical.outer.outer import Closing
from weft.logical.query.canonical import joined_on
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.plan.join_plan import JoinPlan, Names, StepCost
from weft.plan.physical.derive import (
    columns_of,
    counts_unwanted,
    indexes_of,
    probe_conditions,
    widest_retention,
)
from weft.plan.physical.graph import Member, PhysicalGraph, SourceNode, StoreNode
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
from weft.plan.physical.rules import RESULT, Edge, ProbeRule, ResultRule, Rule, StoreRule, Sweep
from weft.plan.schedule import GROUP_BY, LOCAL
from weft.plan.workload import SharedStore, Walk, WorkloadPlan, answer_of

__all__ = ["lower", "lower_workload"]


def lower(
    plan: JoinPlan, name: str = "query", ordering: Ordering | None = None, ranked: Sequence[Expr] = ()
) -> PhysicalGraph:
    """The physical graph of one query's plan."""
    answer, upkeep = answer_of(name, plan)
    member = Member(name, answer.query, closing=answer.closing, ordering=ordering)
    return lower_workload(WorkloadPlan((answer,), upkeep, plan.cost), (member,), ranked=ranked)


def lower_workload(
    plan: WorkloadPlan,
    members: Iterable[Member] | None = None,
    *,
    tracked: bool = False,
    ranked: Sequence[Expr] = (),
    target: PhysicalGraph | None = None,
) -> PhysicalGraph:
    """The physical graph of a plan for many queries; members are numbered in their order if they are not given.

    ``tracked`` makes tuples carry query-sets even for one query, because there have been others, or will be. They also
    carry them where a query counts tuples that it does not want. Predicates are checked in the order of ``ranked``.
    ``target`` is the graph to come, for which stores of the plan are filled: they are laid out for its probes.
    """
    plan = plan.looked_up()
    given = {member.name: member for member in members or ()}
    found = [
        given.get(a.name) or Member(a.name, a.query, slot, closing=a.closing)
        for slot, a in enumerate(plan.answers)
    ]
    lowering = _Lowering(plan, tuple(sorted(found, key=lambda member: member.name)), tracked, ranked)
    lowering.enter()
    for store in lowering.intermediate:
        lowering.materialise(store)
    lowering.leave()
    return lowering.graph(target)


@dataclass
class _Node:
    """A point of a probe tree: the inputs joined there, for which queries, where the matches are, and what follows."""

    start: str
    known: Names
    users: set[str] = field(default_factory=set)
    children: dict[tuple[SharedStore, tuple[Expr, ...]], _Node] = field(default_factory=dict)
    at: TuplePlace | None = None
    node: str = ""
    rule: int | None = None


class _Lowering:
    """The graph while it is made: smaller stores come first, so that it is known in which hop they are complete."""

    def __init__(
        self, plan: WorkloadPlan, members: tuple[Member, ...], tracked: bool, ranked: Sequence[Expr]
    ) -> None:
        self.plan = plan
        self.ranks = {predicate: rank for rank, predicate in enumerate(ranked)}
        self.members = members
        self.tracked = tracked or len(members) > 1 or any(counts_unwanted(m.query) for m in members)
        self.queries = {member.name: member.query for member in members}
        self.users, self.answering, self.stores = plan.users, plan.answering, plan.stores
        self.intermediate = [store for store in self.stores if not store.is_input]
        self.names = _store_names(self.stores)
        self.complete: dict[SharedStore, int] = {}
        self.homes: dict[str, list[tuple[Home, frozenset[str]]]] = {}
        self.sources: list[SourceNode] = []
        self.edges: list[Edge] = []
        self.rules: list[Rule] = []
        self.roots: dict[str, _Node] = {}
        self.steps: dict[str, int] = {}
        self._grow()

    def _grow(self) -> None:
        """Make the probe trees, with the users of every point."""
        aliases = sorted({alias for query in self.queries.values() for alias in query.aliases})
        self.roots = {alias: _Node(alias, (alias,), node=f"source {alias}") for alias in aliases}
        for answer in self.plan.answers:
            for alias in answer.query.aliases:
                self.roots[alias].users.add(answer.name)
            for walk in answer.walks:
                self._follow(walk, answer.query, {answer.name})
        for one in self.plan.upkeep:
            users = self.users[one.store]
            for walk in one.walks:
                self._follow(walk, self.queries[min(users)], users)

    def _follow(self, walk: Walk, query: Query, users: Iterable[str]) -> list[_Node]:
        """The points of a walk; those that are missing are made, and the users are added to all of them."""
        node = self.roots[walk.start]
        found = []
        node.users.update(users)
        for store in walk.visits:
            known = tuple(sorted((*node.known, *store.aliases)))
            key = (store, joined_on(query, known))
            node = node.children.setdefault(key, _Node(walk.start, known))
            node.users.update(users)
            found.append(node)
        return found

    def enter(self) -> None:
        """Add the sources, and the edges that store their tuples."""
        for alias, root in self.roots.items():
            queries = [self.queries[name] for name in sorted(root.users)]
            others = [store.layout.by for store in self.stores if store.layout.by is not None]
            others += [e for m in self.members if m.closing for e in m.closing.conditions]
            self.sources.append(SourceNode(root.node, alias, columns_of(queries, alias, others)))
            self.steps[alias] = 0
            for store in self.stores:
                if store.aliases == (alias,):
                    self._keep(store, root)

    def _keep(self, store: SharedStore, root: _Node) -> None:
        """Add the edge that brings tuples of an input into one of its stores."""
        way = entry_edge(store.layout)
        name = self._store(store, root, way)
        self.complete[store] = 1
        self.homes.setdefault(root.start, []).append((Home(name, store.layout), self.users[store]))

    def materialise(self, store: SharedStore) -> None:
        """Add the walks that compute an intermediate result, and the edges that store it."""
        walks = self.plan.upkeep_of(store).walks
        ends = [self._walk(walk, self.queries[min(self.users[store])]) for walk in walks]
        hops = []
        for end in ends:
            way = storing_edge(self._representative(self.users[store]), _placed(end), store.layout)
            self._store(store, end, way)
            hops.append(way.hop)
        self.complete[store] = max(hops)

    def leave(self) -> None:
        """Add the walks that answer queries, and the edges from their ends to the results."""
        ends: dict[int, tuple[_Node, list[str]]] = {}
        for answer in self.plan.answers:
            for walk in answer.walks:
                end = self._walk(walk, answer.query)
                ends.setdefault(id(end), (end, []))[1].append(answer.name)
        taken: dict[str, int] = {}
        for end, names in sorted(ends.values(), key=lambda pair: pair[0].start):
            taken[end.start] = taken.get(end.start, 0) + 1
            number = f" {taken[end.start]}" if taken[end.start] > 1 else ""
            hop = end.at.hop if end.at else 0
            name = self._edge(f"{end.start}: result{number}", end, Edge("", "", RESULT, LOCAL, hop))
            self.rules.append(ResultRule(name, end.start, tuple(sorted(names))))

    def _walk(self, walk: Walk, query: Query) -> _Node:
        """Add the probes of a walk that are missing, and return its last point."""
        node = self.roots[walk.start]
        for store, following in zip(walk.visits, self._follow(walk, query, ()), strict=True):
            if following.at is None:
                self._probe(node, store, following)
            node = following
        return node

    def _probe(self, node: _Node, store: SharedStore, following: _Node) -> None:
        query = self._representative(following.users)
        complete = self.complete[store]
        if node.at is None:
            homes = self._homes(node.start, following.users)
            way = first_step(query, node.start, homes, store.layout, complete)
        else:
            way = next_step(query, node.known, node.at, store.layout, complete)
        self.steps[node.start] += 1
        label = f"{node.start}: {self.steps[node.start]}"
        edge = Edge(
            "",
            "",
            self.names[store],
            way.kind,
            way.hop,
            way.by[0],
            way.rides,
            until=way.until,
            heavy=way.heavy,
        )
        name = self._edge(label, node, edge)
        inside = frozenset(store.aliases)
        lookups, checked = probe_conditions(query, frozenset(node.known), inside)
        predicates = tuple(sorted(checked, key=lambda one: self.ranks.get(one, len(self.ranks))))
        known, users = node.known, tuple(sorted(following.users))
        estimate = self._estimate(node.start, store.aliases)
        self.rules.append(
            ProbeRule(name, self.names[store], node.start, known, lookups, predicates, (), users, estimate)
        )
        following.at, following.node, following.rule = way.at, self.names[store], len(self.rules) - 1

    def _homes(self, alias: str, users: set[str]) -> Iterator[Home]:
        """The stores of an input that hold tuples for all these users, and whose key all of them join on."""
        for home, stored_for in self.homes.get(alias, []):
            queries = [self.queries[name] for name in users]
            if users <= stored_for and not any(is_foreign(query, home.layout) for query in queries):
                yield home

    def _representative(self, users: Iterable[str]) -> Query:
        """One of the queries that share a step; up to that step they join alike, so it stands for all."""
        return self.queries[min(users)]

    def _store(self, store: SharedStore, node: _Node, way: EdgeChoice) -> str:
        users = self.users[store]
        past = (self.tracked and store.is_input) or bool(self._closed_from(store))
        nulls = way.kind == GROUP_BY and keeps_nulls([self.queries[n] for n in users], store.layout, past)
        target = self.names[store]
        edge = Edge("", "", target, way.kind, way.hop, way.by[0], None, nulls, heavy=way.heavy)
        name = self._edge(f"{node.start}: store {self.names[store]}", node, edge)
        self.rules.append(StoreRule(name, self.names[store], tuple(sorted(users))))
        return name

    def _estimate(self, alias: str, names: Names) -> StepCost | None:
        steps = self.plan.cost.steps if self.plan.cost else ()
        return next((step for step in steps if step.start == alias and step.store == names), None)

    def _edge(self, name: str, node: _Node, edge: Edge) -> str:
        """Add an edge out of a point of a probe tree, and return its name."""
        self.edges.append(replace(edge, name=name, source=node.node))
        rule = self.rules[node.rule] if node.rule is not None else None
        if node.rule is not None and isinstance(rule, ProbeRule):
            self.rules[node.rule] = replace(rule, outputs=(*rule.outputs, name))
        return name

    def graph(self, target: PhysicalGraph | None) -> PhysicalGraph:
        """The finished graph."""
        later = tuple(self._later(target)) if target is not None else ()
        nodes = tuple(self._node(store, later) for store in self.stores)
        edges, rules = tuple(self.edges), tuple(self.rules)
        sweeps = tuple(
            Sweep(answer.name, tuple(self.names[store] for store in answer.homes))
            for answer in sorted(self.plan.answers, key=lambda answer: answer.name)
            if answer.closing
        )
        return PhysicalGraph(
            self.members,
            tuple(self.sources),
            nodes,
            edges,
            rules,
            self.plan.cost,
            self.tracked,
            sweeps,
            later,
        )

    def _later(self, target: PhysicalGraph) -> Iterator[ProbeRule]:
        """The probes of a graph to come that search the stores which are filled for it."""
        names = {s.identity: self.names[s] for s in self.stores if self._filled_for(s)}
        for rule in target.rules:
            if isinstance(rule, ProbeRule) and (identity := target.store(rule.store).identity) in names:
                yield replace(
                    rule, edge=f"later {rule.edge}", store=names[identity], outputs=(), estimate=None
                )

    def _filled_for(self, store: SharedStore) -> frozenset[str]:
        """The queries that a store is filled for, and that are not answered from it yet."""
        return self.users[store] - self.answering.get(store, frozenset())

    def _closed_from(self, store: SharedStore) -> dict[str, Closing]:
        """The queries that are closed from a store."""
        return {a.name: a.closing for a in self.plan.answers if a.closing and store in a.homes}

    def _node(self, store: SharedStore, later: tuple[ProbeRule, ...]) -> StoreNode:
        name, users = self.names[store], tuple(sorted(self.users[store]))
        queries = {user: self.queries[user] for user in users}
        kept = widest_retention(queries, self._closed_from(store), store.aliases)
        indexes = indexes_of((*self.rules, *later), name)
        return StoreNode(
            name,
            store.aliases,
            store.layout,
            self.complete[store],
            indexes,
            kept,
            users,
            store.on,
            store.group,
            tuple(sorted(self._filled_for(store))),
        )


def _placed(node: _Node) -> TuplePlace:
    return node.at or TuplePlace(0, None)


def _store_names(stores: Iterable[SharedStore]) -> dict[SharedStore, str]:
    """A name for every store: that of its relation, with the layout added where several stores hold the relation."""
    every = list(stores)
    plain = [store.name for store in every]
    found: dict[SharedStore, str] = {}
    for store in every:
        name = store.name if plain.count(store.name) == 1 else f"{store.name} {store.layout}"
        number = sum(taken == name or taken.startswith(f"{name} #") for taken in found.values())
        found[store] = f"{name} #{number + 1}" if number else name
    return found
