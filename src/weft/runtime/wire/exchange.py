"""How batches of tuples and of results get from task to task, and to the driver.

Guarantees: batches arrive as they were sent, whether they travel as bytes in a message, as a file that the receiver
maps, or as objects where sender and receiver are in one process. Every parcel names its sender, so a receiver can sort
parcels into an order that does not depend on which came first.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from weft.runtime.wire.messages import Message
from weft.runtime.wire.parcel_server import fetch_parcel
from weft.storage.storage import checkpoint_writes

__all__ = ["Exchange", "KeptBatches", "PackedBatches", "Sender", "SentParcel"]

INLINE, FILE, DIRECT, KEPT, NOTHING = "bytes", "file", "batches", "kept", "nothing"
SMALL = 1 << 16  # batches of fewer bytes travel inside the message
MOST_KEPT = 1 << 28  # bytes that a task keeps in memory for itself; what is more goes through files


class Sender(NamedTuple):
    """Who sent a parcel or results, by which receivers sort them.

    ``hop`` is the sender's hop, 0 for a task that reads input or, at a boundary, stored tuples; ``task`` is the number
    of its task; ``number`` counts what the sender sends.
    """

    hop: int
    task: int
    number: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PackedBatches:
    """Batches of the same columns as a message carries them.

    ``how`` says whether ``data`` is a buffer with the batches (`INLINE`), a buffer with the path of a file (`FILE`),
    the list of batches itself (`DIRECT`), a buffer with the name under which the sender keeps them for itself
    (`KEPT`; only its `Exchange` can unpack them), or empty since there are none (`NOTHING`).
    """

    how: str
    data: Any

    @classmethod
    def in_file(cls, path: str, origin: str = "") -> PackedBatches:
        """Batches that were written to a file as an Arrow stream, which others can fetch from its ``origin``."""
        return cls(FILE, pa.py_buffer(f"{path}\n{origin}".encode()))

    @classmethod
    def nothing(cls) -> PackedBatches:
        """No batches."""
        return cls(NOTHING, pa.py_buffer(b""))

    def batches(self) -> list[pa.RecordBatch]:
        """The batches."""
        if self.how == NOTHING:
            return []
        if self.how == DIRECT:
            found: list[pa.RecordBatch] = self.data
            return found
        if self.how == INLINE:
            return _read(self.data)
        path, _, origin = self.data.to_pybytes().decode().partition("\n")
        if origin and not os.path.exists(path):
            return fetch_parcel(origin, os.path.basename(path))
        with pa.memory_map(path) as file:
            return _read(file.read_buffer())


def _read(data: pa.Buffer) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as reader:
        return list(reader)


def _stream(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Batches of the same columns as an Arrow stream, in a buffer that is allocated once."""
    room = batches[0].schema.serialize().size + sum(map(pa.ipc.get_record_batch_size, batches)) + 1024
    buffer = pa.allocate_buffer(room, resizable=False)
    with pa.FixedSizeBufferWriter(buffer) as sink:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        size = sink.tell()
    return buffer.slice(0, size)


@dataclass(slots=True, eq=False)
class KeptBatches:
    """What a task that stays has sent to itself in a batch, by name: it need not become bytes, nor be written."""

    bytes: int = 0
    by_name: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def has_room(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """Whether these batches may be kept, too."""
        return bool(self.bytes + sum(batch.nbytes for batch in batches) <= MOST_KEPT)

    def keep(self, batches: Sequence[pa.RecordBatch]) -> PackedBatches:
        """Keep batches until `take`."""
        name = uuid.uuid4().hex
        self.by_name[name] = list(batches)
        self.bytes += sum(batch.nbytes for batch in batches)
        return PackedBatches(KEPT, pa.py_buffer(name.encode()))

    def take(self, packed: PackedBatches) -> list[pa.RecordBatch]:
        """What was kept, which is kept no longer."""
        batches = self.by_name.pop(packed.data.to_pybytes().decode())
        self.bytes -= sum(batch.nbytes for batch in batches)
        return batches


@dataclass(frozen=True, slots=True)
class Exchange:
    """How batches get from task to task.

    A shuffle copies bytes six times between Python, the JVM and its files. So a large batch is written to a file in
    ``folder``, which all tasks see, and the message holds the file's name; the receiver maps it. Without a folder, all
    batches travel as bytes. With ``direct``, all tasks are in this process, and batches travel as objects. With an
    ``origin``, the folder is one of this machine's, and tasks of others fetch files from there. A task that stays has a
    place for what it has ``kept`` for itself.
    """

    folder: str | None = None
    direct: bool = False
    origin: str = ""
    kept: KeptBatches | None = None

    def new_path(self) -> str:
        """A new path in the folder, which is made if it does not exist."""
        if self.folder is not None and not os.path.isdir(self.folder):
            with checkpoint_writes(self.folder):
                os.makedirs(self.folder, exist_ok=True)
        return f"{self.folder}/{uuid.uuid4().hex}"

    def pack(self, *batches: pa.RecordBatch, own: bool = False) -> PackedBatches:
        """Make batches of the same columns ready to be sent; large ones are written to a file.

        If the receiver is the task's ``own`` later hop, they stay in memory, as long as there is room.
        """
        if self.direct:
            return PackedBatches(DIRECT, list(batches))
        if own and self.kept is not None and self.kept.has_room(batches):
            return self.kept.keep(batches)
        if self.folder is None or sum(batch.nbytes for batch in batches) < SMALL:
            return PackedBatches(INLINE, _stream(batches))
        path = self.new_path()
        with (
            checkpoint_writes(path),
            pa.OSFile(path, "wb") as file,
            pa.ipc.new_stream(file, batches[0].schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        return PackedBatches.in_file(path, self.origin)

    def unpack(self, packed: PackedBatches) -> list[pa.RecordBatch]:
        """The batches that a task has been sent, each parcel once."""
        if packed.how == KEPT and self.kept is not None:
            return self.kept.take(packed)
        return packed.batches()


@dataclass(frozen=True, slots=True, eq=False)
class SentParcel:
    """A batch on its way over an edge to the partitions of a task, with its sender.

    ``counts`` is how many of its rows are for each partition of the task, in their order; None if all rows are for all
    partitions.
    """

    edge: str
    sender: Sender
    packed: PackedBatches
    counts: tuple[int, ...] | None = None

    def to_message(self, task: int) -> Message:
        """As a message to a task."""
        head = json.dumps([self.sender, self.counts], separators=(",", ":"))
        return Message(task, f"{self.edge}\t{self.packed.how}\t{head}", self.packed.data)

    @classmethod
    def from_message(cls, message: Message) -> SentParcel:
        """What `to_message` made."""
        edge, how, head = message.target.split("\t")
        sender, counts = json.loads(head)
        return cls(
            edge, Sender(*sender), PackedBatches(how, message.data), None if counts is None else tuple(counts)
        )

    def divided(self, batches: Sequence[pa.RecordBatch], partitions: int) -> list[list[pa.RecordBatch]]:
        """The rows for each of the task's partitions; ``batches`` are those of the parcel, perhaps renumbered."""
        if self.counts is None:
            return [list(batches)] * partitions
        (batch,), first, found = batches, 0, []
        for count in self.counts:
            found.append([batch.slice(first, count)] if count else [])
            first += count
        return found
