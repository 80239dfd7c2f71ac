"""A file that becomes an object: written on this machine's disk, and put as a whole when it is complete."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from weft.ports.sink import PartWriter
from weft.storage.objects import ObjectStorage

__all__ = [
    "NamedPart",
    "ObjectFile",
]


class ObjectFile:
    """A file in a folder of its own, whose content goes to ``path``."""

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage, self._name = storage, name
        self._folder = tempfile.TemporaryDirectory(prefix="weft-part-")
        self.path = Path(self._folder.name) / "part.parquet"

    def finish(self) -> None:
        """Put the object, and delete the file."""
        self._storage.put_file(self._name, self.path)
        self.drop()

    def drop(self) -> None:
        """Delete the file."""
        self._folder.cleanup()


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part whose errors name its sink: ``naming`` is a context of the sink's that sees to that."""

    part: PartWriter
    naming: Callable[[], AbstractContextManager[None]]

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        with self.naming():
            self.part.write(rows)

    def close(self) -> str:
        """There are no more results; gives the name for `commit_parts`."""
        with self.naming():
            return self.part.close()

    def write_all(self, rows: pa.Table) -> str:
        """Write all results of the part at once; gives the name for `commit_parts`, or leaves nothing behind."""
        try:
            for batch in rows.to_batches():
                self.write(batch)
            return self.close()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Leave nothing behind."""
        with self.naming():
            self.part.abort()
