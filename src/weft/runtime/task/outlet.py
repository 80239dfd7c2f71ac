"""What a task gives, as messages: parcels for later hops, answers, counts.

Guarantees: parcels and results leave as they are found (design, D14): parcels are packed at once, results go into the
parts that their sinks write, or into files for the driver. Every parcel says who sent it, so that those who get it can
sort by that. Results of a query that failed in the task are not among its answers, and leave no part behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from weft.errors import FunctionError
from weft.ports.sink import PartOpener, PartSink, PartWriter
from weft.runtime.hop.census import Census
from weft.runtime.hop.outcome import Outcome, Parcel
from weft.runtime.task.job import Job
from weft.runtime.task.messages import NOTE, Message, note, unpacked
from weft.runtime.task.spill import Spill

__all__ = ["Sender", "TaskOutlet", "failures"]


class Sender(NamedTuple):
    """Who sent a parcel: the hop (0: a read task), the number of its task, and of what it is made."""

    hop: int
    task: int
    alias: str = ""
    part: str = ""
    number: int = 0


@dataclass
class TaskOutlet:
    """Takes what a hop of a task gives; `messages` says it.

    As a context it sees to it that nothing is left behind if the hop fails.
    """

    job: Job
    graph: str
    sender: Sender
    _sent: list[Message] = field(default_factory=list)
    _last: tuple[pa.RecordBatch | None, str, Any] = (None, "", None)  # what goes to all is packed once
    _writers: dict[str, PartWriter | Spill] = field(default_factory=dict)  # by query

    def __enter__(self) -> TaskOutlet:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._writers):
            self._writers.pop(name).abort()

    @property
    def _at(self) -> int:
        return self.sender.task if self.sender.hop else 0

    def send(self, parcel: Parcel) -> None:
        """Pack a parcel."""
        if self._last[0] is not parcel.batch:
            self._last = (parcel.batch, *self.job.exchange.pack(parcel.batch))
        _, how, data = self._last
        origin = json.dumps(self.sender._replace(number=len(self._sent)))
        self._sent.append(Message(parcel.partition, f"{self.graph}\t{parcel.edge}\t{origin}\t{how}", data))

    def give(self, query: str, rows: pa.RecordBatch) -> None:
        """Put results down."""
        if query not in self._writers:
            self._writers[query] = self._writer(self.job.sinks.get(query))
        self._writers[query].write(rows)

    def _writer(self, sink: PartSink | None) -> PartWriter | Spill:
        if isinstance(sink, PartOpener):
            return sink.open_part(self.job.number, self._at)
        return Spill(self.job.exchange, self.job.portion_bytes)

    def messages(self, outcome: Outcome) -> Iterator[Message]:
        """Parcels for later hops, results and counts of the hop."""
        self._last = (None, "", None)
        yield from self._sent
        for query, census in outcome.census.items():
            if census != Census():
                yield note(self._at, "census", graph=self.graph, query=query, **asdict(census))
        if outcome.steps:
            steps = [asdict(count) for count in outcome.steps]
            yield note(self._at, "steps", graph=self.graph, steps=steps)
        if outcome.calls:
            yield note(self._at, "calls", graph=self.graph, calls=asdict(outcome.calls))
        yield from self._answers(outcome)

    def _answers(self, outcome: Outcome) -> Iterator[Message]:
        """Results: written here, where their sink can do that, else on their way to the driver; how many they are."""
        parts, failed = dict[str, str](), dict(outcome.failed)
        for query in list(self._writers):
            writer = self._writers.pop(query)
            if query in failed:
                writer.abort()
                continue
            try:
                if isinstance(writer, Spill) and query not in self.job.sinks:
                    yield from self._results(query, writer)
                else:
                    parts[query] = self._part(query, writer)
            except Exception as error:  # it is this query's sink, and the others go on
                writer.abort()
                failed[query] = error
        if outcome.counts or parts:
            yield note(self._at, "answers", counts=outcome.counts, parts=parts, closed=outcome.closed)
        yield from failures(self._at, failed)

    def _results(self, query: str, writer: Spill) -> Iterator[Message]:
        for number, (how, data) in enumerate(writer.close()):
            origin = json.dumps(self.sender._replace(number=number))
            yield Message(self._at, f"{NOTE}result\t{query}\t{how}\t{origin}", data)

    def _part(self, query: str, writer: PartWriter | Spill) -> str:
        """The name of what was written; a sink that cannot be given results as they are found is given all."""
        if not isinstance(writer, Spill):
            return writer.close()
        batches = [batch for how, data in writer.close() for batch in unpacked(how, data)]
        name = self.job.sinks[query].write_part(self.job.number, self._at, batches)
        writer.abort()  # it is in the sink now
        return name


def failures(at: int, failed: Mapping[str, Exception]) -> Iterator[Message]:
    """Queries that cannot be answered."""
    for query, why in failed.items():
        called = {"function": why.message, "hint": why.hint} if isinstance(why, FunctionError) else {}
        yield note(at, "failed", query=query, message=f"{type(why).__name__}: {why}", **called)
