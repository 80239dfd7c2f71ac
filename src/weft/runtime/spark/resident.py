"""The executor `resident`: tasks of one barrier stage of Spark stay, and run all batches (design, D2).

Guarantees: all tasks of the stage run at once, or none (`barrier=True`). A hop is a step that the driver begins when
all tasks have done the one before; what they send each other passes through the driver, large parcels as the names of
files that the receiver maps. When any task is lost, the whole stage ends, and the next `start` begins another. The key
of the control channel is new for every stage.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from weft.runtime.loop.config import Describe
from weft.runtime.loop.executor import Pieces
from weft.runtime.spark.channel import Channel, authenticate, messages_of, parts_of
from weft.runtime.spark.resident_task import resident
from weft.runtime.spark.session import slots_of
from weft.runtime.task.job import Job, Setup
from weft.runtime.task.messages import Message

__all__ = ["ResidentExecutor", "TaskLostError"]

_LOG = logging.getLogger("weft")

PATIENCE = 120.0  # seconds until all tasks must have begun


class TaskLostError(RuntimeError):
    """A task of the stage has ended or failed, or could not be started; the batch can be tried again."""


@dataclass
class ResidentExecutor:
    """Runs batches in tasks that stay; ``describe`` describes a sink so that tasks can make it."""

    spark: SparkSession
    tasks: int
    describe: Describe
    name: str = field(default="resident", init=False)
    stays: bool = field(default=True, init=False)
    _stage: _Stage | None = None

    @property
    def readers(self) -> int:
        """As many as there are tasks: every task reads."""
        return self.tasks

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the tasks that stay, in the order of the tasks; none while there is no stage."""
        return self._stage.pids if self._stage is not None else ()

    def start(self, setup: Setup) -> None:
        """Begin a new stage; one that runs already is ended."""
        self.close()
        self._stage = _Stage(self.spark, setup, self.tasks)

    def run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        """Run one batch: a step to read and one for each hop."""
        if self._stage is None:
            raise TaskLostError("no tasks have been started")
        try:
            return self._run(self._stage, job, pieces, hops)
        except OSError as error:
            raise TaskLostError(self._stage.why(str(error))) from None

    def _run(self, stage: _Stage, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        heads = [
            {
                "kind": "read",
                "job": job.for_task(task).to_dict(self.describe),
                "pieces": [(stream, part.to_dict()) for stream, part in mine],
            }
            for task, mine in enumerate(pieces)
        ]
        sent = stage.step([(head, ()) for head in heads])
        reports: list[Message] = []
        for hop in range(1, 1 + hops):
            mine: list[list[Message]] = [[] for _ in range(self.tasks)]
            for message in sent:
                (reports if message.is_for_driver else mine[message.task]).append(message)
            frames = []
            for messages in mine:
                about, data = parts_of(messages)
                frames.append(({"kind": "hop", "hop": hop, "messages": about}, data))
            sent = stage.step(frames)
        return [*reports, *sent]

    def close(self) -> None:
        """End all tasks."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.end()


class _Stage:
    """The stage that stays: Spark's job in a thread, and a channel to every task."""

    def __init__(self, spark: SparkSession, setup: Setup, tasks: int) -> None:
        self.spark, self.tasks = spark, tasks
        self.channels: list[Channel] = []
        self.pids: tuple[int, ...] = ()
        self.error: BaseException | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="weft-"))  # for this user alone
        address, key = str(self._folder / "control"), secrets.token_bytes(32)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address)
        self._listener.listen(tasks)
        serve = resident(setup, address, key)
        self._thread = threading.Thread(
            target=self._serve, args=(serve, setup.identity), name="weft-resident", daemon=True
        )
        self._thread.start()
        try:
            self._accept(key)
        except BaseException:
            self.end()
            raise

    def _serve(self, serve: Any, identity: str) -> None:
        """Run the stage as a job of Spark, which ends when its tasks do."""
        context = self.spark.sparkContext
        try:
            context.setJobDescription(f"weft: resident tasks of session {identity[:8]}")
            rows = self.spark.range(0, self.tasks, 1, self.tasks)
            rows.mapInArrow(serve, "task int", barrier=True).toArrow()
        except BaseException as error:
            self.error = error
        finally:
            with contextlib.suppress(Exception):
                context.setJobDescription(None)  # type: ignore[arg-type]

    def _accept(self, key: bytes) -> None:
        """Wait until all tasks have connected and said their numbers."""
        self._listener.settimeout(0.05)
        found: dict[int, Channel] = {}
        pids: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE
        while len(found) < self.tasks:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                for channel in found.values():
                    channel.close()
                raise TaskLostError(self.why("the resident tasks could not be started"))
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            try:
                connection.settimeout(10.0)
                authenticate(connection, key, driver=True)
                channel = Channel(connection)
                head, _ = channel.receive()
                connection.settimeout(None)
                found[int(head["task"])], pids[int(head["task"])] = channel, int(head["pid"])
            except (OSError, ValueError, KeyError) as error:
                _LOG.warning("a process that is no task of this session was refused: %s", error)
                connection.close()
        self.channels = [found[task] for task in range(self.tasks)]
        self.pids = tuple(pids[task] for task in range(self.tasks))

    def step(self, frames: Sequence[tuple[dict[str, Any], Sequence[Any]]]) -> list[Message]:
        """Send each task its frame, and wait for all answers; the messages of all, in the order of the tasks."""
        for channel, (head, parts) in zip(self.channels, frames, strict=True):
            channel.send(head, parts)
        answers: dict[int, list[Message]] = {}
        with selectors.DefaultSelector() as waiting:
            for number, channel in enumerate(self.channels):
                waiting.register(channel.socket, selectors.EVENT_READ, number)
            while len(answers) < self.tasks:
                for key, _ in waiting.select():
                    answers[key.data] = self._answer(self.channels[key.data])
                    waiting.unregister(key.fileobj)
        return [message for number in range(self.tasks) for message in answers[number]]

    def _answer(self, channel: Channel) -> list[Message]:
        head, parts = channel.receive()
        if head["kind"] == "failed":
            _LOG.debug("a task failed:\n%s", head["trace"])
            raise TaskLostError(head["error"])
        return messages_of(head["messages"], parts)

    def why(self, otherwise: str) -> str:
        """Why the stage ended: the first line of Spark's error, or ``otherwise`` if there is none in two seconds."""
        self._thread.join(2.0)
        if self.error is None:
            return otherwise
        lines = [line.strip() for line in str(self.error).splitlines() if line.strip()]
        return lines[0] if lines else otherwise

    def end(self) -> None:
        """Close all channels, which ends the tasks and with them Spark's job."""
        for channel in self.channels:
            with contextlib.suppress(OSError):
                channel.send({"kind": "end"})
            channel.close()
        self._listener.close()
        self._thread.join(10.0)
        shutil.rmtree(self._folder, ignore_errors=True)


def fits(spark: SparkSession, tasks: int) -> str:
    """Why so many tasks cannot stay beside other jobs of a Spark session; "" if they can."""
    slots = slots_of(spark) or int(spark.sparkContext.defaultParallelism)
    if os.name != "posix":
        return "resident tasks need Unix sockets"
    if slots <= tasks:
        return f"{tasks} resident tasks need more than {tasks} slots, and this session of Spark has {slots}"
    return ""
