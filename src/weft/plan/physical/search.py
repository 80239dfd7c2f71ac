"""The values by which a probe without equalities searches a store.

Guarantees: explaining a graph and executing it use the same values. Predicates are in the order of their selectivity,
so the first that fit are taken: two values that are bounded from both sides make a grid, and one such value a band. The
order of a value with a single bound is used only where no window narrows the search.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.logical.expr.bounds import Bound, ValueRange, bounds, ranges
from weft.logical.expr.expression import Expr
from weft.logical.query.window import UNBOUNDED
from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.plan.physical.rules import ProbeRule

__all__ = ["band_of", "describe_searches", "grid_of", "time_bounds"]


def grid_of(found: Sequence[Bound]) -> tuple[ValueRange, ...]:
    """The first two values that are bounded from both sides, which make a grid; empty if there are fewer."""
    values: dict[Expr, ValueRange] = {}
    for one in ranges(found):
        values.setdefault(one.stored, one)
    both = tuple(values.values())[:2]
    return both if len(both) == 2 else ()


def band_of(found: Sequence[Bound], windowed: bool) -> tuple[Bound, ...]:
    """Two bounds of one value, one from each side, if there are such; otherwise one bound, or none if ``windowed``."""
    for first in found:
        for second in found:
            if first.stored == second.stored and first.limit.lower != second.limit.lower:
                return (first, second)
    return () if windowed else tuple(found[:1])


def time_bounds(found: Sequence[Bound], time: Expr | None) -> list[Bound]:
    """The bounds of a store's event time; they are checked together with the window."""
    return [one for one in found if time is not None and one.stored == time]


def describe_searches(graph: PhysicalGraph, store: StoreNode) -> tuple[str, ...]:
    """Descriptions of how probes without an equality find rows of a store, each once."""
    probes = (rule for rule in graph.rules if isinstance(rule, ProbeRule) and rule.store == store.name)
    return tuple(dict.fromkeys(_way(graph, store, rule) for rule in probes if not rule.equalities))


def _way(graph: PhysicalGraph, store: StoreNode, rule: ProbeRule) -> str:
    found = list(bounds(rule.predicates, frozenset(rule.known), frozenset(store.aliases)))
    windows = [graph.member(name).query.input(alias).window for name in rule.users for alias in store.aliases]
    time = graph.input(store.aliases[0]).event_time if len(store.aliases) == 1 else None
    bounded = time_bounds(found, time)
    others = [one for one in found if one not in bounded]
    if grid := grid_of(others):
        return f"grid of {grid[0].stored} and {grid[1].stored}"
    windowed = bool(bounded) or any(window != UNBOUNDED for window in windows)
    if band := band_of(others, windowed):
        return f"order of {band[0].stored}"
    return "window" if windowed else "every row"
