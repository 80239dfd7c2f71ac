"""Counts results, and keeps none of them.

Guarantees: tasks count results without making them; `count` is what was committed, each batch once, however often a
batch was replayed in this process. Nothing outlives the process.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from weft.connectors.common import as_table
from weft.ports.sink import ResultRows

__all__ = [
    "CountSink",
    "to_count",
]


class CountSink:
    """The number of results, by batch."""

    exactly_once = True

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._lock = threading.Lock()

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Do nothing: results of any columns can be counted."""

    def recover(self, last_committed: int) -> None:
        """Forget batches that will come again."""
        with self._lock:
            self._counts = {batch: n for batch, n in self._counts.items() if batch <= last_committed}

    def begin(self, batch_id: int) -> None:
        """Nothing to prepare."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Count the rows of a batch."""
        self.commit_count(batch_id, as_table(rows).num_rows if isinstance(rows, pa.Table) or rows else 0)

    def commit_count(self, batch_id: int, rows: int) -> None:
        """Keep how many rows a batch has."""
        with self._lock:
            self._counts[batch_id] = rows

    def count(self) -> int:
        """How many results there are so far."""
        with self._lock:
            return sum(self._counts.values())

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        return {"kind": "count"}


def to_count() -> CountSink:
    """Results counted, not kept, for `count()`: the cheapest way to see what a query would give.

    >>> to_count().count()
    0
    """
    return CountSink()
