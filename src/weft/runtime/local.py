"""The executor `local`, which runs all tasks in this process, without a JVM (design, D10).

Guarantees: the same tasks as on Spark run one after the other; a parcel is the batch itself and never becomes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.runtime.loop.executor import Pieces
from weft.runtime.task.job import Job, Setup
from weft.runtime.task.messages import Message
from weft.runtime.task.worker import hop_task, past_task, read_task

__all__ = ["LocalExecutor"]


@dataclass
class LocalExecutor:
    """Runs the tasks of a batch one after the other."""

    partitions: int
    readers: int = 1
    name: str = field(default="local", init=False)

    def start(self, setup: Setup) -> None:
        """Do nothing: there is nothing to get ready."""

    def run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        """Run one batch, or the job at its boundary, and return the messages for the driver."""
        if job.boundary:
            sent = [message for task in range(self.partitions) for message in past_task(job, task)]
        else:
            sent = [message for task, mine in enumerate(pieces) for message in read_task(job, task, mine)]
        for hop in range(1, 1 + hops):
            arrived: list[list[Message]] = [[] for _ in range(self.partitions)]
            for message in sent:
                arrived[message.partition].append(message)
            sent = [
                message
                for partition, mine in enumerate(arrived)
                for message in hop_task(job, hop, partition, mine)
            ]
        return sent

    def close(self) -> None:
        """Do nothing: nothing is open."""
