"""Plans that do not follow the data, but for the change that a session before has begun.

Guarantees: stores that another session began to fill side by side take over once they have all they need, else they
would be filled for as long as the queries run. Nothing else changes a plan.
"""

from __future__ import annotations

from weft.adapting.adopting import end_transition
from weft.runtime.loop.adapter import Adopted, Situation, StaticPlan

__all__ = ["SettledPlan"]


class SettledPlan(StaticPlan):
    """An adapter by which plans change only to end a transition that is under way."""

    def next_plan(self, situation: Situation) -> Adopted | None:
        """The plan whose stores have been filled, as soon as they are."""
        transition = situation.active_queries.transition
        ended = None if transition is None else end_transition(situation, transition)
        if ended is None:
            return None
        adopted, change = ended
        self.changes = (*self.changes, change)
        return adopted
