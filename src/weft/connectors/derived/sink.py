"""The results of a query as the tuples of a stream: Arrow files in the checkpoint, one list of them per batch.

Guarantees: what a batch gave is there when the batch is committed, exactly once. A batch that is repeated after its
results were listed keeps the first list: the results are the same, and a later batch may have been planned with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from weft.ports.sink import ResultRows
from weft.storage.storage import Storage, storage_at

__all__ = [
    "DerivedSink",
]

_PART, _LIST = ".arrow", ".json"


@dataclass
class _DerivedPart:
    """A task's results of a batch, on their way into a file."""

    storage: Storage
    name: str
    event_time: str
    rows: int = 0
    oldest: int | None = None
    _batches: list[pa.RecordBatch] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        if rows.num_rows:
            self._batches.append(rows)
            self.rows += rows.num_rows
            time = pc.min(rows.column(self.event_time)).cast(pa.int64()).as_py()
            self.oldest = (
                time if self.oldest is None or (time is not None and time < self.oldest) else self.oldest
            )

    def close(self) -> str:
        """Write the file; its name says how many rows it has, how many bytes they take, and the time of the first."""
        if not self._batches:
            return ""
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, self._batches[0].schema) as file:
            for batch in self._batches:
                file.write_batch(batch)
        size = sum(batch.nbytes for batch in self._batches)
        self._batches = []
        self.storage.put(f"{self.name}{_PART}", out.getvalue().to_pybytes())
        return json.dumps(
            {"name": f"{self.name}{_PART}", "rows": self.rows, "bytes": size, "oldest": self.oldest}
        )

    def abort(self) -> None:
        """Leave nothing behind."""
        self._batches = []


@dataclass(frozen=True, slots=True)
class DerivedSink:
    """Writes the tuples of a derived stream to a place; ``event_time`` is the column that has their times."""

    place: str
    event_time: str

    @property
    def exactly_once(self) -> bool:
        """A repeated batch leaves nothing twice."""
        return True

    @property
    def _storage(self) -> Storage:
        return storage_at(self.place)

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:
        """Take whatever there is: the checkpoint is its own."""

    def recover(self, last_committed: int) -> None:
        """Forget lists of later batches, and files that are in no list."""
        storage, kept = self._storage, set[str]()
        names = storage.list("")
        for name in (name for name in names if name.endswith(_LIST)):
            if int(name.removesuffix(_LIST)) > last_committed:
                storage.delete(name)
            else:
                kept |= {part["name"] for part in json.loads(storage.get(name) or b"[]")}
        for name in names:
            if name.endswith(_PART) and name not in kept:
                storage.delete(name)

    def begin(self, batch_id: int) -> None:
        """Do nothing: files have names of their own."""

    def write_part(self, batch_id: int, partition: int, rows: ResultRows) -> str:
        """In a task: write all rows of a batch."""
        part = self.open_part(batch_id, partition)
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            part.write(batch)
        return part.close()

    def open_part(self, batch_id: int, partition: int) -> _DerivedPart:
        """In a task: begin to write."""
        return _DerivedPart(self._storage, f"{batch_id}-{partition}-{uuid4().hex}", self.event_time)

    def commit_parts(self, batch_id: int, names: Sequence[str]) -> None:
        """In the driver: list the files of a batch, unless they are listed already."""
        parts: list[dict[str, Any]] = [json.loads(name) for name in names if name]
        if self._storage.get(f"{batch_id}{_LIST}") is not None:
            for part in parts:
                self._storage.delete(part["name"])
        elif parts:
            self._storage.put(f"{batch_id}{_LIST}", json.dumps(parts).encode())

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Take the rows of a batch from the driver."""
        self.commit_parts(batch_id, [self.write_part(batch_id, 0, rows)])

    def describe(self) -> dict[str, object]:
        """What `make_sink` needs."""
        return {"kind": "derived", "place": self.place, "event_time": self.event_time}
