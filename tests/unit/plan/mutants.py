"""Graphs with one thing wrong, each of which must be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from weft.errors import PlanError
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.plan.physical.rules import ProbeRule, Rule, StoreRule
from weft.plan.show.explain import explain

Mutants = Iterator[tuple[str, Callable[[], PhysicalGraph]]]


def changed(
    graph: PhysicalGraph, field: str, position: int, **changes: object
) -> Callable[[], PhysicalGraph]:
    """A graph with one part changed, to be built when called."""
    parts = list(getattr(graph, field))
    parts[position] = replace(parts[position], **changes)
    return lambda: replace(graph, **{field: tuple(parts)})  # type: ignore[arg-type]


def without(graph: PhysicalGraph, rule: Rule) -> Callable[[], PhysicalGraph]:
    """A graph without a rule and its edge; the probe before forgets it too."""

    def forget(other: Rule) -> Rule:
        if isinstance(other, ProbeRule):
            return replace(other, outputs=tuple(name for name in other.outputs if name != rule.edge))
        return other

    rules = tuple(forget(other) for other in graph.rules if other != rule)
    return lambda: replace(graph, rules=rules, edges=tuple(e for e in graph.edges if e.name != rule.edge))


def wrong_edges(graph: PhysicalGraph) -> Mutants:
    """Edges of another kind, by another value, in another hop, to another node."""
    for at, edge in enumerate(graph.edges):
        for kind in ("local", "all", "shuffle"):
            if kind != edge.kind:
                yield f"{edge.name} {kind}", changed(graph, "edges", at, kind=kind, by=None)
        for hop in (edge.hop - 1, edge.hop + 1):
            yield f"{edge.name} hop {hop}", changed(graph, "edges", at, hop=hop)
        other = next(node.name for node in graph.stores if node.name != edge.target)
        yield f"{edge.name} to {other}", changed(graph, "edges", at, target=other)
        yield f"{edge.name} from {other}", changed(graph, "edges", at, source=f"not {edge.source}")


def wrong_rules(graph: PhysicalGraph) -> Mutants:
    """Rules left out, out of order, or that check too little or too much, such as what only another query asks."""
    for at, rule in enumerate(graph.rules):
        yield f"without {rule.edge}", without(graph, rule)
        if isinstance(rule, ProbeRule):
            yield f"{rule.edge} lost", changed(graph, "rules", at, outputs=(*rule.outputs, "nowhere"))
            yield f"{rule.edge} start", changed(graph, "rules", at, start="nobody")
            if rule.equalities:
                yield f"{rule.edge} fewer", changed(graph, "rules", at, equalities=rule.equalities[1:])
            for predicate in {p: None for m in graph.members for p in m.query.conditions}:
                if predicate not in rule.predicates:
                    more = (*rule.predicates, predicate)
                    yield f"{rule.edge} more", changed(graph, "rules", at, predicates=more)
    yield "backwards", lambda: replace(graph, rules=graph.rules[::-1])


def wrong_nodes(graph: PhysicalGraph) -> Mutants:
    """Stores complete too early, forgetting too soon, without index; sources that pass too little on."""
    for at, store in enumerate(graph.stores):
        for hop in (store.complete - 1, store.complete + 1):
            yield f"{store.name} complete {hop}", changed(graph, "stores", at, complete=hop)
        short = tuple(timedelta(microseconds=1) for _ in store.aliases)
        yield f"{store.name} forgets", changed(graph, "stores", at, retention=short)
        if store.indexes:
            yield f"{store.name} unindexed", changed(graph, "stores", at, indexes=())
    for at, source in enumerate(graph.sources):
        if source.columns:
            yield f"{source.name} empty", changed(graph, "sources", at, columns=())


def refused(graph: PhysicalGraph, mutate: Callable[[PhysicalGraph], Mutants]) -> int:
    """How many changed graphs cannot be built; all of them, or the test fails."""
    count = 0
    for name, build in mutate(graph):
        try:
            build()
        except PlanError:
            count += 1
        else:
            pytest.fail(f"{name} was accepted:\n{explain(graph)}")
    return count


def wrong_users(graph: PhysicalGraph) -> Mutants:
    """Rules and stores that are for one query less, for one more, for somebody else, or for nobody."""
    everyone = [member.name for member in graph.members]
    for field, parts in (("rules", graph.rules), ("stores", graph.stores)):
        for at, part in enumerate(parts):
            name = part.name if isinstance(part, StoreNode) else part.edge
            others = [other for other in everyone if other not in part.users]
            for user in part.users:
                fewer = tuple(other for other in part.users if other != user)
                yield f"{name} without {user}", changed(graph, field, at, users=fewer)
                for other in others:
                    swapped = tuple(sorted((*fewer, other)))
                    yield f"{name} for {other}, not {user}", changed(graph, field, at, users=swapped)
            for other in (*others, "stranger"):
                more = tuple(sorted((*part.users, other)))
                yield f"{name} for {other} too", changed(graph, field, at, users=more)


def wrong_ways(graph: PhysicalGraph) -> Mutants:
    """Tuples that ride on an edge that does not lead there, and those without a value lost or kept for nothing."""
    stores = [rule.edge for rule in graph.rules if isinstance(rule, StoreRule)]
    for at, edge in enumerate(graph.edges):
        yield f"{edge.name} nulls", changed(graph, "edges", at, nulls=not edge.nulls)
        if edge.rides is not None:
            yield f"{edge.name} walks", changed(graph, "edges", at, rides=None)
        for other in stores:
            if other not in (edge.rides, edge.name):
                yield f"{edge.name} rides on {other}", changed(graph, "edges", at, rides=other)
