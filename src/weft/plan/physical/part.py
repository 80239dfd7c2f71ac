"""One query's part of a graph that many share, under the names its author gave.

Guarantees: the part is a graph of its own that answers the query. `edges` and `stores` map the shared graph's names to
those of the part, so that counts of the shared graph can be shown for the part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.logical.expr.expression import rename
from weft.logical.outer.outer import Closing
from weft.logical.query.canonical import joined_on
from weft.logical.query.query import Query
from weft.plan.join_plan import Names
from weft.plan.physical.graph import Member, PhysicalGraph, StoreNode
from weft.plan.physical.lower import lower_workload
from weft.plan.physical.rules import ProbeRule, ResultRule, StoreRule
from weft.plan.workload import Answer, SharedStore, Upkeep, Walk, WorkloadPlan

__all__ = ["QueryPart", "part_of"]


@dataclass(frozen=True, slots=True)
class QueryPart:
    """The graph that answers one query, and the names in it of the shared graph's inputs, edges and stores."""

    graph: PhysicalGraph
    aliases: Mapping[str, str]
    edges: Mapping[str, str]
    stores: Mapping[str, str]


def part_of(graph: PhysicalGraph, name: str, authors: Mapping[str, str]) -> QueryPart:
    """The part of a graph that answers one query; ``authors`` maps its inputs to the names its author gave them."""
    query = graph.member(name).query.renamed(authors)
    names = {alias: authors.get(alias, alias) for alias in graph.member(name).query.aliases}
    routes = _routes(graph, name)
    mine = [node for node in graph.stores if name in node.users and name not in node.filling]
    stores = {node.name: _renamed(node, query, names) for node in mine}
    walks, upkeep = _walks(graph, name, routes, stores, names)
    closing, homes = _closing(graph, name, stores, names)
    walked = query.driving if closing is None or closing.walked else ()
    answer = Answer(name, query, tuple(walks[alias] for alias in walked), closing, homes)
    kept = (Upkeep(s, tuple(found[a] for a in s.aliases)) for s, found in upkeep.items())
    ordering = graph.member(name).ordering
    member = Member(name, query, closing=closing, ordering=ordering and ordering.renamed(names))
    own = lower_workload(WorkloadPlan((answer,), tuple(kept)), [member])
    own_edges = {_key(own, start, visits, {}): edge for edge, (start, visits) in _ways(own, name).items()}
    ways = (
        (edge, _key(graph, names[one], visits, names)) for edge, (one, visits) in _ways(graph, name).items()
    )
    edges = {edge: own_edges[key] for edge, key in ways}
    called = {(node.aliases, node.layout): node.name for node in own.stores}
    held = {shared: called[store.aliases, store.layout] for shared, store in stores.items()}
    return QueryPart(_checked_alike(own, graph, edges, names), names, edges, held)


def _checked_alike(
    own: PhysicalGraph, graph: PhysicalGraph, edges: Mapping[str, str], names: Mapping[str, str]
) -> PhysicalGraph:
    """The part with the predicates of every probe in the order in which the shared graph checks them."""
    orders = {
        edges[rule.edge]: [rename(predicate, names) for predicate in rule.predicates]
        for rule in graph.rules
        if isinstance(rule, ProbeRule) and rule.edge in edges
    }

    def alike(rule: ProbeRule) -> ProbeRule:
        order = {predicate: place for place, predicate in enumerate(orders.get(rule.edge, ()))}
        predicates = sorted(rule.predicates, key=lambda predicate: order.get(predicate, len(order)))
        return replace(rule, predicates=tuple(predicates))

    return replace(own, rules=tuple(alike(r) if isinstance(r, ProbeRule) else r for r in own.rules))


def _closing(
    graph: PhysicalGraph, name: str, stores: Mapping[str, SharedStore], names: Mapping[str, str]
) -> tuple[Closing | None, tuple[SharedStore, ...]]:
    """What closes the query, and the stores it is closed from, under the author's names."""
    closing = graph.member(name).closing
    if closing is None:
        return None, ()
    sweep = next(sweep for sweep in graph.sweeps if sweep.query == name)
    homes = sorted((stores[store] for store in sweep.homes), key=lambda store: store.aliases)
    return closing.renamed(names), tuple(homes)


def _routes(graph: PhysicalGraph, name: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """For every probe of a query, by its edge: the input it starts from, and the stores visited up to this one.

    Probes that only fill stores for a graph to come are left out.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    after: dict[str, tuple[str, ...]] = {}
    answering = _answering(graph, name)
    for rule in graph.rules:
        if isinstance(rule, ProbeRule) and rule.edge in answering:
            visits = (*after.get(rule.edge, ()), rule.store)
            found[rule.edge] = (rule.start, visits)
            after |= dict.fromkeys(rule.outputs, visits)
    return found


def _ways(graph: PhysicalGraph, name: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """As `_routes`, with the edges over which a query's tuples are stored, whose last visit is the store."""
    found, before = _routes(graph, name), dict[str, str]()
    answering, sources = _answering(graph, name), {source.name: source.alias for source in graph.sources}
    for rule in graph.rules:
        if isinstance(rule, ProbeRule):
            before |= dict.fromkeys(rule.outputs, rule.edge)
    for rule in graph.rules:
        if isinstance(rule, StoreRule) and rule.edge in answering:
            last = before.get(rule.edge)
            start, visits = found[last] if last else (sources[graph.edge(rule.edge).source], ())
            found[rule.edge] = (start, (*visits, rule.store))
    return found


def _answering(graph: PhysicalGraph, name: str) -> frozenset[str]:
    """The edges that a query's results depend on now: those to its results, and to stores it is answered from."""
    filled = {node.name for node in graph.stores if name in node.filling}
    found: set[str] = set()
    for rule in reversed(graph.rules):  # a probe comes before what follows it
        if name not in rule.users or (isinstance(rule, StoreRule) and rule.store in filled):
            continue
        if not isinstance(rule, ProbeRule) or found & set(rule.outputs):
            found.add(rule.edge)
    return frozenset(found)


def _key(
    graph: PhysicalGraph, start: str, visits: tuple[str, ...], names: Mapping[str, str]
) -> tuple[str, tuple[tuple[Names, str], ...]]:
    nodes = [graph.store(visit) for visit in visits]
    return start, tuple((_aliases(node.aliases, names), _layout(node, names)) for node in nodes)


def _layout(node: StoreNode, names: Mapping[str, str]) -> str:
    by = node.layout.by
    return str(node.layout if by is None else replace(node.layout, by=rename(by, dict(names))))


def _aliases(aliases: Names, names: Mapping[str, str]) -> Names:
    return tuple(sorted(names.get(alias, alias) for alias in aliases))


def _renamed(node: StoreNode, query: Query, names: Mapping[str, str]) -> SharedStore:
    aliases = _aliases(node.aliases, names)
    layout = node.layout
    if layout.by is not None:
        layout = replace(layout, by=rename(layout.by, dict(names)))
    return SharedStore(aliases, layout, joined_on(query, aliases))


def _walks(
    graph: PhysicalGraph,
    name: str,
    routes: Mapping[str, tuple[str, tuple[str, ...]]],
    stores: Mapping[str, SharedStore],
    names: Mapping[str, str],
) -> tuple[dict[str, Walk], dict[SharedStore, dict[str, Walk]]]:
    """The walks that answer the query, and those that keep its intermediate results, by input."""
    before = {out: r.edge for r in graph.rules if isinstance(r, ProbeRule) for out in r.outputs}
    answering = _answering(graph, name)
    sources = {source.name: source.alias for source in graph.sources}
    answers: dict[str, Walk] = {}
    upkeep: dict[SharedStore, dict[str, Walk]] = {}
    for rule in graph.rules:
        if isinstance(rule, ProbeRule) or rule.edge not in answering:
            continue
        last = before.get(rule.edge)
        start, visits = routes[last] if last else (sources[graph.edge(rule.edge).source], ())
        walk = Walk(names[start], tuple(stores[visit] for visit in visits))
        if isinstance(rule, ResultRule):
            answers[walk.start] = walk
        elif isinstance(rule, StoreRule) and not stores[rule.store].is_input:
            upkeep.setdefault(stores[rule.store], {})[walk.start] = walk
    return answers, upkeep
