"""The executor `local`, which runs all tasks in this process, without a JVM (design, D10).

Guarantees: the same tasks as on Spark run one after the other; a parcel is the batch itself and never becomes bytes, if
the log is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.runtime.loop.executor import Pieces
from weft.runtime.output.merge_task import Merge, collect_task
from weft.runtime.task.worker import hop_task, past_task, read_task
from weft.runtime.wire.messages import Message
from weft.runtime.wire.task_input import Job, Setup

__all__ = ["LocalExecutor"]

TASKS = 2  # so that tasks, each with some of the partitions, send each other something
MOST = 1024  # tasks, of which none costs more than a call here


@dataclass
class LocalExecutor:
    """Runs the tasks of a batch one after the other; there are two of them, if there are as many partitions."""

    partitions: int
    readers: int = 1
    tasks: int = field(default=0, init=False)
    room: int = field(default=MOST, init=False)
    hands: int = field(default=1, init=False)
    name: str = field(default="local", init=False)
    spread: bool = field(default=False, init=False)
    stays: bool = field(default=True, init=False)
    is_outgrown: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.tasks = min(self.partitions, TASKS)

    def scale(self, tasks: int) -> int:
        """Have so many tasks from the next batch on."""
        self.tasks = min(tasks, self.room)
        return self.tasks

    def start(self, setup: Setup) -> None:
        """Do nothing: there is nothing to get ready."""

    def run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        """Run one batch, or the job at its boundary, and return the messages for the driver."""
        if job.boundary:
            sent = [message for task in range(job.tasks) for message in past_task(job, task)]
        else:
            sent = [message for task, mine in enumerate(pieces) for message in read_task(job, task, mine)]
        reports: list[Message] = []
        for hop in range(1, 1 + hops):
            arrived: list[list[Message]] = [[] for _ in range(job.tasks)]
            for message in sent:
                (reports if message.is_for_driver else arrived[message.task]).append(message)
            sent = [
                message for task, mine in enumerate(arrived) for message in hop_task(job, hop, task, mine)
            ]
        return [*reports, *sent]

    def collect(self, job: Job, merges: Sequence[Sequence[Merge]]) -> list[Message]:
        """Merge ranges of ordered results."""
        return [message for mine in merges for message in collect_task(job, mine)]

    def close(self) -> None:
        """Do nothing: nothing is open."""
