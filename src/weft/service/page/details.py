"""What is known of one part of a plan: what was expected of it, beside what was observed.

Guarantees: pure. A figure that is not known is shown as `?`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.plan.figures import number
from weft.plan.graph import PhysicalGraph
from weft.plan.join_plan import StepCost, StoreCost
from weft.plan.observation import Observation, StepSeen
from weft.plan.rules import ProbeRule

__all__ = ["Details", "details"]

Expected = Mapping[str, tuple[Mapping[str, StepCost], Mapping[str, StoreCost]]]  # by query


@dataclass(frozen=True, slots=True)
class Details:
    """A part in words, and a table of figures: what, predicted, observed."""

    title: str
    facts: tuple[str, ...]
    rows: tuple[tuple[str, str, str], ...] = ()
    users: tuple[str, ...] = ()


def details(graph: PhysicalGraph, part: str, seen: Observation | None, expected: Expected) -> Details | None:
    """What is known of the part that a box of the picture names; None if the graph has no such part."""
    kind, _, name = part.partition(":")
    if kind == "step":
        rule = next((r for r in graph.rules if isinstance(r, ProbeRule) and r.edge == name), None)
        return None if rule is None else _step(graph, rule, seen, expected)
    if kind == "store" and any(store.name == name for store in graph.stores):
        return _store(graph, name, seen, expected)
    if kind == "input" and name in graph.aliases:
        return _input(graph, name, seen)
    if kind == "result":
        found = next((r for r in graph.rules if r.edge == name), None)
        return None if found is None else Details("Results", (), (), found.users)
    return None


def _step(graph: PhysicalGraph, rule: ProbeRule, seen: Observation | None, expected: Expected) -> Details:
    edge = graph.edge(rule.edge)
    checks = " AND ".join([*map(str, rule.equalities), *map(str, rule.predicates)]) or "every pair"
    found = seen.steps.get(rule.edge, StepSeen(0, 0)) if seen else None
    costs = {
        user: expected[user][0][rule.edge]
        for user in rule.users
        if rule.edge in expected.get(user, ({}, {}))[0]
    }
    title = f"{'⋈'.join(rule.known)} probes {rule.store}"
    facts = (f"checks {checks}", f"{edge}, hop {edge.hop}")
    rows: list[tuple[str, str, str]] = []
    observed = (
        (None, None, None)
        if seen is None or found is None
        else (seen.rate(found.probes), seen.rate(found.matches), found.matches_per_probe)
    )
    many = len(costs) > 1
    for user, cost in costs.items():
        whose = f" of {user}" if many else ""
        each = cost.outgoing / cost.incoming if cost.incoming else None
        predicted = (cost.incoming, cost.outgoing, each)
        rows += _compared(whose, predicted, (None, None, None) if many else observed)
    if many or not costs:
        rows += _compared(" of all together" if many else "", (None, None, None), observed)
    return Details(title, facts, tuple(rows), rule.users)


def _compared(
    whose: str, predicted: tuple[float | None, ...], observed: tuple[float | None, ...]
) -> list[tuple[str, str, str]]:
    names = ("tuples in/s", "matches out/s", "matches per tuple")
    return [
        (f"{name}{whose}", _figure(one), _figure(other))
        for name, one, other in zip(names, predicted, observed, strict=True)
    ]


def _store(graph: PhysicalGraph, name: str, seen: Observation | None, expected: Expected) -> Details:
    store = graph.store(name)
    held = seen.stores.get(name) if seen else None
    sizes = [
        found[1][name].size for user, found in expected.items() if user in store.users and name in found[1]
    ]
    looked = ", ".join(map(str, store.indexes))
    facts = [str(store.layout), *([f"looked up by {looked}"] if looked else [])]
    facts += [f"{held.runs} runs"] if held else []
    facts += [f"being filled for {', '.join(store.filling)}"] if store.filling else []
    rows = (
        ("rows", _figure(max(sizes, default=None)), _figure(held.rows if held else None)),
        ("bytes", "–", _figure(held.bytes if held else None)),
    )
    return Details(f"Store {name}", tuple(facts), rows, store.users)


def _input(graph: PhysicalGraph, alias: str, seen: Observation | None) -> Details:
    found = seen.inputs.get(alias) if seen else None
    users = tuple(m.name for m in graph.members if alias in m.query.aliases)
    rows = [("rows/s", "–", _figure(seen.rate(found.rows) if seen and found else None))]
    if found is not None:
        pairs = (("late", found.late), ("untimed", found.untimed), ("malformed", found.malformed))
        rows += [(name, "–", f"{count:,}") for name, count in pairs]
    return Details(f"Input {alias}", (f"stream {graph.input(alias).stream.name}",), tuple(rows), users)


def _figure(value: float | None) -> str:
    return "?" if value is None else number(value)
