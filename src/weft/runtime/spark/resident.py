"""The executor `resident`: tasks of one barrier stage of Spark stay, and run all batches (design, D2).

Guarantees: all tasks of the stage run at once, or none (`barrier=True`). A hop is a step that the driver begins when
all tasks have done the one before; what they send each other passes through the driver, large parcels as the names of
files that the receiver maps. When any task is lost, the whole stage ends, and the next `start` begins another. The key
of the control channel is new for every stage. On several machines, where executors come and go, a stage after a loss
has as many tasks as are left, at once; as soon as Spark has room for more, another stage takes its place. The same
holds when another number of tasks is asked for: a stage of fewer tasks begins with the next batch, one of more as soon
as all slots for it are free, by when Python runs there; until then the stage there is goes on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from weft.logical.codec import encode
from weft.runtime.loop.config import Describe
from weft.runtime.loop.executor import NoRoomError, Pieces
from weft.runtime.output.merge_task import Merge
from weft.runtime.spark.resident_stage import SILENCE, DriverAddress, FreeSlots, Stage, TaskLostError
from weft.runtime.spark.session import naming_java_death, room_of, slots_of, tasks_on_cluster
from weft.runtime.wire.channel import parts_of
from weft.runtime.wire.credentials import can_encrypt
from weft.runtime.wire.messages import Message
from weft.runtime.wire.task_input import Job, Setup

__all__ = ["DriverAddress", "ResidentExecutor", "TaskLostError", "fits", "place_on_cluster"]

_LOG = logging.getLogger("weft")

RESTART_PATIENCE = 20.0  # seconds until tasks must have begun after others were lost; then fewer are tried
LOOKS = 1.0  # seconds between two looks whether the cluster has got more cores
_ENCRYPTED = (  # by each of these, Spark encrypts what it sends
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.enableSaslEncryption",
)


@dataclass
class ResidentExecutor:
    """Runs batches in tasks that stay; ``describe`` describes a sink so that tasks can make it.

    With a ``limit``, there are up to so many tasks, one per core of a cluster.
    """

    spark: SparkSession
    tasks: int
    describe: Describe
    place: DriverAddress = field(default_factory=DriverAddress)
    limit: int | None = None
    name: str = field(default="resident", init=False)
    stays: bool = field(default=True, init=False)
    _stage: Stage | None = field(default=None, init=False)
    _most: int = field(default=0, init=False)  # tasks, of which there may be fewer after a loss
    _lost: int = field(default=0, init=False)  # tasks of the last stage that are gone
    _began: bool = field(default=False, init=False)  # whether there was a stage before
    _room: FreeSlots | None = field(default=None, init=False)  # for the tasks that are missing
    _looked: float = field(default=0.0, init=False)  # when the cores of the cluster were counted
    _too_many: bool = field(default=False, init=False)  # whether fewer tasks were asked for than there are

    def __post_init__(self) -> None:
        self._most = self.tasks

    @property
    def readers(self) -> int:
        """As many as there are tasks: every task reads."""
        return self.tasks

    @property
    def room(self) -> int:
        """As many as there are slots, one of which is left to other jobs where all are on one machine."""
        room = room_of(self.spark)
        return room if self.place.host is not None else max(1, room - 1)

    @property
    def hands(self) -> int:
        """The same, but no more than this machine has cores where it has all the tasks."""
        return self.room if self.spread else min(self.room, os.cpu_count() or 1)

    @property
    def spread(self) -> bool:
        """Whether tasks run on several machines."""
        return self.place.host is not None

    def scale(self, tasks: int) -> int:
        """Have so many tasks as soon as their slots are free; those there are go on until then."""
        self._most = min(tasks, self.room)
        if self.limit is not None:
            self.limit = tasks
        self._too_many = self._most < self.tasks
        self._wait_for_room()
        return self._most

    def _wait_for_room(self) -> None:
        """Begin to wait for the slots of tasks that are missing, and no longer for others."""
        room, self._room = self._room, None
        if room is not None:
            room.close()
        if self._stage is not None and self.tasks < self._most:
            self._room = FreeSlots(self.spark, self._most - self.tasks)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the tasks that stay, in the order of the tasks; none while there is no stage."""
        return self._stage.pids if self._stage is not None else ()

    @property
    def is_outgrown(self) -> bool:
        """Whether there is room for the tasks that are missing, there are too many, or the cluster has more cores."""
        if self._too_many or (self._room is not None and self._room.is_found):
            return True
        if self.limit is None or time.monotonic() < self._looked + LOOKS:
            return False
        self._looked = time.monotonic()
        return tasks_on_cluster(self.spark, self.limit) > self._most

    def start(self, setup: Setup) -> None:
        """Begin a new stage; one that runs already is ended."""
        with naming_java_death(self.spark):
            count = self._next_count()
            self._end()
            self._stage = self._new_stage(setup, count)
        self.tasks, self._lost, self._began, self._too_many = self._stage.tasks, 0, True, False
        if self.tasks < self._most:
            _LOG.info("%d resident tasks of %d have begun", self.tasks, self._most)
            self._wait_for_room()

    def _next_count(self) -> int:
        """How many tasks to begin with: all of them, if there may be room; else those that are left."""
        has_room = self._room is not None and self._room.is_found
        if self.place.host is None:
            return self._most if not self._began or has_room else min(self.tasks, self._most)
        if self._stage is not None:
            self._lost = self._stage.count_lost()
        before, self._looked = self._most, time.monotonic()
        if self.limit is not None:
            self._most = max(before, tasks_on_cluster(self.spark, self.limit))
        if not self._began or self._most > before or has_room:
            return self._most
        return max(1, min(self._most, self.tasks - self._lost))

    def _new_stage(self, setup: Setup, count: int) -> Stage:
        """A stage of so many tasks or, on several machines, if there is no room for them, of half as many, and so on.

        Where no fewer can be tried, they are waited for as long as at the beginning: the machine may just be busy.
        """
        hurry = self._began
        while True:
            is_least = count == 1 or self.place.host is None
            place = replace(self.place, patience=RESTART_PATIENCE) if hurry and not is_least else self.place
            try:
                return Stage(self.spark, setup, count, place)
            except NoRoomError as error:
                if is_least and not self._began:
                    raise TaskLostError(f"resident tasks could not be started: {error}") from None
                if is_least:
                    raise
                _LOG.warning("%s; %d are tried", error, count // 2)
                count, hurry = count // 2, True

    def run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        """Run one batch: a step to read and one for each hop."""
        return self._with_tasks(lambda stage: self._run(stage, job, pieces, hops))

    def collect(self, job: Job, merges: Sequence[Sequence[Merge]]) -> list[Message]:
        """Merge ranges of ordered results, in one step; tasks that have begun since then are given the job anew."""
        plain = job.for_task().to_dict(self.describe)
        heads = [
            {"kind": "collect", "job": plain, "merges": [encode(one) for one in mine]} for mine in merges
        ]
        return self._with_tasks(lambda stage: stage.step([(head, ()) for head in heads]))

    def _with_tasks(self, ask: Callable[[Stage], list[Message]]) -> list[Message]:
        """What tasks answer; an error if they are lost."""
        if self._stage is None:
            raise TaskLostError("no tasks have been started")
        with naming_java_death(self.spark):
            try:
                return ask(self._stage)
            except OSError as error:
                raise TaskLostError(self._stage.why(str(error))) from None

    def _run(self, stage: Stage, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        heads = [
            {
                "kind": "read",
                "job": job.for_task(task).to_dict(self.describe),
                "pieces": [(stream, encode(part)) for stream, part in mine],
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
        self._end()

    def _end(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.close()
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.end(lost=bool(self._lost))


def fits(spark: SparkSession, tasks: int) -> str:
    """Why so many tasks cannot stay beside other jobs of a Spark session; "" if they can."""
    slots = slots_of(spark)
    if slots is None:
        return _fits_on_cluster(spark, tasks)
    if os.name != "posix":
        return "resident tasks need Unix sockets"
    if slots <= tasks:
        return f"{tasks} resident tasks need more than {tasks} slots, and this session of Spark has {slots}"
    return ""


def _fits_on_cluster(spark: SparkSession, tasks: int) -> str:
    """The same on several machines, where tasks that stay may have all slots, if the user wants it so."""
    settings = spark.sparkContext.getConf()
    if (name := _encrypted_by(spark)) and not can_encrypt():
        return (
            f"{name} is on, and resident tasks can encrypt what they send only with the package "
            'cryptography on the driver (pip install "weft[tls]")'
        )
    if settings.get("spark.dynamicAllocation.enabled", "false") == "true":
        return "spark.dynamicAllocation.enabled is on, and Spark has no barrier stages then"
    slots = int(spark.sparkContext.defaultParallelism)
    if slots < tasks:
        return f"{tasks} resident tasks need as many slots, and this session of Spark has {slots}"
    return ""


def _encrypted_by(spark: SparkSession) -> str:
    """The setting by which Spark encrypts what it sends; "" if it does not."""
    settings = spark.sparkContext.getConf()
    return next((name for name in _ENCRYPTED if settings.get(name, "false").lower() == "true"), "")


def place_on_cluster(spark: SparkSession) -> DriverAddress:
    """Where the driver listens for tasks on other machines, and when silent ones are lost: no later than Spark says."""
    settings = spark.sparkContext.getConf()
    host, bind = settings.get("spark.driver.host"), settings.get("spark.driver.bindAddress")
    given = str(settings.get("spark.network.timeout", "120s"))
    seconds = int(given[:-1]) if given[:-1].isdigit() and given.endswith("s") else SILENCE
    encrypted = bool(_encrypted_by(spark))
    return DriverAddress(host, bind, min(SILENCE, max(2, seconds)), encrypted=encrypted)
