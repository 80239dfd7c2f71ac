"""The stage of tasks that stay: a barrier stage of Spark's, run by a thread, and a control channel to every task.

Guarantees: all tasks of the stage run at once, or none. Its key is new, and only who knows it is taken for a task. On
one machine the channels are Unix sockets that only this user can reach; on several, TCP, authenticated and, if the
place says so, encrypted, and an end that has been silent for too long is taken for lost, so that nothing waits for it
without end. A stage that has ended holds no slot of Spark's but those of tasks that cannot be reached.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import select
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from weft.runtime.loop.executor import NoRoomError
from weft.runtime.spark.resident_task import Address, resident
from weft.runtime.wire.channel import Channel, bound_silence, messages_of, open_channel
from weft.runtime.wire.credentials import Credentials
from weft.runtime.wire.messages import Message
from weft.runtime.wire.parcel_server import know_stage
from weft.runtime.wire.task_input import Setup

__all__ = [
    "DriverAddress",
    "FreeSlots",
    "Stage",
    "TaskLostError",
]


_LOG = logging.getLogger("weft")

_NO_ROOM = "SPARK-24819"  # in Spark's error if there are fewer slots than tasks of a barrier stage
PATIENCE = 120.0  # seconds until all tasks must have begun
SILENCE = 15  # seconds after which an end of a channel between machines that says nothing is taken for lost


class TaskLostError(RuntimeError):
    """A task of the stage has ended or failed, or could not be started; the batch can be tried again."""


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where the driver listens for tasks, which must have begun within its ``patience``, in seconds.

    On several machines that is a ``host``, as tasks know it, or another address that it is to ``bind`` to, as behind
    the name of a service; ``silence`` says after how many seconds a silent end is lost, and ``encrypted`` whether what
    tasks and driver send each other is.
    """

    host: str | None = None
    bind: str | None = None
    silence: int = SILENCE
    patience: float = PATIENCE
    encrypted: bool = False


class Stage:
    """A stage that stays: Spark's job in a thread, and a channel to every task."""

    def __init__(self, spark: SparkSession, setup: Setup, tasks: int, place: DriverAddress) -> None:
        self.spark, self.tasks, self.place = spark, tasks, place
        self.channels: list[Channel] = []
        self.pids: tuple[int, ...] = ()
        self.error: BaseException | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="weft-"))  # for this user alone
        self._credentials = Credentials.create(encrypted=place.encrypted)
        self._name = self._credentials.stage
        self._listener, address = self._listen()
        know_stage(self._credentials)
        serve = resident(setup, address, self._credentials, place.silence)
        self._thread = threading.Thread(
            target=self._serve, args=(serve, setup.identity), name="weft-resident", daemon=True
        )
        self._thread.start()
        try:
            self._accept()
        except BaseException:
            self.end(lost=True)
            raise

    def _listen(self) -> tuple[socket.socket, Address]:
        if self.place.host is None:
            path = str(self._folder / "control")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            listener.listen(self.tasks)
            return listener, path
        listener = socket.create_server((self.place.bind or self.place.host, 0), backlog=self.tasks)
        return listener, (self.place.host, int(listener.getsockname()[1]))

    def _serve(self, serve: Any, identity: str) -> None:
        """Run the stage as a job of Spark, which ends when its tasks do."""
        context = self.spark.sparkContext
        try:
            context.setJobGroup(f"weft-{self._name}", f"weft: resident tasks of session {identity[:8]}")
            rows = self.spark.range(0, self.tasks, 1, self.tasks)
            rows.mapInArrow(serve, "task int", barrier=True).toArrow()
        except BaseException as error:
            self.error = error

    def _accept(self) -> None:
        """Wait until all tasks have connected and said their numbers."""
        self._listener.settimeout(0.05)
        found: dict[int, Channel] = {}
        pids: dict[int, int] = {}
        deadline = time.monotonic() + self.place.patience
        while len(found) < self.tasks:
            ended = not self._thread.is_alive()
            if ended or time.monotonic() > deadline:
                for channel in found.values():
                    channel.close()
                raise self._not_started(ended)
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            try:
                channel, task, pid = self._greet(connection)
                found[task], pids[task] = channel, pid
            except (OSError, ValueError, KeyError) as error:
                _LOG.warning("a process that is no task of this session was refused: %s", error)
        self.channels = [found[task] for task in range(self.tasks)]
        self.pids = tuple(pids[task] for task in range(self.tasks))

    def _not_started(self, ended: bool) -> Exception:
        """What to raise if not all tasks have begun: whether that was for want of room, as far as Spark tells."""
        if not ended or _NO_ROOM in str(self.error):
            return NoRoomError(f"Spark has no room for {self.tasks} resident tasks")
        return TaskLostError(self.why(f"{self.tasks} resident tasks could not be started"))

    def _greet(self, connection: socket.socket) -> tuple[Channel, int, int]:
        """A channel to who has connected, if that is a task, with the task's number and process."""
        connection.settimeout(10.0)
        if self.place.host is not None:
            bound_silence(connection, self.place.silence)
        channel = open_channel(connection, self._credentials, driver=True)
        try:
            head, _ = channel.receive()
            channel.socket.settimeout(None)
            return channel, int(head["task"]), int(head["pid"])
        except BaseException:
            channel.close()
            raise

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

    def count_lost(self) -> int:
        """How many tasks are gone: those whose end of the channel is closed, or was silent for too long."""
        if not hasattr(select, "POLLRDHUP"):  # not on every system
            return 1
        looking = select.poll()
        for channel in self.channels:
            looking.register(channel.socket, select.POLLRDHUP)
        return len(looking.poll(0))

    def end(self, *, lost: bool = False) -> None:
        """Close all channels, which ends the tasks and with them Spark's job; one that goes on is cancelled.

        If tasks were ``lost``, or have not begun, it is cancelled at once; one that still waits for slots ends when it
        gets some, as its tasks then reach nobody.
        """
        for channel in self.channels:
            with contextlib.suppress(OSError):
                channel.send({"kind": "end"})
            channel.close()
        self._listener.close()
        if self.place.host is not None:
            self._thread.join(0.1 if lost else 3.0)  # a task that cannot be reached would be waited for
            if self._thread.is_alive():
                with contextlib.suppress(Exception):
                    self.spark.sparkContext.cancelJobGroup(f"weft-{self._name}")
        self._thread.join(1.0 if lost else 10.0)
        shutil.rmtree(self._folder, ignore_errors=True)


PAUSE = 1.0  # seconds after Spark has refused to wait any longer


class FreeSlots:
    """Waits in a thread until Spark has so many more slots free: it has a barrier job of tasks that end at once.

    Waiting takes no slot. The slots are found when so many are free at the same moment; by then Python runs on the
    executors that have them, with Weft loaded.
    """

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        self.is_found = False
        self._spark, self._tasks = spark, tasks
        self._over = threading.Event()
        self._group = f"weft-room-{secrets.token_hex(8)}"
        threading.Thread(target=self._wait, name="weft-room", daemon=True).start()

    def _wait(self) -> None:
        while not self._over.is_set():
            try:
                what = f"weft: wait for room for {self._tasks} more resident tasks"
                self._spark.sparkContext.setJobGroup(self._group, what)
                rows = self._spark.range(0, self._tasks, 1, self._tasks)
                rows.mapInArrow(_load_weft, "id long", barrier=True).toArrow()
                self.is_found = True
                return
            except Exception:  # Spark has given up, or the job was cancelled
                self._over.wait(PAUSE)

    def close(self) -> None:
        """Wait no more."""
        self._over.set()
        if not self.is_found:
            with contextlib.suppress(Exception):
                self._spark.sparkContext.cancelJobGroup(self._group)


def _load_weft(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that loads what resident tasks need, and ends."""
    import weft.runtime.spark.resident_task  # noqa: F401

    yield from batches
