"""The messages that pass between the tasks of a batch, and to the driver (design, D1).

Guarantees: a message is (task, target, bytes): a parcel of tuples on its way over an edge
(`weft.runtime.wire.exchange`), a note to later hops of a task, or a report to the driver (both
`weft.runtime.wire.reports`), which the hops on the way pass on unopened. Bytes are never copied here: they are views of
Arrow's buffers. A task has several partitions, and gets one parcel of a sender and edge for all of them, so the number
of messages grows with the tasks, and not with the square of the partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from weft.logical.codec import decode, encode

__all__ = ["NOTE", "REPORT", "Message", "MessageBody", "ProtocolError", "read_rows", "to_rows"]

Own = TypeVar("Own", bound="MessageBody")

ROW = pa.schema([("task", pa.int32()), ("target", pa.string()), ("bucket", pa.binary())])

# The targets of reports begin like this; no edge's name does, since a query's name that does is refused.
REPORT = "!"

# The kinds of reports that are for later hops of a batch, and not for the driver, begin like this.
NOTE = "~"


@dataclass(frozen=True, slots=True)
class Message:
    """What a task sends to a task of a later hop or to the driver; where Spark shuffles messages, each is a row.

    ``data`` is a buffer or, where all tasks are in one process, a list of batches.
    """

    task: int
    target: str
    data: Any

    @property
    def kind(self) -> str:
        """Of which kind it is, if it is a report or a note."""
        return self.target.removeprefix(REPORT).partition("\t")[0]

    @property
    def is_report(self) -> bool:
        """Whether it is a report or a note, and not a parcel."""
        return self.target.startswith(REPORT)

    @property
    def is_for_driver(self) -> bool:
        """Whether it is a report, which no task has to see."""
        return self.is_report and not self.target.startswith(REPORT + NOTE)


class ProtocolError(RuntimeError):
    """A message that is no report of this version of Weft."""


@dataclass(frozen=True, slots=True)
class MessageBody:
    """A value whose message is its fields as JSON, under the name of its ``kind``; a kind may override that."""

    kind: ClassVar[str]

    def to_message(self, at: int = 0) -> Message:
        """As a message to the task ``at``, whose later hops use it or pass it on to the driver."""
        text = json.dumps(encode(self), separators=(",", ":"))
        return Message(at, REPORT + self.kind, pa.py_buffer(text.encode()))

    @classmethod
    def from_message(cls: type[Own], message: Message) -> Own:
        """What `to_message` made."""
        return decode(cls, json.loads(message.data.to_pybytes()))

    @classmethod
    def is_in(cls, message: Message) -> bool:
        """Whether a message is of this kind."""
        return message.is_report and message.kind == cls.kind


def to_rows(messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Messages as rows for Spark, each in a batch of its own, since its data may be large."""
    for message in messages:
        offsets = pa.py_buffer(np.array([0, message.data.size], np.int32))
        data = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, message.data])
        yield pa.RecordBatch.from_arrays(
            [pa.array([message.task], pa.int32()), pa.array([message.target]), data], schema=ROW
        )


def read_rows(batch: pa.RecordBatch) -> Iterator[Message]:
    """The messages in rows that `to_rows` made."""
    tasks, targets, data = batch.columns
    _, offsets, content = data.buffers()
    ends = np.frombuffer(offsets, np.int32, len(data) + 1, 4 * data.offset).tolist()
    rows = zip(tasks.to_pylist(), targets.to_pylist(), ends, ends[1:], strict=False)
    for task, target, start, end in rows:
        yield Message(task, target, content.slice(start, end - start))
