"""A graph's rules, edges, stores and queries, each found from the others.

Guarantees: nothing is decided here; all of it follows from the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from weft.kernels.query_sets.query_set import set_names, words_for
from weft.logical.expr.expression import Column
from weft.logical.query.window import Window
from weft.plan.join_plan import Names
from weft.plan.physical.graph import Member, PhysicalGraph, SourceNode
from weft.plan.physical.rules import Edge, ProbeRule, ResultRule, Rule, StoreRule, Users
from weft.runtime.model.columns import View, counts, longest, per_key, seq_name
from weft.runtime.program.group_plans import group_plans
from weft.runtime.program.window_limits import WindowLimits, limits_of
from weft.stats.sampling.attributes import Attribute, JoinAttribute, join_attributes
from weft.stats.skew import key_column

__all__ = ["GraphIndex"]


class GraphIndex:
    """A graph with indexes over it.

    ``members`` are its queries by name, ``edges`` by name, ``order`` its rules in an order in which they could run and
    ``rules`` the same by edge. ``words`` is how many 64-bit words a query-set has, 0 where tuples carry none, and
    ``sets`` are the columns with them. ``groups`` are the group stores of queries with aggregates, by query. ``view``
    is what all queries see together. ``starts`` says of every edge from which input its tuples set out, ``limits`` what
    windows have to be checked on results, by edge, and ``piggybacked`` which local edges ride on an edge.
    """

    def __init__(self, graph: PhysicalGraph) -> None:
        self.graph = graph
        self.members: Mapping[str, Member] = {member.name: member for member in graph.members}
        self.words = words_for(1 + max(m.slot for m in graph.members)) if graph.tracked else 0
        self.sets = set_names(self.words)
        self.groups = group_plans(graph.members, graph.hops)
        groups = (plan.edge for plan in self.groups.values())
        self.edges: Mapping[str, Edge] = {edge.name: edge for edge in (*graph.edges, *groups)}
        self.order: tuple[Rule, ...] = graph.rules
        self.rules: Mapping[str, Rule] = {rule.edge: rule for rule in self.order}
        self._nodes = {store.name: store for store in graph.stores}
        self._probing = _by_store((*self.order, *graph.later))
        self._views: dict[Users, View] = {}
        self.view = self.view_of(tuple(self.members))
        self.starts = self._starts()
        self.limits = {r.edge: self._limits(r) for r in self.order if isinstance(r, ResultRule)}
        self.piggybacked = self._piggybacked()

    @cached_property
    def hops(self) -> tuple[tuple[Rule, ...], ...]:
        """The rules of every hop, in the order of the graph."""
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
            self._views[users] = View.of_queries([self.members[name].query for name in users])
        return self._views[users]

    def slots(self, users: Users) -> tuple[int, ...]:
        """The slots of queries in query-sets."""
        return tuple(self.members[name].slot for name in users)

    @cached_property
    def _sources(self) -> Mapping[str, SourceNode]:
        return {source.alias: source for source in self.graph.sources}

    def source(self, alias: str) -> SourceNode:
        """The node of the graph where tuples of an input enter."""
        return self._sources[alias]

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """The inputs whose tuples are counted: for a window, or because results leave in the order of arrival."""
        ordered = {
            alias
            for member in self.graph.members
            if member.ordering is not None and member.ordering.by_arrival
            for alias in member.query.driving
        }
        aliases = self.graph.aliases
        return tuple(a for a in aliases if a in ordered or counts(self.view, a) is not None)

    def counts_per_key(self, alias: str) -> bool:
        """Whether an input has a window that counts tuples per key.

        Then tuples that no query wants are stored too, since they count.
        """
        return per_key(self.view, alias) is not None

    def clock(self, alias: str) -> tuple[str, str]:
        """Two columns of an input's tuples: the one with their time, and the one that decides how long they live."""
        time = self.view.times[alias]
        return time, time if longest(self.view, alias) is None else seq_name(alias)

    @cached_property
    def sampled(self) -> Mapping[str, tuple[JoinAttribute, ...]]:
        """The attributes that are sampled, by input; one that several inputs of a stream have is sampled once.

        They are those that queries join on, and the columns that decide partitions.
        """
        found = {one.attribute: one for one in join_attributes(m.query for m in self.graph.members)}
        for column in _placing(self.graph):
            name = Attribute(self.graph.input(column.alias).stream.name, column.name)
            found[name] = replace(found.get(name) or JoinAttribute(column.alias, name, column), equal=True)
        return {
            alias: tuple(found[name] for name in sorted(found) if found[name].alias == alias)
            for alias in self.graph.aliases
        }

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

    def _piggybacked(self) -> dict[str, tuple[str, ...]]:
        """The local edges whose tuples come along with those that an edge brings to their store."""
        found: dict[str, tuple[str, ...]] = {edge.name: () for edge in self.graph.edges}
        for edge in self.graph.edges:
            if edge.rides is not None:
                found[edge.rides] += (edge.name,)
        return found

    def _known(self, edge: str) -> Names:
        rule = self.rules[edge]
        if isinstance(rule, ProbeRule):
            return rule.known
        if isinstance(rule, StoreRule):
            return self._nodes[rule.store].aliases
        return self.members[rule.users[0]].query.aliases

    def _starts(self) -> dict[str, str]:
        sources = {source.name: source.alias for source in self.graph.sources}
        found = {}
        for rule in self.order:
            before = self._outputs.get(rule.edge)
            found[rule.edge] = before.start if before else sources[self.edges[rule.edge].source]
        return {**found, **dict.fromkeys((plan.edge.name for plan in self.groups.values()), "")}

    def _limits(self, rule: ResultRule) -> WindowLimits:
        """The windows that have to be checked for each query of a rule, since probes check the widest only."""
        stored = any(
            len(node.aliases) > 1 and set(rule.users) & set(node.users) for node in self.graph.stores
        )
        users = [self.members[name] for name in rule.users]
        return limits_of(users, self._windows, self.words, stored)

    @cached_property
    def _windows(self) -> Mapping[str, frozenset[Window]]:
        """The windows through which queries see every input."""
        found: dict[str, set[Window]] = {}
        for member in self.graph.members:
            for input_ in member.query.inputs:
                found.setdefault(input_.alias, set()).add(input_.window)
        return {alias: frozenset(windows) for alias, windows in found.items()}


def _by_store(rules: Iterable[Rule]) -> dict[str, list[ProbeRule]]:
    found: dict[str, list[ProbeRule]] = {}
    for rule in rules:
        if isinstance(rule, ProbeRule):
            found.setdefault(rule.store, []).append(rule)
    return found


def _placing(graph: PhysicalGraph) -> list[Column]:
    """The columns whose values decide the partition of a tuple."""
    every = [*(edge.by for edge in graph.edges), *(store.layout.by for store in graph.stores)]
    return sorted({column for by in every if (column := key_column(by)) is not None}, key=str)
