"""Files of a batch in the storage of its log: sorted runs of results, merged results on their way to the driver.

Guarantees: every task of every machine and the driver reach them under one name, also after the task that wrote them
was lost; they are deleted when the batch is committed. A file has batches of the same columns, as they were written.
Files with results that are held back, or kept for a sink that cannot take them, outlive their batch; the name of such a
file ends in its checksum, so that damage is noticed.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from weft.errors import StateError
from weft.runtime.log.batch_folder import EXCHANGE
from weft.runtime.state.segment_file import BUCKETS
from weft.storage.storage import Memory, Storage, checkpoint_writes

__all__ = ["ResultFiles", "read_file", "read_held", "write_file", "write_held"]

# A file that is kept beyond the batch stays mapped if it has at least so many bytes: then it needs no memory of its
# own, and the mapping outlives the file's name. A smaller one is read, since a process may have only so many mappings.
LARGE = 1 << 24


def write_file(storage: Storage, number: int, batches: Sequence[pa.RecordBatch]) -> str:
    """Write batches of the same columns to a new file of a batch of that number, and return its name."""
    name = f"{EXCHANGE}/{number}/{uuid.uuid4().hex}"
    if isinstance(storage, Memory):
        storage.objects[name] = list(batches)
        return name
    path = storage.path(name)
    if path is None:
        storage.put(name, _encoded(batches).to_pybytes())
        return name
    with checkpoint_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return name


def _encoded(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return buffer.getvalue()


def read_file(storage: Storage, name: str, *, keep: bool = False) -> list[pa.RecordBatch]:
    """The batches of a file; with ``keep``, a small one is read and not mapped, since the caller keeps the batches."""
    if isinstance(storage, Memory):
        found: list[pa.RecordBatch] = storage.objects[name]
        return found
    path = storage.path(name)
    if path is not None and keep and path.exists() and os.path.getsize(path) < LARGE:
        data = pa.py_buffer(path.read_bytes())
    else:
        data = storage.open_local(name)
    if keep and path is None and data is not None:
        data = storage.open_local(
            name
        )  # what was just fetched into memory is mapped from the cache, if it is there
    if data is None:
        raise StateError(
            f"{storage.locate(name)} with results of a batch is gone",
            hint="start the session again, which repeats the batch",
        )
    return _decoded(data)


def _decoded(data: pa.Buffer) -> list[pa.RecordBatch]:
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        return [reader.get_batch(at) for at in range(reader.num_record_batches)]


@dataclass
class ResultFiles:
    """Results on their way to the driver, written to files of at most about ``size`` bytes each."""

    storage: Storage
    number: int
    size: int
    names: list[str] = field(default_factory=list)
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Add results."""
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= self.size:
            self._put_down()

    def _put_down(self) -> None:
        if self._waiting:
            self.names.append(write_file(self.storage, self.number, self._waiting))
        self._waiting, self._bytes = [], 0

    def take_few(self, size: int) -> list[pa.RecordBatch]:
        """All results if they have fewer bytes and none is in a file yet, which then none will be; else nothing."""
        if self.names or self._bytes >= size:
            return []
        few, self._waiting = self._waiting, []
        return few

    def close(self) -> list[str]:
        """There are no more results; gives the names of the files, in order."""
        self._put_down()
        return self.names

    def abort(self) -> None:
        """Delete what is there."""
        self._waiting = []
        for name in self.names:
            self.storage.delete(name)


def write_held(storage: Storage, number: int, batches: Sequence[pa.RecordBatch]) -> str:
    """Write results that outlive their batch to a file, under a name that no other attempt has; return the name."""
    stem = f"{number}-held-{uuid.uuid4().hex}"
    if isinstance(storage, Memory):
        storage.objects[f"{BUCKETS}/{stem}"] = list(batches)
        return stem
    data = _encoded(batches).to_pybytes()
    name = f"{stem}-{zlib.crc32(data):08x}"
    storage.put(f"{BUCKETS}/{name}", data)
    return name


def read_held(storage: Storage, name: str) -> list[pa.RecordBatch]:
    """The results in a file that `write_held` named."""
    entry = f"{BUCKETS}/{name}"
    if isinstance(storage, Memory):
        found: list[pa.RecordBatch] = storage.objects[entry]
        return found
    try:
        data = storage.open_local(entry)
        if data is None:
            raise OSError("it is not there")
        if f"{_checksum_of(storage, entry, data):08x}" != name.rpartition("-")[2]:
            raise OSError("its checksum is wrong")
        return _decoded(data)
    except (OSError, pa.ArrowException) as error:
        raise StateError(
            f"{storage.locate(entry)} with results that wait is missing or damaged: {error}",
            hint="restore it, or use a new checkpoint directory",
        ) from None


def _checksum_of(storage: Storage, entry: str, data: pa.Buffer) -> int:
    path = storage.path(entry)
    if path is None:
        return zlib.crc32(data)
    found = os.stat(path)
    return _checksum(str(path), found.st_size, found.st_mtime_ns, found.st_ino)


@lru_cache(maxsize=256)
def _checksum(path: str, size: int, modified: int, inode: int) -> int:  # noqa: ARG001
    """The checksum of a file; computed once, as long as its size, time of change and inode stay the same."""
    with open(path, "rb") as file:
        found = 0
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
        return found
