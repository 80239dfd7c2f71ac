"""Results that a task cannot write to their sink itself, until all of its hop's are known.

Guarantees: a task holds at most a portion of them in memory. Results for a sink that takes them all at once (`Spill`)
are written to a file of the exchange if there are more, which the receiver maps; if the exchange has no folder, batches
are held as bytes. Those of an ordered query (`SortedSpill`; SplitJoin, 5: the leaves of the collection tree) are merged
into one sorted run for each portion, which is written to a file of the batch; only if all there is is small does it
travel in a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.kernels.order.merging import merge
from weft.runtime.output.batch_files import write_file
from weft.runtime.wire.exchange import SMALL, Exchange, PackedBatches
from weft.runtime.wire.sorted_runs import SortedRun
from weft.runtime.wire.task_input import Job
from weft.storage.storage import checkpoint_writes

__all__ = ["SortedSpill", "Spill"]


@dataclass
class Spill:
    """Batches of the same columns: in memory up to ``size`` bytes, beyond that in a file."""

    exchange: Exchange
    size: int
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    _packed: list[PackedBatches] = field(default_factory=list)
    _path: str | None = None
    _file: Any = None
    _writer: Any = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Add a batch."""
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self.size:
            self._put_down()

    def _put_down(self) -> None:
        if self.exchange.folder is None:
            self._packed.append(self.exchange.pack(*self._held))
        else:
            self._path = self._path or self.exchange.new_path()
            with checkpoint_writes(self._path):
                if self._writer is None:
                    self._file = pa.OSFile(self._path, "wb")
                    self._writer = pa.ipc.new_stream(self._file, self._held[0].schema)
                for batch in self._held:
                    self._writer.write_batch(batch)
        self._held, self._bytes = [], 0

    def close(self) -> list[PackedBatches]:
        """End the spill, and return all batches ready to be sent."""
        if self._writer is not None and self._path is not None:
            self._put_down()
            self._shut()
            return [PackedBatches.in_file(self._path, self.exchange.origin)]
        last = [self.exchange.pack(*self._held)] if self._held else []
        return [*self._packed, *last]

    def abort(self) -> None:
        """Drop all batches, and delete the file."""
        self._shut()
        if self._path is not None:
            Path(self._path).unlink(missing_ok=True)

    def _shut(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._writer = None


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

    def close(self) -> tuple[list[SortedRun], PackedBatches | None]:
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
