"""What a change of queries leads to: plan, graph, and what becomes of the state.

Guarantees: a function of what runs, what is to run and what is known; the planner only remembers what saves it time.
A new query shares what it can at once. When more than half of the queries have changed, all are planned afresh, and,
if by then it was measured what their filters have in common, in groups (AJoin, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from weft.logical.query import Query
from weft.optimizer.apart import apart, closest
from weft.optimizer.grouping import Estimated, Measured
from weft.optimizer.incremental import changed_too_much
from weft.optimizer.joint import JointResult, optimise_all
from weft.optimizer.space import Options
from weft.optimizer.workspace import Workspace
from weft.plan.lower import lower_workload
from weft.plan.workload import WorkloadPlan
from weft.runtime.asked import Asked
from weft.runtime.program import Program
from weft.runtime.relay import Facts, newcomers, relay_of
from weft.runtime.standing import Decision, Samples, Standing
from weft.stats.statistics import Statistics

__all__ = ["Planner"]


class Planner:
    """Decides for a session: by its options, and by what it knows of the data at that moment."""

    def __init__(self, statistics: Callable[[], Statistics], options: Options, method: str = "auto") -> None:
        self._statistics, self._options, self._method = statistics, options, method
        self._known: dict[str, Workspace | None] = {}
        self.last: dict[str, JointResult] = {}

    def __call__(
        self, standing: Standing, asked: Mapping[str, Asked], facts: Facts, samples: Samples | None = None
    ) -> Decision:
        """The plan for the queries that are to run, given those that do."""
        queries = {name: one.query for name, one in sorted(asked.items())}
        statistics = self._statistics()
        groups, regrouped = self._groups(standing, queries, statistics, samples)
        plan, changes = self._plan(standing, asked, groups, statistics, regrouped)
        new = [name for name in queries if name not in standing.asked]
        backfill = [name for name in new if asked[name].backfill]
        members = newcomers(standing.program, plan, queries, facts, backfill)
        graph = lower_workload(plan, members, tracked=facts.number > 0 or len(queries) > 1)
        relay = relay_of(standing.program, Program(graph), backfill)
        return Decision(plan, graph, relay, changes)

    def _groups(
        self,
        standing: Standing,
        queries: Mapping[str, Query],
        statistics: Statistics,
        samples: Samples | None,
    ) -> tuple[dict[str, str], bool]:
        """The group of every query, and whether all were grouped anew."""
        running = standing.plan
        known = {a.name: running.group_of(a.name) for a in running.answers} if running else {}
        stay = {name: group for name, group in known.items() if name in queries}
        gone, came = len(known) - len(stay), len(queries) - len(stay)
        if samples is not None and changed_too_much(standing.fresh + gone + came, len(queries)):
            measured = Measured(samples.names, samples.sets, Estimated(queries, statistics))
            return apart(queries, measured, statistics), True
        return {n: stay[n] if n in stay else closest(q, queries, stay) for n, q in queries.items()}, False

    def _plan(
        self,
        standing: Standing,
        asked: Mapping[str, Asked],
        groups: Mapping[str, str],
        statistics: Statistics,
        fresh: bool,
    ) -> tuple[WorkloadPlan, int]:
        """The plans of all groups together, and how many changes there were since they were fresh."""
        plan, changes = WorkloadPlan(()), 0
        for group in sorted(set(groups.values())):
            mine = {name: one for name, one in sorted(asked.items()) if groups[name] == group}
            running = None if fresh else _part(standing.plan, group)
            found = self._optimised(mine, running, standing.fresh, statistics, group)
            part = found.plan.in_group(group) if group else found.plan
            plan = plan.with_answers(part.answers, part.upkeep)
            changes = max(changes, found.changes)
        return plan, changes

    def _optimised(
        self,
        asked: Mapping[str, Asked],
        running: WorkloadPlan | None,
        changes: int,
        statistics: Statistics,
        group: str,
    ) -> JointResult:
        found = optimise_all(
            {name: one.query for name, one in asked.items()},
            statistics,
            self._options,
            method=self._method,
            own={n: replace(self._options, strategy=a.strategy) for n, a in asked.items() if a.strategy},
            running=running,
            changes=changes,
            known=self._known.get(group),
        )
        self._known[group], self.last[group] = found.workspace, found
        return found


def _part(plan: WorkloadPlan | None, group: str) -> WorkloadPlan | None:
    """A group's part of a plan, as the optimiser knows it."""
    if plan is None:
        return None
    others = [answer.name for answer in plan.answers if plan.group_of(answer.name) != group]
    part = plan.without(others)
    return part.in_group("") if part.answers else None
