"""How much a task may hold in memory, how many results it may give, and how long it may merge."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMIT", "MERGE_SECONDS", "PORTION_BYTES", "TaskLimits"]

LIMIT = 10_000_000  # results of one key
MERGE_SECONDS = 0.1
PORTION_BYTES = 1 << 26  # about so many bytes of matches are made at a time


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task.

    No key of a query whose keys are counted has more than ``key_results`` results. Matches are made and passed on in
    portions of about ``portion_bytes``. A query that gives more than ``query_results`` results in one batch fails. In a
    batch, stored runs are merged for about ``merge_seconds`` at most.
    """

    key_results: int = LIMIT
    portion_bytes: int = PORTION_BYTES
    query_results: int | None = None
    merge_seconds: float = MERGE_SECONDS
