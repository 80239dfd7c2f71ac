"""The output of a task as messages: parcels for later hops, results and counts.

Guarantees: parcels and results leave the task's memory as they are found (design, D14): rows of an edge are held until
there is a portion of them, and then packed, one parcel for each task that receives some; results go into the parts that
their sinks write, into sorted runs if they are ordered, or into files for the driver. Every parcel names its sender, so
that receivers can sort by that. Of a query that failed in the task, or whose sink did, no results are reported, and no
part is left behind.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Ints
from weft.kernels.route.partition import group
from weft.ports.sink import PartOpener, PartSink, PartWriter
from weft.runtime.hop.census import Census
from weft.runtime.hop.groups.group_hop import send_groups
from weft.runtime.hop.outcome import Outcome, Parcel
from weft.runtime.hop.sorting import key_count
from weft.runtime.model.columns import concat
from weft.runtime.output.batch_files import ResultFiles
from weft.runtime.output.sink_errors import sink_error
from weft.runtime.output.spill import SortedSpill, Spill
from weft.runtime.wire.exchange import SMALL, PackedBatches, Sender, SentParcel
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import Failure, HopReport, ResultsReport
from weft.runtime.wire.task_input import Job

__all__ = ["TaskOutlet", "failures"]

ENOUGH = 1 << 20  # bytes of an edge that are worth a parcel

Writer: TypeAlias = "PartWriter | Spill | SortedSpill | ResultFiles"


@dataclass
class TaskOutlet:
    """Takes the parcels and results of a hop; `messages` gives them as messages when the hop is done.

    Used as a context, it deletes what was written of results if the hop fails.
    """

    job: Job
    sender: Sender
    _sent: list[Message] = field(default_factory=list)
    _held: dict[str, list[Parcel]] = field(default_factory=dict)  # by edge
    _bytes: dict[str, int] = field(default_factory=dict)
    _writers: dict[str, Writer] = field(default_factory=dict)  # by query
    _refused: dict[str, Exception] = field(default_factory=dict)  # by query whose sink failed

    def __enter__(self) -> TaskOutlet:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._writers):
            self._writers.pop(name).abort()

    @property
    def _at(self) -> int:
        return self.sender.task % self.job.tasks

    def send(self, parcel: Parcel) -> None:
        """Hold a parcel until there is a portion of them to pack; one for all partitions is packed at once."""
        if parcel.targets is None:
            self._pack(parcel.edge)
            packed, sender = self.job.exchange.pack(parcel.batch), self._next_sender()
            sent = SentParcel(parcel.edge, sender, packed)
            self._sent += [sent.to_message(task) for task in range(self.job.tasks)]
            return
        held = self._held.setdefault(parcel.edge, [])
        if held and not held[-1].batch.schema.equals(parcel.batch.schema):
            self._pack(parcel.edge)
        self._held.setdefault(parcel.edge, []).append(parcel)
        self._bytes[parcel.edge] = self._bytes.get(parcel.edge, 0) + parcel.batch.nbytes
        if self._bytes[parcel.edge] > min(self.job.limits.portion_bytes, ENOUGH):
            self._pack(parcel.edge)

    def _pack(self, edge: str) -> None:
        """Pack what is held of an edge: for each task a parcel, with the rows of its partitions one after the other."""
        held, self._bytes[edge] = self._held.pop(edge, []), 0
        if not held:
            return
        assignment = self.job.assignment
        tasks, width = assignment.tasks, assignment.width
        targets = np.concatenate([one.targets for one in held if one.targets is not None])
        places = np.where(targets < 0, targets, assignment.places()[targets]).astype(np.int32)
        batch, starts = group(concat([one.batch for one in held]), places, tasks * width, _owners(held))
        for task in range(tasks):
            bounds = starts[task * width : (task + 1) * width + 1].tolist()
            if rows := bounds[-1] - bounds[0]:
                mine = batch.slice(bounds[0], rows)
                packed = self.job.exchange.pack(mine, own=task == self.sender.task)
                counts = tuple(end - start for start, end in pairwise(bounds))
                sent = SentParcel(edge, self._next_sender(), packed, counts)
                self._sent.append(sent.to_message(task))

    def _next_sender(self) -> Sender:
        return self.sender._replace(number=len(self._sent))

    def give(self, query: str, rows: pa.RecordBatch) -> None:
        """Write results to the part of their sink, to a sorted run, or to a file for the driver."""
        if query in self._refused:
            return
        sink = self.job.sinks.get(query)
        with self._noting(query, sink if isinstance(sink, PartOpener) else None):
            if query not in self._writers:
                self._writers[query] = self._writer(query, sink)
            self._writers[query].write(rows)

    @contextmanager
    def _noting(self, query: str, sink: PartSink | None) -> Iterator[None]:
        """A context in which an error of a query's sink is noted, and its other results are dropped.

        Without a sink, results are on their way through the checkpoint, whose errors are raised.
        """
        try:
            yield
        except Exception as error:
            if sink is None:
                raise
            self._refused[query] = sink_error(query, sink, error)
            if (writer := self._writers.pop(query, None)) is not None:
                with suppress(Exception):
                    writer.abort()

    def _writer(self, query: str, sink: PartSink | None) -> Writer:
        job, size = self.job, self.job.limits.portion_bytes
        ordering = job.program.members[query].ordering if query in job.ordered else None
        if ordering is not None:
            return SortedSpill(job, key_count(ordering))
        if isinstance(sink, PartOpener):
            return sink.open_part(job.number, self._at)
        if sink is not None:
            return Spill(job.exchange, size)
        return ResultFiles(job.setup.storage, job.number, 1 << 62 if job.exchange.direct else size)

    def messages(self, outcome: Outcome) -> Generator[Message, None, HopReport]:
        """Give the messages of a hop that is done: parcels and results; and return what is to be reported of it."""
        if outcome.grouped:
            send_groups(self.job.program, outcome, self.job.batch_order.partitions)
        for edge in list(self._held):
            self._pack(edge)
        yield from self._sent
        parts = yield from self._answers(outcome)
        return HopReport(
            self.sender.hop,
            steps=outcome.steps,
            edges=outcome.edges,
            calls=outcome.calls or None,
            census={query: census for query, census in outcome.census.items() if census != Census()},
            counts=outcome.counts,
            closed=outcome.closed,
            parts=parts,
            ages=outcome.latency.latencies() if outcome.counts or parts else {},
        )

    def _answers(self, outcome: Outcome) -> Generator[Message, None, dict[str, str]]:
        """Give results for the driver and the failures of queries, and return the parts that were written, by query."""
        parts, failed = dict[str, str](), dict(outcome.failed)
        for query, writer in list(self._writers.items()):
            if query in failed:
                self._writers.pop(query).abort()
            elif isinstance(writer, ResultFiles | SortedSpill):
                yield from self._results(query, writer)
                self._writers.pop(query)
            else:
                batches = _spilled(writer)
                with self._noting(query, self.job.sinks[query]):
                    parts[query] = self._part(query, writer, batches)
                    self._writers.pop(query)
        failed = {**self._refused, **failed}
        yield from failures(self._at, failed)
        return parts

    def _results(self, query: str, writer: ResultFiles | SortedSpill) -> Iterator[Message]:
        """Reports of results for the driver, and of sorted runs: what is small travels in the message."""
        if isinstance(writer, SortedSpill):
            runs, packed = writer.close()
            if packed is not None or runs:
                packed = packed or PackedBatches.nothing()
                yield ResultsReport(query, self.sender, packed, runs=tuple(runs)).to_message(self._at)
            return
        few = writer.take_few(SMALL if not self.job.exchange.direct else 1 << 62)
        packed = self.job.exchange.pack(*few) if few else PackedBatches.nothing()
        yield ResultsReport(query, self.sender, packed, tuple(writer.close())).to_message(self._at)

    def _part(self, query: str, writer: PartWriter | Spill, batches: list[pa.RecordBatch]) -> str:
        """Finish the part of a sink and return its name; a sink that cannot write bit by bit gets all results now."""
        if not isinstance(writer, Spill):
            return writer.close()
        name = self.job.sinks[query].write_part(self.job.number, self._at, batches)
        writer.abort()  # it is in the sink now
        return name


def _spilled(writer: PartWriter | Spill) -> list[pa.RecordBatch]:
    """All results that were collected for a sink that cannot write bit by bit."""
    if not isinstance(writer, Spill):
        return []
    return [batch for packed in writer.close() for batch in packed.batches()]


def _owners(held: list[Parcel]) -> Ints | None:
    """The rows that the targets of parcels are for, in all of their batches together; None if there are no copies."""
    if all(one.owners is None for one in held):
        return None
    found, first = [], 0
    for one in held:
        mine = np.arange(one.batch.num_rows) if one.owners is None else one.owners
        found.append(mine + first)
        first += one.batch.num_rows
    return np.concatenate(found).astype(np.int32)


def failures(at: int, failed: Mapping[str, Exception]) -> Iterator[Message]:
    """Reports of queries that cannot be answered."""
    for query, error in failed.items():
        yield Failure.of_query(query, error).to_message(at)
