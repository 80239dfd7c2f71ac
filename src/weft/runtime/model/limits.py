"""How much a task may hold in memory, and how many results it may give."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMIT", "PORTION_BYTES", "TaskLimits"]

LIMIT = 10_000_000  # results of one key
PORTION_BYTES = 1 << 26  # about so many bytes of matches are made at a time


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task.

    No key of a query whose keys are counted has more than ``key_results`` results. Matches are made and passed on in
    portions of about ``portion_bytes``. A query that gives more than ``query_results`` results in one batch fails.
    """

    key_results: int = LIMIT
    portion_bytes: int = PORTION_BYTES
    query_results: int | None = None
