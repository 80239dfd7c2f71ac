"""What a change of queries leads to: plan, graph, and what becomes of the state.

Guarantees: a function of what runs, what is to run and what is known; the planner only remembers what saves it time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from weft.optimizer.joint import JointResult, optimise_all
from weft.optimizer.space import Options
from weft.optimizer.workspace import Workspace
from weft.plan.lower import lower_workload
from weft.runtime.asked import Asked
from weft.runtime.program import Program
from weft.runtime.relay import Facts, newcomers, relay_of
from weft.runtime.standing import Decision, Standing
from weft.stats.statistics import Statistics

__all__ = ["Planner"]


class Planner:
    """Decides for a session: by its options, and by what it knows of the data at that moment."""

    def __init__(self, statistics: Callable[[], Statistics], options: Options, method: str = "auto") -> None:
        self._statistics, self._options, self._method = statistics, options, method
        self._known: Workspace | None = None
        self.last: JointResult | None = None

    def __call__(self, standing: Standing, asked: Mapping[str, Asked], facts: Facts) -> Decision:
        """The plan for the queries that are to run, given those that do."""
        queries = {name: one.query for name, one in sorted(asked.items())}
        own = {n: replace(self._options, strategy=a.strategy) for n, a in asked.items() if a.strategy}
        found = optimise_all(
            queries,
            self._statistics(),
            self._options,
            method=self._method,
            own=own,
            running=standing.plan,
            changes=standing.fresh,
            known=self._known,
        )
        self._known, self.last = found.workspace, found
        new = [name for name in queries if name not in standing.asked]
        backfill = [name for name in new if asked[name].backfill]
        members = newcomers(standing.program, found.plan, queries, facts, backfill)
        graph = lower_workload(found.plan, members, tracked=facts.number > 0 or len(queries) > 1)
        relay = relay_of(standing.program, Program(graph), backfill)
        return Decision(found.plan, graph, relay, found.changes)
