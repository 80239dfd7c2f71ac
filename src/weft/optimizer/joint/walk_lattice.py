"""The steps by which the tuples of one input may reach a sub-join, arranged for finding the cheapest walk.

Guarantees: `WalkLattice.levels` has every sub-join on the way after all those that steps lead to from it, so one pass
over it finds the least cost of what remains of a walk.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.optimizer.joint.workspace import WalkStep, Workspace

__all__ = ["WalkLattice", "walk_lattice"]


class WalkLattice(NamedTuple):
    """The steps that a walk may take: by the sub-join known before, the largest first, and by the sub-join reached."""

    root: int
    levels: list[tuple[int, list[WalkStep]]]
    by: dict[int, dict[tuple[int, int], WalkStep]]


def walk_lattice(workspace: Workspace, query: str | None, whole: int, start: str) -> WalkLattice:
    """The lattice of an input's walks to a sub-join; with ``query``, only steps of this query are looked up."""
    joins = workspace.joins
    by: dict[int, dict[tuple[int, int], WalkStep]] = {}
    for step in _steps(workspace, query, whole, start):
        by.setdefault(step.known, {})[step.store, step.target] = step
    ordered = sorted(by, key=lambda known: (-len(joins[known].aliases), known))
    root = workspace.within(whole, (start,)) if query is None else workspace.find(query, (start,))
    return WalkLattice(root, [(known, list(by[known].values())) for known in ordered], by)


def _steps(workspace: Workspace, query: str | None, whole: int, start: str) -> list[WalkStep]:
    if query is None:
        return workspace.upkeep_steps(whole, start)
    inside = set(workspace.joins[whole].aliases)
    every = workspace.steps(query, start)
    return [step for step in every if inside.issuperset(workspace.joins[step.target].aliases)]
