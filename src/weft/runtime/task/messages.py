"""The messages that pass between the tasks of a batch, and to the driver (design, D1).

Guarantees: a message is (partition, target, bytes): either a batch of tuples on its way over an edge, or a note to the
driver, which the hops on the way pass on unopened. Bytes are never copied here: they are views of Arrow's buffers.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft import errors
from weft.errors import WeftError

__all__ = [
    "FILE",
    "NOTE",
    "Exchange",
    "Message",
    "batches_of",
    "error_note",
    "error_of",
    "note",
    "packed",
    "read_rows",
    "to_rows",
    "unpacked",
]

ROW = pa.schema([("partition", pa.int32()), ("target", pa.string()), ("bucket", pa.binary())])

# Notes have targets that begin like this; no query's name does, since it would be refused.
NOTE = "!"


@dataclass(frozen=True, slots=True)
class Message:
    """What a task sends: to a partition, or to the driver; a row where Spark shuffles it."""

    partition: int
    target: str
    data: Any  # a buffer

    def content(self) -> Any:
        """What a note says."""
        return json.loads(self.data.to_pybytes())


def note(at: int, kind: str, **content: Any) -> Message:
    """A note to the driver, or, on its way there, to later hops of a partition."""
    return Message(at, NOTE + kind, pa.py_buffer(json.dumps(content).encode()))


def error_note(error: WeftError) -> Message:
    """An error of the user's, which no further attempt of the task would mend."""
    return note(0, "error", error=type(error).__name__, message=error.message, hint=error.hint)


def error_of(content: dict[str, Any]) -> WeftError:
    """The error that a note is about."""
    kind = getattr(errors, content["error"], WeftError)
    chosen = WeftError if kind is errors.SqlError else kind
    error: WeftError = chosen(content["message"], hint=content["hint"])
    return error


def to_rows(messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Messages as the rows of Spark, one batch each: a bucket may be large."""
    for message in messages:
        offsets = pa.py_buffer(np.array([0, message.data.size], np.int32))
        data = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, message.data])
        yield pa.RecordBatch.from_arrays(
            [pa.array([message.partition], pa.int32()), pa.array([message.target]), data], schema=ROW
        )


def read_rows(batch: pa.RecordBatch) -> Iterator[Message]:
    """The messages that rows of Spark stand for."""
    partitions, targets, data = batch.columns
    _, offsets, content = data.buffers()
    ends = np.frombuffer(offsets, np.int32, len(data) + 1, 4 * data.offset).tolist()
    rows = zip(partitions.to_pylist(), targets.to_pylist(), ends, ends[1:], strict=False)
    for partition, target, start, end in rows:
        yield Message(partition, target, content.slice(start, end - start))


def packed(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Batches of the same columns as bytes: an Arrow stream, written into room that is made at once."""
    room = batches[0].schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + 1024
    buffer = pa.allocate_buffer(room, resizable=False)
    with pa.FixedSizeBufferWriter(buffer) as sink:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        size = sink.tell()
    return buffer.slice(0, size)


def batches_of(data: pa.Buffer) -> list[pa.RecordBatch]:
    """What `packed` packed."""
    with pa.ipc.open_stream(data) as reader:
        return list(reader)


@dataclass(frozen=True, slots=True)
class Exchange:
    """How batches get from task to task.

    Through a shuffle, their bytes are copied six times between Python, the JVM and its files. So a large batch is a
    file in a folder that all tasks see, mapped by who receives it, and the message holds its name.
    """

    folder: str | None = None
    direct: bool = False  # all tasks are in this process, and batches need not be bytes

    def path(self) -> str:
        """A name in the folder, which is made if need be, that no other file has."""
        if self.folder is not None and not os.path.isdir(self.folder):
            os.makedirs(self.folder, exist_ok=True)
        return f"{self.folder}/{uuid.uuid4().hex}"

    def pack(self, *batches: pa.RecordBatch) -> tuple[str, Any]:
        """What a message says of batches of the same columns, and how it says it."""
        if self.direct:
            return DIRECT, list(batches)
        if self.folder is None or sum(batch.nbytes for batch in batches) < SMALL:
            return INLINE, packed(batches)
        path = self.path()
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return FILE, pa.py_buffer(path.encode())


INLINE, FILE, DIRECT = "bytes", "file", "batches"
SMALL = 1 << 16

# What is kept, and is larger, stays in its file: mapped, it needs no memory of its own, though nobody finds it by its
# name any more. What is smaller would soon be more mappings than a process may have.
LARGE = 1 << 24


def unpacked(how: str, data: Any, *, keep: bool = False) -> list[pa.RecordBatch]:
    """The batches that a message stands for; to be kept beyond the batch, small ones are read, not mapped."""
    if how == DIRECT:
        found: list[pa.RecordBatch] = data
        return found
    if how == INLINE:
        return batches_of(data)
    path = data.to_pybytes().decode()
    read = keep and os.path.getsize(path) < LARGE
    with pa.OSFile(path) if read else pa.memory_map(path) as file:
        return batches_of(file.read_buffer())
