"""A log that remembers what input every batch took."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan


class Planned(Checkpoint):
    """It forgets no plan."""

    inputs: Mapping[int, Mapping[str, tuple[Part, ...]]] = {}  # by batch and stream

    def write_plan(self, plan: BatchPlan) -> None:
        """Remember it."""
        self.inputs = {**self.inputs, plan.number: plan.inputs}
        super().write_plan(plan)
