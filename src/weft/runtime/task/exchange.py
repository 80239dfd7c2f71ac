"""How batches of tuples and of results get from task to task, and to the driver.

Guarantees: batches arrive as they were sent, whether they travel inside a message, as a file that its receiver maps, or
as they are where all tasks are in one process. Every parcel says who sent it, so whoever gets several can put them in
an order that does not depend on which came first.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from weft.runtime.task.messages import Message

__all__ = ["Exchange", "Packed", "Sender", "SentParcel"]

INLINE, FILE, DIRECT = "bytes", "file", "batches"
SMALL = 1 << 16

# What is kept, and is larger, stays in its file: mapped, it needs no memory of its own, though nobody finds it by its
# name any more. What is smaller would soon be more mappings than a process may have.
LARGE = 1 << 24


class Sender(NamedTuple):
    """Who sent a parcel or results: the hop (0: a read task), the number of its task, and of what they are made."""

    hop: int
    task: int
    alias: str = ""
    part: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Batches of the same columns as a message carries them: as bytes, in a file or as they are, as ``how`` says."""

    how: str
    data: Any  # a buffer, which holds the path of a file if they are in one; or the batches

    @classmethod
    def in_file(cls, path: str) -> Packed:
        """Batches that were written to a file as an Arrow stream."""
        return cls(FILE, pa.py_buffer(path.encode()))

    def batches(self, *, keep: bool = False) -> list[pa.RecordBatch]:
        """The batches; those to be kept beyond the batch are read, if they are small, and not mapped."""
        if self.how == DIRECT:
            found: list[pa.RecordBatch] = self.data
            return found
        if self.how == INLINE:
            return _read(self.data)
        path = self.data.to_pybytes().decode()
        read = keep and os.path.getsize(path) < LARGE
        with pa.OSFile(path) if read else pa.memory_map(path) as file:
            return _read(file.read_buffer())


def _read(data: pa.Buffer) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as reader:
        return list(reader)


def _stream(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Batches of the same columns as an Arrow stream, written into room that is made at once."""
    room = batches[0].schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + 1024
    buffer = pa.allocate_buffer(room, resizable=False)
    with pa.FixedSizeBufferWriter(buffer) as sink:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        size = sink.tell()
    return buffer.slice(0, size)


@dataclass(frozen=True, slots=True)
class Exchange:
    """How batches get from task to task.

    Through a shuffle, their bytes are copied six times between Python, the JVM and its files. So a large batch is a
    file in a folder that all tasks see, mapped by who receives it, and the message holds its name.
    """

    folder: str | None = None
    direct: bool = False  # all tasks are in this process, and batches need not be bytes

    def new_path(self) -> str:
        """A name in the folder, which is made if need be, that no other file has."""
        if self.folder is not None and not os.path.isdir(self.folder):
            os.makedirs(self.folder, exist_ok=True)
        return f"{self.folder}/{uuid.uuid4().hex}"

    def pack(self, *batches: pa.RecordBatch) -> Packed:
        """Batches of the same columns, ready to be sent."""
        if self.direct:
            return Packed(DIRECT, list(batches))
        if self.folder is None or sum(batch.nbytes for batch in batches) < SMALL:
            return Packed(INLINE, _stream(batches))
        path = self.new_path()
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return Packed.in_file(path)


@dataclass(frozen=True, slots=True, eq=False)
class SentParcel:
    """A batch on its way over an edge, with its sender."""

    edge: str
    sender: Sender
    packed: Packed

    def to_message(self, partition: int) -> Message:
        """As a message to a partition."""
        target = f"{self.edge}\t{json.dumps(self.sender)}\t{self.packed.how}"
        return Message(partition, target, self.packed.data)

    @classmethod
    def from_message(cls, message: Message) -> SentParcel:
        """What `to_message` made."""
        edge, sender, how = message.target.split("\t")
        return cls(edge, Sender(*json.loads(sender)), Packed(how, message.data))
