"""Sorted runs of an ordered query's results, as a task finds them (SplitJoin, 5: the leaves of the collection tree).

Guarantees: a task holds at most a portion of them in memory. Those of a portion are merged into one run, which is
written to a file of the batch; only if all there is is small does it travel in a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from weft.kernels.order.merging import merge
from weft.runtime.output.batch_files import write_file
from weft.runtime.wire.exchange import SMALL, Packed
from weft.runtime.wire.sorted_runs import SortedRun
from weft.runtime.wire.task_input import Job

__all__ = ["SortedSpill"]


@dataclass
class SortedSpill:
    """Takes sorted batches; ``keys`` is how many of their first columns they are sorted by."""

    job: Job
    keys: int
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    _runs: list[SortedRun] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add a sorted batch."""
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self.job.limits.portion_bytes:
            self._put_down()

    def _merged(self) -> pa.RecordBatch | None:
        """What is held as one run, which is not held any more; None without rows."""
        batches = merge(self._held, self.keys, keep=True)
        self._held, self._bytes = [], 0
        return pa.concat_batches(batches) if batches else None

    def _put_down(self) -> None:
        run = self._merged()
        if run is not None:
            name = write_file(self.job.setup.storage, self.job.number, [run])
            self._runs.append(SortedRun.of_batch(name, run))

    def close(self) -> tuple[list[SortedRun], Packed | None]:
        """There are no more results: the runs in files, and what travels in a message."""
        if not self._runs and (self._bytes < SMALL or self.job.exchange.direct):
            run = self._merged()
            return [], None if run is None else self.job.exchange.pack(run)
        self._put_down()
        return self._runs, None

    def abort(self) -> None:
        """Drop all results, and delete the files."""
        self._held = []
        for run in self._runs:
            self.job.setup.storage.delete(run.name)
