"""How the loop asks whether running queries go on by another plan, though none of them begins or stops.

Guarantees: the loop asks before each batch, in one thread, and follows what it is told; it does not decide itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from weft.runtime.log.values import Manifest
from weft.runtime.observe.plan_changes import PlanChange
from weft.runtime.observe.progress import History
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.queries.active import ActiveQueries, Samples
from weft.runtime.queries.migration import StateMigration
from weft.runtime.queries.visibility import StateFacts
from weft.stats.statistics import Statistics

__all__ = ["Adapter", "Adopted", "Situation", "StaticPlan"]


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known between two batches: the queries that run, what the last batch left, and what batches measured.

    ``statistics`` say what is known of the data that matters for some queries.
    """

    active_queries: ActiveQueries
    before: Manifest
    facts: StateFacts
    history: History
    statistics: RecentStatistics = field(default_factory=RecentStatistics)
    samples: Samples | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """The queries with their new plan, how their state is migrated, and why."""

    active_queries: ActiveQueries
    migration: StateMigration
    reason: str


class Adapter(Protocol):
    """Decides when queries go on by another plan; ``changes`` are those that it decided on, the last ones.

    ``expected`` is what the plan was made from, by which it is explained; None: what the session was told.
    """

    changes: tuple[PlanChange, ...]
    expected: Statistics | None

    def next_plan(self, situation: Situation) -> Adopted | None:
        """The plan by which queries go on with the next batch; None if that is the one they have."""

    def queries_changed(self, situation: Situation) -> None:
        """Queries begin or stop with the next batch; ``situation`` is that before the change."""

    def migrated(self, seconds: float) -> None:
        """Laying out stores anew before the batch under way has taken so many seconds."""

    def close(self) -> None:
        """End what is under way in the background."""


class StaticPlan:
    """An adapter by which plans never change."""

    changes: tuple[PlanChange, ...] = ()
    expected: Statistics | None = None

    def next_plan(self, situation: Situation) -> Adopted | None:  # noqa: ARG002
        """No other plan."""
        return None

    def queries_changed(self, situation: Situation) -> None:
        """Nothing depends on it."""

    def migrated(self, seconds: float) -> None:
        """Nothing depends on it."""

    def close(self) -> None:
        """There is nothing to end."""
