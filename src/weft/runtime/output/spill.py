"""Results on their way to a sink that takes them all at once.

Guarantees: a task holds at most a portion of them in memory: if there are more, they are written to a file of the
exchange, which the receiver maps. If the exchange has no folder, batches are held as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from weft.runtime.wire.exchange import Exchange, Packed
from weft.storage.storage import checkpoint_writes

__all__ = ["Spill"]


@dataclass
class Spill:
    """Batches of the same columns: in memory up to ``size`` bytes, beyond that in a file."""

    exchange: Exchange
    size: int
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    _packed: list[Packed] = field(default_factory=list)
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

    def close(self) -> list[Packed]:
        """End the spill, and return all batches ready to be sent."""
        if self._writer is not None and self._path is not None:
            self._put_down()
            self._shut()
            return [Packed.in_file(self._path, self.exchange.origin)]
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
