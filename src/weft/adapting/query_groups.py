"""In which groups the queries of a session run (AJoin, section 4), as far as its planner is concerned.

Guarantees: what is decided is a function of the plan that runs, the queries that are to run and what is known. New
queries are placed by cost, and the others stay where they are; groups are formed or revised only from what was
measured of what filters have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.logical.query.query import Query
from weft.optimizer.groups.assignment import assigned_groups, revised_groups, separate_groups
from weft.optimizer.groups.overlap import Estimated, Measured, Overlap
from weft.optimizer.joint.incremental import changed_too_much
from weft.plan.workload import WorkloadPlan
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # planning a session that does not run needs no kernels
    from weft.runtime.queries.active import Samples

__all__ = ["GroupQuestion"]


@dataclass(frozen=True, slots=True)
class GroupQuestion:
    """The plan that runs, the queries that are to run, and what is known of them; ``samples`` are of query-sets."""

    running: WorkloadPlan | None
    queries: Mapping[str, Query]
    statistics: Statistics
    samples: Samples | None
    budget: float | None

    def groups(self, *, revise: bool, afresh: bool) -> tuple[dict[str, str], bool]:
        """The group of every query, and whether running queries change theirs.

        With ``revise``, better groups are looked for, beginning with those there are; with ``afresh``, from nothing.
        """
        overlap = self._overlap()
        stay = self._staying()
        given = (self.queries, stay, overlap, self.statistics)
        if 2 * sum(map(overlap.is_measured, self.queries)) > len(self.queries):
            if revise:
                revised = revised_groups(*given, budget=self.budget)
                if revised is not None:
                    return revised, True
            if afresh:
                return separate_groups(self.queries, overlap, self.statistics, stay, self.budget), True
        return assigned_groups(*given, budget=self.budget), False

    def has_changed_too_much(self, changes: int) -> bool:
        """Whether more than half of the queries have come or gone, those counted in ``changes`` included."""
        stay = self._staying()
        gone = len(self.running.answers) - len(stay) if self.running else 0
        return changed_too_much(changes + gone + len(self.queries) - len(stay), len(self.queries))

    def _staying(self) -> dict[str, str]:
        """The groups of the queries that go on."""
        answers = self.running.answers if self.running else ()
        return {
            a.name: self.running.group_of(a.name) for a in answers if a.name in self.queries and self.running
        }

    def _overlap(self) -> Overlap:
        estimated = Estimated(self.queries, self.statistics)
        if self.samples is None:
            return estimated
        return Measured(self.samples.names, self.samples.sets, estimated)
