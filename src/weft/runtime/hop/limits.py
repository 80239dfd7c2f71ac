"""How much a task may hold, and how much it may give."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMIT", "PORTION_BYTES", "TaskLimits"]

LIMIT = 10_000_000  # results of one key
PORTION_BYTES = 1 << 26  # about so much do the matches take that are looked at together


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task.

    No key of a query whose keys are counted has more than ``key_results`` results. What is found is made and given away
    in portions of about ``portion_bytes``. A query that gives more than ``query_results`` results in one batch fails.
    """

    key_results: int = LIMIT
    portion_bytes: int = PORTION_BYTES
    query_results: int | None = None
