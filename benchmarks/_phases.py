"""Where the time of Weft's batches goes, measured from outside: functions of the loop are timed while it runs.

Guarantees: when the context ends, the timed functions are restored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from weft.connectors.files.parquet_sink import ParquetSink
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.batch.committer import Committer
from weft.runtime.loop.batch_planner import BatchPlanner
from weft.runtime.loop.intake.cursors import Intake
from weft.runtime.loop.loop import Loop
from weft.runtime.spark.resident import ResidentExecutor
from weft.runtime.spark.resident_stage import Stage

# The functions that are timed, in the order of a batch, and their labels in the table.
_TIMED: tuple[tuple[type, str, str], ...] = (
    (Intake, "look", "look for files"),
    (BatchPlanner, "new", "decide"),
    (Checkpoint, "write_plan", "write the plan"),
    (Loop, "execute", "execute"),
    (ResidentExecutor, "run", "  all steps of the tasks"),
    (Stage, "step", "    one step"),
    (Loop, "finish", "work out what is left"),
    (Committer, "_commit", "commit (while the next batch runs)"),
    (ParquetSink, "commit_parts", "  results in place"),
    (Checkpoint, "commit", "  manifest, and what is old deleted"),
)


class Phases:
    """Times of phases, in seconds, by label."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {label: [] for _, _, label in _TIMED}
        self._original: list[tuple[type, str, Any]] = []

    def __enter__(self) -> Phases:
        for owner, name, label in _TIMED:
            self._original.append((owner, name, getattr(owner, name)))
            setattr(owner, name, self._timed(getattr(owner, name), label))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, function in self._original:
            setattr(owner, name, function)
        self._original.clear()

    def _timed(self, function: Callable[..., Any], label: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[label].append(time.perf_counter() - began)

        return timed

    def rows(self, drop: int) -> Iterator[tuple[str, list[float]]]:
        """Phases and their times, without the first ``drop``; few of the looks for input found nothing."""
        for label, seconds in self.seconds.items():
            if len(seconds) > drop:
                yield label, seconds[drop:]
