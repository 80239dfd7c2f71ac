"""Graphs as diagrams in Mermaid's language."""

from __future__ import annotations

from weft.logical.query.canonical import readable
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.schedule import ALL, LOCAL

__all__ = ["diagram"]


def diagram(graph: PhysicalGraph) -> str:
    """A graph with its sources, stores and results; edges are labelled with hop and routing."""
    ids = {node.name: f"s{i}" for i, node in enumerate(graph.sources)}
    ids |= {node.name: f"t{i}" for i, node in enumerate(graph.stores)} | {"result": "out"}
    lines = ["flowchart LR"]
    lines += [f'  {ids[s.name]}(["{_text(s.alias)}"])' for s in graph.sources]
    lines += [f'  {ids[s.name]}[("{_text(s.name)}<br/>{_text(str(s.layout))}")]' for s in graph.stores]
    lines.append('  out(["result"])')
    for edge in graph.edges:
        arrow = {LOCAL: "-.->", ALL: "==>"}.get(edge.kind, "-->")
        label = f"{edge.name} · hop {edge.hop} · {edge}"
        lines.append(f'  {ids[edge.source]} {arrow}|"{_text(label)}"| {ids[edge.target]}')
    return "\n".join(lines) + "\n"


def _text(label: str) -> str:
    """A label in which the characters that have a meaning in Mermaid are escaped."""
    return (
        readable(label).replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    )
