"""A text that explains what many queries share.

Guarantees: the text is derived from the graph alone. It lists the stores, then every input's probe tree (CLASH Figure
7.2), each part with the queries that use it.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.logical.query.canonical import readable
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule, ResultRule, StoreRule, Users

__all__ = ["filling_text", "shared_text"]

SHOWN = 4  # as many users are named; if there are more, their number is shown


def shared_text(graph: PhysicalGraph) -> str:
    """The graph of many queries as text."""
    count = len(graph.members)
    lines = [
        f"{count} queries · {len(graph.stores)} stores · {_probes(graph)} probes · {graph.hops} hops",
        "",
    ]
    lines += ["Shared stores", *(f"  {s.name}: {s.layout} · {_users(s.users)}" for s in graph.stores), ""]
    lines += ["Probe trees"]
    for source in graph.sources:
        lines += [f"  {source.alias}", *_tree(graph, source.name, source.alias)]
    if graph.sweeps:
        lines += ["", "Closed from stores"]
        lines += [f"  {sweep.query}: {', '.join(sweep.homes)}" for sweep in graph.sweeps]
    return readable("\n".join(lines) + "\n")


def filling_text(graph: PhysicalGraph) -> str:
    """The stores that are filled side by side for a plan to come, as lines; empty if there are none."""
    stores = [store for store in graph.stores if store.filling]
    lines = [f"  {store.name}: {store.layout} · for {_users(store.filling)}" for store in stores]
    return readable("\n".join(["Filled for the plan to come", *lines]) + "\n") if lines else ""


def _probes(graph: PhysicalGraph) -> int:
    return sum(isinstance(rule, ProbeRule) for rule in graph.rules)


def _users(users: Users) -> str:
    return ", ".join(users) if len(users) <= SHOWN else f"{len(users)} queries"


def _tree(graph: PhysicalGraph, source: str, alias: str) -> list[str]:
    inner = {name for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
    roots = [edge.name for edge in graph.edges if edge.source == source and edge.name not in inner]
    rules = {rule.edge: rule for rule in graph.rules}
    return [line for name in roots for line in _branch(graph, rules, name, alias, 2)]


def _branch(
    graph: PhysicalGraph,
    rules: dict[str, ProbeRule | StoreRule | ResultRule],
    name: str,
    alias: str,
    depth: int,
) -> Iterator[str]:
    rule, edge, indent = rules[name], graph.edge(name), "  " * depth
    if isinstance(rule, ProbeRule):
        yield f"{indent}→ {rule.store} (hop {edge.hop}, {edge}) · {_users(rule.users)}"
        for output in rule.outputs:
            yield from _branch(graph, rules, output, alias, depth + 1)
    elif isinstance(rule, ResultRule):
        yield f"{indent}result of {_users(rule.users)}"
    elif len(graph.store(rule.store).aliases) > 1:
        yield f"{indent}stored in {rule.store}"
