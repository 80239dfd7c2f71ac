"""The messages that pass between the tasks of a batch, and to the driver (design, D1).

Guarantees: a message is (partition, target, bytes): either a parcel of tuples on its way over an edge
(`weft.runtime.task.exchange`), or a report to the driver (`weft.runtime.task.reports`), which the hops on the way pass
on unopened. Bytes are never copied here: they are views of Arrow's buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["REPORT", "Message", "read_rows", "to_rows"]

ROW = pa.schema([("partition", pa.int32()), ("target", pa.string()), ("bucket", pa.binary())])

# The targets of reports begin like this; no edge's name does, since a query's name that does is refused.
REPORT = "!"


@dataclass(frozen=True, slots=True)
class Message:
    """What a task sends to a partition or to the driver; where Spark shuffles messages, each is a row.

    ``data`` is a buffer or, where all tasks are in one process, a list of batches.
    """

    partition: int
    target: str
    data: Any

    @property
    def is_report(self) -> bool:
        """Whether it is a report, and not a parcel."""
        return self.target.startswith(REPORT)


def to_rows(messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Messages as rows for Spark, each in a batch of its own, since its data may be large."""
    for message in messages:
        offsets = pa.py_buffer(np.array([0, message.data.size], np.int32))
        data = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, message.data])
        yield pa.RecordBatch.from_arrays(
            [pa.array([message.partition], pa.int32()), pa.array([message.target]), data], schema=ROW
        )


def read_rows(batch: pa.RecordBatch) -> Iterator[Message]:
    """The messages in rows that `to_rows` made."""
    partitions, targets, data = batch.columns
    _, offsets, content = data.buffers()
    ends = np.frombuffer(offsets, np.int32, len(data) + 1, 4 * data.offset).tolist()
    rows = zip(partitions.to_pylist(), targets.to_pylist(), ends, ends[1:], strict=False)
    for partition, target, start, end in rows:
        yield Message(partition, target, content.slice(start, end - start))
