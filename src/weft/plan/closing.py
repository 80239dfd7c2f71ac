"""A text that explains how rows without a partner are found.

Guarantees: the text is derived from the graph alone. It names every join that keeps such rows, when they leave, and
from which stores they are found.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from weft.logical.expr.expression import all_of, to_sql
from weft.logical.outer.outer import joins, visible
from weft.logical.outer.waiting import AT_ONCE, waits
from weft.logical.query.join_tree import ASOF, Join
from weft.logical.times import format_duration
from weft.plan.graph import PhysicalGraph
from weft.plan.homes import locate_rows
from weft.plan.observation import Observation

__all__ = ["closing_lines"]


def closing_lines(graph: PhysicalGraph, seen: Observation | None) -> list[str]:
    """The lines that explain the closing of a graph of one query; an empty list if it has nothing to close."""
    lines: list[str] = []
    for sweep in graph.sweeps:
        member = graph.member(sweep.query)
        if member.closing is None:
            continue
        found = waits(member.query, member.closing.tree)
        lines += ["Closing"]
        for number, join in joins(member.closing.tree):
            lines += [f"  {line}" for line in _join(number, join, found)]
        if member.closing.where:
            lines.append(f"  of all rows, those with {to_sql(all_of(member.closing.where))}")
        lines.append(f"  {_place(graph, member.closing.tree, sweep.homes)}")
        if not member.closing.walked:
            lines.append("  rows that miss nothing are found there, too")
        lines += [f"  observed: {seen.closed:,} of {seen.results:,} results"] if seen else []
        lines.append("")
    return lines


def _join(number: int, join: Join, found: dict[tuple[int, str], timedelta | None]) -> Iterator[str]:
    """Lines that say what a join does with rows that have no partner."""
    if join.kind in ("inner", "semi"):
        return
    if join.kind in ASOF:
        asked = [name for name in visible(join.left) if found[number, name] is not None]
        yield (
            f"{', '.join(visible(join.left))} with the latest of {_described(join, join.left)}: "
            f"leave when time has passed {' or '.join(asked)}"
        )
        return
    for side in (join.left, join.right) if join.kind == "full" else (join.left,):
        names = visible(side)
        bounded = [
            f"{name} + {format_duration(wait).lower()}" for name in names if (wait := found[number, name])
        ]
        now = [name for name in names if found[number, name] == timedelta(0)]
        ends = " or ".join([*now, *bounded])
        when = f"leave when time has passed {ends}" if ends else "leave at the end of the input"
        if all(found[number, name] == AT_ONCE for name in names):
            when = "leave at once"
        yield f"{', '.join(names)} without a partner in {_described(join, side)}: {when}"


def _described(join: Join, side: Join | str) -> str:
    away = join.right if side is join.left else join.left
    return (
        f"{', '.join(visible(away))} ({join.kind} join on {to_sql(all_of(join.on)) if join.on else 'TRUE'})"
    )


def _place(graph: PhysicalGraph, tree: Join, homes: tuple[str, ...]) -> str:
    stores = [graph.store(name) for name in homes]
    place = locate_rows(tree, {store.aliases[0]: store.layout for store in stores})
    named = ", ".join(f"{store.name} ({store.layout})" for store in stores)
    where = "in one partition" if place is None or place.everywhere else "in every partition for itself"
    return f"looked for {where}, from {named}"
