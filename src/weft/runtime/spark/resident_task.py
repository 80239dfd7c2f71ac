"""A task that stays: it runs one batch after the other until the driver closes its channel (design, D2).

Guarantees: it works only to answer frames of the driver. Between batches it keeps files of its partitions' state open,
but the driver always sends the manifest that a batch begins with, so a batch can be repeated.
"""

from __future__ import annotations

import gc
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from weft.errors import WeftError
from weft.logical.codec import decode
from weft.ports.source import Part
from weft.runtime.output.merge_task import Merge, collect_task
from weft.runtime.task.worker import hop_task, past_task, read_task
from weft.runtime.wire.channel import Channel, bound_silence, messages_of, open_channel, parts_of
from weft.runtime.wire.credentials import Credentials
from weft.runtime.wire.exchange import Exchange, KeptBatches
from weft.runtime.wire.messages import Message
from weft.runtime.wire.parcel_server import ParcelFolder
from weft.runtime.wire.reports import Failure
from weft.runtime.wire.task_input import Job, Setup

__all__ = ["Address", "connect", "resident"]

Address = str | tuple[str, int]  # a Unix socket, or a host and a port
Batches = Iterator[pa.RecordBatch]
CONNECT = 30.0  # seconds for a connection to the driver
FREEZES = 8  # in so many first batches, what is loaded by then is exempted from garbage collection


def resident(
    setup: Setup, address: Address, credentials: Credentials, silence: int
) -> Callable[[Batches], Batches]:
    """The function that Spark runs in every task of the stage; a driver that is silent for so long is gone."""

    def serve(batches: Batches) -> Batches:
        from pyspark import TaskContext

        for _ in batches:
            pass
        context = TaskContext.get()
        task = 0 if context is None else int(context.partitionId())
        channel = connect(address, credentials, silence)
        parcels = _parcels(address, credentials, channel)
        try:
            channel.send({"kind": "hello", "task": task, "pid": os.getpid()})
            _Task(setup, channel, task, parcels).run()
        except OSError:
            pass  # the driver is done with this task, or gone
        finally:
            channel.close()
            if parcels is not None:
                parcels.close()
        yield pa.RecordBatch.from_arrays([pa.array([task], pa.int32())], names=["task"])

    return serve


def _parcels(address: Address, credentials: Credentials, channel: Channel) -> ParcelFolder | None:
    """Where a task keeps what it sends to tasks of other machines; None if there are none."""
    if isinstance(address, str):
        return None
    host = str(channel.socket.getsockname()[0])  # by which this machine is reached from the driver's
    return ParcelFolder(host, credentials)


def connect(address: Address, credentials: Credentials, silence: int = 0) -> Channel:
    """Connect to the driver, and authenticate both ends; between machines, one that is silent for so long is lost."""
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(address)
    else:
        connection = socket.create_connection(address, timeout=CONNECT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if silence:
            bound_silence(connection, silence)
    channel = open_channel(connection, credentials, driver=False)
    channel.socket.settimeout(None)
    return channel


class _Task:
    """One task with its partitions."""

    def __init__(
        self, setup: Setup, channel: Channel, number: int, parcels: ParcelFolder | None = None
    ) -> None:
        self.setup, self.channel, self.number, self.parcels = setup, channel, number, parcels
        self.job: Job | None = None  # the batch under way
        self.batches = 0

    def run(self) -> None:
        """Answer the frames of the driver until it ends the task."""
        while True:
            head, parts = self.channel.receive()
            if head["kind"] == "end":
                return
            try:
                found = self._step(head, parts)
            except WeftError as error:  # another attempt would meet it again
                found = [Failure.of_task(error).to_message()]
            except Exception as error:  # the driver decides whether to try again
                text = "".join(traceback.format_exception(error))
                self.channel.send(
                    {"kind": "failed", "error": f"{type(error).__name__}: {error}", "trace": text}
                )
                continue
            about, data = parts_of(found)
            self.channel.send({"kind": "done", "messages": about}, data)

    def _step(self, head: dict[str, Any], parts: Sequence[Any]) -> list[Message]:
        if head["kind"] == "read":
            self.job = job = self._begin(head)
            if job.boundary:
                return list(past_task(job, self.number))
            pieces = [(stream, decode(Part, part)) for stream, part in head["pieces"]]
            return list(read_task(job, self.number, pieces))
        if head["kind"] == "collect":
            merges = (decode(Merge, one) for one in head["merges"])
            return list(collect_task(Job.from_dict(self.setup, head["job"]), merges))
        if self.job is None:
            raise RuntimeError("a hop was to be run before its batch had begun")
        return list(hop_task(self.job, head["hop"], self.number, messages_of(head["messages"], parts)))

    def _begin(self, head: dict[str, Any]) -> Job:
        if self.batches < FREEZES:
            gc.freeze()  # what is loaded by now never becomes garbage
        self.batches += 1
        job = Job.from_dict(self.setup, head["job"])
        kept = KeptBatches()  # what an attempt that failed has kept goes with it
        if self.parcels is None:
            return replace(job, exchange=replace(job.exchange, kept=kept))
        self.parcels.clear()  # the batch before is over
        return replace(job, exchange=Exchange(self.parcels.path, origin=self.parcels.origin, kept=kept))
