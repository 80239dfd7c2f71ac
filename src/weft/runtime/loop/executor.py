"""The protocol of executors, which run the tasks of a batch for the loop (design, D2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.ports.source import Part
from weft.runtime.output.merge_task import Merge
from weft.runtime.wire.messages import Message
from weft.runtime.wire.task_input import Job, Setup

__all__ = ["Executor", "NoRoomError", "Pieces", "spread"]

# For every read task: the parts it reads, each with its stream.
Pieces = Sequence[Sequence[tuple[str, Part]]]


class NoRoomError(RuntimeError):
    """There is no room for tasks at the moment; nothing has been run, and there may be room later."""


class Executor(Protocol):
    """Runs the tasks of a batch, on Spark or in this process.

    A failure that another attempt may not meet (a lost worker) is raised as an exception that is no `WeftError`, and
    the loop runs the batch again, a `NoRoomError` as often as it takes. Any other error of a task is reported in a
    message (`Failure`).
    """

    @property
    def name(self) -> str:
        """Its name: resident, jobs or local."""
        ...

    @property
    def readers(self) -> int:
        """How many tasks read input."""
        ...

    @property
    def tasks(self) -> int:
        """How many tasks run hops; each job says which partitions each of them has."""
        ...

    @property
    def room(self) -> int:
        """How many tasks there can be, as far as is known now: what `scale` makes of any larger number."""
        ...

    @property
    def hands(self) -> int:
        """How many tasks can work at the same moment, as far as is known now: any more would share the same cores."""
        ...

    @property
    def spread(self) -> bool:
        """Whether tasks run on several machines."""
        ...

    @property
    def stays(self) -> bool:
        """Whether all hops of a batch that have the same partitions run in the same process."""
        ...

    @property
    def is_outgrown(self) -> bool:
        """Whether there is room for another number of tasks than it has, so that it is better started again."""
        ...

    def scale(self, tasks: int) -> int:
        """Have another number of tasks as soon as there is room for them, and return how many that will be.

        Until then, `tasks` is what it was: tasks that stay are replaced when `is_outgrown` says that the slots for all
        of them are free, so that no batch waits for executors that are still on their way.
        """
        ...

    def start(self, setup: Setup) -> None:
        """Get ready for batches; called again when the setup changes, after a failure, and when it is outgrown."""
        ...

    def run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        """Run one batch, or the job at its boundary, and return the messages for the driver."""
        ...

    def collect(self, job: Job, merges: Sequence[Sequence[Merge]]) -> list[Message]:
        """Have tasks merge ranges of ordered results of a batch, for every task its own, and return what they report.

        Files of the batch have all that tasks need for it, whichever tasks there were before.
        """
        ...

    def close(self) -> None:
        """End all tasks."""
        ...


def spread(parts: Sequence[tuple[str, Part]], readers: int) -> list[list[tuple[str, Part]]]:
    """Divide parts among read tasks, in order and about evenly by size.

    The sequence of all parts is cut into as many pieces as there are tasks, so the parts of a stream are read by tasks
    of ascending numbers: the order of its tuples does not depend on how many tasks there are.

    >>> parts = [("a", Part({"n": 1}, 10)), ("b", Part({"n": 2}, 10)), ("b", Part({"n": 3}, 20))]
    >>> [[part.what["n"] for _, part in piece] for piece in spread(parts, 2)]
    [[1, 2], [3]]
    """
    found: list[list[tuple[str, Part]]] = [[] for _ in range(readers)]
    total, before = sum(max(1, part.bytes) for _, part in parts), 0
    for stream, part in parts:
        size = max(1, part.bytes)
        middle = before + size / 2
        found[min(readers - 1, int(middle * readers / total))].append((stream, part))
        before += size
    return found
