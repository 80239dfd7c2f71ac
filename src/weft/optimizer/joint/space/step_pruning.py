"""The steps that a best joint plan may need, without those that others can always replace.

Guarantees: some best plan takes only the steps that `relevant_steps` gives. If a plan takes only steps of a given list,
then all of these are in `usable_steps` of the list.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from weft.optimizer.joint.space.single_query_plan import best_ways
from weft.optimizer.joint.space.workspace import WalkStep, Workspace

__all__ = ["every_step", "relevant_steps", "usable_steps"]


def relevant_steps(workspace: Workspace, names: Iterable[str]) -> list[WalkStep]:
    """The steps of some queries that a best plan may need."""
    worthless = _worthless(workspace, names)
    steps = _undominated(workspace, every_step(workspace, names))
    return [step for step in steps if workspace.join_of(step.store) not in worthless]


def usable_steps(workspace: Workspace, steps: Iterable[WalkStep]) -> list[WalkStep]:
    """The steps that other steps lead to, and that visit sub-joins which other steps compute.

    Steps that were chosen from a solver's values may lack others that they need: a step that costs nothing, because a
    stream brings nothing, may be taken or left at random.
    """
    kept = list(steps)
    while True:
        reached = _reached(workspace, kept)
        usable = [step for step in kept if _is_usable(workspace, step, reached)]
        if len(usable) == len(kept):
            return kept
        kept = usable


def _reached(workspace: Workspace, steps: list[WalkStep]) -> set[tuple[str, int]]:
    """The ends of steps: an input, and the sub-join that its tuples then know."""
    found: set[tuple[str, int]] = set()
    for step in sorted(steps, key=lambda step: len(workspace.joins[step.known].aliases)):
        if _is_input(workspace, step.known) or (step.start, step.known) in found:
            found.add((step.start, step.target))
    return found


def _is_usable(workspace: Workspace, step: WalkStep, reached: set[tuple[str, int]]) -> bool:
    stored = workspace.join_of(step.store)
    needed = [] if _is_input(workspace, step.known) else [(step.start, step.known)]
    if not _is_input(workspace, stored):
        needed += [(alias, stored) for alias in workspace.joins[stored].aliases]
    return reached.issuperset(needed)


def _is_input(workspace: Workspace, join: int) -> bool:
    return len(workspace.joins[join].aliases) == 1


def every_step(workspace: Workspace, names: Iterable[str]) -> list[WalkStep]:
    """The steps of some queries, each once; all of them may be needed where not everything can be stored."""
    every = (
        step
        for name in names
        for alias in workspace.queries[name].aliases
        for step in workspace.steps(name, alias)
    )
    return list(dict.fromkeys(every))


def _undominated(workspace: Workspace, steps: list[WalkStep]) -> list[WalkStep]:
    """The steps without those for which another layout is no dearer, even if it is kept for this step alone."""
    parallel: dict[tuple[str, int, int, int], list[WalkStep]] = {}
    for step in steps:
        place = step.start, step.known, step.target, workspace.join_of(step.store)
        parallel.setdefault(place, []).append(step)
    found = []
    for group in parallel.values():
        best = min(group, key=lambda step: step.cost + workspace.keeping(step.store))
        most = best.cost + workspace.keeping(best.store)
        found += [step for step in group if step is best or step.cost < most]
    return found


def _worthless(workspace: Workspace, names: Iterable[str]) -> set[int]:
    """The intermediate results that cost more to keep than all walks together could save by them.

    A step to an intermediate result saves at most the additional cost of the cheapest way without it, which visits
    stores of inputs, each in the layout that is cheapest to keep.
    """
    if not any(
        workspace.keeping(s) > 0
        for name in names
        for j in workspace.sub_joins(name)
        for s in workspace.layouts(j)
    ):
        return set()
    saved: dict[int, dict[tuple[str, int, int], float]] = {}
    for name in names:
        if len(workspace.queries[name].inputs) == 1:
            continue  # the query visits no store, so it says nothing about layouts of its input
        inputs = [workspace.find(name, (alias,)) for alias in workspace.queries[name].aliases]
        plain = {min(workspace.layouts(join), key=workspace.keeping): join for join in inputs}
        for alias in workspace.queries[name].aliases:
            _add_savings(workspace, workspace.steps(name, alias), plain, saved)
    return {
        join
        for join, ways in saved.items()
        if (least := min(map(workspace.keeping, workspace.layouts(join)))) > 0
        and least >= math.fsum(ways.values()) + _inputs_kept(workspace, join)
    }


def _add_savings(
    workspace: Workspace,
    steps: list[WalkStep],
    plain: Mapping[int, int],
    saved: dict[int, dict[tuple[str, int, int], float]],
) -> None:
    around = [step for step in steps if step.store in plain]
    reached = {known: best_ways(around, known) for known in dict.fromkeys(step.known for step in steps)}
    for step in steps:
        join = workspace.join_of(step.store)
        if not _is_input(workspace, join):
            way = reached[step.known].get(step.target)
            saving = max(0.0, way[0] - step.cost) if way else math.inf
            place = step.start, step.known, step.target
            ways = saved.setdefault(join, {})
            ways[place] = max(saving, ways.get(place, 0.0))


def _inputs_kept(workspace: Workspace, join: int) -> float:
    """The least it costs to keep the inputs of a sub-join."""
    inputs = [workspace.within(join, (alias,)) for alias in workspace.joins[join].aliases]
    return math.fsum(min(map(workspace.keeping, workspace.layouts(one))) for one in inputs)
