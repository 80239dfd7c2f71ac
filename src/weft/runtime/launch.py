"""Starting queries on Spark, and what whoever started them holds.

Guarantees: an error of the user's comes out as itself, whatever Spark wrapped it in. A start that fails lets the
checkpoint go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from weft.logical.schema import Stream
from weft.runtime.asked import Asked
from weft.runtime.checkpoint import Checkpoint
from weft.runtime.driver import DEFAULT
from weft.runtime.functions import PackedFunction
from weft.runtime.interpret import LIMIT
from weft.runtime.resume import Restore
from weft.runtime.spark import SetAside, SparkRunner
from weft.runtime.standing import Asks, Decide, never
from weft.runtime.step import PORTION_BYTES

__all__ = ["Running", "launch"]


@dataclass(frozen=True, slots=True)
class Running:
    """A running set of queries."""

    runner: SparkRunner
    query: StreamingQuery

    def process_all_available(self) -> None:
        """Wait until all that is there is processed."""
        try:
            self.query.processAllAvailable()
        finally:
            self._raise()

    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait for the end, so many seconds at most; whether it has come."""
        try:
            self.query.awaitTermination(timeout)
        finally:
            self._raise()
        return not self.query.isActive

    def _raise(self) -> None:
        """An error of the user's, such as a file of another schema, as itself."""
        if self.runner.failure is not None:
            raise self.runner.failure

    def stop(self) -> None:
        """Stop after the batch under way, and let the checkpoint go.

        Spark cancels the batch it runs. Between two of them it keeps its own books for a while, and is stopped then.
        """
        with self.runner.busy:
            self.runner.pulse.stop()
        self.query.stop()
        self.runner.checkpoint.close()


def launch(
    spark: SparkSession,
    root: Path,
    streams: Mapping[str, Stream],
    sources: Mapping[str, Any],
    queries: Mapping[str, tuple[Asked, Any]],
    decide: Decide,
    restore: Restore,
    partitions: int,
    *,
    driver: str = DEFAULT,
    available_now: bool = False,
    set_aside: SetAside | None = None,
    state_limit: int | None = None,
    key_limit: int = LIMIT,
    functions: Mapping[str, PackedFunction] | None = None,
    asks: Asks = never,
    portion_bytes: int = PORTION_BYTES,
    result_limit: int | None = None,
) -> Running:
    """Start queries on a Spark session."""
    runner = SparkRunner(
        spark,
        Checkpoint(root),
        streams,
        sources,
        decide,
        restore,
        partitions,
        driver,
        set_aside,
        state_limit,
        key_limit,
        {} if functions is None else functions,
        asks,
        portion_bytes=portion_bytes,
        result_limit=result_limit,
    )
    trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
    try:
        return Running(runner, runner.start(queries, trigger))
    except BaseException:
        runner.checkpoint.close()
        raise
