"""A partition held in memory, for tests: the `State` of a hop without segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.bucket.bucket import Bucket
from weft.runtime.program.group_plans import GroupPlan
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.state.settling import settle
from weft.runtime.state.stores import Forget

__all__ = ["HeldState"]


@dataclass
class HeldState:
    """A partition held in memory: ``runs`` by the store's identity, ``fresh`` ones also by the adding input."""

    runs: dict[str, tuple[Bucket, ...]] = field(default_factory=dict)
    fresh: dict[tuple[str, str], list[Bucket]] = field(default_factory=dict)

    def earlier_runs(self, plan: StorePlan) -> Sequence[Bucket]:
        """The runs of earlier batches, oldest first."""
        return self.runs.get(plan.identity, ())

    def added(self, plan: StorePlan, start: str) -> Sequence[Bucket]:
        """What tuples of an input have added in this batch."""
        return self.fresh.get((plan.identity, start), ())

    def add(self, plan: StorePlan, start: str, run: Bucket) -> None:
        """Add a run of this batch, made by tuples of an input."""
        self.fresh.setdefault((plan.identity, start), []).append(run)

    def group_runs(self, plan: GroupPlan) -> Sequence[Bucket]:
        """The runs of a group store that earlier batches left, oldest first."""
        return self.runs.get(plan.identity, ())

    def keep_groups(self, plan: GroupPlan, runs: Sequence[Bucket]) -> None:
        """Leave these runs of a group store."""
        self.runs[plan.identity] = tuple(runs)

    def commit(self, plan: StorePlan, order: Sequence[str], forget: Forget) -> None:
        """End the batch for one store: what was added becomes runs of earlier batches, and dead rows are forgotten."""
        added = [run for start in order for run in self.fresh.pop((plan.identity, start), ())]
        self.runs[plan.identity] = settle(plan, (*self.earlier_runs(plan), *added), forget)
