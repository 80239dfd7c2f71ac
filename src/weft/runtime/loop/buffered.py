"""Results that are held back until the watermarks pass them.

Guarantees: at a clock, all results of earlier times that have been found leave, in the order of their times; the others
stay, in a few sorted runs. No later result is of an earlier time than the clock if late tuples are dropped; then all
results of a query leave in order. A run has the times of results in its first column, and the results in the others. On
a disk, runs are files that the manifest names (design, D3): they are written once and leave from the front on. The name
of a file ends in its checksum, so that damage is noticed.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.errors import StateError
from weft.kernels.order.merging import merge
from weft.kernels.probe.ranges import NO_LONGS
from weft.runtime.log.checkpoint import BUCKETS
from weft.runtime.log.values import HeldRun
from weft.storage.storage import Memory, Storage

__all__ = ["BufferedResults", "read_buffered", "release", "write_buffered"]


@dataclass(frozen=True, slots=True, eq=False)
class BufferedResults:
    """A sorted run of results that are held back.

    If it has been written, ``file`` is the name of its file, in which it begins at row ``first``; else ``file`` is
    empty.
    """

    run: pa.RecordBatch
    file: str = ""
    first: int = 0

    @property
    def time(self) -> int:
        """The time of its first result."""
        return int(longs(self.run.column(0))[0])


def release(
    waiting: Iterable[BufferedResults], new: Sequence[pa.RecordBatch], clock: int
) -> tuple[list[pa.RecordBatch], list[BufferedResults], Longs]:
    """Split results at a clock: those of earlier times, in order and without the column of times, and those that stay.

    The times of those that leave come last, in no particular order.
    ``waiting`` are the runs that were held back before, ``new`` the sorted runs of this batch.
    """
    leaving, staying, late = [], [], []
    for one in waiting:
        cut = _cut(one.run, clock)
        leaving.append(one.run.slice(0, cut))
        if cut < one.run.num_rows:
            staying.append(BufferedResults(one.run.slice(cut), one.file, one.first + cut))
    for run in new:
        cut = _cut(run, clock)
        leaving.append(run.slice(0, cut))
        late.append(run.slice(cut))
    if any(run.num_rows for run in late):
        staying.append(BufferedResults(_merged(late)))
    while len(staying) > 1 and staying[-2].run.num_rows < 2 * staying[-1].run.num_rows:
        last = [
            one.run for one in staying[-2:]
        ]  # so there are few runs, and each row is copied only a few times
        staying[-2:] = [BufferedResults(_merged(last))]
    times = [longs(run.column(0)) for run in leaving if run.num_rows]
    return merge(leaving, 1).batches, staying, np.concatenate(times) if times else NO_LONGS


def _merged(runs: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(merge(runs, 1, keep=True).batches)


def _cut(run: pa.RecordBatch, clock: int) -> int:
    return int(np.searchsorted(longs(run.column(0)), clock, "left"))


def read_buffered(storage: Storage, runs: Iterable[HeldRun]) -> list[BufferedResults]:
    """Read the runs of held results that a manifest names."""
    return [BufferedResults(_read(storage, run.name).slice(run.first), run.name, run.first) for run in runs]


def _read(storage: Storage, name: str) -> pa.RecordBatch:
    entry = f"{BUCKETS}/{name}"
    if isinstance(storage, Memory):
        return storage.objects[entry]
    try:
        if storage.path(entry) is None:
            return _read_fetched(storage, entry, name)
        path = str(storage.path(entry))
        found = os.stat(path)
        if (
            f"{_checksum(path, found.st_size, found.st_mtime_ns, found.st_ino):08x}"
            != name.rpartition("-")[2]
        ):
            raise OSError("its checksum is wrong")
        with pa.memory_map(path) as file, pa.ipc.open_file(file) as reader:
            return reader.get_batch(0)
    except (OSError, pa.ArrowException) as error:
        raise StateError(
            f"{storage.locate(entry)} with results that wait is missing or damaged: {error}",
            hint="restore it, or use a new checkpoint directory",
        ) from None


def _read_fetched(storage: Storage, entry: str, name: str) -> pa.RecordBatch:
    """A run from a storage that has no files."""
    data = storage.open_local(entry)
    if data is None:
        raise OSError("it is not there")
    if f"{zlib.crc32(data):08x}" != name.rpartition("-")[2]:
        raise OSError("its checksum is wrong")
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        return reader.get_batch(0)


@lru_cache(maxsize=256)
def _checksum(path: str, size: int, modified: int, inode: int) -> int:  # noqa: ARG001
    """The checksum of a file; computed once, as long as its size, time of change and inode stay the same."""
    with open(path, "rb") as file:
        found = 0
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
        return found


def write_buffered(storage: Storage, number: int, waiting: Iterable[BufferedResults]) -> tuple[HeldRun, ...]:
    """Write the runs that are in no file, under names that no other attempt has; return the files of all runs."""
    found = []
    for one in waiting:
        name, first = one.file, one.first
        if not name:
            name, first = _write(storage, f"{number}-held-{uuid.uuid4().hex}", one.run), 0
        found.append(HeldRun(name, first, one.run.num_rows, one.time, one.run.nbytes))
    return tuple(found)


def _write(storage: Storage, stem: str, run: pa.RecordBatch) -> str:
    """Write a run to a file whose name begins with ``stem``, and return the name."""
    if isinstance(storage, Memory):
        storage.objects[f"{BUCKETS}/{stem}"] = run
        return stem
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, run.schema) as writer:
        writer.write_batch(run)
    data = buffer.getvalue().to_pybytes()
    name = f"{stem}-{zlib.crc32(data):08x}"
    storage.put(f"{BUCKETS}/{name}", data)
    return name
