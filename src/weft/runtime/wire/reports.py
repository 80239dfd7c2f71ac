"""What the tasks of a batch report: one class for each kind, with its encoding.

Guarantees: a report is immutable, and `read_report(report.to_message())` equals it. `Report` is the union of all kinds,
so a type checker can tell whether code that handles reports handles every kind. A message of an unknown kind raises a
`ProtocolError`: driver and tasks then run different versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import pyarrow as pa

from weft import errors
from weft.errors import FunctionError, SinkError, SourceError, WeftError
from weft.kernels.expr.user_functions import CallCounts
from weft.runtime.hop.census import Census
from weft.runtime.hop.outcome import StepCount
from weft.runtime.state.partition_manifest import PartitionFile, StoreTotals
from weft.runtime.wire.collected import Collected, RunsFound
from weft.runtime.wire.encoded_report import EncodedReport, ProtocolError
from weft.runtime.wire.exchange import Packed, Sender
from weft.runtime.wire.messages import REPORT, Message
from weft.runtime.wire.values_sampled import ValuesSampled
from weft.stats.histogram import Latency
from weft.storage.cache import CacheCounts

__all__ = [
    "KINDS",
    "Answers",
    "BadRecord",
    "CacheCounted",
    "Calls",
    "Collected",
    "Dealt",
    "FailedQuery",
    "InputAdmitted",
    "KeyCensus",
    "PartRead",
    "PartitionsLeft",
    "ProtocolError",
    "QuerySetSample",
    "Report",
    "Results",
    "RunsFound",
    "Seconds",
    "StepCounts",
    "TaskError",
    "ValuesSampled",
    "read_report",
]

# Reports of read tasks


@dataclass(frozen=True, slots=True)
class PartRead(EncodedReport):
    """A part of a stream was read: good records, those set aside, the last event time of the good ones, and where."""

    kind = "read"
    stream: str
    rows: int
    malformed: int
    newest: int | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class BadRecord(EncodedReport):
    """A record that was set aside, as a line of JSON."""

    kind = "bad"
    line: bytes

    def to_message(self, at: int = 0) -> Message:
        """As a message, which is the line."""
        return Message(at, REPORT + self.kind, pa.py_buffer(self.line))

    @classmethod
    def from_message(cls, message: Message) -> BadRecord:
        """What `to_message` made."""
        return cls(message.data.to_pybytes())


@dataclass(frozen=True, slots=True)
class InputAdmitted(EncodedReport):
    """Tuples of an input were admitted: how many, how many were late or had no time, their first and last time.

    ``task`` is the number of the read task. ``behind`` the watermark are the late ones, whether dropped or joined.
    """

    kind = "input"
    alias: str
    rows: int
    late: int
    untimed: int
    oldest: int | None = None
    newest: int | None = None
    task: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Dealt(EncodedReport):
    """How many tuples a read task has dealt out to the partitions of a store (its identity)."""

    kind = "dealt"
    store: str
    task: int
    rows: int


@dataclass(frozen=True, slots=True)
class QuerySetSample(EncodedReport):
    """How many of an input's sampled tuples have each query-set, which is a hexadecimal number."""

    kind = "sample"
    alias: str
    sets: Mapping[str, int]


# Reports of hops


@dataclass(frozen=True, slots=True)
class PartitionsLeft(EncodedReport):
    """What a batch left in the partitions of a task.

    ``files`` are the places of the new manifests, by partition, of those that changed; ``stores`` is what each store
    holds in all partitions of the task.
    """

    kind = "partitions"
    files: Mapping[int, PartitionFile]
    stores: Mapping[str, StoreTotals]


@dataclass(frozen=True, slots=True)
class StepCounts(EncodedReport):
    """What the probes of a hop did in a partition."""

    kind = "steps"
    steps: tuple[StepCount, ...]


@dataclass(frozen=True, slots=True)
class KeyCensus(EncodedReport):
    """What a batch brought to the keys of a query on one key, in a partition."""

    kind = "census"
    query: str
    census: Census


@dataclass(frozen=True, slots=True)
class Calls(EncodedReport):
    """How many rows users' functions computed, how long that took, and how many rows their conditions let through."""

    kind = "calls"
    calls: CallCounts


@dataclass(frozen=True, slots=True)
class Answers(EncodedReport):
    """By query, how many results a task found, how many closed a row, the part that it wrote, and their ages."""

    kind = "answers"
    counts: Mapping[str, int]
    closed: Mapping[str, int]
    parts: Mapping[str, str]
    ages: Mapping[str, Latency] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Results(EncodedReport):
    """Results of a query on their way to the driver: few in the message, or many in ``files`` of the batch.

    If it is ordered, they are one sorted run.
    """

    kind = "result"
    query: str
    sender: Sender
    packed: Packed
    files: tuple[str, ...] = ()

    def to_message(self, at: int = 0) -> Message:
        """As a message, whose data are the batches."""
        head = json.dumps(
            {"query": self.query, "sender": self.sender, "how": self.packed.how, "files": self.files}
        )
        return Message(at, f"{REPORT}{self.kind}\t{head}", self.packed.data)

    @classmethod
    def from_message(cls, message: Message) -> Results:
        """What `to_message` made."""
        head = json.loads(message.target.partition("\t")[2])
        packed = Packed(head["how"], message.data)
        return cls(head["query"], Sender(*head["sender"]), packed, tuple(head["files"]))


@dataclass(frozen=True, slots=True)
class Seconds(EncodedReport):
    """How long a task worked on a hop; hop 0 is reading."""

    kind = "seconds"
    hop: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CacheCounted(EncodedReport):
    """What a task's process has counted of its cache since its last report: hits, misses, and bytes."""

    kind = "cache"
    counts: CacheCounts


# Reports of failures


@dataclass(frozen=True, slots=True)
class FailedQuery(EncodedReport):
    """A query that could not be answered, and why; ``function`` is what a user's function said, if one failed.

    With ``sink``, there is an answer, and its sink cannot take it now.
    """

    kind = "failed"
    query: str
    message: str
    function: str | None = None
    hint: str | None = None
    sink: bool = False

    @classmethod
    def because_of(cls, query: str, error: Exception) -> FailedQuery:
        """The report of a query that failed with an error."""
        if isinstance(error, SinkError):
            return cls(query, error.message, hint=error.hint, sink=True)
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, FunctionError):
            return cls(query, message, error.message, error.hint)
        return cls(query, message)

    @property
    def refused(self) -> SinkError | None:
        """The error of the sink, if it is the sink that failed."""
        return SinkError(self.message, hint=self.hint) if self.sink else None

    @property
    def broken(self) -> FunctionError | None:
        """The error of the user's function that failed, if one did."""
        return None if self.function is None else FunctionError(self.function, hint=self.hint)


@dataclass(frozen=True, slots=True)
class TaskError(EncodedReport):
    """An error that another attempt of the task would meet again, such as a damaged file; it ends the run."""

    kind = "error"
    type: str
    message: str
    hint: str | None = None
    stream: str | None = None

    @classmethod
    def from_error(cls, error: WeftError) -> TaskError:
        """The report of an error that a task met."""
        stream = error.stream if isinstance(error, SourceError) else None
        return cls(type(error).__name__, error.message, error.hint, stream)

    @property
    def error(self) -> WeftError:
        """The error to raise in the driver; a `SqlError`, which would need the SQL text, becomes a `WeftError`."""
        if self.stream is not None:
            return SourceError(self.message, hint=self.hint, stream=self.stream)
        return _ERRORS.get(self.type, WeftError)(self.message, hint=self.hint)


_ERRORS: dict[str, type[WeftError]] = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, WeftError) and not issubclass(found, errors.SqlError)
}

Report = (
    PartRead
    | BadRecord
    | InputAdmitted
    | Dealt
    | QuerySetSample
    | ValuesSampled
    | PartitionsLeft
    | StepCounts
    | KeyCensus
    | Calls
    | Answers
    | Results
    | RunsFound
    | Collected
    | Seconds
    | CacheCounted
    | FailedQuery
    | TaskError
)

KINDS: dict[str, type[Report]] = {kind.kind: kind for kind in get_args(Report)}


def read_report(message: Message) -> Report:
    """Decode the report in a message."""
    kind = message.target.removeprefix(REPORT).partition("\t")[0]
    if not message.is_report or kind not in KINDS:
        raise ProtocolError(
            f"{message.target!r} is no report that this version of Weft knows; it knows {', '.join(sorted(KINDS))}"
        )
    return KINDS[kind].from_message(message)
